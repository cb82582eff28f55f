"""Checkpoints: write, verify, restore parts, retain."""

import contextlib
import logging
import math
import os
import re
import shutil
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.agent.state import LearnerState
from byol_explore.errors import UserError
from byol_explore.ops.arrays import StructureError, from_named_leaves, named_leaves
from byol_explore.storage.run_directory import load_config, read_checkpoint_meta
from byol_explore.types import Array, PyTree
from byol_explore.utils.files import DAMAGE_ERRORS, add_checksum, split_checksum
from byol_explore.utils.formatting import one_line
from byol_explore.utils.packages import require_extra

if TYPE_CHECKING:
    import orbax.checkpoint as ocp

_PREFIX = "step_"
_UNFINISHED = ".orbax-checkpoint-tmp"  # Orbax's suffix of a directory that it still writes
_ORBAX_LOG = "absl"
_DAMAGED = "damaged_"
_QUIET, _MAX_WAIT = 1.0, 5.0  # seconds without a late write until the wait ends, and of the whole wait
_KEEP_LATEST = 2
_STATUS = re.compile(r"[A-Z_]+: ")  # begins the errors of Orbax's storage, which are ValueErrors for every cause
_SYSTEM_CODE = re.compile(r"os_error_code='(\d+)'")


Score = float | Sequence[float]


class Restored(NamedTuple):
    """A checkpoint that was read."""

    state: PyTree
    meta: dict[str, Any]
    skipped: list[str]  # newer checkpoints that are damaged, with the reason


