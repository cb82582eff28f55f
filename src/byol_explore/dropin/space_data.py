"""Spaces as plain data and back, so that a file can say what it is for without any code in it."""

import dataclasses
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from byol_explore import spaces as kinds
from byol_explore.errors import UserError, one_line

_KINDS = {kind.__name__: kind for kind in (kinds.Image, kinds.Vector, kinds.Grid, kinds.Tokens)}


def to_data(space: Any) -> dict[str, Any]:
    """As JSON has it."""
    match space:
        case kinds.ActionSpec():
            return {"is": "ActionSpec", "discrete": list(space.discrete), "continuous": space.continuous}
        case kinds.Kind():
            return {"is": type(space).__name__, **dataclasses.asdict(space)}  # pyright: ignore[reportArgumentType]
        case dict():
            return {"is": "kinds", "entries": {name: to_data(kind) for name, kind in space.items()}}
        case spaces.Dict():
            return {"is": "Dict", "entries": [[name, to_data(part)] for name, part in space.spaces.items()]}
        case spaces.Tuple():
            return {"is": "Tuple", "entries": [to_data(part) for part in space.spaces]}
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


def from_data(data: dict[str, Any]) -> Any:
    """The space that `to_data` has written."""
    what, rest = data["is"], {name: value for name, value in data.items() if name != "is"}
    if what in _KINDS:
        kind: Any = _KINDS[what]
        return kind(**{name: tuple(v) if isinstance(v, list) else v for name, v in rest.items()})
    match what:
        case "ActionSpec":
            return kinds.ActionSpec(tuple(rest["discrete"]), rest["continuous"])
        case "kinds":
            return {name: from_data(kind) for name, kind in rest["entries"].items()}
        case "Dict":
            return spaces.Dict([(name, from_data(part)) for name, part in rest["entries"]])
        case "Tuple":
            return spaces.Tuple([from_data(part) for part in rest["entries"]])
        case "Box":
            return _box(rest)
        case "MultiDiscrete":
            return spaces.MultiDiscrete(np.asarray(rest["nvec"]), start=np.asarray(rest["start"]))
        case "MultiBinary":
            return spaces.MultiBinary(rest["n"])
    space: type[Space[Any]] = {"Discrete": spaces.Discrete, "Text": spaces.Text}[what]
    return space(**rest)


def _box(data: dict[str, Any]) -> spaces.Box:
    dtype = np.dtype(data["dtype"])
    low, high = (np.broadcast_to(np.asarray(data[side], dtype), data["shape"]) for side in ("low", "high"))
    return spaces.Box(low, high, tuple(data["shape"]), dtype.type)


def _shortest(bounds: np.ndarray) -> Any:
    """One number where all are the same."""
    same = bounds.size and np.all(bounds == bounds.flat[0])
    return (bounds.flat[0] if same else bounds).tolist()
