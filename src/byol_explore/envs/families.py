"""Families of environments and the settings that they take. Light: no environment is imported."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from byol_explore.envs.adapters.atari_settings import AtariSettings
from byol_explore.envs.adapters.gymnasium_settings import GymnasiumSettings
from byol_explore.envs.settings import accepted_names, fill, known_to, read_words
from byol_explore.errors import UserError
from byol_explore.registries import ENVIRONMENTS
from byol_explore.registry import is_import_path


class Family(NamedTuple):
    """Environments whose names begin alike."""

    title: str
    prefix: str
    settings: type


FAMILIES = (Family("Atari", "atari:", AtariSettings), Family("Gymnasium", "gymnasium:", GymnasiumSettings))
_PREFIXES = (*(family.prefix for family in FAMILIES), "probe:")


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

    Wrappers are import paths, and what an environment is given may name something to import too.
    """
    is_given = any(map(_is_path, names))
    return [word for word in words if is_given or ":" in word.partition("=")[2]]
