"""Families of environments, by their names, and the settings that they take. Light: no environment is imported."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from byol_explore.envs.adapters.atari_settings import AtariSettings
from byol_explore.envs.adapters.dm_hard_eight_settings import PREFIX as DM_HARD_EIGHT
from byol_explore.envs.adapters.dm_hard_eight_settings import WAYS, DMHardEightSettings, leads_outside
from byol_explore.envs.adapters.gymnasium_settings import GymnasiumSettings
from byol_explore.envs.settings import accepted_names, fill, known_to, read_words
from byol_explore.envs.worlds.hard_eight.settings import HardEightSettings
from byol_explore.errors import UserError
from byol_explore.registries import ENVIRONMENTS
from byol_explore.registry import is_import_path


class Family(NamedTuple):
    """Environments whose names begin alike."""

    title: str
    prefix: str
    settings: type


FAMILIES = (
    Family("Atari", "atari:", AtariSettings),
    Family("DM-HARD-8", DM_HARD_EIGHT, DMHardEightSettings),
    Family("Hard-Eight", "hard-eight:", HardEightSettings),
    Family("Gymnasium", "gymnasium:", GymnasiumSettings),
)
_PREFIXES = (*(family.prefix for family in FAMILIES), "probe:")


class Sized(NamedTuple):
    """A family of grid worlds of any size, whose names end with it: `rooms-6`."""

    description: str
    lowest: int
    highest: int


SIZED = {
    "rooms": Sized("rooms in a row behind closed doors", 2, 50),
    "quiet-rooms": Sized("the same, with an empty third layer in all that is seen", 2, 50),
    "moving-rooms": Sized("the same, where things move about in that layer", 2, 50),
    "noisy-rooms": Sized("the same, with random symbols there", 2, 50),
    "tv-rooms": Sized("the same, with random symbols there whenever the agent does nothing", 2, 50),
    "corridor": Sized("legs of a folded corridor", 1, 50),
    "memory": Sized("cells from an object to where it must be known", 8, 128),
}
REGISTERED = ("MiniGrid-", "XLand-")  # how names begin of grid worlds that XLand-MiniGrid registers


def size_of(name: str) -> tuple[str, int] | None:
    """The family and the size of a grid world, if it has one."""
    match = re.fullmatch(rf"({'|'.join(SIZED)})-(0|[1-9][0-9]*)", name)
    return (match.group(1), int(match.group(2))) if match else None


def is_grid(name: str) -> bool:
    """Whether an environment is a grid world inside jit, if there is one of that name at all."""
    return size_of(name) is not None or name.startswith(REGISTERED)


def check_own_name(name: str) -> None:
    """A UserError if a name is that of a family of environments, or begins like it."""
    if not isinstance(name, str):
        return  # the registry will say so
    begins = next((start for start in (*_PREFIXES, *REGISTERED) if name.startswith(start)), None)
    if begins or is_grid(name):
        family = f"{begins}..." if begins else f"{name.rpartition('-')[0]}-N"
        raise UserError(f"environment name {name!r} is taken by the family {family}: choose another one")


def families_of(names: Iterable[str]) -> list[Family]:
    """The families that take settings, of environments with these names."""
    return [family for family in FAMILIES if any(name.startswith(family.prefix) for name in names)]


def is_factory(name: str) -> bool:
    """Whether an environment is made by code that was registered or is found by its import path.

    Settings are keyword arguments of it. Which ones it takes is known when it has been imported.
    """
    return name in ENVIRONMENTS.names() or _is_path(name)


def _is_path(name: str) -> bool:
    return is_import_path(name) and not name.startswith(_PREFIXES)


def check_words(names: Sequence[str], words: Iterable[str]) -> None:
    """A UserError for a setting that breaks its rule, or that none of these environments takes as far as is known."""
    values, families = read_words(words), families_of(names)
    known: set[str] = set()
    for family in families:
        fill(family.settings, values)
        known |= known_to(family.settings, values)
    unknown = [name for name in values if name not in known]
    if unknown and not any(map(is_factory, names)):
        raise unknown_setting(unknown[0], names)


def unknown_setting(setting: str, names: Sequence[str], others: Iterable[tuple[str, list[str]]] = ()) -> UserError:
    """The error for a name of a setting; `others` are environments with settings that are known by now."""
    takers = [(family.title, accepted_names(family.settings)) for family in families_of(names)]
    takers += [(title, accepted) for title, accepted in others if accepted]
    if not takers:
        return UserError(f"unknown environment setting {setting!r}: {', '.join(names)} takes none")
    accepted = "; ".join(f"those of {title} are {', '.join(names)}" for title, names in takers)
    return UserError(f"unknown environment setting {setting!r}; {accepted}")


def outside_words(names: Sequence[str], words: Iterable[str]) -> list[str]:
    """Settings that lead to code outside this package, or that such code is given.

    Wrappers are import paths, and what an environment is given may name something to import too. DM-HARD-8's name what
    is started, or where on this machine or another one a server listens.
    """
    is_given, is_original = any(map(_is_path, names)), any(name.startswith(DM_HARD_EIGHT) for name in names)

    def leads(word: str) -> bool:
        name, _, text = word.partition("=")
        return leads_outside(name, text) if is_original and name in WAYS else ":" in text

    return [word for word in words if is_given or leads(word)]
