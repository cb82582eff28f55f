"""What an agent can do: the nine actions of DM-HARD-8, and seven moves and turns for quick experiments."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from byol_explore.spaces import ActionSpec
from byol_explore.types import Action, Array

CONTINUOUS = (
    "move_back_forward", "strafe_left_right", "look_down_up", "look_left_right", "hand_rotate_around_forward",
    "hand_rotate_around_right", "hand_rotate_around_up", "hand_push_pull",
)  # fmt: skip
MOVES = ("forward", "back", "turn left", "turn right", "look up", "look down", "push")


class Control(NamedTuple):
    """An action by name, each number in [-1, 1]. As in DM-HARD-8 the positive direction of `look` is down.

    Bodies stay upright, so that turning around the forward axis and around the right one does nothing.
    """

    move: Array  # [] forward
    strafe: Array  # [] to the right
    look: Array  # [] down
    turn: Array  # [] to the right
    roll: Array  # []
    tilt: Array  # []
    rotate: Array  # [] what is held, around the upright axis
    push: Array  # [] what is held, away
    grip: Array  # [] bool


_TABLE = np.zeros((len(MOVES), 8), np.float32)
for _move, (_entry, _value) in enumerate([(0, 1.0), (0, -1.0), (3, -1.0), (3, 1.0), (2, -1.0), (2, 1.0), (7, 1.0)]):
    _TABLE[_move, _entry] = _value

SPECS = {
    "continuous": ActionSpec(discrete=(2,), continuous=len(CONTINUOUS)),
    "discrete": ActionSpec(discrete=(len(MOVES), 2)),
}


def read(action: Action, kind: str) -> Control:
    """The control that an action of one of the two sets stands for; what is no number does nothing."""
    if kind == "discrete":
        numbers = jnp.asarray(_TABLE)[action.discrete[0]]
    else:
        numbers = jnp.clip(jnp.nan_to_num(action.continuous, nan=0.0), -1.0, 1.0)
    return Control(*numbers, grip=action.discrete[-1] == 1)
