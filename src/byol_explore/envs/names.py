"""Families of environments, the grammar of their names, and the settings and keyword arguments that a name takes."""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from byol_explore.envs.families import (
    AtariSettings,
    DMHardEightSettings,
    GymnasiumSettings,
    HardEightSettings,
    is_local,
)
from byol_explore.errors import UserError
from byol_explore.registry import ENVIRONMENTS, is_import_path
from byol_explore.utils.validation import validate


class Family(NamedTuple):
    """Environments whose names have the same prefix. Import paths are relative to `byol_explore.envs`."""

    factory: str  # import path of what makes an environment; see `registry._make_env`
    lists: dict[str, str]  # by title: import path of the names behind the prefix
    section: str = ""  # of EnvSettings


FAMILIES = {  # by the prefix of their names; a new family needs a module and an entry here
    "MiniGrid-": Family("grid.make:make_grid", {"MiniGrid": "grid.make:MINIGRID_NAMES"}),
    "XLand-": Family("grid.make:make_grid", {"XLand-MiniGrid": "grid.make:XLAND_NAMES"}),
    "hard-eight:": Family("hard_eight.env:HardEight", {"Hard-Eight": "hard_eight.env:NAMES"}, "hard_eight"),
    "probe:": Family("probes.worlds:make_probe", {"probe": "probes.worlds:PROBES"}),
    "atari:": Family(
        "atari:Atari",
        {
            "Atari, hardest to explore (the study atari-hard10)": "families:HARD_GAMES",
            "Atari, others": "atari:OTHER_GAMES",
        },
        "atari",
    ),
    "dm-hard-eight:": Family(
        "dm_hard_eight.env:DMHardEight",
        {"DM-HARD-8, the original (docs/dm-hard-eight.md)": "families:LEVELS"},
        "dm_hard_eight",
    ),
    "gymnasium:": Family("gymnasium_env:GymnasiumEnv", {"Gymnasium": "families:GYMNASIUM_IDS"}, "gymnasium"),
    "envpool:": Family("envpool_env:EnvPoolEnv", {"EnvPool": "families:ENVPOOL_IDS"}),
}
PREFIXES = {family.section: prefix for prefix, family in FAMILIES.items() if family.section}
OPEN_FAMILIES = ("gymnasium:", "envpool:")  # they check keyword arguments themselves


@dataclass(frozen=True)
class EnvSettings:
    """Settings of every family of environments, and keyword arguments for environments of users."""

    env_kwargs: tuple[str, ...] = ()
    """Keyword arguments, as name=value, of your own environments, of gymnasium.make and of envpool.make."""
    atari: AtariSettings = field(default_factory=AtariSettings)
    gymnasium: GymnasiumSettings = field(default_factory=GymnasiumSettings)
    hard_eight: HardEightSettings = field(default_factory=HardEightSettings)
    dm_hard_eight: DMHardEightSettings = field(default_factory=DMHardEightSettings)

    def check(self, names: Sequence[str]) -> None:
        """Raise a UserError for a wrong value, and for one that none of these environments uses."""
        validate(self)
        self.dm_hard_eight.check()
        used, shown = sections_for(names), ", ".join(names)
        for section in (name for name in PREFIXES if name not in used):
            part = getattr(self, section)
            for name in (item.name for item in fields(part) if getattr(part, item.name) != item.default):
                raise UserError(
                    f"{section}.{name} is {getattr(part, name)!r}, but {shown} does not use it: it is a setting of "
                    f"environments {PREFIXES[section]}..."
                )
        if parse_kwargs(self.env_kwargs) and not any(map(_takes_kwargs, names)):
            raise UserError(
                f"env_kwargs has {self.env_kwargs[0]!r}, but {shown} takes no keyword arguments: they are for "
                "environments of your own, gymnasium:... and envpool:..."
            )

    def external(self, names: Sequence[str]) -> list[str]:
        """Return the values that name code outside this package or are passed to such code."""
        server = self.dm_hard_eight
        remote = [address for address in server.servers if not is_local(address)]
        local = [value for value in (server.directory, server.docker_image) if value]
        # A keyword argument of a Gymnasium environment may name something to import.
        kwargs = [word for word in self.env_kwargs if ":" in word or any(map(_is_path, names))]
        return [*self.gymnasium.wrappers, *remote, *local, *kwargs]


