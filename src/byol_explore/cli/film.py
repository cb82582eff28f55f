"""`byol-explore film`: episodes before and after training, with the intrinsic reward drawn under them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from byol_explore.cli.parsing import parse
from byol_explore.interrupts import leaving_at_once


@dataclass(frozen=True)
class FilmCommand:
    """Film an episode of each task before and after training, with the intrinsic reward under the pictures.

    The films go to <run>/films, where `byol-explore report` finds them; those of an earlier time are replaced.
    """

    run: tyro.conf.Positional[Path]
    """A run directory."""
    quiet: bool = False
    """Print nothing but errors."""


def run(arguments: Sequence[str]) -> None:
    command = parse("film", FilmCommand, arguments)
    with leaving_at_once():
        from byol_explore.playing.films import film_run

    film_run(command.run, say=(lambda text: None) if command.quiet else print)
