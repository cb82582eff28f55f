"""Make environments by name: make_env, make_envs, register_env, list_environments."""

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pkgutil import resolve_name
from typing import Any

from byol_explore.envs.interface import AnyEnvironment, HostEnvironment, JitEnvironment, list_tasks
from byol_explore.envs.names import (
    FAMILIES,
    OPEN_FAMILIES,
    PREFIXES,
    SIZED,
    EnvSettings,
    find_family,
    format_kwargs,
    is_user_env,
    parse_kwargs,
    sections_for,
)
from byol_explore.errors import UserError, did_you_mean, unknown_name
from byol_explore.registry import ENVIRONMENTS
from byol_explore.utils.formatting import one_line
from byol_explore.utils.packages import require_extra

_DEFAULTS = EnvSettings()


def register_env(name: str, factory: Callable[..., AnyEnvironment], *, replace: bool = False) -> None:
    """Register an environment of your own under a name in this process.

    Other processes, such as Ray actors, find environments by import path: `my_package.envs:Lock`.

    Args:
      name: not one that a family of environments could have.
      factory: a class or a function that makes the environment; its keyword arguments come from `env_kwargs`.
      replace: allow replacing an environment that was registered before.
    """
    if isinstance(name, str) and (found := find_family(name)):
        raise UserError(f"environment name {name!r} is taken by the family {found[0]}: choose another one")
    ENVIRONMENTS.register(name, factory, replace=replace)


def list_environments() -> dict[str, list[str]]:
    """Return all names by the title of their family; `rooms-N` and the like stand for any N."""
    return {
        "grid worlds of any size N": [f"{name}-N ({sized.description})" for name, sized in SIZED.items()],
        **_family_names(),
        "yours": ["package.module:Name for anything that makes an environment", *ENVIRONMENTS.names()],
    }


def _family_names() -> dict[str, list[str]]:
    """Return the names of the families by title."""
    return {
        title: _list_names(prefix, path) for prefix, family in FAMILIES.items() for title, path in family.lists.items()
    }


def _list_names(prefix: str, path: str) -> list[str]:
    """Return the names of a family, or a message that names the missing package."""
    try:
        with require_extra(f"{prefix}NAME"):
            return [prefix + name for name in _resolve(path)]
    except UserError as error:
        return [str(error)]


def _resolve(path: str) -> Any:
    return resolve_name(f"byol_explore.envs.{path}")


def make_envs(
    names: Sequence[str], settings: EnvSettings = _DEFAULTS, *, actors: int = 1
) -> list[JitEnvironment] | list[HostEnvironment]:
    """Make one environment per name, with observations and actions of the same spaces.

    Args:
      names: as `list_environments` shows them, or import paths.
      settings: `Config.env_settings`; each environment gets those of its family.
      actors: number of actors that share the cores of this machine.

    Returns:
      The environments in the order of the names. Raises a UserError if one agent cannot learn them all.
    """
    settings.check(names)
    kwargs = parse_kwargs(settings.env_kwargs)
    _check_kwargs(names, kwargs)
    envs: list[Any] = []
    for name in names:
        with require_extra(name):
            envs.append(_make_env(name, settings, kwargs, actors))
    if len({isinstance(env, HostEnvironment) for env in envs}) > 1:
        raise UserError(f"{', '.join(names)}: environments inside and outside jit cannot be learned by one agent")
    if all(isinstance(env, JitEnvironment) and env.view_size for env in envs):
        largest = max(env.view_size for env in envs)
        envs = [env.with_view(largest) for env in envs]
    first = envs[0].spec
    for env in envs[1:]:
        if (env.spec.observation, env.spec.action) != (first.observation, first.action):
            raise UserError(
                f"{first.name!r} and {env.spec.name!r} cannot be learned by one agent: "
                "their observations or actions differ"
            )
    tasks = [task.name for task in list_tasks(names, envs)]
    if repeated := [name for name in tasks if tasks.count(name) > 1]:
        raise UserError(f"env {','.join(names)!r} names the task {repeated[0]!r} twice: every task is given once")
    return envs


