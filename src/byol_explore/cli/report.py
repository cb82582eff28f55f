"""`byol-explore report`: a page, figures and tables from runs."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table as ConsoleTable
from rich.text import Text

from byol_explore.cli.parsing import parse
from byol_explore.errors import UserError
from byol_explore.report.model import Report, Table
from byol_explore.report.numbers import column_decimals, is_number, shown
from byol_explore.report.words import listed, printable


@dataclass(frozen=True)
class ReportCommand:
    """Compare runs: one page to open in a browser, and its figures and tables as files beside it.

    Runs that cannot be read are named and left out. Files are taken from inside of run directories only.
    """

    directories: tyro.conf.Positional[tuple[Path, ...]]
    """Run or study directories; all runs below them are compared."""
    out: Path | None = None
    """Where the report is written; default <first directory>/report. An older report there is replaced."""
    page_only: bool = False
    """Write the page by itself, without figures and tables as files beside it."""


def run(arguments: Sequence[str]) -> None:
    command = parse("report", ReportCommand, arguments)
    from byol_explore.report.build import build_report
    from byol_explore.report.files import check_target, write_report

    if not command.directories:
        raise UserError("which runs? give one or more run or study directories")
    target = command.out or command.directories[0] / "report"
    check_target(target)
    with Console(stderr=True).status("reading runs") as status:  # only on a terminal
        report = build_report(command.directories)
        page = write_report(
            report, target, lambda done, total: status.update(f"writing: {done} of {total}"),
            page_only=command.page_only,
        )  # fmt: skip
    for table in first_table(report):
        console = Console()
        console.print(console_table(table, console.width))
    print_left_out(report.left_out)
    print(f"report: {printable(page)}")


def print_left_out(reasons: Sequence[str]) -> None:
    """One line for all runs that cannot be read."""
    if reasons:
        print(f"left out, because it cannot be read: {listed(reasons)}", file=sys.stderr)


def first_table(report: Report) -> list[Table]:
    """The table that says most, if there is one."""
    return [block for section in report.sections for block in section.blocks if isinstance(block, Table)][:1]


def console_table(table: Table, width: int) -> ConsoleTable:
    """The first columns, as many as there is room for; the page has them all."""
    drawn = ConsoleTable(title=Text(table.title), title_justify="left")
    columns: list[list[str]] = []
    for index, title in enumerate(table.columns):
        cells = [row[index] for row in table.rows]
        decimals = column_decimals(cells)
        texts = [shown(cell, decimals) for cell in cells]
        width -= max(map(len, [title, *texts])) + 3
        if width < 1 and columns:
            break
        drawn.add_column(Text(title), justify="right" if any(map(is_number, cells)) else "left", no_wrap=True)
        columns.append(texts)
    for row in zip(*columns, strict=True):
        drawn.add_row(*map(Text, row))  # whose brackets are no markup
    return drawn
