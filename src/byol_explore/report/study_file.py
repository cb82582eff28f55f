"""What a study says about itself."""

import tomllib
from pathlib import Path
from typing import NamedTuple

from byol_explore.report.own_files import own_file, read_own
from byol_explore.report.words import brief, printable

MOST_BYTES = 1_000_000


class StudyFacts(NamedTuple):
    name: str
    description: str


def study_facts(directory: Path) -> StudyFacts | None:
    """Of a study's directory; None for any other. A damaged file leaves only the directory's name."""
    if own_file(directory, "study.toml") is None:
        return None
    try:
        facts = tomllib.loads(read_own(directory, "study.toml", MOST_BYTES).decode())
    except (OSError, ValueError, RecursionError):
        facts = {}
    name, description = facts.get("name", directory.resolve().name), facts.get("description", "")
    return StudyFacts(brief(name), printable(" ".join(str(description).split())))
