"""Checkpoints of a run: everything, written atomically by Orbax, verified when read."""

import json
import shutil
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from byol_explore.errors import UserError
from byol_explore.types import PyTree

_PREFIX = "step_"
_KEEP_LATEST = 2


class Restored(NamedTuple):
    state: PyTree
    meta: dict[str, Any]
    damaged: list[str]  # newer checkpoints that could not be read, with the reason


class Checkpoints:
    """The checkpoints of one run: the newest two and the best."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()

    def steps(self) -> list[int]:
        """Steps of the finished checkpoints, oldest first; one being written has another name until it is whole."""
        names = [path.name for path in self.directory.glob(f"{_PREFIX}*") if path.is_dir()]
        return sorted(int(name.removeprefix(_PREFIX)) for name in names if name.removeprefix(_PREFIX).isdigit())

    def save(self, step: int, state: PyTree, meta: dict[str, Any], score: float) -> None:
        """Write a checkpoint, then drop those that are neither among the newest nor the best."""
        arrays = _pack(state)
        meta = {**meta, "step": step, "score": score, "checksums": {k: _checksum(v) for k, v in arrays.items()}}
        with _checkpointer() as checkpointer:
            checkpointer.save(
                self._path(step),
                ocp.args.Composite(state=ocp.args.StandardSave(arrays), meta=ocp.args.JsonSave(meta)),
                force=True,
            )
        self._write_index(step, score)
        self._drop_old()

    def restore(self, template: PyTree, *, step: int | None = None) -> Restored:
        """The newest whole checkpoint (or the one of a step), shaped and placed like the template."""
        damaged: list[str] = []
        for candidate in reversed(self.steps() if step is None else [step]):
            try:
                state, meta = self._read(candidate, template)
            except UserError:
                raise
            except Exception as error:  # whatever a damaged file makes Orbax raise
                reason = str(error).strip().splitlines() or [type(error).__name__]
                damaged.append(f"{self._path(candidate).name} ({reason[0][:120]})")
                continue
            return Restored(state, meta, damaged)
        detail = f"; damaged: {', '.join(damaged)}" if damaged else ""
        raise UserError(f"no checkpoint to continue from in {self.directory}{detail}")

    def best_step(self) -> int | None:
        """Step of the checkpoint with the highest score, the newest of equals."""
        scores = {int(step): score for step, score in self._index().items()}
        present = [step for step in self.steps() if step in scores]
        return max(present, key=lambda step: (scores[step], step)) if present else None

    def _path(self, step: int) -> Path:
        return self.directory / f"{_PREFIX}{step:012d}"

    def _read(self, step: int, template: PyTree) -> tuple[PyTree, dict[str, Any]]:
        expected = _pack(template)
        with _checkpointer() as checkpointer:
            meta = checkpointer.restore(self._path(step), ocp.args.Composite(meta=ocp.args.JsonRestore()))["meta"]
            checksums = meta["checksums"]
            if set(checksums) != set(expected):
                raise UserError(f"the checkpoint of step {step} is of another network: it has other parameters")
            stored = checkpointer.restore(
                self._path(step), ocp.args.Composite(state=ocp.args.StandardRestore(expected))
            )["state"]
        for name, array in stored.items():
            if _checksum(np.asarray(array)) != checksums[name]:
                raise OSError(f"checksum of {name} does not match")
        return _unpack(stored, template), meta

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

    def _write_index(self, step: int, score: float) -> None:
        present = {str(s) for s in self.steps()}
        scores = {s: value for s, value in self._index().items() if s in present}
        write_atomically(self.directory / "scores.json", json.dumps({**scores, str(step): score}))


def write_atomically(path: Path, text: str) -> None:
    """The whole file or the old one, never half of it."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text)
    temporary.replace(path)


def _checkpointer() -> ocp.Checkpointer:
    return ocp.Checkpointer(ocp.CompositeCheckpointHandler())


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _pack(tree: PyTree) -> dict[str, np.ndarray]:
    """All leaves by name, as plain arrays; empty ones are left out because Orbax has no place for them."""
    arrays = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        array = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
        if array.size:
            arrays[_name(path)] = array
    return arrays


def _unpack(arrays: dict[str, np.ndarray], template: PyTree) -> PyTree:
    def leaf(path: tuple[Any, ...], like: Any) -> Any:
        if _name(path) not in arrays:
            return like
        array = np.asarray(arrays[_name(path)])
        if _is_key(like):
            return jax.device_put(jax.random.wrap_key_data(jnp.asarray(array)), like.sharding)
        return jax.device_put(array.astype(like.dtype), like.sharding)

    return jax.tree_util.tree_map_with_path(leaf, template)


def _checksum(array: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(array).tobytes())
