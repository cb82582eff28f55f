"""How people play Hard-Eight: the keys of both action sets."""

from byol_explore.envs.keys import Key, Keys
from byol_explore.envs.worlds.hard_eight.controls import CONTINUOUS, MOVES
from byol_explore.envs.worlds.hard_eight.physics import TICK

_PAIRS = (  # two keys of a dimension: less and more, and what they do
    ("move_back_forward", ("KeyS", "go back"), ("KeyW", "go forward")),
    ("strafe_left_right", ("KeyA", "step to the left"), ("KeyD", "step to the right")),
    ("look_down_up", ("ArrowUp", "look up"), ("ArrowDown", "look down")),
    ("look_left_right", ("ArrowLeft", "turn left"), ("ArrowRight", "turn right")),
    ("hand_rotate_around_up", ("KeyQ", "turn what is held to one side"), ("KeyE", "and to the other")),
    ("hand_push_pull", ("KeyF", "pull what is held near"), ("KeyR", "push it away")),
)
_MOVES = ("KeyW", "KeyS", "ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "KeyR")
_GRIP = "grip, as long as it is held"
_GAIN = 0.04  # of a dimension, per pixel that the mouse is moved


def keys_for(actions: str, action_repeat: int) -> Keys:
    """Of an action set, with as many actions a second as the world has time for."""
    if actions == "discrete":
        named = enumerate(zip(_MOVES, MOVES, strict=True))
        moves = [Key((code,), words, discrete=((0, move),)) for move, (code, words) in named]
        grip = Key(("Space",), f"{_GRIP} down with a move", discrete=((1, 1),))
        return Keys((*moves, grip))  # the world waits: there is no action to stand still
    keys = [Key((code,), words, continuous=((CONTINUOUS.index(name), sign),))
            for name, *both in _PAIRS for (code, words), sign in zip(both, (-1.0, 1.0), strict=True)]  # fmt: skip
    right, down = (CONTINUOUS.index(name) for name in ("look_left_right", "look_down_up"))
    grip = Key(("Space",), _GRIP, discrete=((0, 1),))
    return Keys((*keys, grip), 1.0 / (TICK * action_repeat), mouse=((right, _GAIN), (down, _GAIN)))
