"""Complete episodes, recorded rollouts, success rules and evaluation protocols.

Success of an episode is decided by the first of these that exists: the user's threshold on the return, the flag of the
environment, the environment's threshold. Without any of them success is undefined, which differs from a rate of 0.
"""

import math
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.agent.acting import HostAgentLoop, RolloutCarry, act_and_step
from byol_explore.envs.interface import AnyEnvironment, EnvSpec, HostEnvironment, HostVectorEnv, JitEnvironment
from byol_explore.envs.vector import AutoReset
from byol_explore.errors import UserError, unknown_name
from byol_explore.networks.representation import Actor
from byol_explore.ops.arrays import where_batch
from byol_explore.types import UNKNOWN_SUCCESS, Action, AnyArray, Array, Policy, RecurrentState, TimeStep, Trajectory

MAX_HOST_ENVS = 64  # host environments at a time
MAX_FRAMES = 3000  # of a film


class Interrupted(Exception):
    """`should_stop` ended the episodes early."""


class EpisodeResults(NamedTuple):
    """Results of E episodes."""

    episode_return: AnyArray  # [E]
    length: AnyArray  # [E] steps
    success: AnyArray  # [E] 1 or 0 by the environment's flag, UNKNOWN_SUCCESS if it has none
    stages_reached: AnyArray | None = None  # [E, J] bool; None for environments without stages


def run_episodes(
    actor: Actor, env: AnyEnvironment, episodes: int, key: Array, *, task: int | None = None, greedy: bool = False,
    progress: Callable[[int], None] | None = None, should_stop: Callable[[], bool] = lambda: False,
) -> EpisodeResults:  # fmt: skip
    """Run one complete episode in each of `episodes` environments.

    One per environment, because the first episodes to end in a stream are the short ones, which would count too often.

    Args:
      actor: the policy, with one recurrent state per environment.
      env: environment inside or outside jit.
      episodes: number of episodes E.
      key: random key of levels and actions.
      task: index of the task to play in an environment with several; None plays all.
      greedy: take the most likely action instead of sampling.
      progress: called with the number of ended episodes (host environments only).
      should_stop: polled after every step (host environments only); if True, `Interrupted` is raised.
    Returns:
      Results of the E episodes.
    """
    if not isinstance(env, HostEnvironment):
        task_id = None if task is None else jnp.asarray(task, jnp.int32)
        results = _run_jit_episodes(actor, key, task_id, env=env, episodes=episodes, greedy=greedy)
        return jax.tree.map(np.asarray, results)
    parts: list[EpisodeResults] = []
    while (done := sum(len(part.length) for part in parts)) < episodes:
        key, part_key = jax.random.split(key)
        count = min(MAX_HOST_ENVS, episodes - done)

        def report(ended: int, before: int = done) -> None:
            if should_stop():
                raise Interrupted
            if progress is not None:
                progress(before + ended)

        parts.append(_run_host_episodes(actor, env, count, part_key, greedy, report))
    return jax.tree.map(lambda *fields: np.concatenate(fields), *parts)


def _run_host_episodes(
    actor: Actor, env: HostEnvironment, episodes: int, key: Array, greedy: bool, progress: Callable[[int], Any]
) -> EpisodeResults:
    seed_key, key = jax.random.split(key)
    with closing(env.make_vector_env(episodes, int(jax.random.bits(seed_key) >> 2))) as batch:
        player = HostAgentLoop(batch, env.spec, key)
        player.reset(actor)
        total, length, done = np.zeros(episodes), np.zeros(episodes, int), np.zeros(episodes, bool)
        success, reached = np.full(episodes, UNKNOWN_SUCCESS, np.int8), None
        for _ in range(env.spec.max_steps):
            player.step(actor, greedy=greedy)
            timestep, now = player.timestep, batch.stages_reached()
            total += np.where(done, 0.0, timestep.reward)
            length += ~done
            success = np.where(timestep.is_last & ~done, timestep.success, success)
            if now is not None:
                reached = now.copy() if reached is None else np.where(done[:, None], reached, now)
            done |= timestep.is_last
            progress(int(np.sum(done)))
            if np.all(done):
                break
        return EpisodeResults(total, length, success, reached)