class Checkpoints:
    """The checkpoints of one run: the newest two and the best."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()

    def steps(self) -> list[int]:
        """Return the steps of the finished checkpoints, oldest first."""
        # Orbax renames a checkpoint to its own name when all of it is written.
        names = [path.name for path in self.directory.glob(f"{_PREFIX}*") if path.is_dir()]
        return sorted(int(name.removeprefix(_PREFIX)) for name in names if name.removeprefix(_PREFIX).isdigit())

    def save(self, step: int, state: PyTree, meta: dict[str, Any], score: Score | None) -> None:
        """Write a checkpoint, then delete those that are neither among the newest nor the best.

        Args:
          step: environment steps of the run.
          state: arrays and random keys.
          meta: JSON data to save beside the arrays.
          score: the checkpoint with the highest one is the best; later numbers break ties, None is below all others.
        """
        ocp = _import_orbax()
        arrays = _pack(state)
        meta = {**meta, "step": step, "score": score, "checksums": _checksums(arrays)}
        args = ocp.args.Composite(state=ocp.args.StandardSave(arrays), meta=ocp.args.JsonSave(add_checksum(meta)))
        self._delete_unfinished()
        _LateErrorFilter.install()
        try:
            with _checkpointer() as checkpointer:
                checkpointer.save(self._path(step), args, force=True)
        except (OSError, ValueError) as error:
            self._delete_late_writes()
            if (reason := _storage_error(error)) is None:
                raise
            newest = f"the newest one is of step {kept[-1]:,}" if (kept := self.steps()) else "there is none yet"
            path = self._path(step)
            raise UserError(f"a checkpoint could not be written to {path}: {reason}; {newest}") from error
        self._delete_old()

    def restore(self, template: PyTree, *, step: int | None = None, part: str = "") -> Restored:
        """Read the newest intact checkpoint; damaged ones are skipped.

        Args:
          template: arrays, or their shapes, in the structure to return and with the shardings to use.
          step: read the checkpoint of this step only.
          part: path of a subtree, such as "learner.target_actor": restore that alone.

        Returns:
          Restored. Raises UserError if no checkpoint is intact, or if its arrays do not fit the template.
        """
        damaged: list[str] = []
        _import_orbax()  # its absence is no damage
        _LateErrorFilter.install()
        for candidate in reversed(self.steps() if step is None else [step]):
            try:
                arrays, meta = self._read(candidate)
                return Restored(_unpack(_subtree(arrays, part), template), meta, damaged)
            except StructureError as error:  # all checkpoints of a run are of the same network
                raise UserError(f"{self._path(candidate)} is of another network: {error}") from error
            except Exception as error:  # damaged files make Orbax raise errors of any type
                reason = str(error).strip().splitlines() or [type(error).__name__]
                damaged.append(f"{self._path(candidate).name} ({reason[0][:120]})")
        detail = f"; not usable: {', '.join(damaged)}" if damaged else ""
        raise UserError(f"no whole checkpoint in {self.directory}{detail}")

    def quarantine(self, *, after: int) -> None:
        """Rename the damaged checkpoints after a step, which would count as newer than the next ones."""
        for step in self.steps():
            if step > after:
                aside = self.directory / f"{_DAMAGED}{self._path(step).name}"
                shutil.rmtree(aside, ignore_errors=True)
                self._path(step).rename(aside)

    def scores(self) -> dict[int, Score | None]:
        """Return the scores of the checkpoints by step, without those whose metadata are damaged."""
        scores = {}
        for step in self.steps():
            with contextlib.suppress(*DAMAGE_ERRORS):
                score = read_checkpoint_meta(self._path(step))["score"]
                _sort_key(score)
                scores[step] = score
        return scores

    def without_score(self) -> list[str]:
        """Describe the checkpoints whose score cannot be read."""
        return [f"{self._path(step).name} (its score is damaged)" for step in self.steps() if step not in self.scores()]

    def best_step(self) -> int | None:
        """Return the step of the checkpoint with the highest score, the newest of equals; None without any."""
        scores = {step: _sort_key(score) for step, score in self.scores().items()}
        return max(scores, key=lambda step: (scores[step], step), default=None)

    def _path(self, step: int) -> Path:
        return self.directory / f"{_PREFIX}{step:012d}"

    def _read(self, step: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Read all arrays by name and the metadata; raise an OSError if a checksum does not match."""
        ocp = _import_orbax()
        with _checkpointer() as checkpointer:
            stored = checkpointer.restore(
                self._path(step), ocp.args.Composite(state=ocp.args.StandardRestore(), meta=ocp.args.JsonRestore())
            )
        arrays, (meta, is_intact) = stored["state"], split_checksum(stored["meta"])
        if not is_intact:
            raise OSError("checksum of meta does not match")
        if different := sorted(_checksums(arrays).items() ^ meta["checksums"].items()):
            raise OSError(f"checksum of {different[0][0]} does not match")
        return arrays, meta

    def _delete_unfinished(self) -> bool:
        """Delete the files of a save that failed or was killed; return True if there were any."""
        paths = list(self.directory.glob(f"*{_UNFINISHED}"))
        for path in paths:
            shutil.rmtree(path, ignore_errors=True)
        return bool(paths)

    def _delete_late_writes(self) -> None:
        """Delete the files that other threads of a failed save still write, until none has come for a while."""
        now = time.monotonic()
        quiet_until, end = now + _QUIET, now + _MAX_WAIT
        while now < min(quiet_until, end):
            if self._delete_unfinished():
                quiet_until = now + _QUIET
            time.sleep(_QUIET / 10)
            now = time.monotonic()

    def _delete_old(self) -> None:
        steps = self.steps()
        keep = {*steps[-_KEEP_LATEST:], self.best_step()}
        for step in steps:
            if step not in keep:
                shutil.rmtree(self._path(step), ignore_errors=True)


