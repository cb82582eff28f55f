"""What a report is made of: sections of blocks, which know nothing of how they are shown.

Builders turn runs into these; the page, the pictures and the tables are made from them.
"""

from collections.abc import Sequence
from typing import NamedTuple

Cell = str | float | int | None  # a number is shown with few digits and written to files in full


class Table(NamedTuple):
    name: str  # of its files
    title: str
    columns: list[str]
    rows: list[list[Cell]]
    note: str = ""


class Curve(NamedTuple):
    """A variant's values over training: the mean over its seeds in a band from the lowest to the highest."""

    variant: str
    x: list[float]
    mean: list[float | None]  # None where nothing is known
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


class Bars(NamedTuple):
    """A number per variant with its interval."""

    name: str
    title: str
    x_label: str
    variants: list[str]
    values: list[float | None]
    low: list[float | None]
    high: list[float | None]


class HeatMap(NamedTuple):
    """Numbers over a floor plan, in slices of the time of training."""

    name: str
    title: str
    floor: list[str]  # rows of cells: # wall, . floor, D door, G goal, o another object
    slices: list[tuple[str, list[list[float | None]]]]  # label and [H][W] values; None where there is nothing to say
    unit: str
    logarithmic: bool = False


class Picture(NamedTuple):
    """An image or a film that a run left behind."""

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
    blocks: list[Block]


class Report(NamedTuple):
    title: str
    variants: list[str]  # in the order of the legend: a variant has one colour throughout
    sections: list[Section]
    left_out: Sequence[str] = ()  # runs that cannot be read, with the reasons