@partial(jax.jit, static_argnames=("env", "episodes", "greedy"))
def _run_jit_episodes(
    actor: Actor, key: Array, task: Array | None, *, env: JitEnvironment, episodes: int, greedy: bool
) -> EpisodeResults:
    """Run episodes inside jit. The task is traced, so that all tasks of an environment share one program."""
    batch = AutoReset(env, episodes, task)
    reset_key, act_key = jax.random.split(key)
    states, timestep = batch.reset(jax.random.split(reset_key, episodes))
    start = RolloutCarry(states, timestep, actor.initial_state(env.spec, episodes))
    none_done = jnp.zeros((episodes,), bool)
    empty = EpisodeResults(
        jnp.zeros((episodes,)), jnp.zeros((episodes,), jnp.int32), jnp.full((episodes,), UNKNOWN_SUCCESS, jnp.int8),
        batch.stages_reached(states),
    )  # fmt: skip

    def step(carry: Any, key: Array) -> tuple[Any, None]:
        rollout, done, before = carry
        rollout, _, _ = act_and_step(actor, batch, rollout, key, greedy=greedy)
        timestep = rollout.timestep
        now = EpisodeResults(
            before.episode_return + timestep.reward,
            before.length + 1,
            jnp.where(timestep.is_last, timestep.success, before.success),
            batch.stages_reached(rollout.env_state),
        )
        return (rollout, done | timestep.is_last, where_batch(done, before, now)), None

    keys = jax.random.split(act_key, env.spec.max_steps)
    return jax.lax.scan(step, (start, none_done, empty), keys)[0][2]


class RecordedStep(NamedTuple):
    """An observation and the agent's action. All arrays have a batch axis of one, and are on the host."""

    frame: np.ndarray  # [H, W, 3] uint8
    timestep: TimeStep
    recurrent_state: RecurrentState  # before the step
    action: Action
    policy: Policy


def iterate_steps(actor: Actor, env: AnyEnvironment, key: Array, task: int | None = None) -> Generator[RecordedStep]:
    """Yield one RecordedStep per environment step with sampled actions, without end.

    Close the generator to close the environment. In an environment with several tasks, `task` is the index of the task
    to play; None plays all.
    """
    seed_key, key = jax.random.split(key)
    is_jit = not isinstance(env, HostEnvironment)
    batch = JitEnvOnHost(env, seed_key, task) if is_jit else env.make_vector_env(1, int(jax.random.bits(seed_key) >> 2))
    with closing(batch):
        player = HostAgentLoop(batch, env.spec, key)
        player.reset(actor)
        while True:
            frame, timestep = batch.render(), jax.tree.map(np.array, player.timestep)
            recurrent_state = jax.device_get(player.recurrent_state)
            policy, action = player.step(actor)
            yield RecordedStep(frame, timestep, recurrent_state, action, jax.device_get(policy))


class JitEnvOnHost(HostVectorEnv):
    """An environment inside jit behind the interface of a host vector environment with one member."""

    num_envs = 1

    def __init__(self, env: JitEnvironment, key: Array, task: int | None = None) -> None:
        self._env, self._key = env, key
        batch = AutoReset(env, 1, task)
        self._reset, self._step = jax.jit(batch.reset), jax.jit(batch.step)

    def reset(self) -> TimeStep:
        self._state, timestep = self._reset(jax.random.split(self._key, 1))
        return jax.device_get(timestep)

    def step(self, action: Action) -> TimeStep:
        self._state, timestep = self._step(self._state, action)
        return jax.device_get(timestep)

    @property
    def state(self) -> Any:
        """The environment's own state, on the host."""
        return jax.tree.map(lambda x: x[0], jax.device_get(self._state.env_state))

    def render(self) -> np.ndarray:
        return self._env.render(self.state)

    def goal_text(self) -> str:
        return self._env.goal_text(self.state)


