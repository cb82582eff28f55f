"""Numbers on the page and in files."""

import math

import pytest

from byol_explore.report.model import Cell, format_column, full_precision, round_nested, round_significant


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.123456, 0.1235), (1234567.0, 1235000), (-0.00012345, -0.0001234), (2.0, 2), (None, None), (math.nan, None)],
)
def test_numbers_keep_four_significant_digits(value: float | None, expected: float | None) -> None:
    assert round_significant(value) == expected
    assert isinstance(round_significant(value), type(expected))


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
def test_a_column_has_the_same_decimals(cells: list[Cell], expected: list[str]) -> None:
    assert format_column(cells) == expected


def test_files_have_all_digits() -> None:
    cells = [full_precision(cell) for cell in (1 / 3, 2_000_000, None, "a")]
    assert cells == ["0.3333333333333333", "2000000", "", "a"]


@pytest.mark.parametrize(
    ("value", "rounded"),
    [(1.0 / 3.0, 0.33333), (12345678.9, 12346000), (1e-9 / 3, 3.3333e-10), (7, 7), (True, True), ("x", "x")],
)
def test_nested_floats_keep_their_leading_digits(value: object, rounded: object) -> None:
    for nested in (round_nested(value, 5), round_nested({"a": [value]}, 5)["a"][0]):
        assert nested == rounded
        assert isinstance(nested, type(rounded))


def test_nested_floats_that_are_not_finite_become_none_or_are_kept() -> None:
    assert round_nested([[math.nan], (-math.inf,)]) == [[None], [None]]
    assert round_nested([[math.inf], 0.5], 3, keep_non_finite=True) == [[math.inf], 0.5]
