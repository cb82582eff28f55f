"""Environments by name."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from byol_explore.envs.adapters.atari_games import HARD_GAMES
from byol_explore.envs.adapters.atari_settings import AtariSettings, available_cores
from byol_explore.envs.adapters.dm_hard_eight_settings import LEVELS, DMHardEightSettings
from byol_explore.envs.adapters.dm_hard_eight_settings import PREFIX as DM_HARD_EIGHT
from byol_explore.envs.adapters.gymnasium_settings import GymnasiumSettings
from byol_explore.envs.families import (
    SIZED,
    check_own_name,
    check_words,
    families_of,
    is_factory,
    is_grid,
    unknown_setting,
)
from byol_explore.envs.host import HostEnvironment
from byol_explore.envs.protocols import Environment, Viewed
from byol_explore.envs.settings import fill, known_to, nested, read_words, to_words
from byol_explore.envs.tasks import list_tasks
from byol_explore.envs.worlds.hard_eight.settings import ALL, TASKS, HardEightSettings
from byol_explore.errors import UserError
from byol_explore.extras import needed_by
from byol_explore.registries import ENVIRONMENTS


def register_env(
    name: str, factory: Callable[..., Environment | HostEnvironment], *, replace: bool = False
) -> None:  # fmt: skip
    """Make an environment of your own known by a name in this process, which `replace` may take from an earlier one.

    One that other processes are to find too is called by its import path, as in `my_package.envs:Lock`.
    """
    check_own_name(name)
    ENVIRONMENTS.add(name, factory, replace=replace)


def env_families() -> dict[str, list[str]]:
    """All names, by family; `rooms-N` and its like stand for any N."""
    from byol_explore.envs.worlds.probes import PROBES

    return {
        "grid worlds of any size N": [f"{family}-N ({sized.description})" for family, sized in SIZED.items()],
        "MiniGrid": _listed(lambda: _grids("MiniGrid-")),
        "XLand-MiniGrid": _listed(lambda: _grids("XLand-")),
        "Hard-Eight": [f"hard-eight:{name}" for name in (*TASKS, ALL)],
        "probe": [f"probe:{name}" for name in PROBES],
        "Atari, hardest to explore (the study atari-hard10)": [f"atari:{name}" for name in HARD_GAMES],
        "Atari, others": _listed(_other_games),
        "DM-HARD-8, the original (docs/dm-hard-eight.md)": [DM_HARD_EIGHT + task for task in LEVELS],
        "Gymnasium": ["gymnasium:ID for every registered ID, for example gymnasium:Acrobot-v1"],
        "yours": ["package.module:Name for anything that makes an environment", *ENVIRONMENTS.names()],
    }


def _listed(names: Callable[[], list[str]]) -> list[str]:
    """The names of a family, or what it needs that is not installed."""
    try:
        return names()
    except UserError as error:
        return [str(error)]


def _grids(prefix: str) -> list[str]:
    with needed_by(f"{prefix}NAME"):
        from byol_explore.envs.worlds.grids import registered
    return registered(prefix)


def _other_games() -> list[str]:
    with needed_by("atari:NAME"):
        from byol_explore.envs.adapters.atari import atari_games
    return [f"atari:{name}" for name in atari_games() if name not in HARD_GAMES]


def make_envs(
    names: list[str], settings: Mapping[str, Any] | Iterable[str] = (), *, actors: int = 1
) -> list[Environment] | list[HostEnvironment]:
    """One environment per name, with observations of one shape and actions of one kind.

    Settings are words or a table; each environment gets those that it knows. Processes are shared among the actors.
    """
    words = to_words(settings)
    check_words(names, words)
    values = read_words(words)
    _check_factories(names, values)
    envs: list[Any] = [_make(name, values, actors) for name in names]
    if len({isinstance(env, HostEnvironment) for env in envs}) > 1:
        raise UserError(f"{', '.join(names)}: environments inside and outside jit cannot be learned by one agent")
    if all(isinstance(env, Viewed) for env in envs):
        largest = max(env.view_size for env in envs)
        envs = [env.with_view(largest) for env in envs]
    first = envs[0].spec
    for env in envs[1:]:
        if (env.spec.observation, env.spec.action) != (first.observation, first.action):
            raise UserError(
                f"{first.name!r} and {env.spec.name!r} cannot be learned by one agent: "
                "their observations or actions differ"
            )
    _check_tasks(names, envs)
    return envs


def _check_tasks(names: Sequence[str], envs: Sequence[Any]) -> None:
    """A UserError for a task that two environments have."""
    tasks = [task.name for task in list_tasks(names, envs)]
    if len(set(tasks)) < len(tasks):
        twice = next(name for name in tasks if tasks.count(name) > 1)
        raise UserError(f"env {','.join(names)!r} names the task {twice!r} twice: every task is given once")


def _checked(name: str, env: Any) -> Environment | HostEnvironment:
    """Itself, or a UserError if it is no environment or not the one that its spec promises."""
    is_inside = all(callable(getattr(env, function, None)) for function in ("reset", "step"))
    if not hasattr(env, "spec") or not (is_inside or hasattr(env, "batch")):
        raise UserError(
            f"environment {name!r} makes a {type(env).__name__}: it must have a spec, and reset and step (inside jit) "
            "or batch (outside); see examples/"
        )
    if not hasattr(env, "batch"):
        from byol_explore.envs.checking import check_inside

        check_inside(name, env)
    elif env.spec.tasks:
        raise UserError(f"environment {name!r} has several tasks: only one inside jit may have them")
    return env


def make_env(name: str, settings: Mapping[str, Any] | Iterable[str] = ()) -> Environment | HostEnvironment:
    """The environment of that name."""
    return make_envs([name], settings)[0]


def _taken(factory: Callable[..., Any], values: Mapping[str, str]) -> dict[str, str]:
    """The settings that are keyword arguments of a factory."""
    parameters = inspect.signature(factory).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return dict(values)
    accepted = _keywords(factory)
    return {name: text for name, text in values.items() if name.partition(".")[0] in accepted}


def _keywords(factory: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(factory).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [parameter.name for parameter in parameters if parameter.kind in named]


def _check_factories(names: Sequence[str], values: Mapping[str, str]) -> None:
    """A UserError for a setting that none of the environments knows, some of which are made by others' code."""
    factories = {name: ENVIRONMENTS.get(name) for name in names if is_factory(name)}
    known = {each for factory in factories.values() for each in _taken(factory, values)}
    known |= {each for family in families_of(names) for each in known_to(family.settings, values)}
    for setting in values:
        if setting not in known:
            raise unknown_setting(setting, names, [(name, _keywords(each)) for name, each in factories.items()])


