"""The colours of a report: a variant has the same one on the page, in the pictures and in the printed figures."""

from typing import NamedTuple


class Stroke(NamedTuple):
    """How a variant's lines are drawn."""

    light: str  # on a light background, and in files
    dark: str  # on a dark one
    dashes: tuple[int, ...]  # lengths of line and gap; empty for a whole line


# Pairs for light and dark pages that stay apart for colour-blind eyes too.
_COLOURS = (
    ("#1063c5", "#55acf0"),  # blue
    ("#cd4e1c", "#ff7444"),  # orange
    ("#00a171", "#19d897"),  # green
    ("#73757a", "#7f828a"),  # grey
    ("#9c2d87", "#d975bb"),  # magenta
    ("#b89000", "#e6b540"),  # amber
    ("#6aadcc", "#a8e6ff"),  # sky
    ("#531aa7", "#957cfc"),  # violet
)
_DASHES = ((), (6, 3), (2, 3))  # the colours again, and again

# From nothing to much, for maps and for families of curves: dark to light, with even steps to the eye.
RAMP = ("#440154", "#482878", "#3e4a89", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725")


def stroke(variant: str, variants: list[str]) -> Stroke:
    """A variant's colour by its place in the legend."""
    index = variants.index(variant)
    light, dark = _COLOURS[index % len(_COLOURS)]
    return Stroke(light, dark, _DASHES[index // len(_COLOURS) % len(_DASHES)])


def family_stroke(index: int, count: int) -> Stroke:
    """The colour of a curve that is no variant, such as one horizon of several: along the ramp."""
    share = index / max(count - 1, 1)
    last = len(RAMP) - 1
    return Stroke(RAMP[round(share * (last - 2))], RAMP[3 + round(share * (last - 3))], ())
