"""Tables as CSV, Markdown and LaTeX."""

import csv
import io

import pytest

from byol_explore.report.build import csv_lines, csv_text, latex_text, markdown_text
from byol_explore.report.model import Table

TABLE = Table("t", "Scores & more", ["variant", "score (%)"], [["a_b|c", 1 / 3], ["d, e", None]], "100% is all.")


def test_csv_has_all_digits() -> None:
    assert csv_text(TABLE) == 'variant,score (%)\na_b|c,0.3333333333333333\n"d, e",\n'


def test_markdown_aligns_numbers_right() -> None:
    lines = markdown_text(TABLE).splitlines()
    assert lines[0] == "Scores & more"
    assert lines[2:6] == ["| variant | score (%) |", "| --- | ---: |", "| a_b\\|c | 0.333 |", "| d, e | \u2013 |"]
    assert lines[-1] == "100% is all."


def test_latex_is_escaped_and_has_rules() -> None:
    text = latex_text(TABLE)
    assert r"\caption{Scores \& more. 100\% is all.}" in text
    assert r"\begin{tabular}{lr}" in text
    assert r"a\_b|c & 0.333 \\" in text
    assert r"d, e & -- \\" in text
    assert [rule for rule in ("toprule", "midrule", "bottomrule") if f"\\{rule}" in text] == [
        "toprule",
        "midrule",
        "bottomrule",
    ]


def test_table_without_rows_is_written() -> None:
    empty = Table("t", "Nothing", ["a", "b"], [])
    assert csv_text(empty) == "a,b\n"
    assert r"\begin{tabular}{ll}" in latex_text(empty)


@pytest.mark.parametrize("text", ["=1+1", "+a", "-a", "@sum(a1)", "=cmd|' /c calc'!a0", "-1+2", "\uff1d1"])
def test_text_is_never_a_spreadsheet_formula(text: str) -> None:
    [[head], [cell]] = csv.reader(io.StringIO(csv_text(Table("t", "", [text], [[text]]))))
    assert head == cell == f"'{text}"


@pytest.mark.parametrize("space", ["\t", "\r", "\n"])
def test_leading_whitespace_is_escaped_in_csv(space: str) -> None:
    assert csv_text(Table("t", "", ["a"], [[f"{space}=1"]])) == f"a\n{space!r}=1\n".replace("'", "")


def test_numbers_have_no_apostrophe_in_csv() -> None:
    """Also numbers written as text, as in a table of settings."""
    assert csv_lines([[-0.5, -3, "-0.5", "-1e-05", "+2", None, float("-inf"), "a-b"]]) == (
        "-0.5,-3,-0.5,-1e-05,+2,,-inf,a-b\n"
    )


def test_tags_are_escaped_in_markdown() -> None:
    assert "| \\<b>x |" in markdown_text(Table("t", "", ["variant"], [["<b>x"]]))
