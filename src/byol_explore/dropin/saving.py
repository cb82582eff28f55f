"""Save a `Curiosity` to one file: its arrays by name as an archive of NumPy, its arguments and its record as JSON.

The file contains no code. The archive has a checksum for each array and for the JSON text; a damaged file is refused
with one line. Sizes that a file claims are compared with its own size before memory is asked for. A pickle of a
curiosity contains the same bytes.
"""

import contextlib
import dataclasses
import io
import json
import math
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import Space, spaces

from byol_explore import spaces as spaces_module
from byol_explore.config.config import from_dict, to_dict
from byol_explore.dropin.learning import CuriositySettings, Record
from byol_explore.errors import UserError
from byol_explore.ops.arrays import StructureError, from_named_leaves, named_leaves
from byol_explore.registry import is_import_path, require_consent
from byol_explore.utils.files import atomic_write
from byol_explore.utils.formatting import one_line
from byol_explore.utils.packages import versions

if TYPE_CHECKING:
    from byol_explore.dropin.curiosity import Curiosity, CuriosityState


FORMAT = 4  # of the file; other formats are refused
_META = "about"
_MAX_ENTRIES = 10_000  # of the archive
_MAX_HEADER = 10_000  # bytes of an array's header
_FREE_NUMBERS = 10_000_000  # that spaces may take beside those in the file: one-hot categories, padding
_ARGUMENTS = ("observation_space", "action_space", "num_envs", "method", "seed", "settings", "symbol_counts")


def constructor_args(curiosity: "Curiosity") -> dict[str, Any]:
    """Return the arguments that make the same curiosity before its first `learn`, as JSON."""
    return {
        "observation_space": space_to_dict(curiosity.reader.observation_space),
        "action_space": space_to_dict(curiosity.reader.action_space),
        "num_envs": curiosity.num_envs,
        "method": curiosity.method,
        "seed": curiosity.seed,
        "settings": to_dict(curiosity.settings),
        "symbol_counts": curiosity.reader.symbols,
    }


def to_bytes(curiosity: "Curiosity") -> bytes:
    """Return the content of a file."""
    record = to_dict(curiosity.progress.record)
    about = {"format": FORMAT, "versions": versions(), "curiosity": constructor_args(curiosity), "record": record}
    arrays = named_leaves(curiosity.progress._replace(record=()))
    arrays[_META] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    content = io.BytesIO()
    np.savez(content, **arrays)  # pyright: ignore[reportArgumentType]
    return content.getvalue()


def write(path: Path, content: bytes) -> None:
    try:
        atomic_write(path, content)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {one_line(error.strerror or error)}") from error


def as_path(given: Any, what: str) -> Path:
    """Return a path; raise a UserError for other types."""
    if not isinstance(given, str | os.PathLike):
        raise UserError(f"{what} takes the path of a file, not {given!r}")
    return Path(given)


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a file, after consent if it names code outside this package. Returns the results of `from_bytes`."""
    with readable(path):
        content = path.read_bytes()
    arguments, arrays = from_bytes(content, path)
    names = arguments["method"], arguments["settings"].network.encoder
    require_consent([name for name in names if is_import_path(name)], path)
    return arguments, arrays


def from_bytes(content: bytes, path: Path | str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the content of a file.

    Args:
      content: made by `to_bytes`.
      path: name of the content in messages.
    Returns:
      The arguments of the curiosity, and its arrays by name with its record under "record".
    """
    with readable(path):
        arrays = _read_archive(content)
        about = json.loads(arrays.pop(_META).tobytes())
        found, wrote = about["format"], about["versions"]["byol-explore"]
    if found != FORMAT:
        raise UserError(
            f"{path} is of format {found!r}, written by byol-explore {wrote}: this one reads format {FORMAT}"
        )
    with readable(path):
        arguments = {name: about["curiosity"][name] for name in _ARGUMENTS}
        _check_sizes(arguments, sum(array.size for array in arrays.values()))
        arguments |= {name: space_from_dict(arguments[name]) for name in ("observation_space", "action_space")}
        arguments["settings"] = from_dict(arguments["settings"], CuriositySettings)
        return arguments, {**arrays, "record": _parse_record(about["record"])}


