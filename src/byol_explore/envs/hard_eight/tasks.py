"""Static data of the eight tasks: instructions, time limits, stages, action sets and key bindings.

Does not import JAX, so that actors that only run DM-HARD-8 stay light.

The large apple pays 10 and ends the episode. The small rewards and the time limits of DM-HARD-8 are not public; here a
small apple of Drawbridge pays 1, and each step onto a strip of Remember Sensor costs 0.2.
"""

from typing import NamedTuple

import numpy as np

from byol_explore.envs.families import ACTION_SETS, LEVELS
from byol_explore.envs.interface import Key, Keyboard
from byol_explore.spaces import ActionSpec, Grid, Image, Tokens, Vector

TICK = 1.0 / 15.0  # seconds
TASKS = tuple(LEVELS)
# Returns of random actions (4,096 episodes of each task with the nine actions: benchmarks/hard_eight_shares.py) and of
# humans. The humans played the original, a different world: no human returns were measured in this one.
SCORES = {
    "drawbridge": (0.0, 12.3), "remember-sensor": (-2.5147, 7.6), "navigate-cubes": (0.0073, 7.8),
    "wall-sensor": (0.0049, 9.1), "wall-sensor-stack": (0.0, 8.6), "push-blocks": (0.0, 8.4),
    "throw-across": (0.0, 5.7), "baseball": (0.0, 7.9),
}  # fmt: skip
ALL = "all"  # draws one of the eight tasks in each episode


# Thresholds of the stages, in metres.
LIFTED = 0.3  # rise of a body above its start
MOVED = 0.4  # horizontal displacement of a body
CLIMBED = 0.25  # rise of the agent above its start
PLINTH = 1.0  # height above which a body starts on a plinth
KNOCKED = 0.5  # drop of a body that started on a plinth
HIGHEST_PILE = 1.1  # largest rise of a stacked body; a body on the agent's head is higher


class TaskInfo(NamedTuple):
    """Constants of a task."""

    time_limits: tuple[float, float]  # seconds, with the continuous and with the discrete actions
    first_stage: str  # first real step towards the apple, which random actions reach now and then
    instruction: str  # observed as tokens


TASK_TABLE = {
    "drawbridge": TaskInfo((40.0, 40.0), "touched", "bring keys to the sensors cross the bridges eat the large apple"),
    "remember-sensor": TaskInfo(
        (50.0, 120.0), "lifted", "fetch the crate with the colour of the sensor avoid the strips"
    ),
    "navigate-cubes": TaskInfo((30.0, 70.0), "climbed", "dig through the cubes climb the stairs eat the large apple"),
    "wall-sensor": TaskInfo((20.0, 30.0), "touched", "touch the sensor with the thing of its colour"),
    "wall-sensor-stack": TaskInfo((25.0, 30.0), "touched", "stack the crates at the sensor so that it stays touched"),
    "push-blocks": TaskInfo((40.0, 80.0), "touched", "push the block with the colour of the sensor into the recess"),
    "throw-across": TaskInfo((30.0, 40.0), "touched", "throw one key across the gap carry the other to the sensor"),
    "baseball": TaskInfo((40.0, 40.0), "knocked down", "knock the ball down with the bat bring it to the sensor"),
}

_WORDS = [TASK_TABLE[name].instruction.split() for name in TASKS]
VOCABULARY = tuple(dict.fromkeys(word for words in _WORDS for word in words))
MAX_INSTRUCTION_WORDS = max(map(len, _WORDS))  # length of the token observation

STAGES = (
    "moved", "lifted", "stacked", "climbed", "knocked down", "touched", "opened", "all open", "small apple",
    "large apple",
)  # fmt: skip


def instructions() -> np.ndarray:
    """[tasks, MAX_INSTRUCTION_WORDS] int32, indices of words from 1 on, padded with 0."""
    numbers = {word: number for number, word in enumerate(VOCABULARY, start=1)}
    rows = [[numbers[word] for word in words] for words in _WORDS]
    return np.array([row + [0] * (MAX_INSTRUCTION_WORDS - len(row)) for row in rows], np.int32)


