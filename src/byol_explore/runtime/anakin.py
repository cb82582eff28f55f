"""Acting and learning inside one compiled program, for environments that run inside jit (Anakin)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from byol_explore.agent import act
from byol_explore.config import Config
from byol_explore.envs.base import VectorEnv
from byol_explore.learner import Learner, LearnerState
from byol_explore.networks.assembly import Actor
from byol_explore.types import Array, Memory, PyTree, TimeStep, Trajectory


class Episodes(NamedTuple):
    """What happened at each step; entries count where `ended` is true."""

    ended: Array  # [..., E]
    episode_return: Array  # [..., E]
    length: Array  # [..., E]


class ActorState(NamedTuple):
    """Everything on the acting side, so that a checkpoint continues in the middle of an episode."""

    envs: PyTree
    timestep: TimeStep  # [E, ...]
    memory: Memory  # [E, ...]
    episode_return: Array  # [E]
    length: Array  # [E]
    key: Array


class RunState(NamedTuple):
    learner: LearnerState
    actor: ActorState


class DispatchOutput(NamedTuple):
    metrics: dict[str, Array]  # [updates, ...]
    finite: Array  # [updates, quantities]
    episodes: Episodes  # [rollouts, T-1, E]


class Anakin:
    """The jit runtime: `dispatch` is the one compiled function of a run."""

    def __init__(self, config: Config, envs: VectorEnv, learner: Learner) -> None:
        self.config, self.envs, self.learner = config, envs, learner
        self.dispatch = jax.jit(self._dispatch, donate_argnums=0)

    def init(self, seed: int) -> RunState:
        learner_key, env_key, actor_key = jax.random.split(jax.random.key(seed), 3)
        learner = self.learner.init(learner_key)
        states, timestep = self.envs.reset(env_key)
        count = self.envs.num_envs
        actor = ActorState(
            envs=states,
            timestep=timestep,
            memory=learner.acting.initial_memory(self.envs.spec, count),
            episode_return=jnp.zeros((count,)),
            length=jnp.zeros((count,), jnp.int32),
            key=actor_key,
        )
        return jax.tree.map(_strongly_typed, RunState(learner, actor))

    def _dispatch(self, state: RunState) -> tuple[RunState, DispatchOutput]:
        """Several rounds of: act with the target policy for a sequence, then learn from it batch by batch."""

        def one_round(state: RunState, _: None) -> tuple[RunState, DispatchOutput]:
            actor, trajectory, episodes = self.rollout(state.learner.acting, state.actor)

            def update(learner: LearnerState, batch: Trajectory) -> tuple[LearnerState, tuple[dict[str, Array], Array]]:
                learner, metrics, finite = self.learner.update(learner, batch)
                return learner, (metrics, finite)

            learner, (metrics, finite) = jax.lax.scan(update, state.learner, self.batches(trajectory))
            return RunState(learner, actor), DispatchOutput(metrics, finite, episodes)

        rounds = self.config.runtime.rollouts_per_dispatch
        state, output = jax.lax.scan(one_round, state, length=rounds)
        metrics, finite = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (output.metrics, output.finite))
        return state, DispatchOutput(metrics, finite, output.episodes)

    def rollout(self, actor: Actor, state: ActorState) -> tuple[ActorState, Trajectory, Episodes]:
        """T - 1 steps of all environments; the last observation is the next rollout's first."""
        start = state.memory._replace(reward=state.timestep.reward)

        def step(state: ActorState, _: None) -> tuple[ActorState, tuple[PyTree, Episodes]]:
            key, act_key = jax.random.split(state.key)
            memory, policy, action = act(actor, state.memory, state.timestep, act_key)
            envs, timestep = self.envs.step(state.envs, action)
            episode_return = jnp.where(timestep.is_first, 0.0, state.episode_return + timestep.reward)
            length = jnp.where(timestep.is_first, 0, state.length + 1)
            transition = (state.timestep.observation, state.timestep.is_first, action, timestep.reward,
                          timestep.discount, policy)  # fmt: skip
            episodes = Episodes(timestep.is_last, episode_return, length)
            return ActorState(envs, timestep, memory, episode_return, length, key), (transition, episodes)

        state, (transitions, episodes) = jax.lax.scan(step, state, length=self.config.runtime.sequence_length - 1)
        observation, is_first, action, reward, discount, policy = transitions
        observation, is_first = jax.tree.map(
            lambda xs, last: jnp.concatenate([xs, last[None]]),
            (observation, is_first),
            (state.timestep.observation, state.timestep.is_first),
        )
        trajectory = Trajectory(
            observation, is_first, action, reward, discount, policy, task=self.envs.task, memory=start
        )
        return state, trajectory, episodes

    def batches(self, trajectory: Trajectory) -> Trajectory:
        """Split over environments into consecutive learner batches: a new leading axis to scan over."""
        size = self.config.runtime.batch_size
        count = self.envs.num_envs // size

        def time_major(x: Array) -> Array:
            return jnp.moveaxis(x.reshape(x.shape[0], count, size, *x.shape[2:]), 1, 0)

        def batch_major(x: Array) -> Array:
            return x.reshape(count, size, *x.shape[1:])

        timed = trajectory._replace(task=None, memory=None)
        rest = jax.tree.map(batch_major, (trajectory.task, trajectory.memory))
        return jax.tree.map(time_major, timed)._replace(task=rest[0], memory=rest[1])


def _strongly_typed(x: Array) -> Array:
    """Without JAX's weak types, which a first update would remove and so cause a second compilation."""
    return x if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else jnp.asarray(x, x.dtype)
