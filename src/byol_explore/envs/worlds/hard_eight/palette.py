"""Colours by name. Those that matter can be told apart at 32x24 pixels and from everything that is only there."""

COLOURS = {
    "floor": (126, 118, 106),
    "wall": (168, 162, 146),
    "stone": (98, 104, 122),
    "pit": (30, 26, 38),
    "strip": (235, 110, 20),
    "wood": (146, 96, 48),
    "apple": (120, 255, 40),
    "frame": (70, 66, 62),
    "mint wall": (140, 160, 146),
    "rose wall": (166, 144, 146),
    "red": (225, 40, 40),
    "blue": (50, 80, 245),
    "yellow": (245, 220, 40),
    "magenta": (220, 60, 220),
    "cyan": (50, 220, 235),
    "white": (240, 240, 240),
}
NUMBERS = {name: number for number, name in enumerate(COLOURS)}
WALLS = ("wall", "mint wall", "rose wall")
KEYS = ("red", "blue", "yellow", "magenta", "cyan")  # of bodies, sensors and doors
