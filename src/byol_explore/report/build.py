"""A report from run directories."""

from collections.abc import Iterable
from pathlib import Path

from byol_explore.report.curiosity import curiosity
from byol_explore.report.differences import differences
from byol_explore.report.films import films
from byol_explore.report.headline import headline
from byol_explore.report.learning import learning
from byol_explore.report.load import Runs, load_runs
from byol_explore.report.model import Report
from byol_explore.report.outcomes import outcomes
from byol_explore.report.places import places
from byol_explore.report.reproduce import reproduce
from byol_explore.report.stages import stages
from byol_explore.report.study_file import study_facts
from byol_explore.report.tables import tasks_section
from byol_explore.report.words import listed


def build_report(directories: str | Path | Iterable[str | Path]) -> Report:
    """Everything that the runs at or below a directory, or several, have to say; a UserError if there are none."""
    runs = load_runs(directories)
    found = outcomes(runs)
    sections = [
        headline(runs, found),
        learning(runs),
        tasks_section(runs, found),
        *stages(runs),
        curiosity(runs),
        places(runs, found),
        films(runs),
        differences(runs),
        reproduce(runs),
    ]
    return Report(_title(runs), runs.variants, sections, runs.unreadable)


def _title(runs: Runs) -> str:
    """The name of a study, or the tasks."""
    facts = study_facts(runs.roots[0])
    return listed(runs.tasks, most=3) if facts is None else facts.name
