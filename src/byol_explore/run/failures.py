"""What is kept of a failure beside its one line."""

import contextlib
import traceback
from pathlib import Path

from byol_explore.errors import EnvironmentFailure
from byol_explore.files import write_atomically

FAILURE = "failure.txt"
_TITLE = "what ended this run of byol-explore\n\n"


def with_traceback(failure: EnvironmentFailure, directory: Path) -> EnvironmentFailure:
    """The failure with the file that its traceback is written to, if there is room for one."""
    with contextlib.suppress(OSError):
        write_atomically(directory / FAILURE, _TITLE + "".join(traceback.format_exception(failure)))
        return EnvironmentFailure(f"{failure}; the traceback is in {directory / FAILURE}")
    return failure


def is_failure(path: Path) -> bool:
    """Whether a file is one that `with_traceback` wrote."""
    return path.name == FAILURE and path.read_text(errors="replace").startswith(_TITLE)
