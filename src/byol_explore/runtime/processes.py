"""Processes that learn together: what they tell each other between their programs, and how they part.

JAX connects them (`connecting.py`), and arrays may then lie on the devices of all. What is not an array goes through
the coordinator's store of keys and values. JAX ends every process whose coordinator has gone, and all of them when one
is not heard of for too long.
"""

import contextlib
import json
import signal
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.errors import DivergenceError, ProcessLost, UserError, one_line
from byol_explore.interrupts import Interrupts, at_ctrl_c, ended_at_once
from byol_explore.runtime.connecting import connect
from byol_explore.settings.parts import DistributedConfig
from byol_explore.types import Array, PyTree

_LOOK = 1000  # milliseconds between looks at what became of the others, while something is waited for
_PATIENCE = 30.0  # seconds in which others are to hear why process 0 ends: they may be compiling
_LAST_WORDS = 1.0  # seconds in which they say so
_FOLDER = "byol_explore"
_NOT_THEIRS = ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT", "UNIMPLEMENTED")  # errors of a program, not of the others


class Processes(Protocol):
    """All that learn together, seen from one of them."""

    index: int
    count: int

    def everybody(self, mine: Any) -> list[Any]:
        """What each of them says now, in their order: plain data. All ask equally often, and wait for each other."""
        ...

    def same(self, tree: PyTree) -> PyTree:
        """Arrays of process 0, in all of them; the others give arrays of the same shapes."""
        ...

    def gather(self, tree: PyTree) -> PyTree:
        """Arrays of NumPy of each of them, with an axis of processes in front."""
        ...

    def noticing(self) -> contextlib.AbstractContextManager[None]:
        """While arrays of all are computed: what the loss of one makes of it is said in one line."""
        ...


