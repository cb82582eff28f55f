"""What a study says about itself."""

import tomllib
from pathlib import Path
from typing import NamedTuple


class StudyFacts(NamedTuple):
    name: str
    description: str


def study_facts(directory: Path) -> StudyFacts | None:
    """Of a study's directory; None for any other. A damaged file leaves only the directory's name."""
    path = directory / "study.toml"
    if not path.is_file():
        return None
    try:
        facts = tomllib.loads(path.read_text())
    except (OSError, ValueError):
        facts = {}
    return StudyFacts(str(facts.get("name", directory.resolve().name)), str(facts.get("description", "")))
