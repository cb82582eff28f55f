"""Names of a report's sections and blocks, for links in the page and for files: plain, and none twice."""

import re
from collections.abc import Iterator

from byol_explore.report.model import Block, Report, Text

LONGEST = 150  # letters: a file name has room for 255, endings included


def named_sections(report: Report) -> Iterator[tuple[str, list[tuple[str, Block]]]]:
    """The name of each section with its named blocks; texts need no name of their own."""
    sections: set[str] = set()
    blocks: set[str] = set()
    for section in report.sections:
        name = _fresh(section.name, sections)
        yield name, [(_fresh("text" if isinstance(b, Text) else b.name, blocks), b) for b in section.blocks]


def _fresh(name: str, taken: set[str]) -> str:
    """Letters, digits, dots and dashes only; with a number behind if the name is taken."""
    plain = re.sub(r"[^\w.]+", "-", name, flags=re.ASCII).strip("-.")[:LONGEST] or "unnamed"
    unique, count = plain, 1
    while unique.lower() in taken:  # some file systems do not tell case apart
        count += 1
        unique = f"{plain}-{count}"
    taken.add(unique.lower())
    return unique
