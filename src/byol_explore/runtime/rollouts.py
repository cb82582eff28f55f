"""Rollouts of environments outside jit: the record, its assembly from single steps, and the actor of one process."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from byol_explore.agent.acting import HostAgentLoop
from byol_explore.agent.learner import map_env_axis
from byol_explore.envs.host_vector import make_host_vector_env
from byol_explore.envs.interface import EnvSpec, HostEnvironment
from byol_explore.networks.representation import Actor
from byol_explore.runtime.base import EpisodeStats, stack_trees
from byol_explore.runtime.cluster.env_stepper import OBSERVATION, first_frame_dtype, make_frame
from byol_explore.types import Action, Array, Policy, PyTree, RecurrentState, Trajectory


class Rollout(NamedTuple):
    """T - 1 steps of the environments of an actor, in NumPy arrays of its own."""

    env_ids: np.ndarray  # [E] numbers of the environments
    trajectory: Trajectory  # [T, E, ...]
    episodes: EpisodeStats  # [T-1, E]
    positions: np.ndarray  # [T-1, E, P]
    params_step: float  # learner step at which the acting parameters were fetched; a mean over processes
    env_seconds: float  # spent on stepping environments
    act_seconds: float  # spent on choosing actions
    warnings: tuple[str, ...] = ()  # about time steps of environments
    stages_reached: np.ndarray | None = None  # [T-1, E, J] stages of the episode so far; None without stages
    env_restarts: int = 0  # environments that were restarted after a fault


def merge_rollouts(parts: Sequence[Rollout]) -> Rollout:
    """Join rollouts of different environments. The result copies all arrays, and is as old as its oldest part."""

    # The parts may lie in memory that Ray shares between processes.
    def concatenate(axis: int, *arrays: np.ndarray) -> np.ndarray:
        return np.concatenate(arrays, axis)

    trajectory = map_env_axis(concatenate, *[part.trajectory for part in parts])
    episodes, positions, stages = jax.tree.map(
        partial(concatenate, 1), *[(part.episodes, part.positions, part.stages_reached) for part in parts]
    )
    return Rollout(
        env_ids=np.concatenate([part.env_ids for part in parts]),
        trajectory=trajectory,
        episodes=episodes,
        positions=positions,
        params_step=min(part.params_step for part in parts),
        env_seconds=sum(part.env_seconds for part in parts),
        act_seconds=sum(part.act_seconds for part in parts),
        warnings=tuple(dict.fromkeys(warning for part in parts for warning in part.warnings)),
        stages_reached=stages,
        env_restarts=sum(part.env_restarts for part in parts),
    )


class ActionBatch(NamedTuple):
    """Actions for several actors, one after the other."""

    action: Action  # [n, ...]
    policy: Policy  # [n, ...]
    recurrent_state: RecurrentState | None  # [n, ...] before the observation; None if no actor begins a sequence


class RolloutBuilder:
    """Assemble the rollouts of one actor from single steps.

    Every frame is added once, also the one that ends a rollout and begins the next. Frames are written into one block
    per array, and the blocks become the arrays of the rollout.

    Args:
      env_ids: [E] numbers of the environments.
      length: T, observations per rollout.
      dtype: structured dtype of a frame (`env_stepper.make_frame`).
    """

    def __init__(self, env_ids: np.ndarray, length: int, dtype: np.dtype) -> None:
        self._env_ids, self._length, self._dtype = env_ids, length, dtype
        count = len(env_ids)
        self._return, self._steps = np.zeros(count, np.float32), np.zeros(count, np.int32)  # of the running episodes
        self._blocks = self._new_blocks()
        self._count = 0  # frames in the blocks
        self._episodes: list[EpisodeStats] = []
        self._actions: list[tuple[ActionBatch, slice]] = []
        self._start: RecurrentState | None = None
        self._params_step, self._act_seconds = 0, 0.0

    @property
    def needs_initial_state(self) -> bool:
        """True if a rollout begins with the last frame: its actions must come with the recurrent state before it."""
        return not self._actions

    @property
    def frame(self) -> dict[str, np.ndarray]:
        """The last frame."""
        return {name: block[self._count - 1] for name, block in self._blocks.items()}

    def add_frame(self, frame: dict[str, np.ndarray]) -> Rollout | None:
        """Add the arrays of a step. Returns the rollout if this was its last observation."""
        self._write(frame)
        if self._count > 1:
            self._episodes.append(self._update_episodes(frame))
        if self._count < self._length:
            return None
        rollout = self._build()
        self._blocks, self._count, self._episodes, self._actions = self._new_blocks(), 0, [], []
        self._act_seconds = 0.0
        self._write(frame)
        return rollout

    def add_actions(self, batch: ActionBatch, part: slice, params_step: int, seconds: float) -> None:
        """Add this actor's actions for the last frame.

        Args:
          batch: actions of several actors.
          part: those of this actor.
          params_step: learner step of the acting parameters; that of a rollout's first actions is kept.
          seconds: spent on choosing them.
        """
        if self.needs_initial_state:
            assert batch.recurrent_state is not None
            recurrent_state: RecurrentState = jax.tree.map(lambda x: x[part], batch.recurrent_state)
            self._start, self._params_step = (
                recurrent_state._replace(prev_reward=self.frame["reward"].copy()),
                params_step,
            )
        self._actions.append((batch, part))
        self._act_seconds += seconds

    def _new_blocks(self) -> dict[str, np.ndarray]:
        fields = {name: self._dtype[name] for name in self._dtype.names or ()}
        return {name: np.empty((self._length, *field.shape), field.base) for name, field in fields.items()}

    def _write(self, frame: dict[str, np.ndarray]) -> None:
        for name, block in self._blocks.items():
            block[self._count] = frame[name]
        self._count += 1

    def _update_episodes(self, frame: dict[str, np.ndarray]) -> EpisodeStats:
        is_first = frame["is_first"]
        self._return = np.where(is_first, 0.0, self._return + frame["reward"]).astype(np.float32)
        self._steps = np.where(is_first, 0, self._steps + 1)
        return EpisodeStats(frame["is_last"].copy(), self._return, self._steps, frame["success"].copy())

    def _build(self) -> Rollout:
        arrays = self._blocks  # [T, E, ...]
        action, policy = self._stack_actions()
        assert self._start is not None
        trajectory = Trajectory(
            unflatten_observation(arrays), action=action, behaviour_policy=policy, initial_state=self._start,
            is_first=arrays["is_first"], task_id=arrays["task_id"],
            reward=arrays["reward"][1:], discount=arrays["discount"][1:],
        )  # fmt: skip
        return Rollout(
            self._env_ids, trajectory, stack_trees(self._episodes), arrays["positions"][1:], self._params_step,
            float(np.sum(arrays["env_seconds"][1:])), self._act_seconds,
            stages_reached=arrays["stages_reached"][1:] if "stages_reached" in arrays else None,
        )  # fmt: skip

    def _stack_actions(self) -> tuple[Action, Policy]:
        """Stack this actor's parts of all batches. Returns actions and policies [T-1, E, ...]."""
        # One transfer for all steps: the policies of a local actor are still on its device.
        batches = jax.device_get([(batch.action, batch.policy) for batch, _ in self._actions])
        parts = [part for _, part in self._actions]
        return jax.tree.map(lambda *xs: np.stack([x[part] for x, part in zip(xs, parts, strict=True)]), *batches)


