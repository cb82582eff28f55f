"""Hard-Eight as an environment: observations, actions, the course of an episode."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.envs.base import EnvSpec
from byol_explore.envs.keys import Keys
from byol_explore.envs.worlds.hard_eight import controls, tasks
from byol_explore.envs.worlds.hard_eight.controls import Control
from byol_explore.envs.worlds.hard_eight.hand import FURTHEST
from byol_explore.envs.worlds.hard_eight.layouts import draw
from byol_explore.envs.worlds.hard_eight.playing import keys_for
from byol_explore.envs.worlds.hard_eight.rendering import render
from byol_explore.envs.worlds.hard_eight.scenes import scene_of, through_the_eyes
from byol_explore.envs.worlds.hard_eight.settings import ALL, SCORES, TASKS, HardEightSettings
from byol_explore.envs.worlds.hard_eight.ticking import tick
from byol_explore.envs.worlds.hard_eight.views import picture
from byol_explore.envs.worlds.hard_eight.world import Level, World, begin
from byol_explore.errors import unknown
from byol_explore.spaces import Image, ObservationSpec, Tokens, Vector
from byol_explore.types import Action, Array, TimeStep

PREFIX = "hard-eight:"
NAMES = (*TASKS, ALL)


class Episode(NamedTuple):
    """An episode under way."""

    level: Level
    world: World
    time: Array  # [] int32, actions taken
    reached: Array  # [stages] bool


class _Course(NamedTuple):
    """What the ticks of an action have led to so far."""

    world: World
    reached: Array
    reward: Array  # []
    ends: Array  # []


class HardEight:
    """One task, or several in one world: each episode is of one of them."""

    stages = tasks.STAGES

    def __init__(self, task: str | tuple[str, ...], settings: HardEightSettings | None = None) -> None:
        names = task if isinstance(task, tuple) else TASKS if task == ALL else (task,)
        for name in names:
            if name not in TASKS:
                raise unknown("task of hard-eight", name, list(NAMES))
        self.settings = HardEightSettings() if settings is None else settings
        self._names, self._numbers = names, np.array([TASKS.index(name) for name in names], np.int32)
        ticks = [tasks.ticks_of(name, self.settings.actions) for name in TASKS]
        self._limits = np.array([-(-each // self.settings.action_repeat) for each in ticks], np.int32)
        specs = tuple(self._spec(PREFIX + name, int(self._limits[TASKS.index(name)])) for name in names)
        longest = max(spec.max_steps for spec in specs)
        whole = PREFIX + ALL if names == TASKS else ",".join(spec.name for spec in specs)
        self.spec = self._spec(whole, longest)._replace(tasks=specs if len(specs) > 1 else ())
        self._picture = jax.jit(picture)

    def _spec(self, name: str, max_steps: int) -> EnvSpec:
        action, scores = controls.SPECS[self.settings.actions], SCORES.get(name.removeprefix(PREFIX))
        return EnvSpec(name, _observation(self.settings), action, max_steps, success_above=9.0, scores=scores)

    def join(self, others: Sequence["HardEight"]) -> "HardEight":
        """One world with the tasks of all of them."""
        return HardEight(tuple(name for env in (self, *others) for name in env._names), self.settings)

    def reset(self, key: Array) -> tuple[Episode, TimeStep]:
        task_key, level_key = jax.random.split(key)
        if len(self._names) == 1:
            return self._begun(draw(int(self._numbers[0]), level_key))
        return self.begin(level_key, jax.random.randint(task_key, (), 0, len(self._names)))

    def begin(self, key: Array, task: Array) -> tuple[Episode, TimeStep]:
        """An episode of the task of that number among its own."""
        return self._begun(draw(jnp.asarray(self._numbers)[task], key))

    def _begun(self, level: Level) -> tuple[Episode, TimeStep]:
        reached = jnp.zeros((len(self.stages),), bool)
        state = Episode(level, begin(level), jnp.zeros((), jnp.int32), reached)
        return state, self._timestep(state, jnp.zeros(()), jnp.array(False))

    def task(self, state: Episode) -> Array:
        """[] int32, the number of the episode's task among its own."""
        return jnp.argmax(jnp.asarray(self._numbers) == state.level.task).astype(jnp.int32)

    def step(self, state: Episode, action: Action) -> tuple[Episode, TimeStep]:
        course = self._course(state, controls.read(action, self.settings.actions))
        state = Episode(state.level, course.world, state.time + 1, course.reached)
        return state, self._timestep(state, course.reward, course.ends)

    def reached(self, state: Episode) -> Array:
        """[stages] which stages the episode has reached."""
        return state.reached

    def render(self, state: Episode) -> np.ndarray:
        """What the agent sees, and beside it the agent over its shoulder and the level from above."""
        return np.asarray(self._picture(state.level, state.world))

    @property
    def keys(self) -> Keys:
        """How people play it."""
        return keys_for(self.settings.actions, self.settings.action_repeat)

    def goal(self, state: Episode) -> str:
        """What the agent is told too."""
        return tasks.TABLE[int(state.level.task)].instruction

    def _course(self, state: Episode, control: Control) -> _Course:
        """The ticks that an action lasts; nothing counts any more after the large apple."""

        def go_on(course: _Course, _: None) -> tuple[_Course, None]:
            world, effects = tick(state.level, course.world, control)
            reward = course.reward + jnp.where(course.ends, 0.0, effects.reward)
            reached = course.reached | tasks.stages(state.level, world, effects)
            return _Course(world, reached, reward, course.ends | effects.ends), None

        start = _Course(state.world, state.reached, jnp.zeros(()), jnp.array(False))
        return jax.lax.scan(go_on, start, length=self.settings.action_repeat)[0]

    def _timestep(self, state: Episode, reward: Array, ends: Array) -> TimeStep:
        is_last = ends | (state.time >= jnp.asarray(self._limits)[state.level.task])
        return TimeStep(
            observation=self._observe(state),
            reward=reward,
            discount=1.0 - ends.astype(jnp.float32),
            is_first=state.time == 0,
            is_last=is_last,
            success=ends.astype(jnp.int8),
        )

    def _observe(self, state: Episode) -> dict[str, Array]:
        level, world = state.level, state.world
        eyes = through_the_eyes(world.agent)
        return {
            "rgb": render(scene_of(level, world), eyes, self.settings.height, self.settings.width),
            "hand_force": world.hand.force[None],
            "hand_is_holding": (world.hand.held >= 0).astype(jnp.float32)[None],
            "hand_distance": world.hand.distance[None] / FURTHEST,
            "instruction": jnp.asarray(tasks.instructions())[level.task],
        }


def _observation(settings: HardEightSettings) -> ObservationSpec:
    return {
        "rgb": Image(settings.height, settings.width, 3),
        "hand_force": Vector(1),
        "hand_is_holding": Vector(1),
        "hand_distance": Vector(1),
        "instruction": Tokens(tasks.LONGEST, len(tasks.WORDS) + 1),
    }
