"""Fields of the configuration as words of the command line, for whoever writes a `byol-explore train` command."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, get_type_hints

from byol_explore.settings.config import Config


@functools.cache
def setting_kinds(kind: type = Config, prefix: str = "") -> dict[str, Any]:
    """The type of every field, by dotted name."""
    kinds: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        if dataclasses.is_dataclass(hint):
            kinds.update(setting_kinds(hint, f"{prefix}{name}."))  # pyright: ignore[reportArgumentType]
        else:
            kinds[prefix + name] = hint
    return kinds


def options(settings: Mapping[str, Any]) -> list[str]:
    """Settings by dotted name as options: a switch for what is either true or false, else the name and its value."""
    words: list[str] = []
    for name, value in settings.items():
        section, dot, field = name.replace("_", "-").rpartition(".")
        if setting_kinds().get(name) is bool:
            words.append(f"--{section}{dot}{field}" if value else f"--{section}{dot}no-{field}")
        else:
            words += [f"--{section}{dot}{field}", *map(str, value if isinstance(value, tuple) else [value])]
    return words