def unflatten_observation(arrays: dict[str, np.ndarray]) -> PyTree:
    """Take the observation from the arrays of a frame: an array, or a dict of arrays."""
    if OBSERVATION in arrays:
        return arrays[OBSERVATION]
    return {name.removeprefix(OBSERVATION): array for name, array in arrays.items() if name.startswith(OBSERVATION)}


class HostActor:
    """Own environments outside jit and the agent's recurrent states, and act in rollouts of T - 1 steps.

    Args:
      envs: environments of the tasks.
      num_envs: E, environments to step.
      length: T, observations per rollout.
      key: random key of the actions.
      seed: seed of the environments.
      first: number of the first environment.
      tasks: `task_sampling` of the configuration.
    """

    def __init__(
        self, envs: Sequence[HostEnvironment], num_envs: int, length: int, key: Array, seed: int, *, first: int = 0,
        tasks: str = "fixed",
    ) -> None:  # fmt: skip
        self.spec: EnvSpec = envs[0].spec
        self.num_envs, self.length = num_envs, length
        self._env_ids = np.arange(first, first + num_envs)
        self._batch = make_host_vector_env(envs, num_envs, seed, tasks)
        self._loop = HostAgentLoop(self._batch, self.spec, key)
        self._builder: RolloutBuilder | None = None  # None before the first rollout

    def rollout(self, actor: Actor, params_step: int = 0) -> Rollout:
        """Act until the next rollout is complete; its last observation is the first of the one after it."""
        loop, builder = self._loop, self._builder
        if builder is None:
            loop.reset(actor)
            frame = make_frame(self._batch, loop.timestep, 0.0)
            builder = RolloutBuilder(self._env_ids, self.length, first_frame_dtype(frame, self.spec.observation))
            builder.add_frame(frame)
            self._builder = builder
        while True:
            recurrent_state = jax.device_get(loop.recurrent_state) if builder.needs_initial_state else None
            policy, action = loop.step(actor)
            builder.add_actions(
                ActionBatch(action, policy, recurrent_state), slice(None), params_step, loop.act_seconds
            )
            rollout = builder.add_frame(make_frame(self._batch, loop.timestep, loop.env_seconds))
            if rollout is not None:
                return rollout

    def close(self) -> None:
        self._batch.close()
