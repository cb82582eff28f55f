"""The Hard-Eight environment: observations, action repeat, time limits and stages.

`HardEight` implements the jittable environment interface on top of `levels` (what an episode starts from), `physics`
(one tick) and `raycaster` (the picture). Several tasks share one compiled program, because all levels have the same
number of slots.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.envs.families import HardEightSettings
from byol_explore.envs.hard_eight import tasks
from byol_explore.envs.hard_eight.interactions import MAX_DISTANCE, TickResult, held_mask, is_resting
from byol_explore.envs.hard_eight.levels import sample_level
from byol_explore.envs.hard_eight.physics import tick
from byol_explore.envs.hard_eight.raycaster import render
from byol_explore.envs.hard_eight.tasks import ALL, TASKS
from byol_explore.envs.hard_eight.views import first_person_camera, human_view, make_scene
from byol_explore.envs.hard_eight.world import Control, Level, World, decode_action, init_world
from byol_explore.envs.interface import EnvSpec, JitEnvironment, Keyboard
from byol_explore.errors import unknown_name
from byol_explore.types import Action, Array, TimeStep

PREFIX = "hard-eight:"
NAMES = (*TASKS, ALL)


class HardEightState(NamedTuple):
    """State of an episode."""

    level: Level
    world: World
    time: Array  # [] int32, actions taken
    stages_reached: Array  # [J] bool, reached so far in the episode


class HardEight(JitEnvironment):
    """One Hard-Eight task, or several of which each episode plays one drawn uniformly."""

    stages = tasks.STAGES

    def __init__(self, task: str | tuple[str, ...], settings: HardEightSettings | None = None) -> None:
        names = task if isinstance(task, tuple) else TASKS if task == ALL else (task,)
        for name in names:
            if name not in TASKS:
                raise unknown_name("task of hard-eight", name, list(NAMES))
        self.settings = HardEightSettings() if settings is None else settings
        self._names, self._task_ids = names, np.array([TASKS.index(name) for name in names], np.int32)
        ticks = [tasks.max_ticks(name, self.settings.action_set) for name in TASKS]
        self._limits = np.array([-(-each // self.settings.action_repeat) for each in ticks], np.int32)
        specs = tuple(self._spec(PREFIX + name, int(self._limits[TASKS.index(name)])) for name in names)
        longest = max(spec.max_steps for spec in specs)
        full_name = PREFIX + ALL if names == TASKS else ",".join(spec.name for spec in specs)
        self.spec = self._spec(full_name, longest)._replace(tasks=specs if len(specs) > 1 else ())
        self._render_views = jax.jit(human_view)

    def _spec(self, name: str, max_steps: int) -> EnvSpec:
        observation = tasks.observation_spaces(self.settings.height, self.settings.width)
        action, scores = tasks.SPECS[self.settings.action_set], tasks.SCORES.get(name.removeprefix(PREFIX))
        return EnvSpec(name, observation, action, max_steps, success_threshold=9.0, reference_scores=scores)

    def merge(self, others: Sequence["HardEight"]) -> "HardEight":
        """Return one environment with the tasks of this one and of the others."""
        return HardEight(tuple(name for env in (self, *others) for name in env._names), self.settings)

    def reset(self, key: Array) -> tuple[HardEightState, TimeStep]:
        task_key, level_key = jax.random.split(key)
        if len(self._names) == 1:
            return self._start_episode(sample_level(int(self._task_ids[0]), level_key))
        return self.reset_task(level_key, jax.random.randint(task_key, (), 0, len(self._names)))

    def reset_task(self, key: Array, task: Array) -> tuple[HardEightState, TimeStep]:
        """Start an episode of the task with index `task` among the tasks of this environment."""
        return self._start_episode(sample_level(jnp.asarray(self._task_ids)[task], key))

    def _start_episode(self, level: Level) -> tuple[HardEightState, TimeStep]:
        reached = jnp.zeros((len(self.stages),), bool)
        state = HardEightState(level, init_world(level), jnp.zeros((), jnp.int32), reached)
        return state, self._timestep(state, jnp.zeros(()), jnp.array(False))

    def task_id(self, state: HardEightState) -> Array:
        """[] int32, index of the episode's task among the tasks of this environment."""
        return jnp.argmax(jnp.asarray(self._task_ids) == state.level.task).astype(jnp.int32)

    def step(self, state: HardEightState, action: Action) -> tuple[HardEightState, TimeStep]:
        world, reached, reward, solved = self._run_ticks(state, decode_action(action, self.settings.action_set))
        state = HardEightState(state.level, world, state.time + 1, reached)
        return state, self._timestep(state, reward, solved)

    def stages_reached(self, state: HardEightState) -> Array:
        """Return [J] bool: stages that the episode has reached."""
        return state.stages_reached

    def render(self, state: HardEightState) -> np.ndarray:
        """[H, W, 3] uint8: first person, over the shoulder and top-down, side by side."""
        return np.asarray(self._render_views(state.level, state.world))

    @property
    def keys(self) -> Keyboard:
        """Key bindings for human play."""
        return tasks.keyboard_for(self.settings.action_set, self.settings.action_repeat)

    def goal_text(self, state: HardEightState) -> str:
        """Return the instruction of the episode's task, which the agent observes as tokens."""
        return tasks.TASK_TABLE[TASKS[int(state.level.task)]].instruction

    def _run_ticks(self, state: HardEightState, control: Control) -> tuple[World, Array, Array, Array]:
        """Run the ticks of one action. Ticks after the large apple give no reward.

        Returns:
          The world, the reached stages [J], the reward [] and whether the large apple was eaten [].
        """

        def run_tick(progress: tuple[World, Array, Array, Array], _: None) -> tuple[Any, None]:
            world, reached, reward, solved = progress
            world, result = tick(state.level, world, control)
            reached |= detect_stages(state.level, world, result)
            return (world, reached, reward + jnp.where(solved, 0.0, result.reward), solved | result.solved), None

        start = (state.world, state.stages_reached, jnp.zeros(()), jnp.array(False))
        return jax.lax.scan(run_tick, start, length=self.settings.action_repeat)[0]

    def _timestep(self, state: HardEightState, reward: Array, solved: Array) -> TimeStep:
        is_last = solved | (state.time >= jnp.asarray(self._limits)[state.level.task])
        return TimeStep(
            observation=self._observe(state),
            reward=reward,
            discount=1.0 - solved.astype(jnp.float32),
            is_first=state.time == 0,
            is_last=is_last,
            success=solved.astype(jnp.int8),
        )

    def _observe(self, state: HardEightState) -> dict[str, Array]:
        level, world = state.level, state.world
        eyes = first_person_camera(world.agent)
        return {
            "rgb": render(make_scene(level, world), eyes, self.settings.height, self.settings.width),
            "hand_force": world.hand.strain[None],
            "hand_is_holding": (world.hand.held >= 0).astype(jnp.float32)[None],
            "hand_distance": world.hand.distance[None] / MAX_DISTANCE,
            "instruction": jnp.asarray(tasks.instructions())[level.task],
        }


