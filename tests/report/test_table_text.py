"""Tables as text."""

from byol_explore.report.model import Table
from byol_explore.report.table_text import csv_text, latex_text, markdown_text

TABLE = Table("t", "Scores & more", ["variant", "score (%)"], [["a_b|c", 1 / 3], ["d, e", None]], "100% is all.")


def test_csv_holds_all_digits() -> None:
    assert csv_text(TABLE) == 'variant,score (%)\na_b|c,0.3333333333333333\n"d, e",\n'


def test_markdown_is_a_table_with_numbers_to_the_right() -> None:
    lines = markdown_text(TABLE).splitlines()
    assert lines[0] == "Scores & more"
    assert lines[2:6] == ["| variant | score (%) |", "| --- | ---: |", "| a_b\\|c | 0.333 |", "| d, e | \u2013 |"]
    assert lines[-1] == "100% is all."


def test_latex_is_escaped_and_ruled() -> None:
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


def test_a_table_without_rows_is_a_table() -> None:
    empty = Table("t", "Nothing", ["a", "b"], [])
    assert csv_text(empty) == "a,b\n"
    assert r"\begin{tabular}{ll}" in latex_text(empty)
