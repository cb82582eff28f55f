"""What is kept of a failure beside its one line."""

import contextlib
import traceback
from pathlib import Path

from byol_explore.errors import EnvironmentFailure
from byol_explore.files import write_atomically

FAILURE = "failure.txt"


def with_traceback(failure: EnvironmentFailure, directory: Path) -> EnvironmentFailure:
    """The failure with the file that its traceback is written to, if there is room for one."""
    with contextlib.suppress(OSError):
        write_atomically(directory / FAILURE, "".join(traceback.format_exception(failure)))
        return EnvironmentFailure(f"{failure}; the traceback is in {directory / FAILURE}")
    return failure
