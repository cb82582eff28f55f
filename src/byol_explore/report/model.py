"""Report as data: sections of blocks, names, colours, number formats.

`curves`, `results`, `maps_and_films` and `reproduction` make the blocks. `page`, `figures` and `build` write them.
"""

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from byol_explore.report.read_runs import MAX_FILE_NAME

Cell = str | float | int | None  # numbers: few digits where they are shown, all digits in files


class Column(NamedTuple):
    """A table's column with its cells as shown."""

    title: str
    cells: list[Cell]
    texts: list[str]
    numeric: bool  # at least one number


class Table(NamedTuple):
    name: str
    title: str
    columns: list[str]
    rows: list[list[Cell]]
    note: str = ""

    def formatted_columns(self) -> list[Column]:
        """Return the columns, numbers of a column with the same decimals."""
        columns = []
        for index, title in enumerate(self.columns):
            cells = [row[index] for row in self.rows]
            numeric = any(isinstance(cell, int | float) for cell in cells)
            columns.append(Column(title, cells, format_column(cells), numeric))
        return columns


class Curve(NamedTuple):
    """Values of a variant over training: the mean over seeds, in a band from the lowest to the highest."""

    variant: str
    x: list[float]
    mean: list[float | None]  # None: unknown
    low: list[float | None]
    high: list[float | None]


class Plot(NamedTuple):
    name: str
    title: str
    x_label: str
    y_label: str
    curves: list[Curve]
    y_range: tuple[float, float] | None = None
    logarithmic: bool = False  # the y axis, of positive values
    note: str = ""


class Bar(NamedTuple):
    """A number with its interval."""

    variant: str
    value: float | None
    low: float | None
    high: float | None


class Bars(NamedTuple):
    name: str
    title: str
    x_label: str
    bars: list[Bar]


class HeatMap(NamedTuple):
    """Numbers over a floor plan, one grid per slice of training."""

    name: str
    title: str
    floor: list[str]  # H rows of W cells: # wall, . floor, D door, G goal, o another object
    slices: list[tuple[str, list[list[float | None]]]]  # label and values [H][W]; None: no value
    unit: str
    logarithmic: bool = False


class Picture(NamedTuple):
    """An image or a film from a run directory."""

    name: str
    title: str
    kind: str  # png, gif or webp
    data: bytes


class Text(NamedTuple):
    """Paragraphs; a paragraph that begins with four spaces is a command or a listing."""

    paragraphs: list[str]


Block = Table | Plot | Bars | HeatMap | Picture | Text


class Section(NamedTuple):
    name: str  # for links within the page
    title: str
    blocks: Sequence[Block]


class Report(NamedTuple):
    title: str
    variants: list[str]  # in the order of the legend, which decides the colours
    sections: list[Section]
    left_out: Sequence[str] = ()  # runs that cannot be read, with the reasons
    damage: Sequence[str] = ()  # of files of the other runs


def unique_sections(report: Report) -> list[Section]:
    """Return the sections, with names of sections and blocks that are unique and can be part of a file name."""
    sections: set[str] = set()
    blocks: set[str] = set()
    return [
        Section(
            _unique_name(section.name, sections),
            section.title,
            [b if isinstance(b, Text) else b._replace(name=_unique_name(b.name, blocks)) for b in section.blocks],
        )
        for section in report.sections
    ]


def _unique_name(name: str, used: set[str]) -> str:
    """Keep letters, digits, dots and dashes; append a number if the name is used."""
    base = re.sub(r"[^\w.]+", "-", name, flags=re.ASCII).strip("-.")[:MAX_FILE_NAME] or "unnamed"
    unique, count = base, 1
    while unique.lower() in used:  # some file systems ignore case
        count += 1
        unique = f"{base}-{count}"
    used.add(unique.lower())
    return unique


def file_paths(block: Block) -> list[str]:
    """Return the files that a block is written to, relative to the report."""
    match block:
        case Text():
            return []
        case Table():
            return [f"tables/{block.name}.{kind}" for kind in ("csv", "md", "tex")]
        case Picture():
            return [f"figures/{block.name}.{block.kind}"]
        case _:
            kinds = ("png", "svg") if isinstance(block, HeatMap) else ("png", "svg", "csv")
            return [f"figures/{block.name}.{kind}" for kind in kinds]


class LineStyle(NamedTuple):
    light: str  # colour on a light background, and in files
    dark: str  # colour on a dark background
    dashes: tuple[int, ...]  # lengths of line and gap; empty: a solid line


# (light page, dark page), distinguishable with colour blindness too
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
_DASHES = ((), (6, 3), (2, 3))  # the colours repeat with the next dashes

# Viridis, dark to light in steps of equal perceived size: for maps, and for curves that are not variants.
RAMP = ("#440154", "#482878", "#3e4a89", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725")


def line_style(variant: str, variants: list[str]) -> LineStyle:
    """Return the style of a variant, by its place in the legend."""
    index = variants.index(variant)
    light, dark = _COLOURS[index % len(_COLOURS)]
    return LineStyle(light, dark, _DASHES[index // len(_COLOURS) % len(_DASHES)])


def line_styles(names: list[str], variants: list[str]) -> list[LineStyle]:
    """Return the styles of curves; those that are not variants (stages, horizons) follow the ramp."""
    others = [name for name in names if name not in variants]
    return [line_style(n, variants) if n in variants else ramp_style(others.index(n), len(others)) for n in names]


def ramp_style(index: int, count: int) -> LineStyle:
    """Return the style of one of `count` curves that are not variants."""
    share = index / max(count - 1, 1)
    last = len(RAMP) - 1
    # not the two lightest colours on a light page, nor the three darkest on a dark one
    return LineStyle(RAMP[round(share * (last - 2))], RAMP[3 + round(share * (last - 3))], ())


NO_VALUE = "\u2013"  # en dash
MINUS = "\u2212"  # as wide as a plus
DIGITS = 4  # significant digits on the page


def round_significant(value: float | None, digits: int = DIGITS) -> float | int | None:
    """Round to significant digits; None if not finite, an int if whole."""
    if value is None or not math.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() else rounded


def round_nested(value: Any, digits: int = DIGITS, *, keep_non_finite: bool = False) -> Any:
    """Round all floats of nested dicts, lists and tuples; NaN and infinity become None unless they are kept."""
    if isinstance(value, dict):
        return {key: round_nested(part, digits, keep_non_finite=keep_non_finite) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [round_nested(part, digits, keep_non_finite=keep_non_finite) for part in value]
    if not isinstance(value, float) or (keep_non_finite and not math.isfinite(value)):
        return value
    return round_significant(value, digits)


def format_column(cells: list[Cell]) -> list[str]:
    """Format cells, numbers with the same decimals: three digits for the largest of them."""
    decimals = _column_decimals([abs(cell) for cell in cells if isinstance(cell, int | float) and math.isfinite(cell)])
    return [_format_cell(cell, decimals) for cell in cells]


def _column_decimals(sizes: list[float]) -> int:
    largest = max(sizes, default=0)
    if largest == 0 or largest >= 1000 or all(isinstance(size, int) for size in sizes):
        return 0
    return min(max(2 - math.floor(math.log10(largest)), 1), 6)


def _format_cell(cell: Cell, decimals: int) -> str:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return NO_VALUE
    if isinstance(cell, str):
        return cell
    return f"{cell:,.{decimals}f}".replace("-", MINUS).replace("inf", "∞")


def full_precision(cell: Cell) -> str:
    """Format a cell for files and for sorting: all digits, empty if unknown."""
    return "" if cell is None else str(cell)