class Alone:
    """One process, which learns by itself."""

    index, count = 0, 1

    def everybody(self, mine: Any) -> list[Any]:
        return [mine]

    def same(self, tree: PyTree) -> PyTree:
        return tree

    def gather(self, tree: PyTree) -> PyTree:
        return jax.tree.map(lambda x: np.asarray(x)[None], tree)

    def noticing(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class Together:
    """One of several processes that have found each other."""

    def __init__(self, settings: DistributedConfig) -> None:
        self.index, self.count = settings.process, settings.processes
        self._store = _store()
        self._round = 0
        self._is_interrupted = False

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-C, which is remembered: what is raised where Python was called by a library may be lost."""
        self._is_interrupted = True
        raise KeyboardInterrupt

    def everybody(self, mine: Any) -> list[Any]:
        if self._is_interrupted:
            raise KeyboardInterrupt
        self._round += 1
        self._set(f"said/{self._round}/{self.index}", mine)
        said = [self._wait(f"said/{self._round}/{each}") for each in range(self.count)]
        self._forget(f"said/{self._round - 1}/{self.index}")  # who speaks now has heard all that was said then
        return said

    def same(self, tree: PyTree) -> PyTree:
        from jax.experimental.multihost_utils import broadcast_one_to_all

        leaves, structure = jax.tree.flatten(tree)
        plain = [np.asarray(jax.random.key_data(x) if _is_key(x) else x) for x in leaves]
        mine = np.frombuffer(b"".join(x.tobytes() for x in plain), np.uint8)
        with self.noticing():
            first = np.asarray(broadcast_one_to_all(mine))
        ends = np.cumsum([x.nbytes for x in plain])
        parts = [first[end - x.nbytes : end] for x, end in zip(plain, ends, strict=True)]
        taken = [np.frombuffer(part.tobytes(), x.dtype).reshape(x.shape) for x, part in zip(plain, parts, strict=True)]
        return structure.unflatten(
            jax.random.wrap_key_data(jnp.asarray(x)) if _is_key(like) else x
            for x, like in zip(taken, leaves, strict=True)
        )

    def gather(self, tree: PyTree) -> PyTree:
        from jax.experimental.multihost_utils import process_allgather

        with self.noticing():
            return jax.tree.map(lambda x, like: np.asarray(x, like.dtype), process_allgather(tree), tree)

    @contextlib.contextmanager
    def noticing(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, ValueError) as error:  # which of them, JAX leaves to chance
            if not str(error).split(":")[0].isupper() or str(error).startswith(_NOT_THEIRS):
                raise
            raise self._lost() from error

    def fail(self, error: BaseException) -> None:
        """Tell all others why this one ends, unless one of them has said it."""
        if not (isinstance(error, ProcessLost) and self._failure() is not None):
            with contextlib.suppress(RuntimeError, UserError):  # nobody listens any more
                self._set(f"failed/{self.index}", _last_words(error))
        with contextlib.suppress(RuntimeError):
            self._part()

    def _part(self) -> None:
        """Process 0, whose store it is, goes last: JAX ends whoever is left without it, before they can say a word."""
        if self.index > 0:
            self._store.key_value_set(f"{_FOLDER}/parted/{self.index}", "")
            return
        end = time.monotonic() + _PATIENCE
        for other in range(1, self.count):
            while time.monotonic() < end and not self._has_parted(other):
                pass
        time.sleep(_LAST_WORDS)

    def _has_parted(self, other: int) -> bool:
        """Within a second, so that Ctrl-C is not kept waiting."""
        try:
            self._store.blocking_key_value_get(f"{_FOLDER}/parted/{other}", _LOOK)
        except RuntimeError as error:
            if _is_late(error):
                return False
            raise
        return True

    def _set(self, key: str, value: Any) -> None:
        try:
            self._store.key_value_set(f"{_FOLDER}/{key}", json.dumps(value))
        except RuntimeError as error:
            raise self._lost() from error

    def _forget(self, key: str) -> None:
        with contextlib.suppress(RuntimeError):
            self._store.key_value_delete(f"{_FOLDER}/{key}")

    def _wait(self, key: str) -> Any:
        """As long as it takes, while all are alive: process 0 may have an evaluation to play."""
        while True:
            try:
                return json.loads(self._store.blocking_key_value_get(f"{_FOLDER}/{key}", _LOOK))
            except RuntimeError as error:
                if not _is_late(error):
                    raise self._lost() from error
            if failure := self._failure():
                raise failure

    def _failure(self) -> ProcessLost | None:
        """Why one of the others has ended, if it has said so."""
        with contextlib.suppress(RuntimeError):
            for key, said in self._store.key_value_dir_get(f"{_FOLDER}/failed"):
                number = key.rpartition("/")[2]
                if int(number) != self.index:
                    words, code = json.loads(said)
                    return ProcessLost(f"process {number} has ended: {words}", code)
        return None

    def _lost(self) -> ProcessLost:
        other = f"process {1 - self.index}" if self.count == 2 else "another process"
        return self._failure() or ProcessLost(
            f"{other} has ended or cannot be reached; continue with --resume in all of them"
        )


ALONE = Alone()


@contextlib.contextmanager
def joined(settings: DistributedConfig) -> Iterator[Processes]:
    """All processes of a run, from here to the end; a failure of one is told to the others."""
    if settings.processes == 1:
        yield ALONE
        return
    with ended_at_once():
        connect(settings)
    processes = Together(settings)
    try:
        with at_ctrl_c(processes.interrupt):
            yield processes
    except Interrupts.Stopped:
        _leave()
        raise
    except BaseException as error:
        processes.fail(error)
        raise
    _leave()


def _last_words(error: BaseException) -> tuple[str, int]:
    """What others are told of a failure, and with which code they end: all of them with Ctrl-C's after Ctrl-C."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 128 + signal.SIGINT
    known = isinstance(error, UserError | DivergenceError)
    said = str(error) if known else f"{type(error).__name__} {one_line(error)}".strip()
    return said, ProcessLost.exit_code


def _leave() -> None:
    """All together; the work is done, and whoever has gone already is not missed."""
    with contextlib.suppress(RuntimeError):
        jax.distributed.shutdown()


def _store() -> Any:
    """The coordinator's store of keys and values: JAX has no public name for it, though Orbax uses it too."""
    from jax._src import distributed

    return distributed.global_state.client


def _is_late(error: RuntimeError) -> bool:
    """Whether something was only not said in time."""
    return str(error).startswith("DEADLINE_EXCEEDED")


def _is_key(x: Array) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