def detect_stages(level: Level, world: World, result: TickResult) -> Array:
    """Return [J] bool: stages with a condition that holds after this tick, in the order of `tasks.STAGES`."""
    initial_height = level.initial_bodies.centre[2]  # [M]
    offset = world.bodies.centre - level.initial_bodies.centre  # [3, M]
    exists = world.bodies.half[2] > 0.0  # [M]
    moved = exists & (jnp.maximum(jnp.abs(offset[0]), jnp.abs(offset[1])) > tasks.MOVED)
    higher = exists & (offset[2] > tasks.LIFTED)
    # The upper bound excludes a body that lies on the agent's head.
    stacked = is_resting(world) & higher & (offset[2] < tasks.HIGHEST_PILE)
    # A body below the floor has fallen into a gap; it was not knocked down from its plinth.
    knocked = exists & (initial_height > tasks.PLINTH) & (offset[2] < -tasks.KNOCKED) & (world.bodies.centre[2] > 0.0)
    is_door = jnp.any(level.doors.needs, axis=0)  # [D] False for empty slots
    small_eaten = world.apple_eaten & (level.apples.reward > 0.0) & (level.apples.reward < 10.0)  # [A]
    return jnp.stack([
        jnp.any(moved),
        jnp.any(higher & held_mask(world.hand)),
        jnp.any(stacked),
        world.agent.centre[2] > level.spawn[2] + tasks.CLIMBED,
        jnp.any(knocked),
        jnp.any(result.sensors_touched),
        jnp.any(world.door_open & is_door),
        jnp.all(world.door_open | ~is_door) & jnp.any(is_door),
        jnp.any(small_eaten),
        result.solved,
    ])  # fmt: skip
