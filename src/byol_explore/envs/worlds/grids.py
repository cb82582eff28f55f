"""Grid worlds by name: our own of any size, and everything that XLand-MiniGrid registers."""

from collections.abc import Callable
from typing import Any

from xminigrid.environment import Environment as XEnvironment
from xminigrid.environment import EnvParams
from xminigrid.registration import make, registered_environments

from byol_explore.envs.families import SIZED, size_of
from byol_explore.envs.worlds.corridors import Corridor, MemoryFromStart
from byol_explore.envs.worlds.minigrid import MiniGrid
from byol_explore.envs.worlds.rooms import Rooms
from byol_explore.envs.worlds.xland_rules import ball_and_square_make_star
from byol_explore.errors import UserError

_World = tuple[XEnvironment[Any, Any], EnvParams]


def _rooms(size: int) -> _World:
    return (env := Rooms(size)), env.default_params()


def _corridor(size: int) -> _World:
    return (env := Corridor(size)), env.default_params()


def _memory(size: int) -> _World:
    return (env := MemoryFromStart()), env.default_params(width=size)


_MAKERS: dict[str, Callable[[int], _World]] = {"rooms": _rooms, "corridor": _corridor, "memory": _memory}


def registered(prefix: str) -> list[str]:
    """The names that XLand-MiniGrid registers, of those that begin so."""
    return [name for name in registered_environments() if name.startswith(prefix)]


def make_grid(name: str) -> MiniGrid | None:
    """The grid world of that name, if there is one."""
    if sized := size_of(name):
        return _make_sized(name, *sized)
    if name not in registered_environments():
        return None
    settings = {"ruleset": ball_and_square_make_star()} if name.startswith("XLand") else {}
    return MiniGrid(name, *make(name, **settings))


def _make_sized(name: str, family: str, size: int) -> MiniGrid:
    lowest, highest = SIZED[family].lowest, SIZED[family].highest
    if not lowest <= size <= highest:
        raise UserError(f"environment {name!r}: the number must be {lowest} to {highest}")
    return MiniGrid(name, *_MAKERS[family](size))
