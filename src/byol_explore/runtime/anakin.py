"""Acting and learning inside one compiled program, for environments that run inside jit (Anakin).

One dispatch is a `lax.scan` over rounds. A round acts with the target policy for T - 1 steps (`Anakin.rollout`) and
then performs all updates of the learner. Environments are sharded over the devices: acting is a `shard_map` without
communication, the learner's state is replicated, and the compiler inserts the sums over devices.

Random keys. Every environment has its own key, made from the run's seed and carried in `ActorState.key`. A step splits
it once, for the action and for the next step. Resets and the choice of tasks use a second key per environment, which
`envs/vector.py` carries. So an environment's episodes depend neither on the number of devices nor on the device it is
on. V-MPO's minibatches depend on environment numbers alone (`Learner.split_rows`), PPO's also on the seed and the
learner step.

All keys, environment states and recurrent states are part of `AnakinState`, which checkpoints hold. Hence a resumed run
equals an uninterrupted one bit for bit; on another number of devices only the order of floating-point sums differs.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from byol_explore.agent.acting import RolloutCarry, act_and_step, split_key
from byol_explore.agent.learner import TRAJECTORY_ENV_AXES, Learner
from byol_explore.agent.state import FiniteChecks, LearnerState
from byol_explore.config.config import Config
from byol_explore.config.presets import validate_config
from byol_explore.envs.interface import JitEnvironment, count_tasks
from byol_explore.envs.registry import make_envs
from byol_explore.envs.vector import VectorEnv, make_vector_env
from byol_explore.errors import UserError
from byol_explore.networks.centering import random_observations_jit, warmup_observations_jit
from byol_explore.networks.representation import Actor
from byol_explore.ops.arrays import masked_mean
from byol_explore.runtime.base import (
    AXIS,
    REPLICATED,
    DispatchOutput,
    EpisodeStats,
    RolloutStats,
    Runtime,
    drop_weak_types,
    partition_spec,
    put_global,
    shard_map_envs,
)
from byol_explore.types import AnyArray, Array, Device, PyTree, RecurrentState, TimeStep, Trajectory


class ActorState(NamedTuple):
    """State of the acting side; complete, so that a checkpoint continues in the middle of an episode."""

    envs: PyTree  # [E, ...]
    timestep: TimeStep  # [E, ...]
    recurrent_state: RecurrentState  # [E, ...]
    episode_return: Array  # [E]
    length: Array  # [E]
    key: Array  # [E] for future actions


class StepInfo(NamedTuple):
    """Statistics of the steps of a rollout; becomes a `RolloutStats` with the rewards of the learner."""

    episodes: EpisodeStats  # [T-1, E]
    positions: AnyArray  # [T-1, E, P] of the agent after the step
    stages_reached: AnyArray | None  # [T-1, E, J] stages of the episode so far; None without stages


class RoundOutput(NamedTuple):
    """Results of one round of acting and learning."""

    metrics: dict[str, Array]  # [updates, ...]
    finite: FiniteChecks  # flags [updates, quantities]
    stats: RolloutStats


class AnakinState(NamedTuple):
    """Complete state of a run inside jit."""

    learner: LearnerState  # replicated
    actor: ActorState  # sharded over environments


class Anakin(Runtime):
    """Runtime of environments inside jit: `dispatch` is the one compiled function of a run."""

    def __init__(self, config: Config, envs: list[JitEnvironment], devices: Sequence[Device] | None = None) -> None:
        self.config, self._env_list = config, envs
        self.mesh = Mesh(np.asarray(jax.devices() if devices is None else devices), (AXIS,))
        self.envs = self._make_envs(config.runtime.num_envs // self.mesh.size)  # the share of one device
        self.learner = Learner(config, self.envs.spec, count_tasks(envs), synchronous=True)
        replicated, sharded = (NamedSharding(self.mesh, partition_spec(axis)) for axis in (REPLICATED, 0))
        self._sharding: Any = AnakinState(replicated, sharded)  # pyright: ignore[reportArgumentType]
        self._init = jax.jit(lambda seed, observation: self.init_state(jax.random.key(seed), observation))
        self._jitted = jax.jit(self._act_and_learn, donate_argnums=0, out_shardings=(self._sharding, replicated))
        self._compiled: Future[Callable[[AnakinState], tuple[AnakinState, RoundOutput]]] | None = None
        self._gather = jax.jit(lambda state: state, out_shardings=replicated)

    def _make_envs(self, count: int) -> VectorEnv:
        return make_vector_env(self._env_list, count, self.config.task_sampling)

    def init_on_host(self, seed: int, *, restored: bool = False) -> AnakinState:
        # Shapes are known without computing anything: the main program compiles while the state is initialised.
        observation = jax.eval_shape(partial(self._warmup_observations, seed, restored=restored))
        self._compile_ahead(jax.eval_shape(self._init, seed, observation))
        return self._init(seed, self._warmup_observations(seed, restored=restored))

    def state_shapes(self) -> AnakinState:
        return jax.eval_shape(self._init, 0, None)

    def _warmup_observations(self, seed: int, *, restored: bool) -> PyTree:
        """Return observations [n, ...] to centre encoders on; None if a checkpoint will replace them."""
        warm_up = self.config.network.center_encoders and not restored
        return warmup_observations_jit(self._env_list, seed) if warm_up else None

    def init_state(self, key: Array, observation: PyTree) -> AnakinState:
        """Return the state before the first step, with encoders centred on observations [n, ...] if there are any."""
        learner_key, env_key, actor_key = jax.random.split(key, 3)
        learner = self.learner.init(learner_key, observation)
        state = AnakinState(learner, self.init_actor(learner.target_actor, env_key, actor_key))
        return jax.tree.map(drop_weak_types, state)

    def _compile_ahead(self, state: AnakinState) -> None:
        """Compile `dispatch` once, in a thread, for a state of these shapes."""
        if self._compiled is not None:
            return
        learner, actor = (
            jax.tree.map(lambda x, s=sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), part)
            for part, sharding in zip(state, self._sharding, strict=True)
        )
        lowered = self._jitted.lower(AnakinState(learner, actor))
        # Compiling releases the interpreter's lock. Python waits for the thread at exit.
        thread = ThreadPoolExecutor(1)
        self._compiled = thread.submit(lowered.compile)
        thread.shutdown(wait=False)

    def shard(self, state: AnakinState) -> AnakinState:
        learner, actor = self._sharding
        return AnakinState(put_global(state.learner, learner), put_global(state.actor, actor))

    def gather(self, state: AnakinState) -> AnakinState:
        """Replicate the acting side if this process does not have all devices."""
        return AnakinState(state.learner, self._gather(state.actor)) if self.mesh.is_multi_process else state

    def init_learner(self, seed: int, *, restored: bool = False) -> LearnerState:
        return self._init(seed, self._warmup_observations(seed, restored=restored)).learner

    def init_actor(self, actor: Actor, env_key: Array, actor_key: Array) -> ActorState:
        """Reset all environments, on one device.

        Args:
          actor: parameters that define the recurrent state.
          env_key: random key of resets and tasks.
          actor_key: random key of actions; each environment gets a key of its own.
        """
        count = self.config.runtime.num_envs
        states, timestep = self._make_envs(count).reset(env_key)
        return ActorState(
            envs=states,
            timestep=timestep,
            recurrent_state=actor.initial_state(self.envs.spec, count),
            episode_return=jnp.zeros((count,)),
            length=jnp.zeros((count,), jnp.int32),
            key=jax.random.split(actor_key, count),
        )

    def dispatch(self, state: AnakinState) -> tuple[AnakinState, DispatchOutput]:
        """Call the compiled program once."""
        program = self._jitted if self._compiled is None else self._compiled.result()
        state, rounds = program(state)
        metrics, finite, stats = jax.device_get(rounds)
        metrics, finite = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (metrics, finite))
        rollouts = [jax.tree.map(lambda x, i=index: x[i], stats) for index in range(len(stats.env_ids))]
        return state, DispatchOutput(metrics, finite, rollouts)

    def _act_and_learn(self, state: AnakinState) -> tuple[AnakinState, RoundOutput]:
        """Scan over rounds. Returns the state, and outputs with a leading axis of rounds."""
        rounds = self.config.runtime.rounds_per_dispatch
        state, output = jax.lax.scan(lambda state, _: self.act_and_learn_once(state), state, length=rounds)
        return jax.tree.map(drop_weak_types, state), output

    def act_and_learn_once(self, state: AnakinState) -> tuple[AnakinState, RoundOutput]:
        """Perform one round: a rollout, and all updates of the learner."""
        # Acting needs no communication between devices, and `shard_map` guarantees that there is none. Learning is one
        # program over all devices: means, PopArt and V-MPO's top half are over the whole batch.
        act = shard_map_envs(self.rollout, self.mesh, (REPLICATED, 0), (0, TRAJECTORY_ENV_AXES, 1))
        actor, trajectory, info = act(state.learner.target_actor, state.actor)
        learner, (metrics, finite, reward) = self.learner.learn_rollout(state.learner, trajectory)
        stats = RolloutStats(
            np.arange(self.config.runtime.num_envs), trajectory.task_id[1:], info.episodes, info.positions, reward,
            info.stages_reached,
        )  # fmt: skip
        return AnakinState(learner, actor), RoundOutput(metrics, finite, stats)

    def rollout(self, actor: Actor, state: ActorState) -> tuple[ActorState, Trajectory, StepInfo]:
        """Take T - 1 steps in a device's share of the environments.

        Args:
          actor: parameters of the acting policy.
          state: [E, ...] before the first step.
        Returns:
          The state after the last step, the trajectory [T, E], and statistics [T-1, E]. The last observation of the
          trajectory is the first of the next one, in which the action for it is chosen.
        """
        initial_state = state.recurrent_state._replace(prev_reward=state.timestep.reward)

        def observe(state: ActorState) -> tuple[PyTree, Array, Array]:
            return state.timestep.observation, state.timestep.is_first, self.envs.task_id(state.envs)

        def step(state: ActorState, _: None) -> tuple[ActorState, tuple[PyTree, StepInfo]]:
            key, act_key = split_key(state.key)
            carry = RolloutCarry(state.envs, state.timestep, state.recurrent_state)
            (env_state, timestep, recurrent_state), policy, action = act_and_step(actor, self.envs, carry, act_key)
            episode_return = jnp.where(timestep.is_first, 0.0, state.episode_return + timestep.reward)
            length = jnp.where(timestep.is_first, 0, state.length + 1)
            transition = (observe(state), action, timestep.reward, timestep.discount, policy)
            episodes = EpisodeStats(timestep.is_last, episode_return, length, timestep.success)
            info = StepInfo(episodes, self.envs.positions(env_state), self.envs.stages_reached(env_state))
            return ActorState(env_state, timestep, recurrent_state, episode_return, length, key), (transition, info)

        state, (transitions, info) = jax.lax.scan(step, state, length=self.config.runtime.sequence_length - 1)
        observed, action, reward, discount, policy = transitions
        observation, is_first, task = jax.tree.map(
            lambda xs, last: jnp.concatenate([xs, last[None]]), observed, observe(state)
        )
        trajectory = Trajectory(observation, is_first, action, reward, discount, policy, task, initial_state)
        return state, trajectory, info


def make_train(
    config: Config,
) -> tuple[Callable[[Array], AnakinState], Callable[[AnakinState], tuple[AnakinState, dict[str, Array]]]]:
    """Return a whole training run as two pure functions, for programs of your own.

    `init(key)` returns the state of a run, and `update(state)` the state after one round of acting and learning, with
    metrics by name: means over the learner steps of the round, and the number (`episodes`) and mean `episode_return` of
    the episodes that ended in it. Both can be jitted, scanned and mapped over keys, so one program trains many seeds.
    Hyperparameters that may differ between them are arrays of the state, in `state.learner.hyperparams`.

    >>> import jax, byol_explore
    >>> runtime = {"num_envs": 4, "batch_size": 4, "sequence_length": 9}
    >>> config = byol_explore.make_config("grid", env="rooms-2", runtime=runtime)
    >>> init, update = byol_explore.make_train(config)
    >>> state = jax.eval_shape(jax.vmap(init), jax.random.split(jax.random.key(0), 3))  # shapes of three runs
    >>> state.learner.step.shape
    (3,)

    Args:
      config: settings of a run with environments inside jit. `seed`, `steps`, `log` and the settings of devices are not
        used.
    """
    config = validate_config(config)
    envs = make_envs(config.env_ids, config.env_settings)
    if not all(isinstance(env, JitEnvironment) for env in envs):
        raise UserError(f"env is {config.env!r}, which is outside jit: make_train takes environments inside jit")
    anakin = Anakin(config, envs, jax.devices()[:1])  # pyright: ignore[reportArgumentType]

    def init(key: Array) -> AnakinState:
        warmup_key, state_key = jax.random.split(key)
        centers = config.network.center_encoders
        return anakin.init_state(state_key, random_observations_jit(tuple(envs), warmup_key) if centers else None)

    def update(state: AnakinState) -> tuple[AnakinState, dict[str, Array]]:
        state, output = anakin.act_and_learn_once(state)
        episodes = output.stats.episodes
        over = jnp.asarray(episodes.ended)
        means = jax.tree.map(lambda x: jnp.mean(x, axis=0), output.metrics)
        ends = {
            "episodes": jnp.sum(over),
            "episode_return": masked_mean(episodes.episode_return, over),
        }
        return jax.tree.map(drop_weak_types, state), {**means, **ends}

    return init, update
