"""`byol-explore report`, `watch` and `publish`."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.console import Console
from rich.table import Table as ConsoleTable
from rich.text import Text

from byol_explore.cli.parsing import parse
from byol_explore.errors import UserError
from byol_explore.utils.formatting import escape_unprintable, join_list, plural

if TYPE_CHECKING:
    from byol_explore.report.model import Table


@dataclass(frozen=True)
class ReportCommand:
    """Compare runs: one page to open in a browser, and its figures and tables as files beside it.

    Runs that cannot be read are named and left out. Only files inside the run directories are used.
    """

    directories: tyro.conf.Positional[tuple[Path, ...]]
    """Run or study directories; all runs below them are compared."""
    out: Path | None = None
    """Where the report is written; default <first directory>/report. An older report there is replaced."""
    main: str = ""
    """Variant that the others are compared with; default the study's first one, else byol-explore."""
    page_only: bool = False
    """Write the page by itself, without figures and tables as files beside it."""


def run_report(arguments: Sequence[str]) -> None:
    command = parse("report", ReportCommand, arguments)
    from byol_explore.report.build import build_report, check_target, write_report
    from byol_explore.report.model import Table

    if not command.directories:
        raise UserError("which runs? give one or more run or study directories")
    target = command.out or command.directories[0] / "report"
    check_target(target)
    with Console(stderr=True).status("reading runs") as status:  # only on a terminal
        report = build_report(command.directories, main=command.main)
        page = write_report(
            report, target, lambda done, total: status.update(f"writing: {done} of {total}"),
            page_only=command.page_only,
        )  # fmt: skip
    console = Console()
    tables = [block for section in report.sections for block in section.blocks if isinstance(block, Table)]
    for table in tables[:1]:  # the one that says most
        console.print(console_table(table, console.width))
    print_damage(report.left_out, report.damage)
    print(f"report: {escape_unprintable(page)}")


def print_damage(left_out: Sequence[str], damage: Sequence[str]) -> None:
    """Print one line for all runs that cannot be read, and one for damaged files of others."""
    if left_out:
        print(f"left out, because it cannot be read: {join_list(left_out)}", file=sys.stderr)
    if damage:
        print(f"damaged: {join_list(damage)}", file=sys.stderr)


def console_table(table: "Table", width: int) -> ConsoleTable:
    """Return the first columns, as many as there is room for; the page has them all."""
    drawn = ConsoleTable(title=Text(table.title), title_justify="left")
    columns: list[list[str]] = []
    for column in table.formatted_columns():
        width -= max(map(len, [column.title, *column.texts])) + 3
        if width < 1 and columns:
            break
        drawn.add_column(Text(column.title), justify="right" if column.numeric else "left", no_wrap=True)
        columns.append(column.texts)
    for row in zip(*columns, strict=True):
        drawn.add_row(*map(Text, row))  # Text: brackets in names are no markup
    return drawn


@dataclass(frozen=True)
class WatchCommand:
    """Show the report of runs while they train, in a browser on this machine; Ctrl-C ends it."""

    directories: tyro.conf.Positional[tuple[Path, ...]]
    """Run or study directories; they need not exist yet."""
    port: int = 8600
    """Port of the page, http://127.0.0.1:PORT; 0 chooses a free one."""
    interval: float = 5.0
    """Seconds between reads of the runs."""


def run_watch(arguments: Sequence[str]) -> None:
    command = parse("watch", WatchCommand, arguments)
    from byol_explore.report.build import build_report
    from byol_explore.report.live import LiveReport, make_server
    from byol_explore.utils.local_server import ADDRESS

    if not command.directories:
        raise UserError("which runs? give one or more run or study directories")
    for directory in command.directories:
        if directory.exists() and not directory.is_dir():
            raise UserError(f"{directory} is a file: give one or more run or study directories")
    if not command.interval > 0:
        raise UserError(f"interval is {command.interval}: it must be more than 0 seconds")
    live = LiveReport(command.directories, build_report, command.interval)
    with make_server(live, command.port) as server:
        names = ", ".join(map(escape_unprintable, command.directories))
        print(f"watching {names} at http://{ADDRESS}:{server.server_port} (Ctrl-C ends it)", flush=True)
        live.start()
        try:
            server.serve_forever()
        finally:
            live.stop()


@dataclass(frozen=True)
class PublishCommand:
    """Copy runs without checkpoints: small enough to publish, enough to make the report again.

    Logs are compressed (metrics.jsonl.gz), with all metrics and fewer digits. A long log keeps 200 evenly spaced lines,
    which need not contain the best ones. Maps and films are kept if the report of these runs shows them, films with at
    most 60 frames and 64 colours.
    """

    directory: tyro.conf.Positional[Path]
    """A run or study directory."""
    out: Path
    """Where the copy goes; a directory that is empty or does not exist."""


def run_publish(arguments: Sequence[str]) -> None:
    command = parse("publish", PublishCommand, arguments)
    from byol_explore.report.publish import publish_runs

    result = publish_runs(command.directory, command.out)
    size = sum(path.stat().st_size for path in command.out.rglob("*") if path.is_file())
    print_damage(result.left_out, result.damage)
    print(f"{plural(result.runs, 'run')}, {size / 1e6:.1f} MB: {escape_unprintable(command.out)}")
