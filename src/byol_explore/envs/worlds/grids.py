"""Grid worlds by name: our own of any size, and everything that XLand-MiniGrid registers."""

from collections.abc import Callable

from xminigrid.registration import make, registered_environments

from byol_explore.envs.families import SIZED, size_of
from byol_explore.envs.worlds.corridors import Corridor, MemoryFromStart
from byol_explore.envs.worlds.minigrid import MiniGrid
from byol_explore.envs.worlds.noise import Movers, NoisyRooms, Quiet, Static, Television
from byol_explore.envs.worlds.rooms import Rooms
from byol_explore.envs.worlds.xland_rules import ball_and_square_make_star
from byol_explore.errors import UserError


def _rooms(name: str, size: int) -> MiniGrid:
    return MiniGrid(name, env := Rooms(size), env.default_params())


def _corridor(name: str, size: int) -> MiniGrid:
    return MiniGrid(name, env := Corridor(size), env.default_params())


def _memory(name: str, size: int) -> MiniGrid:
    return MiniGrid(name, env := MemoryFromStart(), env.default_params(width=size))


_MAKERS: dict[str, Callable[[str, int], MiniGrid]] = {
    "rooms": _rooms,
    "quiet-rooms": lambda name, size: NoisyRooms(name, size, Quiet()),
    "moving-rooms": lambda name, size: NoisyRooms(name, size, Movers(size)),
    "noisy-rooms": lambda name, size: NoisyRooms(name, size, Static()),
    "tv-rooms": lambda name, size: NoisyRooms(name, size, Television()),
    "corridor": _corridor,
    "memory": _memory,
}


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
    return _MAKERS[family](name, size)
