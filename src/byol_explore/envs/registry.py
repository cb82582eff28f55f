"""Environments by name."""

import re
from collections.abc import Callable

from xminigrid.registration import make, registered_environments

from byol_explore.envs.base import Environment
from byol_explore.envs.minigrid import MiniGrid
from byol_explore.envs.probes import PROBES
from byol_explore.envs.rooms import Rooms
from byol_explore.envs.xland_rules import ball_and_square_make_star
from byol_explore.errors import UserError

_ROOMS = re.compile(r"rooms-(\d+)")
MAX_ROOMS = 50
_registered: dict[str, Callable[[], Environment]] = {}


def register_env(name: str, factory: Callable[[], Environment]) -> None:
    """Make an environment of your own known by a name, for configurations and run directories to refer to."""
    if "," in name:
        raise UserError(f"environment name {name!r}: a comma separates names")
    _registered[name] = factory


def env_families() -> dict[str, list[str]]:
    """All names, by family; `rooms-N` stands for any N."""
    return {
        "rooms": ["rooms-N"],
        "MiniGrid": [name for name in registered_environments() if name.startswith("MiniGrid")],
        "XLand-MiniGrid": [name for name in registered_environments() if name.startswith("XLand")],
        "probe": [f"probe:{name}" for name in PROBES],
        **({"registered": list(_registered)} if _registered else {}),
    }


def make_envs(names: list[str]) -> list[Environment]:
    """One environment per name, with observations of one shape and actions of one kind."""
    envs: list[Environment] = [make_env(name) for name in names]
    grids = [env for env in envs if isinstance(env, MiniGrid)]
    if len(grids) == len(envs):
        view_size = max(env.view_size for env in grids)
        envs = [MiniGrid(env.spec.name, env.env, env.params, view_size) for env in grids]
    first = envs[0].spec
    for env in envs[1:]:
        if (env.spec.observation, env.spec.action) != (first.observation, first.action):
            raise UserError(
                f"{first.name!r} and {env.spec.name!r} cannot be learned by one agent: "
                "their observations or actions differ"
            )
    return envs


def make_env(name: str) -> Environment:
    """The environment of that name."""
    if name in _registered:
        return _registered[name]()
    if name.startswith("gymnasium:"):
        from byol_explore.envs.gymnasium import Gymnasium

        return Gymnasium(name.removeprefix("gymnasium:"))
    if match := _ROOMS.fullmatch(name):
        rooms = int(match.group(1))
        if not 2 <= rooms <= MAX_ROOMS:
            raise UserError(f"environment {name!r}: the number of rooms must be 2 to {MAX_ROOMS}")
        env = Rooms(rooms)
        return MiniGrid(name, env, env.default_params())
    if name in registered_environments():
        settings = {"ruleset": ball_and_square_make_star()} if name.startswith("XLand") else {}
        return MiniGrid(name, *make(name, **settings))
    if name.removeprefix("probe:") in PROBES and name.startswith("probe:"):
        return PROBES[name.removeprefix("probe:")]()
    examples = "rooms-6, MiniGrid-DoorKey-8x8, XLand-MiniGrid-R1-9x9, probe:corridor"
    raise UserError(f"unknown environment {name!r}; `byol-explore envs` lists them all, for example {examples}")
