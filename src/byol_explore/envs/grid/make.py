"""Grid worlds by name, and the task of the XLand-MiniGrid worlds, which come without objects, rules and goal."""

from collections.abc import Callable

import jax.numpy as jnp
from xminigrid.core.constants import TILES_REGISTRY, Colors, Tiles
from xminigrid.core.goals import AgentHoldGoal
from xminigrid.core.rules import TileNearRule
from xminigrid.registration import make, registered_environments
from xminigrid.types import RuleSet

from byol_explore.envs.grid.minigrid import Corridor, MemoryFromStart, MiniGrid, Rooms
from byol_explore.envs.grid.noisy_rooms import MovingObjects, Noise, NoisyRooms, NoisyTV, RandomSymbols
from byol_explore.envs.names import SIZED, parse_sized
from byol_explore.errors import UserError

MINIGRID_NAMES, XLAND_NAMES = (  # without the prefix
    [name.removeprefix(prefix) for name in registered_environments() if name.startswith(prefix)]
    for prefix in ("MiniGrid-", "XLand-")
)
_MAKERS: dict[str, Callable[[str, int], MiniGrid]] = {
    "rooms": lambda name, size: MiniGrid(name, Rooms(size)),
    "quiet-rooms": lambda name, size: NoisyRooms(name, size, Noise()),
    "moving-rooms": lambda name, size: NoisyRooms(name, size, MovingObjects(size)),
    "noisy-rooms": lambda name, size: NoisyRooms(name, size, RandomSymbols()),
    "tv-rooms": lambda name, size: NoisyRooms(name, size, NoisyTV()),
    "corridor": lambda name, size: MiniGrid(name, Corridor(size)),
    "memory": lambda name, size: MiniGrid(name, env := MemoryFromStart(), env.default_params(width=size)),
}


def make_grid(name: str) -> MiniGrid | None:
    """Make the grid world of that name; None if there is none."""
    if sized := parse_sized(name):
        family, size = sized
        _, lowest, highest = SIZED[family]
        if not lowest <= size <= highest:
            raise UserError(f"environment {name!r}: the number must be {lowest} to {highest}")
        return _MAKERS[family](name, size)
    if name not in registered_environments():
        return None
    settings = {"ruleset": default_ruleset()} if name.startswith("XLand") else {}
    return MiniGrid(name, *make(name, **settings))


BALL = (Tiles.BALL, Colors.BLUE)
SQUARE = (Tiles.SQUARE, Colors.GREEN)
STAR = (Tiles.STAR, Colors.YELLOW)


def default_ruleset() -> RuleSet:
    """Return the objects, the rule and the goal of the XLand worlds.

    The rooms hold a blue ball and a green square. If one is put down beside the other, the two become a yellow star; if
    the agent picks up the star, the episode ends with a reward. No action makes the task impossible: a carried object
    can be put down again. The agent does not see what it carries, so it has to remember.
    """
    ball, square, star = TILES_REGISTRY[BALL], TILES_REGISTRY[SQUARE], TILES_REGISTRY[STAR]
    return RuleSet(
        goal=AgentHoldGoal(tile=star).encode(),
        rules=TileNearRule(tile_a=ball, tile_b=square, prod_tile=star).encode()[None],
        init_tiles=jnp.stack([ball, square]),
    )
