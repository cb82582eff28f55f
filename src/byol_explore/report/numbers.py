"""How a report writes numbers: few digits for people, all of them in files."""

import math

from byol_explore.report.model import Cell

NOTHING = "\u2013"  # a dash
MINUS = "\u2212"  # as wide as a plus
DIGITS = 4  # significant ones in what the page draws


def rounded(value: float | None, digits: int = DIGITS) -> float | int | None:
    """With few significant digits, whole numbers without a point; what is not finite is not known."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() else short


def is_number(cell: Cell) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def column_decimals(cells: list[Cell]) -> int:
    """Digits after the point that all numbers of a column are shown with: three digits for the largest of them."""
    numbers = [abs(cell) for cell in cells if isinstance(cell, int | float) and math.isfinite(cell)]
    if all(isinstance(number, int) for number in numbers):
        return 0
    largest = max(numbers)
    if largest >= 1000 or largest == 0:
        return 0
    return min(max(2 - math.floor(math.log10(largest)), 1), 6)


def shown(cell: Cell, decimals: int) -> str:
    """A cell as people read it."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return NOTHING
    if not is_number(cell):
        return str(cell)
    if isinstance(cell, float) and math.isinf(cell):
        return "∞" if cell > 0 else f"{MINUS}∞"
    return f"{cell:,.{decimals}f}".replace("-", MINUS)


def in_full(cell: Cell) -> str:
    """A cell as a file holds it."""
    return "" if cell is None else str(cell)