def _parse_record(data: dict[str, Any]) -> Record:
    """Return the record of calls; raise an error for other values than counts and rows."""
    record = Record(**data)
    counts = [value for name, value in data.items() if name != "rows"]
    if not all(type(count) is int and count >= 0 for count in counts):
        raise ValueError("its record has counts that are no whole numbers")
    if not isinstance(record.rows, list) or not all(isinstance(row, dict) for row in record.rows):
        raise ValueError("its record has rows that are no objects")
    return dataclasses.replace(record, rows=tuple(record.rows))


def _read_archive(content: bytes) -> dict[str, Any]:
    """Return the arrays of an archive by name; raise an error if it is damaged."""
    if not zipfile.is_zipfile(io.BytesIO(content)):
        raise ValueError("it is no archive of arrays")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = archive.infolist()
        # Uncompressed entries that do not overlap are together no larger than the file.
        if any(entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1 for entry in entries):
            raise ValueError("it is compressed or encrypted")
        if len(entries) > _MAX_ENTRIES or sum(entry.file_size for entry in entries) > len(content):
            raise ValueError("it claims to be larger than it is")
        return {entry.filename.removesuffix(".npy"): _read_array(archive.read(entry)) for entry in entries}


def _read_array(data: bytes) -> np.ndarray:
    """Return the array of NumPy's file format; raise a ValueError unless its size is that of the data."""
    file = io.BytesIO(data)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("an array is of an unknown version")
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file, max_header_size=_MAX_HEADER)
    if dtype.hasobject or min(shape, default=0) < 0:
        raise ValueError("an array does not hold numbers")
    if dtype.itemsize * math.prod(shape) != len(data) - file.tell():
        raise ValueError(f"an array claims the shape {one_line(shape, 60)}, which its data do not fill")
    array = np.frombuffer(data, dtype, offset=file.tell())
    return array.reshape(shape, order="F" if is_fortran else "C").copy()


