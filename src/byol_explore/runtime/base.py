"""The interface of Anakin and Sebulba, their outputs, and the placement of arrays on devices."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from byol_explore.agent.learner import Learner
from byol_explore.agent.state import FiniteChecks, LearnerState
from byol_explore.types import AnyArray, Array, PyTree

AXIS = "devices"  # the only mesh axis: data parallelism over environments
REPLICATED = -1  # instead of the number of a sharded axis


class EpisodeStats(NamedTuple):
    """Statistics of the episode of each step; those where `ended` is true count."""

    ended: AnyArray  # [..., E]
    episode_return: AnyArray  # [..., E]
    length: AnyArray  # [..., E]
    success: AnyArray  # [..., E] 1 or 0 from the environment; UNKNOWN_SUCCESS: derive it from the return


class RolloutStats(NamedTuple):
    """Statistics of the steps of a rollout, for callbacks. Rollouts may come in any order."""

    env_ids: AnyArray  # [E] int
    task_ids: AnyArray  # [T-1, E] of the episode that each step belongs to
    episodes: EpisodeStats  # [T-1, E]
    positions: AnyArray  # [T-1, E, P] of the agent after each step; P = 0 if unknown
    intrinsic_reward: AnyArray  # [T-1, E] normalised
    stages_reached: AnyArray | None = None  # [T-1, E, J] stages of the episode so far; None without stages


class DispatchOutput(NamedTuple):
    """Results of one dispatch, on the host."""

    metrics: dict[str, np.ndarray]  # [updates, ...]
    finite: FiniteChecks  # flags [updates, quantities]
    rollouts: list[RolloutStats]
    warnings: tuple[str, ...] = ()  # about time steps of environments outside jit
    actor_counters: Mapping[str, int] = MappingProxyType({})  # faults, restarts, dropped sequences since the last one
    signal: int | None = None  # received by another process of the run, which asks all to stop


class Runtime(Protocol):
    """Acting and learning: all that differs between environments inside and outside jit.

    A checkpoint holds the state and nothing else of a runtime. Inside jit the state contains the environments, every
    random key and every counter, and `dispatch` is a function of it: a resumed run computes exactly what an
    uninterrupted run computes. Environments outside jit cannot be saved (see `SebulbaState`).
    """

    learner: Learner

    def init(self, seed: int, *, restored: bool = False) -> Any:
        """Return the state before the first step, on its devices; `learner` is one of its fields."""
        return self.shard(self.init_on_host(seed, restored=restored))

    def init_on_host(self, seed: int, *, restored: bool = False) -> Any:
        """Return the same state on one device.

        `restored` means that a checkpoint will replace its values: expensive steps such as centring may be skipped.
        """
        ...

    def state_shapes(self) -> Any:
        """Return the state as `jax.ShapeDtypeStruct`s, without computing or compiling anything."""
        return jax.eval_shape(lambda: self.init_on_host(0, restored=True))

    def shard(self, state: Any) -> Any:
        """Put a state of `init_on_host` on the devices of all processes."""
        ...

    def gather(self, state: Any) -> Any:
        """Return a state that this process can read completely, for a checkpoint."""
        return state

    def init_learner(self, seed: int, *, restored: bool = False) -> LearnerState:
        """Return the learner's part of the state; its encoders are centred on observations of random steps.

        `restored` skips the centring, as in `init_on_host`.
        """
        ...

    def dispatch(self, state: Any) -> tuple[Any, DispatchOutput]:
        """Take `steps_per_dispatch` environment steps and learn from them."""
        ...

    def close(self) -> None:
        """End threads and processes; no dispatch may follow."""


def shard_map_envs(
    function: Callable[..., Any], mesh: Mesh, inputs: tuple[Any, ...], outputs: Any
) -> Callable[..., Any]:
    """Run a function on every device with its share of the environments.

    `inputs` and `outputs` are tree prefixes of its arguments and results: each array's sharded axis, or REPLICATED.
    """
    if mesh.size == 1:
        return function
    specs = jax.tree.map(partition_spec, (inputs, outputs))
    # check_vma needs loop carries that keep their varying axes, which loops inside environments need not do.
    return jax.shard_map(function, mesh=mesh, in_specs=specs[0], out_specs=specs[1], check_vma=False)


def partition_spec(axis: int) -> PartitionSpec:
    """Shard this axis over the devices; REPLICATED shards none."""
    return PartitionSpec(*([None] * axis), AXIS) if axis >= 0 else PartitionSpec()


def put_global(tree: PyTree, sharding: NamedSharding) -> PyTree:
    """Shard host arrays that are equal in all processes over the global mesh."""
    if sharding.is_fully_addressable:
        return jax.device_put(tree, sharding)
    return jax.tree.map(lambda x: _put_local_shards(x, sharding), tree)


def _put_local_shards(x: Array, sharding: NamedSharding) -> Array:
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(_put_local_shards(jax.random.key_data(x), sharding))
    whole = np.asarray(x)
    return jax.make_array_from_callback(whole.shape, sharding, lambda part: whole[part])


def local_copy(tree: PyTree) -> PyTree:
    """Return this process's copy of replicated arrays."""
    return jax.tree.map(lambda x: x if x.is_fully_addressable else x.addressable_data(0), tree)


def drop_weak_types(x: Array) -> Array:
    """Remove JAX's weak type, which differs between initial and computed states and would cause a recompilation."""
    return x if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else jnp.asarray(x, x.dtype)


def stack_trees(trees: Sequence[PyTree]) -> PyTree:
    """Stack trees of host arrays along a new leading axis."""
    return jax.tree.map(lambda *xs: np.stack(xs), *trees)
