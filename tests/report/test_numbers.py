"""Numbers for people and for files."""

import math

import pytest

from byol_explore.report.model import Cell
from byol_explore.report.numbers import column_decimals, in_full, rounded, shown


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.123456, 0.1235), (1234567.0, 1235000), (-0.00012345, -0.0001234), (2.0, 2), (None, None), (math.nan, None)],
)
def test_four_significant_digits_are_kept(value: float | None, expected: float | None) -> None:
    assert rounded(value) == expected
    assert isinstance(rounded(value), type(expected))


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([0.98765, 0.5, None], ["0.988", "0.500", "\u2013"]),
        ([91.25, -0.125, math.inf], ["91.2", "\u22120.1", "∞"]),
        ([1234.5, 2.0], ["1,234", "2"]),
        ([3, 2_000_000], ["3", "2,000,000"]),
        (["rooms-6", 0.25], ["rooms-6", "0.250"]),
        ([None, math.nan], ["\u2013", "\u2013"]),
        ([0.0001234, 0.0], ["0.000123", "0.000000"]),
    ],
)
def test_a_column_has_the_same_decimals_throughout(cells: list[Cell], expected: list[str]) -> None:
    decimals = column_decimals(cells)
    assert [shown(cell, decimals) for cell in cells] == expected


def test_files_hold_all_digits() -> None:
    assert [in_full(cell) for cell in (1 / 3, 2_000_000, None, "a")] == ["0.3333333333333333", "2000000", "", "a"]
