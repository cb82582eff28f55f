"""`byol-explore watch`: a report on this machine that keeps up with its runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from byol_explore.cli.parsing import parse
from byol_explore.errors import UserError


@dataclass(frozen=True)
class WatchCommand:
    """Show the report of runs while they train, in a browser on this machine; Ctrl-C ends it."""

    directories: tyro.conf.Positional[tuple[Path, ...]]
    """Run or study directories; they need not exist yet."""
    port: int = 8600
    """Of the page: http://127.0.0.1:PORT; 0 is any that is free."""
    every: float = 5.0
    """Seconds between looks at the runs."""


def run(arguments: Sequence[str]) -> None:
    command = parse("watch", WatchCommand, arguments)
    from byol_explore.loopback import ADDRESS
    from byol_explore.report.build import build_report
    from byol_explore.report.serve import LiveReport, make_server
    from byol_explore.report.words import printable

    if not command.directories:
        raise UserError("which runs? give one or more run or study directories")
    for directory in command.directories:
        if directory.exists() and not directory.is_dir():
            raise UserError(f"{directory} is a file: give one or more run or study directories")
    if not command.every > 0:
        raise UserError(f"every is {command.every}: it must be more than 0 seconds")
    live = LiveReport(command.directories, build_report, command.every)
    with make_server(live, command.port) as server:
        names = ", ".join(map(printable, command.directories))
        print(f"watching {names} at http://{ADDRESS}:{server.server_port} (Ctrl-C ends it)", flush=True)
        live.start()
        try:
            server.serve_forever()
        finally:
            live.stop()