@contextlib.contextmanager
def readable(path: Path | str) -> Iterator[None]:
    """Turn exceptions that a missing or damaged file causes into a UserError."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"there is no file {path}: it must be one that Curiosity.save has written") from None
    except UserError as error:
        raise error if str(path) in str(error) else UserError(f"{path}: {error}") from error
    except Exception as error:  # zipfile, NumPy, Gymnasium and our own checks raise errors of many types
        why = one_line(error, 120) or type(error).__name__
        raise UserError(f"{path} is damaged, or was not written by Curiosity.save: {why}") from error


def restore(curiosity: "Curiosity", arrays: dict[str, Any], path: Path | str) -> "CuriosityState":
    """Return the progress of a new curiosity from arrays; raise a UserError if their names or shapes differ."""
    record = arrays.pop("record")
    like = curiosity.progress._replace(record=())
    if any(name.startswith("state.") for name in arrays):
        state, memory, carry = curiosity.state_shapes()
        here = (like.learn_position[0], memory)
        like = like._replace(state=state, learn_position=here, reward_position=here, carry=carry)
    try:
        progress = from_named_leaves(arrays, like)
    except StructureError as error:
        raise UserError(f"{path} is of another network: {error}") from None
    for name, array in arrays.items():
        if np.issubdtype(array.dtype, np.floating) and np.any(np.isnan(array)):
            raise UserError(f"{path} cannot be continued: {name} holds NaN")
    progress = jax.tree.map(lambda x, old: x if isinstance(old, np.ndarray) else jnp.asarray(x), progress, like)
    return progress._replace(record=record)


def _check_sizes(arguments: dict[str, Any], numbers: int) -> None:
    """Raise a ValueError if the spaces ask for much more memory than the file's own numbers take.

    Networks need no check: only their shapes are computed before they are compared with the arrays.
    """
    observation, action = (_space_size(arguments[name]) for name in ("observation_space", "action_space"))
    if max(observation * arguments["num_envs"], action) > _FREE_NUMBERS + numbers:
        raise ValueError(f"its spaces take more numbers than the {numbers:,} in it")


def _space_size(data: dict[str, Any]) -> int:
    """Return an upper bound of the numbers in an element of a space, as networks may see it."""
    match data["is"]:
        case "dict" | "Dict":
            return sum(_space_size(part) for _, part in data["entries"])
        case "Tuple":
            return sum(map(_space_size, data["entries"]))
        case "Image":
            return data["height"] * data["width"] * data["channels"]
        case "Grid":
            return data["height"] * data["width"] * len(data["symbols_per_channel"])
        case "MultiDiscrete":
            return int(np.sum(data["nvec"], dtype=object))
        case "ActionSpec":
            return len(data["discrete"]) + data["continuous"]
    one_of = ("shape", "size", "length", "max_length", "n")  # of Box, Vector, Tokens, Text, and the rest
    size = next(data[name] for name in one_of if name in data)
    return math.prod(size) if isinstance(size, list) else size


_CLASSES: dict[str, Any] = {
    cls.__name__: cls
    for cls in (
        spaces_module.Image, spaces_module.Vector, spaces_module.Grid, spaces_module.Tokens, spaces_module.ActionSpec,
        spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Text,
    )
}  # fmt: skip


def space_to_dict(space: Any) -> dict[str, Any]:
    """Return the name of a space's class ("is") and the arguments that make it, as JSON."""
    match space:
        case spaces_module.ActionSpec():
            return {"is": "ActionSpec", **space._asdict()}
        case spaces_module.ArraySpace():
            return {"is": type(space).__name__, **dataclasses.asdict(space)}  # pyright: ignore[reportArgumentType]
        case dict() | spaces.Dict():
            entries = [[name, space_to_dict(part)] for name, part in space.items()]
            return {"is": "dict" if isinstance(space, dict) else "Dict", "entries": entries}
        case spaces.Tuple():
            return {"is": "Tuple", "entries": [space_to_dict(part) for part in space.spaces]}
        case spaces.Box():
            bounds = {"low": _shortest(space.low), "high": _shortest(space.high)}
            return {"is": "Box", **bounds, "shape": list(space.shape), "dtype": str(space.dtype)}
        case spaces.Discrete():
            return {"is": "Discrete", "n": int(space.n), "start": int(space.start)}
        case spaces.MultiDiscrete():
            return {"is": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
        case spaces.MultiBinary():
            return {"is": "MultiBinary", "n": list(space.shape)}
        case spaces.Text():
            lengths = {"min_length": space.min_length, "max_length": space.max_length}
            return {"is": "Text", **lengths, "charset": "".join(sorted(space.character_set))}
    raise UserError(f"the space {one_line(space)} cannot be written to a file: it must be one of Gymnasium's own")


def space_from_dict(data: dict[str, Any]) -> Any:
    """Return the space that `space_to_dict` has written."""
    what, arguments = data["is"], {name: value for name, value in data.items() if name != "is"}
    match what:
        case "dict" | "Dict":
            entries = {name: space_from_dict(part) for name, part in arguments["entries"]}
            return entries if what == "dict" else spaces.Dict(list(entries.items()))
        case "Tuple":
            return spaces.Tuple([space_from_dict(part) for part in arguments["entries"]])
        case "Box":
            dtype, shape = np.dtype(arguments["dtype"]), tuple(arguments["shape"])
            low, high = (np.broadcast_to(np.asarray(arguments[side], dtype), shape) for side in ("low", "high"))
            return spaces.Box(low, high, shape, dtype.type)
    cls = _CLASSES[what]
    if not issubclass(cls, Space):  # dataclasses and tuples, which are hashable
        arguments = {name: tuple(value) if isinstance(value, list) else value for name, value in arguments.items()}
    return cls(**arguments)


def _shortest(bounds: np.ndarray) -> Any:
    """Return one number if all are equal, otherwise nested lists."""
    same = bounds.size and np.all(bounds == bounds.flat[0])
    return (bounds.flat[0] if same else bounds).tolist()
