"""The data that flows between environment, actor and learner.

Axis letters, used in every shape comment of the package:

    T  observations in a training sequence (so T - 1 transitions)
    S  starts of a sequence, S = T - 1: one per transition
    B  sequences in a batch, one per environment
    K  open-loop horizon
    N  size of an embedding,  M  size of a belief
    D  discrete action components,  C  continuous action dimensions

Light: JAX is imported when somebody asks for it, so that processes can do without which only step environments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from jax import Array

AnyArray = Any  # a jax.Array or, of an environment outside jit, a NumPy array
PyTree = Any
Device = Any  # jax.Device, which type checkers do not know as a type
UNSAID = -1  # success of an episode that nobody has judged
Encoder = Callable[[PyTree], Any]  # a module: observations [n, ...] to embeddings [n, N]


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
    """What an environment answers, dm_env style: the reward and discount lead to `observation`."""

    observation: PyTree  # [...]
    reward: AnyArray  # [] 0 at the first observation of an episode
    discount: AnyArray  # [] 0 at termination, 1 otherwise (also at truncation)
    is_first: AnyArray  # [] first observation of an episode: resets recurrent state
    is_last: AnyArray  # [] last observation: the next action is ignored
    success: AnyArray = None  # [] of an environment that judges its episodes: 1 or 0 at the end of one

    def with_success(self) -> TimeStep:
        """With `success` in any case (int8), UNSAID where the environment has none: environments can be mixed then."""
        given, shape = self.success, self.is_last.shape
        if isinstance(given, np.ndarray) and (given.dtype, given.shape) == (np.int8, shape):
            return self
        numpy = np if isinstance(self.is_last, np.ndarray) else _jnp()
        success = UNSAID if given is None else given
        return self._replace(success=numpy.broadcast_to(numpy.asarray(success, numpy.int8), shape))


class Memory(NamedTuple):
    """What the agent carries from one observation to the next."""

    core: PyTree  # recurrent state of the policy's representation
    curious: PyTree  # recurrent state of the curiosity's own representation, () when shared
    action: Action  # the action before the coming observation
    reward: Array  # the extrinsic reward that came with it
    episode: PyTree = ()  # what the curiosity remembers of the episode under way, () of one that remembers nothing


class Sequence(NamedTuple):
    """What a curiosity reads of a batch of sequences, time-major; see `Trajectory`."""

    observation: PyTree  # [T, B, ...]
    action: Action  # [T-1, B, ...]
    is_first: AnyArray  # [T, B] also where it is filled up, so that nothing leads there
    filling: AnyArray = None  # [T, B] what fills up sequences that are shorter than others; None where none is

    @property
    def valid(self) -> Array:
        """[T-1, B]: False for the dummy transition from an episode's last observation to the next first."""
        return ~self.is_first[1:]

    @property
    def seen(self) -> Array:
        """[T, B]: observations that somebody has made."""
        return _jnp().ones(self.is_first.shape, bool) if self.filling is None else ~self.filling


class Before(NamedTuple):
    """What came right before each observation of a sequence; nothing of it counts where an episode begins."""

    action: Action  # [T, B, ...]
    reward: AnyArray  # [T, B]


class Trajectory(NamedTuple):
    """A batch of sequences, time-major. Transition t leads from observation t to observation t + 1."""

    observation: PyTree  # [T, B, ...]
    is_first: AnyArray  # [T, B]
    action: Action  # [T-1, B, ...]
    reward: AnyArray  # [T-1, B] extrinsic, as the environment gave it
    discount: AnyArray  # [T-1, B] 0 at termination, 1 otherwise; gamma is the learner's
    policy: Policy  # [T-1, B, ...] that acted: the target policy as it was then
    task: AnyArray  # [T, B] int32, of the episode that each observation belongs to
    memory: Memory  # [B, ...] before observation 0

    @property
    def sequence(self) -> Sequence:
        """What of it a curiosity reads."""
        return Sequence(self.observation, self.action, self.is_first)

    @property
    def before(self) -> Before:
        """What an agent remembered at each of its observations."""
        first, rest = Before(self.memory.action, self.memory.reward), Before(self.action, self.reward)
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
