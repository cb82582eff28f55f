"""Colours by name. Those that matter can be told apart at 32x24 pixels and from everything that is only there."""

COLOURS = {
    "floor": (146, 137, 123),
    "wall": (214, 206, 186),
    "stone": (124, 130, 152),
    "pit": (30, 26, 38),
    "strip": (235, 110, 20),
    "wood": (146, 96, 48),
    "apple": (120, 255, 40),
    "frame": (92, 88, 84),
    "mint wall": (182, 210, 194),
    "rose wall": (218, 190, 190),
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
