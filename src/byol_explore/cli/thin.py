"""`byol-explore thin`: runs without what a report does not need."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from byol_explore.cli.parsing import parse


@dataclass(frozen=True)
class ThinCommand:
    """Copy runs without checkpoints: small enough to publish, enough to make the report again.

    Logs are packed (metrics.jsonl.gz) with all metrics and fewer digits; of longer ones 200 lines are kept, evenly
    spaced: what was best between them is not in the copy. Of maps and films those are kept that the report of these
    runs shows, films with at most 60 frames and 64 colours.
    """

    directory: tyro.conf.Positional[Path]
    """A run or study directory."""
    out: Path
    """Where the copy goes; a directory that is empty or does not exist."""


def run(arguments: Sequence[str]) -> None:
    command = parse("thin", ThinCommand, arguments)
    from byol_explore.cli.report import print_left_out
    from byol_explore.report.thin import thin_runs
    from byol_explore.report.words import count, printable

    thinned = thin_runs(command.directory, command.out)
    size = sum(path.stat().st_size for path in command.out.rglob("*") if path.is_file())
    print_left_out(thinned.left_out)
    print(f"{count(thinned.runs, 'run')}, {size / 1e6:.1f} MB: {printable(command.out)}")
