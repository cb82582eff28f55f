"""Episodes before and after training, as far as runs have filmed them."""

from byol_explore.config import file_name
from byol_explore.report.load import Run, Runs
from byol_explore.report.model import Block, Picture, Section, Text
from byol_explore.report.words import listed, slug

BUDGET = 6_000_000  # bytes of all films


def films(runs: Runs) -> Section:
    """Of each variant's first filmed seed, the main variant first, until the budget is used up."""
    wanted = [(runs.main, task) for task in runs.tasks]
    wanted += [(variant, task) for task in runs.tasks for variant in runs.variants[1:]]
    left, shown, left_out = BUDGET, [], []
    for variant, task in wanted:
        pictures = next((films for run in runs.of(variant, task) if (films := _films(run, task))), [])
        size = sum(len(picture.data) for picture in pictures)
        if size > left:
            left_out.append(f"{variant} on {task}")
        else:
            left -= size
            shown += pictures
    return Section("films", "Episodes", _blocks(shown, left_out))


def _blocks(shown: list[Picture], left_out: list[str]) -> list[Block]:
    if not shown and not left_out:
        return [Text(["No run has filmed its episodes."])]
    words = ["Episodes before and after training, with the intrinsic reward under the frames."]
    if left_out:
        words.append(f"Not shown, because the page would become too heavy: {listed(left_out)}.")
    return [Text(words), *shown]


def _films(run: Run, task: str) -> list[Picture]:
    pictures = []
    for when in ("before", "after"):
        path = run.directory / "films" / f"{file_name(task)}-{when}.gif"
        if path.is_file():
            title = f"{run.variant} on {task}, {when} training"
            pictures.append(Picture(slug("film", run.variant, task, when), title, "gif", path.read_bytes()))
    return pictures
