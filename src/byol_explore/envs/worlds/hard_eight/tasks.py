"""The eight tasks: what the agent is told, how long it has, and the stages that logs and pages tell of.

The large apple pays 10 and ends the episode. Small rewards and time limits of DM-HARD-8 are not public; here a small
apple of Drawbridge pays 1, and each step onto a strip of Remember Sensor costs 0.2.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from byol_explore.envs.worlds.hard_eight.hand import holds
from byol_explore.envs.worlds.hard_eight.mechanisms import Effects
from byol_explore.envs.worlds.hard_eight.physics import TICK
from byol_explore.envs.worlds.hard_eight.settings import TASKS
from byol_explore.envs.worlds.hard_eight.world import Level, World
from byol_explore.types import Array

LIFTED = 0.3  # metres above where a body was at first
MOVED = 0.4  # metres level


class Task(NamedTuple):
    """What is constant about a task."""

    seconds: float
    instruction: str


_TABLE = {
    "drawbridge": Task(60.0, "bring keys to the sensors cross the bridges eat the large apple"),
    "remember-sensor": Task(60.0, "fetch the crate with the colour of the sensor avoid the strips"),
    "navigate-cubes": Task(40.0, "dig through the cubes climb the stairs eat the large apple"),
    "wall-sensor": Task(20.0, "touch the sensor with the thing of its colour"),
    "wall-sensor-stack": Task(40.0, "stack the crates at the sensor so that it stays touched"),
    "push-blocks": Task(40.0, "push the block with the colour of the sensor into the recess"),
    "throw-across": Task(60.0, "throw one key across the gap carry the other to the sensor"),
    "baseball": Task(60.0, "knock the ball down with the bat bring it to the sensor"),
}
TABLE = tuple(_TABLE[name] for name in TASKS)

WORDS = tuple(dict.fromkeys(word for task in TABLE for word in task.instruction.split()))
LONGEST = max(len(task.instruction.split()) for task in TABLE)  # instruction, in words

STAGES = ("moved", "lifted", "touched", "opened", "all open", "small apple", "large apple")


def instructions() -> np.ndarray:
    """[tasks, LONGEST] int32, numbers of words from 1 on; 0 fills up."""
    numbers = {word: number for number, word in enumerate(WORDS, start=1)}
    rows = [[numbers[word] for word in task.instruction.split()] for task in TABLE]
    return np.array([row + [0] * (LONGEST - len(row)) for row in rows], np.int32)


def ticks_of(task: str) -> int:
    """How long an episode of a task lasts at most."""
    return round(TABLE[TASKS.index(task)].seconds / TICK)


def stages(level: Level, world: World, effects: Effects) -> Array:
    """[stages] which of them can be seen to be reached at this moment."""
    way = world.bodies.centre - level.start.centre
    there = world.bodies.half[2] > 0.0
    moved = jnp.any(there & (jnp.maximum(jnp.abs(way[0]), jnp.abs(way[1])) > MOVED))
    lifted = jnp.any(there & holds(world.hand) & (way[2] > LIFTED))
    needed = jnp.any(level.doors.needs, axis=1)
    eaten = world.eaten & (level.apples.reward > 0.0)
    small = jnp.any(eaten & (level.apples.reward < 10.0))
    now = [moved, lifted, jnp.any(effects.touched), jnp.any(world.is_open & needed)]
    now += [jnp.all(world.is_open | ~needed) & jnp.any(needed), small, effects.ends]
    return jnp.stack(now)
