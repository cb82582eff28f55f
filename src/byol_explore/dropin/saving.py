"""A curiosity in one file: arrays by name in NumPy's own format, and beside them in JSON what they are of.

Nothing in it is code. Every array and the text have a checksum, in the archive's own way; what is damaged is refused.
A pickle of a curiosity holds the same bytes.
"""

import contextlib
import dataclasses
import io
import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.dropin.records import Record
from byol_explore.dropin.settings import Settings
from byol_explore.dropin.space_data import from_data, to_data
from byol_explore.errors import UserError, one_line
from byol_explore.files import write_atomically
from byol_explore.settings.config import from_dict, to_dict
from byol_explore.settings.trust import is_outside, require_consent
from byol_explore.types import PyTree
from byol_explore.versions import versions

if TYPE_CHECKING:
    from byol_explore.dropin.curiosity import Curiosity, Progress

FORMAT = 1  # of the file; another one is another program's
_META = "about"
_ARGUMENTS = ("observation_space", "action_space", "num_envs", "method", "seed", "settings", "symbols")


def describe(curiosity: "Curiosity") -> dict[str, Any]:
    """What it takes to make the same curiosity, before anything is learned."""
    return {
        "observation_space": to_data(curiosity.reader.observation_space),
        "action_space": to_data(curiosity.reader.action_space),
        "num_envs": curiosity.num_envs,
        "method": curiosity.method,
        "seed": curiosity.seed,
        "settings": to_dict(curiosity.settings),
        "symbols": curiosity.reader.symbols,
    }


def pack(curiosity: "Curiosity") -> bytes:
    """The content of a file."""
    record = to_dict(curiosity.progress.record)
    about = {"format": FORMAT, "versions": versions(), "curiosity": describe(curiosity), "record": record}
    arrays = _named(curiosity.progress._replace(record=()))
    arrays[_META] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    content = io.BytesIO()
    np.savez(content, **arrays)  # pyright: ignore[reportArgumentType]
    return content.getvalue()


def write(path: Path, content: bytes) -> None:
    try:
        write_atomically(path, content)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {one_line(error.strerror or error)}") from error


def as_path(given: Any, what: str) -> Path:
    """A UserError for what names no file."""
    if not isinstance(given, str | os.PathLike):
        raise UserError(f"{what} takes the path of a file, not {given!r}")
    return Path(given)


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `unpack` says of a file, if whoever runs this trusts the code outside this package that it names."""
    given, arrays = unpack(path, path)
    names = given["method"], given["settings"].network.encoder
    require_consent([name for name in names if is_outside(name)], path)
    return given, arrays


def unpack(content: Path | io.BytesIO, path: Path | str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments of the curiosity that a file is of; and its arrays by name, with its record."""
    with _readable(path):
        is_missing = isinstance(content, Path) and not content.exists()
        if not is_missing and not zipfile.is_zipfile(content):
            raise ValueError("it is no archive of arrays")  # NumPy would advise to unpickle it
        if isinstance(content, io.BytesIO):
            content.seek(0)
        with np.load(content, allow_pickle=False) as file:
            arrays: dict[str, Any] = {name: file[name] for name in file.files}
        about = json.loads(arrays.pop(_META).tobytes())
        found, wrote = about["format"], about["versions"]["byol-explore"]
    if found != FORMAT:
        raise UserError(
            f"{path} is of format {found!r}, written by byol-explore {wrote}: this one reads format {FORMAT}"
        )
    with _readable(path):
        given = {name: about["curiosity"][name] for name in _ARGUMENTS}
        given |= {name: from_data(given[name]) for name in ("observation_space", "action_space")}
        given["settings"] = from_dict(given["settings"], Settings)
        record = Record(**about["record"])
        return given, {**arrays, "record": dataclasses.replace(record, rows=tuple(record.rows))}


@contextlib.contextmanager
def _readable(path: Path | str) -> Iterator[None]:
    """Whatever goes wrong inside is the file's fault."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"there is no file {path}: it must be one that Curiosity.save has written") from None
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        why = one_line(error, 120) or type(error).__name__
        raise UserError(f"{path} is damaged, or was not written by Curiosity.save: {why}") from error


def restore(curiosity: "Curiosity", arrays: dict[str, Any], path: Path | str) -> "Progress":
    """The progress of a curiosity that was just made; a UserError if the arrays are not its own."""
    record = arrays.pop("record")
    like = curiosity.progress._replace(record=())
    if any(name.startswith("state.") for name in arrays):
        state, memory, carry = curiosity.template()
        here = (like.learned[0], memory)
        like = like._replace(state=state, learned=here, paid=here, carry=carry)
    left = dict(arrays)

    def leaf(where: tuple[Any, ...], shape: Any) -> Any:
        name = _name(where)
        array = left.pop(name, None)
        if array is None or (array.shape, array.dtype) != (shape.shape, shape.dtype):
            found = "missing" if array is None else f"{array.dtype}{list(array.shape)}"
            raise UserError(
                f"{path} is of another network: {name} is {found}, it must be {shape.dtype}{list(shape.shape)}"
            )
        if np.issubdtype(array.dtype, np.floating) and np.any(np.isnan(array)):
            raise UserError(f"{path} cannot be gone on with: {name} holds NaN")
        return array if isinstance(shape, np.ndarray) else jnp.asarray(array)

    progress = jax.tree_util.tree_map_with_path(leaf, like)
    if left:
        raise UserError(f"{path} is of another network: it has {next(iter(left))}, for which there is no place")
    return progress._replace(record=record)


def _name(where: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(where, simple=True, separator=".")


def _named(tree: PyTree) -> dict[str, np.ndarray]:
    return {_name(where): np.asarray(leaf) for where, leaf in jax.tree_util.tree_leaves_with_path(tree)}
