"""A table as text: CSV with all digits, Markdown and LaTeX as people read them."""

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Sequence

from byol_explore.report.model import Cell, Table
from byol_explore.report.numbers import MINUS, NOTHING, column_decimals, in_full, is_number, shown
from byol_explore.report.words import printable

_FORMULA = ("=", "+", "-", "@")  # in their wide forms too
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)
_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    MINUS: "$-$", NOTHING: "--", "∞": r"$\infty$", "±": r"$\pm$", "≥": r"$\geq$", "≤": r"$\leq$",
}  # fmt: skip


def csv_text(table: Table) -> str:
    return csv_lines([table.columns, *table.rows])


def csv_lines(rows: Iterable[Sequence[Cell]]) -> str:
    """Numbers in full; a text that a spreadsheet would take for a formula begins with an apostrophe."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([_csv(cell) for cell in row] for row in rows)
    return file.getvalue()


def markdown_text(table: Table) -> str:
    rules = ["---:" if numeric else "---" for numeric in _numeric(table)]
    lines = [table.columns, rules, *_shown(table)]
    body = "\n".join("| " + " | ".join(map(_markdown, line)) + " |" for line in lines)
    return f"{table.title}\n\n{body}\n" + (f"\n{table.note}\n" if table.note else "")


def latex_text(table: Table) -> str:
    """A table environment; it needs the package booktabs."""
    alignment = "".join("r" if numeric else "l" for numeric in _numeric(table))
    head, *body = (" & ".join(map(_latex, line)) + r" \\" for line in [table.columns, *_shown(table)])
    caption = _latex(f"{table.title}. {table.note}" if table.note else table.title)
    lines = [
        r"\begin{table}", r"  \centering", rf"  \caption{{{caption}}}", rf"  \begin{{tabular}}{{{alignment}}}",
        r"    \toprule", f"    {head}", r"    \midrule", *(f"    {line}" for line in body), r"    \bottomrule",
        r"  \end{tabular}", r"\end{table}",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _numeric(table: Table) -> list[bool]:
    return [any(is_number(row[index]) for row in table.rows) for index in range(len(table.columns))]


def _shown(table: Table) -> list[list[str]]:
    decimals = [column_decimals([row[index] for row in table.rows]) for index in range(len(table.columns))]
    return [[shown(cell, digits) for cell, digits in zip(row, decimals, strict=True)] for row in table.rows]


def _csv(cell: Cell) -> str:
    text = printable(in_full(cell))
    begins = unicodedata.normalize("NFKC", text[:1]).startswith(_FORMULA)
    return f"'{text}" if begins and isinstance(cell, str) and not _NUMBER.fullmatch(text) else text


def _markdown(text: str) -> str:
    return re.sub(r"[|<]", r"\\\g<0>", text.replace("\n", " "))


def _latex(text: str) -> str:
    return re.sub(".", lambda match: _LATEX.get(match[0], match[0]), text.replace("\n", " "))
