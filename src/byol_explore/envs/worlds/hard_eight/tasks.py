"""The eight tasks: what the agent is told, how long it has, and the stages that logs and pages tell of.

The large apple pays 10 and ends the episode. Small rewards and time limits of DM-HARD-8 are not public; here a small
apple of Drawbridge pays 1, and each step onto a strip of Remember Sensor costs 0.2.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from byol_explore.envs.worlds.hard_eight.hand import holds
from byol_explore.envs.worlds.hard_eight.mechanisms import Effects, rests
from byol_explore.envs.worlds.hard_eight.physics import TICK
from byol_explore.envs.worlds.hard_eight.settings import ACTIONS, TASKS
from byol_explore.envs.worlds.hard_eight.world import Level, World
from byol_explore.types import Array

LIFTED = 0.3  # metres above where a body was at first
MOVED = 0.4  # metres level
CLIMBED = 0.25  # metres above where the agent was at first
PLINTH = 1.0  # metres above the ground, higher than which a body stands on one
KNOCKED = 0.5  # metres below where a body stood on a plinth
HIGHEST_PILE = 1.1  # metres above where a body was: what lies on the agent's head is higher


class Task(NamedTuple):
    """What is constant about a task."""

    seconds: tuple[float, float]  # with the nine actions, and with the discrete ones
    first: str  # stage that is the first real step towards the apple, which random actions reach now and then
    instruction: str


_TABLE = {
    "drawbridge": Task((40.0, 40.0), "touched", "bring keys to the sensors cross the bridges eat the large apple"),
    "remember-sensor": Task((50.0, 120.0), "lifted", "fetch the crate with the colour of the sensor avoid the strips"),
    "navigate-cubes": Task((30.0, 70.0), "climbed", "dig through the cubes climb the stairs eat the large apple"),
    "wall-sensor": Task((20.0, 30.0), "touched", "touch the sensor with the thing of its colour"),
    "wall-sensor-stack": Task((25.0, 30.0), "touched", "stack the crates at the sensor so that it stays touched"),
    "push-blocks": Task((40.0, 80.0), "touched", "push the block with the colour of the sensor into the recess"),
    "throw-across": Task((30.0, 40.0), "touched", "throw one key across the gap carry the other to the sensor"),
    "baseball": Task((40.0, 40.0), "knocked down", "knock the ball down with the bat bring it to the sensor"),
}
TABLE = tuple(_TABLE[name] for name in TASKS)

WORDS = tuple(dict.fromkeys(word for task in TABLE for word in task.instruction.split()))
LONGEST = max(len(task.instruction.split()) for task in TABLE)  # instruction, in words

STAGES = (
    "moved", "lifted", "stacked", "climbed", "knocked down", "touched", "opened", "all open", "small apple",
    "large apple",
)  # fmt: skip


def instructions() -> np.ndarray:
    """[tasks, LONGEST] int32, numbers of words from 1 on; 0 fills up."""
    numbers = {word: number for number, word in enumerate(WORDS, start=1)}
    rows = [[numbers[word] for word in task.instruction.split()] for task in TABLE]
    return np.array([row + [0] * (LONGEST - len(row)) for row in rows], np.int32)


def ticks_of(task: str, actions: str) -> int:
    """How long an episode of a task lasts at most with one of the two action sets."""
    return round(TABLE[TASKS.index(task)].seconds[ACTIONS.index(actions)] / TICK)


def stages(level: Level, world: World, effects: Effects) -> Array:
    """[stages] which of them can be seen to be reached at this moment."""
    way = world.bodies.centre - level.start.centre
    there = world.bodies.half[2] > 0.0
    moved = jnp.any(there & (jnp.maximum(jnp.abs(way[0]), jnp.abs(way[1])) > MOVED))
    higher, held = there & (way[2] > LIFTED), holds(world.hand)
    stacked = rests(world) & higher & (way[2] < HIGHEST_PILE)
    knocked = there & (level.start.centre[2] > PLINTH) & (way[2] < -KNOCKED) & (world.bodies.centre[2] > 0.0)
    climbed = world.agent.centre[2] > level.entrance[2] + CLIMBED
    needed = jnp.any(level.doors.needs, axis=1)
    eaten = world.eaten & (level.apples.reward > 0.0)
    small = jnp.any(eaten & (level.apples.reward < 10.0))
    now = [moved, jnp.any(higher & held), jnp.any(stacked), climbed, jnp.any(knocked), jnp.any(effects.touched)]
    now += [jnp.any(world.is_open & needed)]
    now += [jnp.all(world.is_open | ~needed) & jnp.any(needed), small, effects.ends]
    return jnp.stack(now)