def make_env(name: str, /, **settings: Any) -> AnyEnvironment:
    """Make an environment: `make_env("atari:alien", frame_stack=4)`, `make_env("my_package:Lock", length=7)`.

    Args:
      name: as `list_environments` shows it, or an import path.
      settings: those of its family (fields of `byol_explore.Config().atari` and the like); keyword arguments of its
        factory for environments of your own, and of `gymnasium.make` or `envpool.make` for theirs.
    """
    sections: dict[str, Any] = {}
    for section in sections_for([name]):
        part = getattr(_DEFAULTS, section)
        known = [item.name for item in dataclasses.fields(part)]
        own = {key: settings.pop(key) for key in known if key in settings}
        if settings and PREFIXES[section] not in OPEN_FAMILIES:
            raise unknown_name(f"setting of {name}", next(iter(settings)), known)
        sections[section] = dataclasses.replace(part, **own)
    return make_envs([name], EnvSettings(format_kwargs(settings), **sections))[0]


def _accepted(factory: Callable[..., Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments that a factory takes."""
    kinds = {parameter.kind for parameter in inspect.signature(factory).parameters.values()}
    names = kwargs if inspect.Parameter.VAR_KEYWORD in kinds else _keywords(factory)
    return {name: value for name, value in kwargs.items() if name in names}


def _keywords(factory: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(factory).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [parameter.name for parameter in parameters if parameter.kind in named]


def _check_kwargs(names: Sequence[str], kwargs: Mapping[str, Any]) -> None:
    """Raise a UserError for a keyword argument that no factory of these environments takes."""
    if any(name.startswith(OPEN_FAMILIES) for name in names):
        return
    factories = {name: ENVIRONMENTS.get(name) for name in names if is_user_env(name)}
    for word in kwargs:
        if not any(_accepted(factory, {word: None}) for factory in factories.values()):
            accepted = "; ".join(
                f"those of {name} are {', '.join(_keywords(each))}" for name, each in factories.items()
            )
            raise UserError(f"unknown keyword argument {word!r} in env_kwargs; {accepted}")


def _make_user_env(name: str, kwargs: Mapping[str, Any]) -> AnyEnvironment:
    """Make an environment of users; raise a UserError if it does not match its spec."""
    factory = ENVIRONMENTS.get(name)
    arguments = _accepted(factory, kwargs)
    try:
        inspect.signature(factory).bind(**arguments)
    except TypeError as error:
        raise UserError(f"environment {name!r}: {error}; keyword arguments are given with --env-kwargs") from None
    try:
        env = factory(**arguments)
    except Exception as error:
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise UserError(f"environment {name!r} cannot be made: {reason}") from error
    if not isinstance(env, JitEnvironment | HostEnvironment) or not hasattr(env, "spec"):
        raise UserError(
            f"environment {name!r} makes a {type(env).__name__}: it must be a JitEnvironment or a HostEnvironment "
            "(byol_explore.envs.interface) with a spec; see examples/"
        )
    if isinstance(env, JitEnvironment):
        from byol_explore.envs.checks import check_jit_env

        check_jit_env(name, env)
    elif env.spec.tasks:
        raise UserError(f"environment {name!r} has several tasks: only one inside jit may have them")
    return env


def _make_env(name: str, settings: EnvSettings, kwargs: Mapping[str, Any], num_actors: int) -> AnyEnvironment:
    """Make an environment with the factory of its family.

    A factory takes the name behind the colon, or a whole name without one, and those of the keyword arguments
    `settings`, `kwargs` and `num_actors` that it names. It returns None for an unknown name.
    """
    if is_user_env(name):
        return _make_user_env(name, kwargs)
    if found := find_family(name):
        family = found[1]
        factory = _resolve(family.factory)
        options = {"settings": getattr(settings, family.section, None), "kwargs": kwargs, "num_actors": num_actors}
        _, colon, own_name = name.partition(":")
        env = factory(own_name if colon else name, **_accepted(factory, options))
        if env is not None:
            return env
    examples = "rooms-6, MiniGrid-DoorKey-8x8, atari:montezuma_revenge, gymnasium:CartPole-v1, probe:corridor"
    hint = did_you_mean(name, _names_with_size(name))
    raise UserError(f"unknown environment {name!r}{hint}; `byol-explore envs` lists them all, for example {examples}")


def _names_with_size(name: str) -> list[str]:
    """Return all names; where any size is possible, the one nearest to the number at the end of `name`."""
    size = int(re.sub(r".*?([0-9]{0,3})$", r"\1", name, flags=re.DOTALL) or 0)
    sized = [f"{family}-{min(max(size, each.lowest), each.highest)}" for family, each in SIZED.items()]
    return [*sized, *(each for names in _family_names().values() for each in names), *ENVIRONMENTS.names()]