def observation_spaces(height: int, width: int) -> dict[str, Image | Vector | Grid | Tokens]:
    """Return the spaces of an observation, here and in DM-HARD-8."""
    return {
        "rgb": Image(height, width, 3),
        **dict.fromkeys(("hand_force", "hand_is_holding", "hand_distance"), Vector(1)),
        "instruction": Tokens(MAX_INSTRUCTION_WORDS, len(VOCABULARY) + 1),
    }


def max_ticks(task: str, actions: str) -> int:
    """Time limit of a task in ticks, with one of the two action sets."""
    return round(TASK_TABLE[task].time_limits[ACTION_SETS.index(actions)] / TICK)


CONTINUOUS = (
    "move_back_forward", "strafe_left_right", "look_down_up", "look_left_right", "hand_rotate_around_forward",
    "hand_rotate_around_right", "hand_rotate_around_up", "hand_push_pull",
)  # fmt: skip
_MOVES = {  # key, index in CONTINUOUS and value of each discrete move
    "forward": ("KeyW", 0, 1.0), "back": ("KeyS", 0, -1.0),
    "turn left": ("ArrowLeft", 3, -1.0), "turn right": ("ArrowRight", 3, 1.0),
    "look up": ("ArrowUp", 2, -1.0), "look down": ("ArrowDown", 2, 1.0), "push": ("KeyR", 7, 1.0),
}  # fmt: skip
MOVES = tuple(_MOVES)
ACTION_TABLE = np.zeros((len(MOVES), len(CONTINUOUS)), np.float32)  # [moves, 8] continuous numbers of each move
for _move, (_, _index, _value) in enumerate(_MOVES.values()):
    ACTION_TABLE[_move, _index] = _value

SPECS = {
    "continuous": ActionSpec(discrete=(2,), continuous=len(CONTINUOUS)),
    "discrete": ActionSpec(discrete=(len(MOVES), 2)),
}

_PAIRS = (  # per continuous dimension: the keys for -1 and +1, and their help texts
    ("move_back_forward", ("KeyS", "go back"), ("KeyW", "go forward")),
    ("strafe_left_right", ("KeyA", "step to the left"), ("KeyD", "step to the right")),
    ("look_down_up", ("ArrowUp", "look up"), ("ArrowDown", "look down")),
    ("look_left_right", ("ArrowLeft", "turn left"), ("ArrowRight", "turn right")),
    ("hand_rotate_around_up", ("KeyQ", "turn the held object left"), ("KeyE", "turn it right")),
    ("hand_push_pull", ("KeyF", "pull the held object closer"), ("KeyR", "push it away")),
)
_GRIP = "grip, while the key is held"
_GAIN = 0.04  # action value per pixel of mouse movement


def keyboard_for(actions: str, action_repeat: int) -> Keyboard:
    """Key bindings of an action set. With continuous actions, play runs at the world's own speed."""
    if actions == "discrete":
        moves = [Key((code,), name, discrete=((0, move),)) for move, (name, (code, *_)) in enumerate(_MOVES.items())]
        grip = Key(("Space",), f"{_GRIP} down with a move", discrete=((1, 1),))
        return Keyboard((*moves, grip))  # play waits for a key, because the discrete set has no no-op
    keys = [Key((code,), words, continuous=((CONTINUOUS.index(name), sign),))
            for name, *both in _PAIRS for (code, words), sign in zip(both, (-1.0, 1.0), strict=True)]  # fmt: skip
    right, down = (CONTINUOUS.index(name) for name in ("look_left_right", "look_down_up"))
    grip = Key(("Space",), _GRIP, discrete=((0, 1),))
    return Keyboard((*keys, grip), 1.0 / (TICK * action_repeat), mouse=((right, _GAIN), (down, _GAIN)))
