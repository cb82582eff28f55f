"""Gymnasium's environments in processes of their own: what they fail of is heard, and they end in time.

Light: the processes import this, and not JAX.
"""

import multiprocessing
import signal
import threading
from typing import Any

from gymnasium.vector import AsyncVectorEnv
from gymnasium.vector.async_vector_env import _async_worker

from byol_explore.envs.adapters.processes import OWN_END, die_with_parent, end
from byol_explore.errors import one_line


def worker(*arguments: Any) -> None:
    """Gymnasium's own, which leaves Ctrl-C to its parent and ends with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        die_with_parent(parent.pid)
    _async_worker(*arguments)


class Errors:
    """In place of a vector environment's queue of errors: the first one is raised, with the worker's traceback.

    Gymnasium would print it, and raise another that does not know where it came from.
    """

    def __init__(self, vector: AsyncVectorEnv) -> None:
        self._queue = vector.error_queue

    def get(self) -> Any:
        index, kind, value, trace = self._queue.get()
        error = RuntimeError(f"environment {index} of the batch: {kind.__name__}: {one_line(value)}")
        error.add_note(str(trace))
        raise error


def hear_errors(vector: AsyncVectorEnv) -> AsyncVectorEnv:
    vector.error_queue = Errors(vector)  # pyright: ignore[reportAttributeAccessIssue]
    return vector


def close_in_time(vector: AsyncVectorEnv) -> None:
    """Ask all environments to close; those that do not are ended."""
    closing = threading.Thread(target=_close, args=(vector,), daemon=True)
    closing.start()
    closing.join(OWN_END)
    abort(vector)


def _close(vector: AsyncVectorEnv) -> None:
    try:
        vector.close()
    except Exception:  # one of them has gone
        abort(vector)


def abort(vector: AsyncVectorEnv) -> None:
    end(vector.processes, patiently=False)
    vector.closed = True