class SizedGrid(NamedTuple):
    """A family of grid worlds with a size at the end of the name: `rooms-6`."""

    description: str
    lowest: int
    highest: int


SIZED = {
    "rooms": SizedGrid("rooms in a row behind closed doors", 2, 50),
    "quiet-rooms": SizedGrid("the same, with an empty third layer in observations", 2, 50),
    "moving-rooms": SizedGrid("the same, with objects that move in that layer", 2, 50),
    "noisy-rooms": SizedGrid("the same, with random symbols in that layer", 2, 50),
    "tv-rooms": SizedGrid("the same, with random symbols after the action that does nothing", 2, 50),
    "corridor": SizedGrid("legs of a folded corridor", 1, 50),
    "memory": SizedGrid("cells from an object to the place where the agent must remember it", 8, 128),
}


def parse_sized(name: str) -> tuple[str, int] | None:
    """Return family and size of the name of a grid world with a size, else None."""
    match = re.fullmatch(rf"({'|'.join(SIZED)})-(0|[1-9][0-9]*)", name)
    return (match.group(1), int(match.group(2))) if match else None


def find_family(name: str) -> tuple[str, Family] | None:
    """Return the family that a name belongs to, after the pattern of its names, such as `atari:...` or `rooms-N`."""
    if sized := parse_sized(name):
        return f"{sized[0]}-N", FAMILIES["MiniGrid-"]
    return next(((f"{prefix}...", family) for prefix, family in FAMILIES.items() if name.startswith(prefix)), None)


def sections_for(names: Iterable[str]) -> list[str]:
    """Return the sections of EnvSettings that environments with these names use."""
    return [section for section, prefix in PREFIXES.items() if any(name.startswith(prefix) for name in names)]


def is_user_env(name: str) -> bool:
    """Return True for registered names and import paths."""
    return name in ENVIRONMENTS.names() or _is_path(name)


def is_external(name: str) -> bool:
    """Return True if the name of an environment, or of another part, names code outside this package."""
    if name.startswith("gymnasium:"):
        return name.count(":") > 1  # Gymnasium imports the module before the second colon
    return _is_path(name)


def _is_path(name: str) -> bool:
    return is_import_path(name) and not name.startswith(tuple(FAMILIES))


def _takes_kwargs(name: str) -> bool:
    return is_user_env(name) or name.startswith(OPEN_FAMILIES)


_NAMED = {"true": True, "false": False, "none": None}


def format_kwargs(kwargs: Mapping[str, Any] | Iterable[str]) -> tuple[str, ...]:
    """Write keyword arguments as name=value, which `parse_kwargs` reads; texts of this form are returned unchanged."""
    if isinstance(kwargs, str) or not isinstance(kwargs, Iterable):
        raise UserError(f"env_kwargs is {kwargs!r}: it must be a list of texts like name=value, or a dict")
    if not isinstance(kwargs, Mapping):
        return tuple(kwargs)
    words = tuple(f"{name}={_text(value)}" for name, value in kwargs.items())
    for word, value in zip(words, kwargs.values(), strict=True):
        if parse_literal(word.partition("=")[2]) != value:
            raise UserError(f"env_kwargs has {word}: a value must be a number, text, true, false, none or a list")
    return words


def parse_kwargs(words: Iterable[str]) -> dict[str, Any]:
    """Read name=value; raise a UserError for a text of another form and for a repeated name."""
    kwargs: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=") if isinstance(word, str) else ("", "", "")
        if not equals or not name.isidentifier():
            raise UserError(f"env_kwargs has {word!r}: it must be like name=value")
        if name in kwargs:
            raise UserError(f"env_kwargs names {name!r} twice")
        kwargs[name] = parse_literal(text)
    return kwargs


def parse_literal(text: str) -> Any:
    """Read a number, true, false, none, or a list or dict as in Python; return other texts unchanged.

    Quotes make a text of anything: `"3"`.
    """
    if text in _NAMED:
        return _NAMED[text]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _text(value: Any) -> str:
    for word, named in _NAMED.items():
        if value is named:
            return word
    return value if isinstance(value, str) and parse_literal(value) == value else repr(value)
