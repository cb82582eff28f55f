"""Acting and learning inside one compiled program, for environments that run inside jit (Anakin)."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from byol_explore.agent import Situation, turn
from byol_explore.envs.base import Environment
from byol_explore.envs.drawn import make_vector
from byol_explore.envs.tasks import count_tasks
from byol_explore.learner import Learner
from byol_explore.learner_state import LearnerState, UpdateOutput
from byol_explore.networks.assembly import Actor
from byol_explore.runtime.base import (
    AXIS,
    SHARED_OUT,
    WHOLE,
    DispatchOutput,
    Episodes,
    Steps,
    put,
    share,
    spread,
    strongly_typed,
)
from byol_explore.runtime.first_look import look_inside
from byol_explore.runtime.learning import learn
from byol_explore.settings.config import Config
from byol_explore.types import AnyArray, Array, Device, Memory, PyTree, TimeStep, Trajectory


class ActorState(NamedTuple):
    """Everything on the acting side, so that a checkpoint continues in the middle of an episode."""

    envs: PyTree
    timestep: TimeStep  # [E, ...]
    memory: Memory  # [E, ...]
    episode_return: Array  # [E]
    length: Array  # [E]
    key: Array  # [1] per share


class Told(NamedTuple):
    """What is told of the steps of a rollout, beside what the learner gets."""

    episodes: Episodes  # [T-1, E]
    places: AnyArray  # [T-1, E, P] where the step led
    reached: AnyArray | None  # [T-1, E, S] stages of the episode so far; None where there are none


class Round(NamedTuple):
    """What a round of acting and learning says."""

    updates: UpdateOutput
    task: Array  # [T-1, E]
    told: Told


_ROLLED: Any = (0, SHARED_OUT, 1)  # where environments are in what a rollout returns


class AnakinState(NamedTuple):
    learner: LearnerState
    actor: ActorState


class Anakin:
    """The jit runtime: `dispatch` is the one compiled function of a run.

    Environments are spread evenly over the devices. Each device acts in its own and holds its share of every batch; how
    the learner's sums go over all of them is the compiler's business. Its state is the same on all of them.
    There are as many shares as devices, unless a run goes on with another number than it began with. Every environment
    and every batch stays what it was then: each device has several shares, or where these do not come out even,
    acting is the compiler's business too.
    """

    def __init__(
        self, config: Config, envs: list[Environment], devices: Sequence[Device] | None = None,
        shares: int | None = None,
    ) -> None:  # fmt: skip
        devices = jax.devices() if devices is None else devices
        self.config = config
        self.mesh = Mesh(np.asarray(devices), (AXIS,))
        self.shares = len(devices) if shares is None else shares
        self._kinds = envs
        self.envs = make_vector(envs, config.runtime.num_envs // self.shares, config.tasks)  # of a share
        self.learner = Learner(config, self.envs.spec, count_tasks(envs), in_turn=True)
        whole, shared = (NamedSharding(self.mesh, share(axis)) for axis in (WHOLE, 0))
        keys = whole if self.shares % len(devices) else shared
        self._placement: Any = AnakinState(whole, ActorState(*[shared] * 5, key=keys))  # pyright: ignore[reportArgumentType]
        self._rounds = jax.jit(self._act_and_learn, donate_argnums=0, out_shardings=(self._placement, whole))
        self._gather = jax.jit(lambda state: state, out_shardings=whole)

    def init(self, seed: int, *, restored: bool = False) -> AnakinState:
        """The state before the first step."""
        return self.place(self.fresh(seed, restored=restored))

    def fresh(self, seed: int, *, restored: bool = False) -> AnakinState:
        """The same on one device, with the environments of all."""
        _, env_key, actor_key = jax.random.split(jax.random.key(seed), 3)
        learner = self.init_learner(seed, restored=restored)
        shares = [self._init_actor(learner.acting, *keys) for keys in zip(
            jax.random.split(env_key, self.shares), jax.random.split(actor_key, self.shares), strict=True
        )]  # fmt: skip
        actor = jax.tree.map(lambda *xs: jnp.concatenate(xs), *shares)
        return jax.tree.map(strongly_typed, AnakinState(learner, actor))

    def place(self, state: AnakinState) -> AnakinState:
        learner, actor = self._placement
        return AnakinState(put(state.learner, learner), ActorState(*map(put, state.actor, actor)))

    def gathered(self, state: AnakinState) -> AnakinState:
        """As it is where this process has all devices, else with the environments of all on each."""
        return AnakinState(state.learner, self._gather(state.actor)) if self.mesh.is_multi_process else state

    def init_learner(self, seed: int, *, restored: bool = False) -> LearnerState:
        look = self.config.network.center and not restored
        observation = look_inside(self._kinds, seed) if look else None
        return jax.jit(self.learner.init)(jax.random.split(jax.random.key(seed), 3)[0], observation)

    def _init_actor(self, acting: Actor, env_key: Array, actor_key: Array) -> ActorState:
        states, timestep = jax.jit(self.envs.reset)(env_key)
        count = self.envs.num_envs
        return ActorState(
            envs=states,
            timestep=timestep,
            memory=acting.initial_memory(self.envs.spec, count),
            episode_return=jnp.zeros((count,)),
            length=jnp.zeros((count,), jnp.int32),
            key=actor_key[None],
        )

    def dispatch(self, state: AnakinState) -> tuple[AnakinState, DispatchOutput]:
        """One call of the compiled program."""
        state, rounds = self._rounds(state)
        (metrics, finite, rewards), task, told = jax.device_get(rounds)
        metrics, finite = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (metrics, finite))
        envs = np.arange(self.config.runtime.num_envs)
        steps = []
        for index in range(self.config.runtime.rollouts_per_dispatch):
            episodes, places, reached = jax.tree.map(lambda x, i=index: x[i], told)
            steps.append(Steps(envs, task[index], episodes, places, rewards[index], reached))
        return state, DispatchOutput(metrics, finite, steps)

    def _act_and_learn(self, state: AnakinState) -> tuple[AnakinState, Round]:
        """Several rounds of: act with the target policy for a sequence, then learn from it batch by batch."""
        roll = self._roll_shares
        if self.shares % self.mesh.size == 0:
            roll = spread(roll, self.mesh, (WHOLE, 0), _ROLLED)

        def one_round(state: AnakinState, _: None) -> tuple[AnakinState, Round]:
            actor, trajectory, told = roll(state.learner.acting, state.actor)
            learner, updates = learn(self.learner, state.learner, trajectory, self.shares)
            return AnakinState(learner, actor), Round(updates, trajectory.task[1:], told)

        rounds = self.config.runtime.rollouts_per_dispatch
        state, output = jax.lax.scan(one_round, state, length=rounds)
        return jax.tree.map(strongly_typed, state), output

    def close(self) -> None: ...

    def _roll_shares(self, actor: Actor, state: ActorState) -> tuple[ActorState, Trajectory, Told]:
        """The rollouts of shares side by side."""
        count = state.key.shape[0]
        if count == 1:
            return self.rollout(actor, state)
        apart = jax.tree.map(lambda x: x.reshape(count, x.shape[0] // count, *x.shape[1:]), state)
        rolled = jax.vmap(self.rollout, in_axes=(None, 0), out_axes=_ROLLED)(actor, apart)
        return jax.tree.map(lambda axis, part: jax.tree.map(partial(_joined, axis), part), _ROLLED, rolled)

    def rollout(self, actor: Actor, state: ActorState) -> tuple[ActorState, Trajectory, Told]:
        """T - 1 steps of all environments; the last observation is the next rollout's first."""
        start = state.memory._replace(reward=state.timestep.reward)

        def step(state: ActorState, _: None) -> tuple[ActorState, tuple[PyTree, Told]]:
            key, act_key = jax.random.split(state.key[0])
            at = Situation(state.envs, state.timestep, state.memory)
            (envs, timestep, memory), policy, action = turn(actor, self.envs, at, act_key)
            episode_return = jnp.where(timestep.is_first, 0.0, state.episode_return + timestep.reward)
            length = jnp.where(timestep.is_first, 0, state.length + 1)
            seen = state.timestep.observation, state.timestep.is_first, self.envs.task(state.envs)
            transition = (seen, action, timestep.reward, timestep.discount, policy)
            episodes = Episodes(timestep.is_last, episode_return, length, timestep.success)
            told = Told(episodes, self.envs.places(envs), self.envs.reached(envs))
            return ActorState(envs, timestep, memory, episode_return, length, key[None]), (transition, told)

        state, (transitions, told) = jax.lax.scan(step, state, length=self.config.runtime.sequence_length - 1)
        seen, action, reward, discount, policy = transitions
        observation, is_first, task = jax.tree.map(
            lambda xs, last: jnp.concatenate([xs, last[None]]),
            seen,
            (state.timestep.observation, state.timestep.is_first, self.envs.task(state.envs)),
        )
        trajectory = Trajectory(observation, is_first, action, reward, discount, policy, task, memory=start)
        return state, trajectory, told


def _joined(axis: int, x: Array) -> Array:
    """The environments of all shares on one axis, of those of each on the next."""
    return x.reshape(*x.shape[:axis], x.shape[axis] * x.shape[axis + 1], *x.shape[axis + 2 :])