def record_frames(
    actor: Actor, env: AnyEnvironment, key: Array, episodes: int, task: int | None = None
) -> list[np.ndarray]:  # fmt: skip
    """Return the frames [H, W, 3] uint8 of `episodes` successive episodes, at most `MAX_FRAMES`."""
    frames, ended = [], 0
    with closing(iterate_steps(actor, env, key, task)) as steps:
        for step in islice(steps, MAX_FRAMES):
            frames.append(step.frame)
            ended += bool(step.timestep.is_last[0])
            if ended == episodes:
                break
    return frames


def record_rollout(
    actor: Actor, env: AnyEnvironment, key: Array, steps: int, task: int = 0, task_in_env: int | None = None
) -> tuple[list[np.ndarray], Trajectory]:
    """Record sampled steps of one task.

    Args:
      actor: the policy.
      env: environment inside or outside jit.
      key: random key of levels and actions.
      steps: number of transitions T - 1.
      task: index of the task among the tasks of the agent.
      task_in_env: index of the task among the tasks of the environment; None plays all.
    Returns:
      T frames [H, W, 3] uint8, and the trajectory [T, 1, ...].
    """
    with closing(iterate_steps(actor, env, key, task_in_env)) as recording:
        frames, timesteps, memories, actions, policies = zip(*islice(recording, steps + 1), strict=True)
    stack = partial(jax.tree.map, lambda *leaves: np.stack(leaves))
    timestep: TimeStep = stack(*timesteps)
    trajectory = Trajectory(
        observation=timestep.observation,
        is_first=timestep.is_first,
        action=stack(*actions[:-1]),
        reward=timestep.reward[1:],
        discount=timestep.discount[1:],
        behaviour_policy=stack(*policies[:-1]),
        task_id=np.full(timestep.is_first.shape, task, np.int32),
        initial_state=memories[0],
    )
    return list(frames), trajectory


class SuccessRule(NamedTuple):
    """Condition for the success of an episode."""

    threshold: float  # the return must exceed it; infinite if unknown
    use_env_flag: bool = True  # the environment's flag, where set, takes precedence over the threshold

    def classify(self, episode_return: np.ndarray, env_flag: np.ndarray) -> np.ndarray:
        """Return successes [...] int8 (1, 0 or UNKNOWN_SUCCESS) from returns [...] and environment flags [...]."""
        by_return = np.where(math.isinf(self.threshold), UNKNOWN_SUCCESS, episode_return > self.threshold)
        has_flag = (env_flag != UNKNOWN_SUCCESS) & self.use_env_flag
        return np.where(has_flag, env_flag, by_return).astype(np.int8)


def success_rules(specs: Iterable[EnvSpec], threshold: float | None) -> list[SuccessRule]:
    """Return one rule per task. A user's `threshold` replaces flags and thresholds of all environments."""
    if threshold is not None:
        return [SuccessRule(threshold, use_env_flag=False) for _ in specs]
    return [SuccessRule(spec.success_threshold) for spec in specs]


def success_rate(successes: np.ndarray | Sequence[int]) -> float | None:
    """Return the share of successes, or None if success is unknown in all episodes.

    If it is known in some, the others count as failures: some environments report their successes only.
    """
    known = np.asarray(successes)
    return float(np.mean(known == 1)) if np.any(known != UNKNOWN_SUCCESS) else None


def evaluation_envs(envs: Sequence[AnyEnvironment], protocol: str | None = None) -> list[AnyEnvironment]:
    """Return the environments with an evaluation protocol: the named one, else that of published scores."""
    if protocol is not None:
        known = dict.fromkeys(name for env in envs for name in env.protocols)
        if not known:
            names = ", ".join(env.spec.name for env in envs)
            raise UserError(f"protocol {protocol!r}: {names} has no protocols to choose from: leave it out")
        if protocol not in known:
            raise unknown_name("protocol", protocol, list(known))
    return [env.for_evaluation(protocol if protocol in env.protocols else None) for env in envs]


def protocol_settings(envs: Iterable[AnyEnvironment]) -> dict[str, Any]:
    """Return the settings of the evaluation protocol, which all environments of a family share."""
    return {name: value for env in envs for name, value in env.protocol_settings.items()}
