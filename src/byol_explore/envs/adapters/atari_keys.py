"""The joystick of a game console on a keyboard."""

from byol_explore.envs.keys import Key, Keys

JOYSTICK = (  # the positions in the emulator's order; the button is fire
    "", "fire", "up", "right", "left", "down", "up right", "up left", "down right", "down left", "up fire",
    "right fire", "left fire", "down fire", "up right fire", "up left fire", "down right fire", "down left fire",
)  # fmt: skip
_CODES = {"up": "ArrowUp", "down": "ArrowDown", "left": "ArrowLeft", "right": "ArrowRight", "fire": "Space"}


def keys_of_joystick() -> Keys:
    """Arrows and the space bar, together where positions are; the game goes on by itself."""
    held = [(action, words.split()) for action, words in enumerate(JOYSTICK) if words]
    keys = [Key(tuple(_CODES[word] for word in words), " ".join(words), ((0, action),)) for action, words in held]
    return Keys(tuple(keys), per_second=15.0)