class _LateErrorFilter(logging.Filter):
    """Suppress errors of reads and writes that end after another one has failed.

    Orbax has raised the first error by then and closed its event loop, so Python would print the later ones.
    """

    def __init__(self, hook: Callable[[Any], None]) -> None:
        super().__init__()
        self.hook = hook

    def __call__(self, unraisable: Any) -> None:
        if "Event loop is closed" not in str(unraisable.exc_value):
            self.hook(unraisable)

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop messages of Orbax and asyncio about failures of the storage, which are raised as well."""
        error = record.exc_info[1] if record.exc_info else None
        is_os_error = isinstance(error, OSError) and record.name == _ORBAX_LOG
        return not (error is not None and (is_os_error or _STATUS.match(str(error))))

    @classmethod
    def install(cls) -> None:
        """Install the filter for the rest of the process, because late errors may come at any time."""
        if not isinstance(sys.unraisablehook, cls):
            sys.unraisablehook = cls(sys.unraisablehook)
            for name in (_ORBAX_LOG, "asyncio"):
                logging.getLogger(name).addFilter(sys.unraisablehook)


def _storage_error(error: Exception) -> str | None:
    """Describe an error of the file system, such as a full disk; return None for other errors."""
    if not isinstance(error, OSError) and not _STATUS.match(str(error)):
        return None
    code = _SYSTEM_CODE.search(str(error))
    return os.strerror(int(code[1])) if code else one_line(error)


def _import_orbax() -> Any:
    """Import Orbax, which takes a second: runs print their first line before."""
    with require_extra("a checkpoint"):
        import orbax.checkpoint as ocp
    return ocp


def _checkpointer() -> "ocp.Checkpointer":
    """Make a checkpointer of this process alone."""
    ocp = _import_orbax()
    # If several processes learn together, process 0 reads and writes for all of them.
    alone = ocp.options.MultiprocessingOptions(primary_host=0, active_processes={0})
    handler = ocp.CompositeCheckpointHandler(composite_options=ocp.CompositeOptions(multiprocessing_options=alone))
    return ocp.Checkpointer(handler, multiprocessing_options=alone)


def _sort_key(score: Score | None) -> tuple[float, ...]:
    """Return the numbers of a score, to compare it with others; a TypeError or ValueError if it is no score."""
    return tuple(map(float, (-math.inf,) if score is None else np.atleast_1d(score)))


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _pack(tree: PyTree) -> dict[str, np.ndarray]:
    """Return all leaves by name as NumPy arrays, without empty ones, which Orbax cannot store."""
    return {name: array for name, leaf in named_leaves(tree).items() if (array := np.asarray(_plain(leaf))).size}


def _plain(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _subtree(arrays: dict[str, np.ndarray], part: str) -> dict[str, np.ndarray]:
    if not part:
        return arrays
    return {name.removeprefix(f"{part}."): a for name, a in arrays.items() if name.startswith(f"{part}.")}


def _unpack(arrays: dict[str, np.ndarray], template: PyTree) -> PyTree:
    """Return the arrays in the structure and shardings of the template; raise a StructureError if they differ."""
    plain = jax.tree.map(lambda like: jax.eval_shape(_plain, like), template)
    empty = {name: np.zeros(x.shape, x.dtype) for name, x in named_leaves(plain).items() if x.size == 0}

    def place(array: np.ndarray, like: Any) -> Array:
        return jax.device_put(jax.random.wrap_key_data(jnp.asarray(array)) if _is_key(like) else array, like.sharding)

    return jax.tree.map(place, from_named_leaves(empty | arrays, plain), template)


def _checksums(arrays: dict[str, np.ndarray]) -> dict[str, int]:
    return {name: zlib.crc32(np.ascontiguousarray(array).tobytes()) for name, array in arrays.items()}


def read_networks(template: LearnerState, run_dir: Path) -> dict[str, PyTree]:
    """Read networks and statistics from the newest intact checkpoint of the run that `init_from` names.

    Args:
      template: learner of a run with the same networks, or its shapes.
      run_dir: directory of that run.
    Returns:
      Fields of a `LearnerState`; optimizers and duals are not among them.
    """
    checkpoints = Checkpoints(run_dir / "checkpoints")
    try:
        load_config(run_dir)  # refuses a directory without a run, and code outside this package without consent
        if not checkpoints.steps():
            raise UserError(f"{run_dir} has no checkpoint to start from")
        return {
            name: checkpoints.restore(getattr(template, name), part=f"learner.{name}").state
            for name in ("online", "method_state", "target_actor", "statistics")
        }
    except UserError as error:
        raise UserError(f"init_from: {error}") from error
