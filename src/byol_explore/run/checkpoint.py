"""Checkpoints of a run: everything, written atomically by Orbax, verified when read."""

import json
import logging
import math
import os
import re
import shutil
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from byol_explore.errors import UserError, one_line
from byol_explore.files import write_atomically
from byol_explore.types import PyTree

_PREFIX = "step_"
_UNFINISHED = ".orbax-checkpoint-tmp"  # Orbax's ending for what it is still writing
_ORBAX_LOG = "absl"
_DAMAGED = "damaged_"
_QUIET, _LONGEST_WAIT = 1.0, 5.0  # seconds without a late write after which none is awaited, and in all
_KEEP_LATEST = 2
_STATUS = re.compile(r"[A-Z_]+: ")  # how the errors of Orbax's storage begin: they are ValueErrors, whatever happened
_SYSTEM_CODE = re.compile(r"os_error_code='(\d+)'")


class Restored(NamedTuple):
    state: PyTree
    meta: dict[str, Any]
    damaged: list[str]  # newer checkpoints that could not be used, with the reason


class _OtherNetworkError(ValueError):
    """A checkpoint that is whole, but of arrays that have no place here."""


class Checkpoints:
    """The checkpoints of one run: the newest two and the best."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()

    def steps(self) -> list[int]:
        """Steps of the finished checkpoints, oldest first; one being written has another name until it is whole."""
        names = [path.name for path in self.directory.glob(f"{_PREFIX}*") if path.is_dir()]
        return sorted(int(name.removeprefix(_PREFIX)) for name in names if name.removeprefix(_PREFIX).isdigit())

    def save(self, step: int, state: PyTree, meta: dict[str, Any], score: float | None) -> None:
        """Write a checkpoint, then drop those that are neither among the newest nor the best.

        One without a score is worse than any other.
        """
        arrays = _pack(state)
        meta = {**meta, "step": step, "score": score, "checksums": {k: _checksum(v) for k, v in arrays.items()}}
        args = ocp.args.Composite(
            state=ocp.args.StandardSave(arrays), meta=ocp.args.JsonSave({**meta, "checksum": _checksum_of_meta(meta)})
        )
        self._drop_unfinished()
        _LateAnswers.ignore()
        try:
            with _checkpointer() as checkpointer:
                checkpointer.save(self._path(step), args, force=True)
        except (OSError, ValueError) as error:
            self._drop_late_writes()
            if (reason := _refusal(error)) is None:
                raise
            newest = f"the newest one is of step {kept[-1]:,}" if (kept := self.steps()) else "there is none yet"
            path = self._path(step)
            raise UserError(f"a checkpoint could not be written to {path}: {reason}; {newest}") from error
        self._write_index(step, score)
        self._drop_old()

    def restore(self, template: PyTree, *, step: int | None = None, part: str = "") -> Restored:
        """The newest whole checkpoint (or the one of a step), shaped and placed like the template.

        With `part`, the path of a subtree such as "learner.acting", only that is asked for.
        """
        damaged: list[str] = []
        _LateAnswers.ignore()
        for candidate in reversed(self.steps() if step is None else [step]):
            try:
                arrays, meta = self._read(candidate)
                return Restored(_unpack(_subtree(arrays, part), template), meta, damaged)
            except _OtherNetworkError as error:  # so are all others
                raise UserError(f"{self._path(candidate)} is of another network: {error}") from error
            except Exception as error:  # whatever a damaged file makes Orbax raise
                reason = str(error).strip().splitlines() or [type(error).__name__]
                damaged.append(f"{self._path(candidate).name} ({reason[0][:120]})")
        detail = f"; not usable: {', '.join(damaged)}" if damaged else ""
        raise UserError(f"no whole checkpoint in {self.directory}{detail}")

    def set_aside(self, *, after: int) -> None:
        """Rename all checkpoints after a step: they are damaged, and would count as newer than what is written now."""
        for step in self.steps():
            if step > after:
                aside = self.directory / f"{_DAMAGED}{self._path(step).name}"
                shutil.rmtree(aside, ignore_errors=True)
                self._path(step).rename(aside)

    def best_step(self) -> int | None:
        """Step of the checkpoint with the highest score, the newest of equals."""
        scores = {int(step): -math.inf if score is None else score for step, score in self._index().items()}
        present = [step for step in self.steps() if step in scores]
        return max(present, key=lambda step: (scores[step], step)) if present else None

    def _path(self, step: int) -> Path:
        return self.directory / f"{_PREFIX}{step:012d}"

    def _read(self, step: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """All arrays by name, and what was saved beside them; both are what was written."""
        with _checkpointer() as checkpointer:
            stored = checkpointer.restore(
                self._path(step), ocp.args.Composite(state=ocp.args.StandardRestore(), meta=ocp.args.JsonRestore())
            )
        arrays, meta = stored["state"], stored["meta"]
        if meta.pop("checksum", None) != _checksum_of_meta(meta):
            raise OSError("checksum of meta does not match")
        if set(arrays) != set(meta["checksums"]):
            raise OSError("arrays are missing")
        for name, array in arrays.items():
            if _checksum(array) != meta["checksums"][name]:
                raise OSError(f"checksum of {name} does not match")
        return arrays, meta

    def _drop_unfinished(self) -> bool:
        """What a process was writing when it was killed, or when it failed; whether there was anything."""
        paths = list(self.directory.glob(f"*{_UNFINISHED}"))
        for path in paths:
            shutil.rmtree(path, ignore_errors=True)
        return bool(paths)

    def _drop_late_writes(self) -> None:
        """Those that other threads of a failed save still end, until none has come for a while."""
        now = time.monotonic()
        quiet_until, end = now + _QUIET, now + _LONGEST_WAIT
        while now < min(quiet_until, end):
            if self._drop_unfinished():
                quiet_until = now + _QUIET
            time.sleep(_QUIET / 10)
            now = time.monotonic()

    def _drop_old(self) -> None:
        steps = self.steps()
        keep = {*steps[-_KEEP_LATEST:], self.best_step()}
        for step in steps:
            if step not in keep:
                shutil.rmtree(self._path(step), ignore_errors=True)

    def _index(self) -> dict[str, float]:
        path = self.directory / "scores.json"
        try:
            return json.loads(path.read_text())
        except (OSError, ValueError):
            return {}

    def _write_index(self, step: int, score: float | None) -> None:
        present = {str(s) for s in self.steps()}
        scores = {s: value for s, value in self._index().items() if s in present}
        write_atomically(self.directory / "scores.json", json.dumps({**scores, str(step): score}))


class _LateAnswers(logging.Filter):
    """Reads and writes that end after another one has failed, when Orbax no longer listens: Python would print them."""

    def __init__(self, hook: Callable[[Any], None]) -> None:
        super().__init__()
        self.hook = hook

    def __call__(self, unraisable: Any) -> None:
        if "Event loop is closed" not in str(unraisable.exc_value):
            self.hook(unraisable)

    def filter(self, record: logging.LogRecord) -> bool:
        """Of messages from Orbax and asyncio, those about a failure of the storage go nowhere: it is raised as well."""
        error = record.exc_info[1] if record.exc_info else None
        is_refusal = isinstance(error, OSError) and record.name == _ORBAX_LOG
        return not (error is not None and (is_refusal or _STATUS.match(str(error))))

    @classmethod
    def ignore(cls) -> None:
        """From now on: they may come at any time."""
        if not isinstance(sys.unraisablehook, cls):
            sys.unraisablehook = cls(sys.unraisablehook)
            for name in (_ORBAX_LOG, "asyncio"):
                logging.getLogger(name).addFilter(sys.unraisablehook)


def _refusal(error: Exception) -> str | None:
    """Why the system refused something, such as another byte on a full disk; None if it did not."""
    if not isinstance(error, OSError) and not _STATUS.match(str(error)):
        return None
    code = _SYSTEM_CODE.search(str(error))
    return os.strerror(int(code[1])) if code else one_line(error)


def _checkpointer() -> ocp.Checkpointer:
    """Of this process alone: where several learn together, the first reads and writes for all of them."""
    alone = ocp.options.MultiprocessingOptions(primary_host=0, active_processes={0})
    handler = ocp.CompositeCheckpointHandler(composite_options=ocp.CompositeOptions(multiprocessing_options=alone))
    return ocp.Checkpointer(handler, multiprocessing_options=alone)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _pack(tree: PyTree) -> dict[str, np.ndarray]:
    """All leaves by name, as plain arrays; empty ones are left out because Orbax has no place for them."""
    arrays = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        array = np.asarray(_plain(leaf))
        if array.size:
            arrays[_name(path)] = array
    return arrays


def _plain(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _subtree(arrays: dict[str, np.ndarray], part: str) -> dict[str, np.ndarray]:
    if not part:
        return arrays
    return {name.removeprefix(f"{part}."): a for name, a in arrays.items() if name.startswith(f"{part}.")}


def _unpack(arrays: dict[str, np.ndarray], template: PyTree) -> PyTree:
    """Arrays in the places of the template; an error if they are not those that it has."""
    left = dict(arrays)

    def leaf(path: tuple[Any, ...], like: Any) -> Any:
        name, plain = _name(path), jax.eval_shape(_plain, like)
        array = left.pop(name, None)
        if array is None and plain.size == 0:
            array = np.zeros(plain.shape, plain.dtype)
        if array is None or (array.shape, array.dtype) != (plain.shape, plain.dtype):
            raise _OtherNetworkError(f"{name} is {_describe(array)}, not {_describe(plain)}")
        value = jax.random.wrap_key_data(jnp.asarray(array)) if _is_key(like) else array
        return jax.device_put(value, like.sharding)

    state = jax.tree_util.tree_map_with_path(leaf, template)
    if left:
        raise _OtherNetworkError(f"it also has {next(iter(left))}")
    return state


def _describe(array: Any) -> str:
    return "missing" if array is None else f"{array.dtype}{list(array.shape)}"


def _checksum(array: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(array).tobytes())


def _checksum_of_meta(meta: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(meta, sort_keys=True).encode())
