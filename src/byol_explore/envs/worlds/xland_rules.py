"""The task of the XLand-MiniGrid worlds, which come without one: no objects, no rules, no goal.

Somewhere in the rooms lie a blue ball and a green square. When one is put down beside the other, the two become a
yellow star; when the agent picks that up, the episode ends and pays. Nothing can be spoiled: what is carried can be
put down again. The agent does not see what it carries, so it has to remember.
"""

import jax.numpy as jnp
from xminigrid.core.constants import TILES_REGISTRY, Colors, Tiles
from xminigrid.core.goals import AgentHoldGoal
from xminigrid.core.rules import TileNearRule
from xminigrid.types import RuleSet

BALL = (Tiles.BALL, Colors.BLUE)
SQUARE = (Tiles.SQUARE, Colors.GREEN)
STAR = (Tiles.STAR, Colors.YELLOW)


def ball_and_square_make_star() -> RuleSet:
    """The objects at the start, the production rule and the goal."""
    ball, square, star = TILES_REGISTRY[BALL], TILES_REGISTRY[SQUARE], TILES_REGISTRY[STAR]
    return RuleSet(
        goal=AgentHoldGoal(tile=star).encode(),
        rules=TileNearRule(tile_a=ball, tile_b=square, prod_tile=star).encode()[None],
        init_tiles=jnp.stack([ball, square]),
    )
