"""Environments by name."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from xminigrid.environment import Environment as XEnvironment
from xminigrid.environment import EnvParams
from xminigrid.registration import make, registered_environments

from byol_explore.envs.atari_games import HARD_GAMES
from byol_explore.envs.atari_settings import AtariSettings
from byol_explore.envs.base import Environment
from byol_explore.envs.corridors import Corridor, MemoryFromStart
from byol_explore.envs.host import HostEnvironment
from byol_explore.envs.minigrid import MiniGrid
from byol_explore.envs.probes import PROBES
from byol_explore.envs.rooms import Rooms
from byol_explore.envs.xland_rules import ball_and_square_make_star
from byol_explore.errors import UserError
from byol_explore.registries import ENVIRONMENTS
from byol_explore.registry import is_import_path

_SIZED = re.compile(r"(rooms|corridor|memory)-(\d+)")


class Sized(NamedTuple):
    """A family of grid worlds of any size."""

    description: str
    lowest: int
    highest: int
    make: Callable[[int], tuple[XEnvironment[Any, Any], EnvParams]]


def _rooms(size: int) -> tuple[XEnvironment[Any, Any], EnvParams]:
    return (env := Rooms(size)), env.default_params()


def _corridor(size: int) -> tuple[XEnvironment[Any, Any], EnvParams]:
    return (env := Corridor(size)), env.default_params()


def _memory(size: int) -> tuple[XEnvironment[Any, Any], EnvParams]:
    return (env := MemoryFromStart()), env.default_params(width=size)


SIZED = {
    "rooms": Sized("rooms in a row behind closed doors", 2, 50, _rooms),
    "corridor": Sized("legs of a folded corridor", 1, 50, _corridor),
    "memory": Sized("cells from an object to where it must be known", 8, 128, _memory),
}


def _other_games() -> list[str]:
    from byol_explore.envs.atari import atari_games

    return [f"atari:{name}" for name in atari_games() if name not in HARD_GAMES]


def register_env(name: str, factory: Callable[[], Environment | HostEnvironment]) -> None:
    """Make an environment of your own known by a name in this process.

    One that other processes are to find too is called by its import path, as in `my_package.envs:Lock`.
    """
    if "," in name:
        raise UserError(f"environment name {name!r}: a comma separates names")
    ENVIRONMENTS.add(name, factory)


def env_families() -> dict[str, list[str]]:
    """All names, by family; `rooms-N` and its like stand for any N."""
    return {
        "grid worlds of any size N": [f"{family}-N ({description})" for family, (description, *_) in SIZED.items()],
        "MiniGrid": [name for name in registered_environments() if name.startswith("MiniGrid")],
        "XLand-MiniGrid": [name for name in registered_environments() if name.startswith("XLand")],
        "probe": [f"probe:{name}" for name in PROBES],
        "Atari, hardest to explore (the study atari-hard10)": [f"atari:{name}" for name in HARD_GAMES],
        "Atari, others": _other_games(),
        "Gymnasium": ["gymnasium:ID for every registered ID, for example gymnasium:Acrobot-v1"],
        "yours": ["package.module:Name for anything that makes an environment", *ENVIRONMENTS.names()],
    }


def make_envs(names: list[str], atari: AtariSettings | None = None) -> list[Environment] | list[HostEnvironment]:
    """One environment per name, with observations of one shape and actions of one kind."""
    envs: list[Any] = [make_env(name, atari) for name in names]
    if len({isinstance(env, HostEnvironment) for env in envs}) > 1:
        raise UserError(f"{', '.join(names)}: environments inside and outside jit cannot be learned by one agent")
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


def _make_sized(name: str, family: str, size: int) -> MiniGrid:
    _, lowest, highest, make_one = SIZED[family]
    if not lowest <= size <= highest:
        raise UserError(f"environment {name!r}: the number must be {lowest} to {highest}")
    return MiniGrid(name, *make_one(size))


def _checked(name: str, env: Any) -> Environment | HostEnvironment:
    """With the name that it was asked for by, or a UserError if it is no environment."""
    if not hasattr(env, "spec") or not (hasattr(env, "step") or hasattr(env, "batch")):
        raise UserError(
            f"environment {name!r} makes a {type(env).__name__}: it must have a spec, and reset and step (inside jit) "
            "or batch (outside); see examples/"
        )
    return env


def make_env(name: str, atari: AtariSettings | None = None) -> Environment | HostEnvironment:
    """The environment of that name; settings are those of Atari games."""
    if name in ENVIRONMENTS.names():
        return ENVIRONMENTS.get(name)()
    if name.startswith("atari:"):
        from byol_explore.envs.atari import Atari

        if name == "atari:hard10":
            raise UserError(
                "atari:hard10 is no environment: name one game, for example atari:alien, or train and score all ten "
                "with `byol-explore study atari-hard10`"
            )
        return Atari(name.removeprefix("atari:"), atari)
    if name.startswith("hard-eight:"):
        raise UserError(
            f"environment {name!r} does not exist in this version yet; the preset hard-eight is for any --env whose "
            "observations have its entries"
        )
    if name.startswith("gymnasium:"):
        from byol_explore.envs.gymnasium import Gymnasium

        if name.startswith("gymnasium:ALE/"):
            raise UserError(f"{name!r}: Atari games are called atari:<game> here, for example atari:montezuma_revenge")
        return Gymnasium(name.removeprefix("gymnasium:"))
    if match := _SIZED.fullmatch(name):
        return _make_sized(name, match.group(1), int(match.group(2)))
    if name in registered_environments():
        settings = {"ruleset": ball_and_square_make_star()} if name.startswith("XLand") else {}
        return MiniGrid(name, *make(name, **settings))
    if name.removeprefix("probe:") in PROBES and name.startswith("probe:"):
        return PROBES[name.removeprefix("probe:")]()
    if is_import_path(name):
        return _checked(name, ENVIRONMENTS.get(name)())
    examples = "rooms-6, MiniGrid-DoorKey-8x8, atari:montezuma_revenge, gymnasium:CartPole-v1, probe:corridor"
    raise UserError(f"unknown environment {name!r}; `byol-explore envs` lists them all, for example {examples}")
