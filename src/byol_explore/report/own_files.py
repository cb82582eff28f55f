"""Files that a run left in its directory, which may come from somebody else or be damaged.

They are taken from inside the directory only: a link that leads out of it could carry anything on this machine into a
page or a copy that is published. What is no file, such as a pipe, would be read for ever.
"""

import json
from pathlib import Path
from typing import Any

MOST_BYTES = 64_000_000
DAMAGE = (OSError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError)
"""What making sense of a damaged file may end in."""


def own_file(directory: Path, name: str) -> Path | None:
    """A file of a directory; None where there is none, or it is no file, or it is a link that leads out."""
    path = directory / name
    try:
        inside = path.resolve().is_relative_to(directory.resolve())
        return path if inside and path.is_file() else None
    except (OSError, ValueError, RuntimeError):  # a name that no file can have, links in a circle
        return None


def read_own(directory: Path, name: str, most: int = MOST_BYTES) -> bytes:
    """What a file of a directory holds; an OSError or a ValueError that says why it cannot be had."""
    path = own_file(directory, name)
    if path is None:
        raise ValueError(f"{name} is no file in this directory")
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"{name} has more than {most:,} bytes")
    return data


def read_object(directory: Path, name: str, most: int = MOST_BYTES) -> dict[str, Any]:
    """The JSON object in a file of a directory; an OSError or a ValueError that says why it cannot be had."""
    try:
        data = json.loads(read_own(directory, name, most))
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{name} is no JSON: {error}") from None
    if not isinstance(data, dict):
        raise ValueError(f"{name} holds no object")
    return data
