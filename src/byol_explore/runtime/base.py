"""What the two runtimes share: their outputs, and how work is spread over devices."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from byol_explore.learner import Learner
from byol_explore.learner_state import LearnerState
from byol_explore.types import AnyArray, Array, PyTree, Trajectory

AXIS = "devices"
WHOLE = -1
SHARED_OUT: Any = Trajectory(*[1] * 7, memory=0)  # pyright: ignore[reportArgumentType]


class Episodes(NamedTuple):
    """What happened at each step; entries count where `ended` is true."""

    ended: AnyArray  # [..., E]
    episode_return: AnyArray  # [..., E]
    length: AnyArray  # [..., E]
    success: AnyArray  # [..., E] 1 or 0 as the environment says, UNSAID where the return must tell


class Steps(NamedTuple):
    """The steps of a rollout, beside what was learned from them. Rollouts may come in any order."""

    envs: np.ndarray  # [E] which environments, by their numbers
    task: np.ndarray  # [T-1, E] of the episode that each step belongs to
    episodes: Episodes  # [T-1, E]
    places: np.ndarray  # [T-1, E, P] where the steps led, P = 0 where nobody knows
    intrinsic_reward: np.ndarray  # [T-1, E] what curiosity paid for it, normalised
    reached: np.ndarray | None = None  # [T-1, E, S] stages of the episode so far; None where there are none


class DispatchOutput(NamedTuple):
    """What happened in a dispatch, on the host."""

    metrics: dict[str, np.ndarray]  # [updates, ...]
    finite: np.ndarray  # [updates, quantities]
    steps: list[Steps]  # of its rollouts
    remarks: tuple[str, ...] = ()  # about what environments outside jit answered, for somebody to hear
    counts: Mapping[str, int] = MappingProxyType({})  # of what happened to actors: faults, restarts, dropped sequences
    signal: int | None = None  # that told another process to stop, of those that learn together


class Runtime(Protocol):
    """Acting and learning: all that differs between environments inside and outside jit."""

    learner: Learner

    def init(self, seed: int, *, restored: bool = False) -> Any:
        """The state before the first step, on the devices that hold it; `learner` is one of its fields."""
        ...

    def fresh(self, seed: int, *, restored: bool = False) -> Any:
        """The same before it is shared out over devices.

        With `restored` a checkpoint is about to take its place: only its structure counts.
        """
        ...

    def place(self, state: Any) -> Any:
        """A state as `fresh` makes it, on the devices that hold it."""
        ...

    def gathered(self, state: Any) -> Any:
        """A state that this process can read all of, for a checkpoint."""
        ...

    def init_learner(self, seed: int, *, restored: bool = False) -> LearnerState:
        """The learner's part of that state, its encoders centred on observations of random steps."""
        ...

    def dispatch(self, state: Any) -> tuple[Any, DispatchOutput]:
        """`steps_per_dispatch` environment steps and the learning from them."""
        ...

    def close(self) -> None:
        """End whatever was started; nothing is dispatched afterwards."""
        ...


def spread(function: Callable[..., Any], mesh: Mesh, inputs: tuple[Any, ...], outputs: Any) -> Callable[..., Any]:
    """Run on every device by itself, with its share: a number is the axis that is shared out, WHOLE that nothing is."""
    if mesh.size == 1:
        return function
    specs = jax.tree.map(share, (inputs, outputs))
    # The engine's own control flow does not carry the types that the check of replication needs.
    return jax.shard_map(function, mesh=mesh, in_specs=specs[0], out_specs=specs[1], check_vma=False)


def share(axis: int) -> PartitionSpec:
    """An array whose axis is shared out over the devices."""
    return PartitionSpec(*([None] * axis), AXIS) if axis >= 0 else PartitionSpec()


def put(tree: PyTree, sharding: NamedSharding) -> PyTree:
    """Arrays that every process has as a whole, on the devices: each process gives its own devices their parts."""
    if sharding.is_fully_addressable:
        return jax.device_put(tree, sharding)
    return jax.tree.map(lambda x: _put_part(x, sharding), tree)


def _put_part(x: Array, sharding: NamedSharding) -> Array:
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(_put_part(jax.random.key_data(x), sharding))
    whole = np.asarray(x)
    return jax.make_array_from_callback(whole.shape, sharding, lambda part: whole[part])


def at_hand(tree: PyTree) -> PyTree:
    """What is the same on all devices, for programs of this process alone."""
    return jax.tree.map(lambda x: x if x.is_fully_addressable else x.addressable_data(0), tree)


def strongly_typed(x: Array) -> Array:
    """Without JAX's weak types, which come and go between calls and so would cause a second compilation."""
    return x if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else jnp.asarray(x, x.dtype)


def stack(trees: Sequence[PyTree]) -> PyTree:
    """Equal trees of host arrays as one, with a new leading axis."""
    return jax.tree.map(lambda *xs: np.stack(xs), *trees)