def _make_by(name: str, values: Mapping[str, str]) -> Environment | HostEnvironment:
    """An environment of others' code, its settings as keyword arguments."""
    factory = ENVIRONMENTS.get(name)
    arguments = nested(_taken(factory, values))
    try:
        inspect.signature(factory).bind(**arguments)
    except TypeError as error:
        raise UserError(f"environment {name!r}: {error}; settings are given with --env-settings") from None
    try:
        env = factory(**arguments)
    except Exception as error:
        words = " ".join(str(error).split())
        raise UserError(f"environment {name!r} cannot be made: {type(error).__name__}: {words}") from error
    return _checked(name, env)


def _make_atari(name: str, settings: AtariSettings, actors: int) -> HostEnvironment:
    if name == "atari:hard10":
        raise UserError(
            "atari:hard10 is no environment: name one game, for example atari:alien, or train and score all ten "
            "with `byol-explore study atari-hard10`"
        )
    with needed_by(name):
        from byol_explore.envs.adapters.atari import Atari
    workers = settings.workers or max(1, available_cores() // actors)
    return Atari(name.removeprefix("atari:"), settings, workers=workers)


def _make_dm_hard_eight(name: str, settings: DMHardEightSettings) -> HostEnvironment:
    with needed_by(name):
        from byol_explore.envs.adapters.dm_hard_eight import DMHardEight
    return DMHardEight(name.removeprefix(DM_HARD_EIGHT), settings)


def _make_grid(name: str) -> Environment | None:
    with needed_by(name):
        from byol_explore.envs.worlds.grids import make_grid
    return make_grid(name)


def _make_probe(name: str) -> Environment | None:
    if not name.startswith("probe:"):
        return None
    from byol_explore.envs.worlds.probes import PROBES

    make = PROBES.get(name.removeprefix("probe:"))
    return make() if make else None


def _make(name: str, values: Mapping[str, str], actors: int) -> Environment | HostEnvironment:
    """The environment of that name with those of the settings that it knows."""
    if is_factory(name):
        return _make_by(name, values)
    if name.startswith("atari:"):
        return _make_atari(name, fill(AtariSettings, values), actors)
    if name.startswith(DM_HARD_EIGHT):
        return _make_dm_hard_eight(name, fill(DMHardEightSettings, values))
    if name.startswith("hard-eight:"):
        from byol_explore.envs.worlds.hard_eight.spec import HardEight

        return HardEight(name.removeprefix("hard-eight:"), fill(HardEightSettings, values))
    if name.startswith("gymnasium:"):
        from byol_explore.envs.adapters.gymnasium import Gymnasium

        if name.startswith("gymnasium:ALE/"):
            raise UserError(f"{name!r}: Atari games are called atari:<game> here, for example atari:montezuma_revenge")
        return Gymnasium(name.removeprefix("gymnasium:"), fill(GymnasiumSettings, values))
    if is_grid(name) and (grid := _make_grid(name)):
        return grid
    if probe := _make_probe(name):
        return probe
    examples = "rooms-6, MiniGrid-DoorKey-8x8, atari:montezuma_revenge, gymnasium:CartPole-v1, probe:corridor"
    raise UserError(f"unknown environment {name!r}; `byol-explore envs` lists them all, for example {examples}")
