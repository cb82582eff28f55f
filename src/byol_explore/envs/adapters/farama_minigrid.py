"""What the arrays of Farama's MiniGrid are: symbols, unless one of its wrappers has made something else of them.

Its spaces do not say so: symbols, pixels and one-hots are all Boxes of bytes. Its classes do. Nothing of it is imported
here: an environment of that package has already done so.
"""

import sys
from typing import Any

import gymnasium

SYMBOLIC_WRAPPERS = ("FullyObsWrapper", "ViewSizeWrapper", "ImgObsWrapper", "DirectionObsWrapper")


def symbols_of(env: gymnasium.Env[Any, Any]) -> dict[str, tuple[int, ...]]:
    """The number of symbols in each channel, by the name of the entry that has them; nothing for other environments."""
    minigrid = sys.modules.get("minigrid.minigrid_env")
    if minigrid is None or not isinstance(env.unwrapped, minigrid.MiniGridEnv):
        return {}
    name = "image"
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.ObservationWrapper) and type(env).__name__ not in SYMBOLIC_WRAPPERS:
            return {}
        if type(env).__name__ == "ImgObsWrapper":
            name = ""
        env = env.env
    constants = sys.modules["minigrid.core.constants"]
    # A door's state is one of three; an agent that is drawn has its direction there, one of four.
    states = max(len(constants.STATE_TO_IDX), len(constants.DIR_TO_VEC))
    return {name: (len(constants.OBJECT_TO_IDX), len(constants.COLOR_TO_IDX), states)}
