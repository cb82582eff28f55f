"""Records that flow between environment, actor and learner; axis letters; a tree map without JAX.

Axis letters, used in every shape comment of the package:

    T  observations in a training sequence (so T - 1 transitions)
    S  starts of a sequence, S = T - 1: one per transition
    E  environments stepped at once, or those of a rollout
    B  sequences in a batch, one per environment
    K  open-loop horizon
    N  size of an embedding,  M  size of a belief,  H  size of a hidden layer
    D  discrete action components,  C  continuous action dimensions
    J  stages of a task,  P  coordinates of a position

In pictures [H, W, 3], H and W are height and width. `envs/hard_eight/world.py` and `evaluation/scores.py` define
letters of their own.

JAX is imported on first use: processes that only step environments run without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from jax import Array


AnyArray = Any  # a jax.Array, or a NumPy array from an environment outside jit
PyTree = Any
Device = Any  # jax.Device, unknown to type checkers
UNKNOWN_SUCCESS = -1  # the environment does not say whether the episode succeeded
Encoder = Callable[[PyTree], Any]  # a module from observations [n, ...] to embeddings [n, N]


class Action(NamedTuple):
    """An action of a hybrid space; a pure discrete or continuous space leaves the other part empty."""

    discrete: AnyArray  # [..., D] int32, one category per component
    continuous: AnyArray  # [..., C] float32, in the policy's units: [-1, 1] spans the bounds


class Policy(NamedTuple):
    """Parameters of the action distribution: independent categoricals and a diagonal Gaussian."""

    logits: tuple[Array, ...]  # D arrays [..., categories of the component]
    mean: Array  # [..., C]
    stddev: Array  # [..., C]


class TimeStep(NamedTuple):
    """A time step, dm_env style: reward and discount belong to the transition that leads to `observation`."""

    observation: PyTree  # [...]
    reward: AnyArray  # [] 0 at the first observation of an episode
    discount: AnyArray  # [] 0 at termination, 1 otherwise (also at truncation)
    is_first: AnyArray  # [] first observation of an episode: resets recurrent state
    is_last: AnyArray  # [] last observation: the next action is ignored
    success: AnyArray  # [] int8, read at an episode's end: 1, 0, or UNKNOWN_SUCCESS if the env does not say


class RecurrentState(NamedTuple):
    """The state that the agent carries from one observation to the next."""

    policy_core: PyTree  # recurrent state of the policy's representation
    curiosity_core: PyTree  # recurrent state of the method's own representation, () if shared
    prev_action: Action  # the action that leads to the next observation
    prev_reward: Array  # the extrinsic reward of that action
    episodic_memory: PyTree = ()  # of the method, () without one


class SequenceBatch(NamedTuple):
    """The part of a batch of sequences that intrinsic methods read, time-major; see `Trajectory`."""

    observation: PyTree  # [T, B, ...]
    action: Action  # [T-1, B, ...]
    is_first: AnyArray  # [T, B] True in padding too, so no transition leads into it
    padding: AnyArray = None  # [T, B] True behind the end of shorter sequences; None without padding
    raw_observation: PyTree = None  # [T, B, ...] before normalisation; None if `observation` is not normalised

    @property
    def raw(self) -> PyTree:
        """Return observations [T, B, ...] before normalisation."""
        return self.observation if self.raw_observation is None else self.raw_observation

    @property
    def valid(self) -> Array:
        """[T-1, B]: False for the dummy transition from an episode's last observation to the next first."""
        return ~self.is_first[1:]

    @property
    def observed(self) -> Array:
        """[T, B]: False for padding."""
        return _jnp().ones(self.is_first.shape, bool) if self.padding is None else ~self.padding


class PreviousStep(NamedTuple):
    """The action and reward before each observation of a sequence; ignored at the first one of an episode."""

    action: Action  # [T, B, ...]
    reward: AnyArray  # [T, B]


class Trajectory(NamedTuple):
    """A batch of sequences, time-major. Transition t leads from observation t to observation t + 1."""

    observation: PyTree  # [T, B, ...]
    is_first: AnyArray  # [T, B]
    action: Action  # [T-1, B, ...]
    reward: AnyArray  # [T-1, B] extrinsic, as the environment gave it
    discount: AnyArray  # [T-1, B] 0 at termination, 1 otherwise; gamma is the learner's
    behaviour_policy: Policy  # [T-1, B, ...] the target policy at the time of acting
    task_id: AnyArray  # [T, B] int32, of the episode of each observation
    initial_state: RecurrentState  # [B, ...] before observation 0

    @property
    def sequence(self) -> SequenceBatch:
        """Return the part that intrinsic methods read."""
        return SequenceBatch(self.observation, self.action, self.is_first)

    @property
    def previous(self) -> PreviousStep:
        """Return the previous action and reward at each observation."""
        first, rest = (
            PreviousStep(self.initial_state.prev_action, self.initial_state.prev_reward),
            PreviousStep(self.action, self.reward),
        )
        import jax

        return jax.tree.map(lambda one, others: _jnp().concatenate([one[None], others]), first, rest)

    @property
    def valid(self) -> Array:
        """[T-1, B]: False for the dummy transition."""
        return self.sequence.valid


def __getattr__(name: str) -> Any:
    if name == "Array":
        import jax

        return jax.Array
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _jnp() -> Any:
    import jax.numpy as jnp

    return jnp


def numpy_tree_map(
    function: Callable[..., Any], tree: Any, *others: Any, is_leaf: Callable[[Any], bool] = lambda _: False
) -> Any:
    """Apply a function to the arrays at each place of equal trees of mappings and tuples; without JAX."""
    if tree is None:
        return None
    if is_leaf(tree):
        return function(tree, *others)
    if isinstance(tree, Mapping):
        return {
            name: numpy_tree_map(function, part, *(other[name] for other in others), is_leaf=is_leaf)
            for name, part in tree.items()
        }
    if isinstance(tree, tuple):
        parts = [numpy_tree_map(function, *each, is_leaf=is_leaf) for each in zip(tree, *others, strict=True)]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return function(tree, *others)
