"""Episodes before and after training, as far as runs have filmed them."""

from pathlib import Path
from typing import NamedTuple

from byol_explore.report.load import Run, Runs
from byol_explore.report.model import Block, Picture, Section, Text
from byol_explore.report.words import listed, slug
from byol_explore.settings.config import file_name

BUDGET = 6_000_000  # bytes of all films
KINDS = (".gif", ".webp")  # as recorded, and as thin copies have them


class FilmFile(NamedTuple):
    """A film that a run left behind."""

    run: Run
    task: str
    when: str  # before or after
    path: Path


class FilmFiles(NamedTuple):
    shown: list[FilmFile]
    left_out: list[str]


def films(runs: Runs) -> Section:
    """The films that the page has room for, and the names of the others."""
    found = film_files(runs)
    if not found.shown and not found.left_out:
        return Section("films", "Episodes", [Text(["No run has filmed its episodes."])])
    words = ["Episodes before and after training, with the intrinsic reward under the frames."]
    if found.left_out:
        words.append(f"Not shown, because the page would become too heavy: {listed(found.left_out)}.")
    blocks: list[Block] = [Text(words), *map(_picture, found.shown)]
    return Section("films", "Episodes", blocks)


def film_files(runs: Runs) -> FilmFiles:
    """Of each variant's first filmed seed, the main variant first, until the budget is used up."""
    wanted = [(runs.main, task) for task in runs.tasks]
    wanted += [(variant, task) for task in runs.tasks for variant in runs.variants[1:]]
    found, left = FilmFiles([], []), BUDGET
    for variant, task in wanted:
        files = next((files for run in runs.of(variant, task) if (files := _files(run, task))), [])
        size = sum(file.path.stat().st_size for file in files)
        if size > left:
            found.left_out.append(f"{variant} on {task}")
        else:
            left -= size
            found.shown.extend(files)
    return found


def _files(run: Run, task: str) -> list[FilmFile]:
    files = []
    for when in ("before", "after"):
        paths = (run.directory / "films" / f"{file_name(task)}-{when}{kind}" for kind in KINDS)
        files += [FilmFile(run, task, when, path) for path in paths if path.is_file()][:1]
    return files


def _picture(film: FilmFile) -> Picture:
    variant, task, when = film.run.variant, film.task, film.when
    kind, data = film.path.suffix.removeprefix("."), film.path.read_bytes()
    return Picture(slug("film", variant, task, when), f"{variant} on {task}, {when} training", kind, data)
