"""Episodes before and after training, as far as runs have filmed them."""

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from byol_explore.report.load import Run, Runs
from byol_explore.report.model import Block, Picture, Section, Text
from byol_explore.report.own_files import own_file, read_own
from byol_explore.report.words import listed, shown_path, slug
from byol_explore.settings.config import file_name

BUDGET = 6_000_000  # bytes of all films
KINDS = (".gif", ".webp")  # as recorded, and as thin copies have them


class FilmFile(NamedTuple):
    """A film that a run left behind."""

    run: Run
    task: str
    when: str  # before or after
    path: Path

    def read(self) -> bytes:
        """An OSError or a ValueError where it has gone, or has changed since it was found."""
        return read_own(self.run.directory, self.path.relative_to(self.run.directory).as_posix(), BUDGET)


class FilmFiles(NamedTuple):
    shown: list[FilmFile]
    left_out: list[str]


def films(runs: Runs) -> Section:
    """The films that the page has room for, and the names of the others."""
    found = film_files(runs)
    if not found.shown and not found.left_out:
        return Section("films", "Episodes", [Text(_how_to_film(runs))])
    words = ["Episodes before and after training, with the intrinsic reward under the frames."]
    if found.left_out:
        words.append(f"Not shown, because the page would become too heavy: {listed(found.left_out)}.")
    blocks: list[Block] = [Text(words), *_pictures(found.shown)]
    return Section("films", "Episodes", blocks)


def _how_to_film(runs: Runs) -> list[str]:
    run = runs.of(runs.main)[0]
    where = shlex.quote(shown_path(run.directory, run.root))
    return ["No run has filmed its episodes. Films are made after training, for example by",
            f"    byol-explore film {where}"]  # fmt: skip


def film_files(runs: Runs) -> FilmFiles:
    """Of each variant's first filmed seed, the main variant first, until the budget is used up."""
    wanted = [(runs.main, task) for task in runs.tasks]
    wanted += [(variant, task) for task in runs.tasks for variant in runs.variants[1:]]
    found, left = FilmFiles([], []), BUDGET
    for variant, task in wanted:
        files = next((files for run in runs.of(variant, task) if (files := _files(run, task))), [])
        size = sum(map(_size, files))
        if size > left:
            found.left_out.append(f"{variant} on {task}")
        else:
            left -= size
            found.shown.extend(files)
    return found


def _files(run: Run, task: str) -> list[FilmFile]:
    files = []
    for when in ("before", "after"):
        paths = (own_file(run.directory, f"films/{file_name(task)}-{when}{kind}") for kind in KINDS)
        files += [FilmFile(run, task, when, path) for path in paths if path][:1]
    return files


def _size(film: FilmFile) -> int:
    try:
        return film.path.stat().st_size
    except OSError:  # gone in between
        return 0


def _pictures(found: list[FilmFile]) -> Iterator[Picture]:
    """Of all films that are still there."""
    for film in found:
        variant, task, when = film.run.variant, film.task, film.when
        title, kind = f"{variant} on {task}, {when} training", film.path.suffix.removeprefix(".")
        with contextlib.suppress(OSError, ValueError):
            yield Picture(slug("film", variant, task, when), title, kind, film.read())
