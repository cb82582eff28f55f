"""Files that are there as a whole or not at all."""

from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """The whole file or the old one, never half of it."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text)
    temporary.replace(path)
