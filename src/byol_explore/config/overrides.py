"""Settings by dotted name, such as "curiosity.horizon": their types, command line and TOML values; changing them."""

import dataclasses
import functools
import types
from collections.abc import Mapping
from typing import Any, get_args, get_origin, get_type_hints

from byol_explore.config.config import Config
from byol_explore.errors import UserError, unknown_name


@functools.cache
def field_types(kind: type = Config, prefix: str = "") -> dict[str, Any]:
    """Return the type of every field, by dotted name."""
    kinds: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        if dataclasses.is_dataclass(hint):
            kinds.update(field_types(hint, f"{prefix}{name}."))  # pyright: ignore[reportArgumentType]
        else:
            kinds[prefix + name] = hint
    return kinds


def to_cli_args(settings: Mapping[str, Any]) -> list[str]:
    """Write settings as options of `byol-explore train`: a switch for a bool, else the name and the value."""
    words: list[str] = []
    for name, value in settings.items():
        section, dot, field = name.replace("_", "-").rpartition(".")
        if field_types().get(name) is bool:
            words.append(f"--{section}{dot}{field}" if value else f"--{section}{dot}no-{field}")
        else:
            words += [f"--{section}{dot}{field}", *map(str, value if isinstance(value, tuple) else [value])]
    return words


_WORDS = {
    int: "a whole number", float: "a number", bool: "true or false", str: "a text", list: "a list", dict: "a table",
}  # fmt: skip
_SEVERAL = {int: "whole numbers", str: "texts"}


def parse_overrides(settings: dict[str, Any]) -> dict[str, Any]:
    """Convert values of a TOML file to the types of their fields.

    Args:
      settings: values by dotted name.
    Returns:
      Converted values by dotted name, for `override`. Raises a UserError for a wrong name or type.
    """
    kinds = field_types()
    checked: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in kinds:
            section = name.rpartition(".")[0] + "."
            neighbors = [each for each in kinds if each.startswith(section)]
            raise unknown_name("setting", name, neighbors or list(kinds))
        checked[name] = convert_value(f"setting {name}", value, kinds[name])
    return checked


def convert_value(name: str, value: Any, kind: Any) -> Any:
    """Convert a value of a TOML file to a type; raise a UserError with the name if it does not fit."""
    choices = (
        [each for each in get_args(kind) if each is not type(None)] if isinstance(kind, types.UnionType) else [kind]
    )
    several = [each for each in choices if isinstance(value, list) == (get_origin(each) is tuple)]
    choice = (several or choices)[0]
    kind, inner = get_origin(choice) or choice, get_args(choice)
    if kind is float and type(value) in (int, float):
        return float(value)
    if kind is int and type(value) is float and value.is_integer():  # as 1e6 is in TOML
        return int(value)
    if kind is tuple and isinstance(value, list) and all(type(each) is inner[0] for each in value):
        return tuple(value)
    if type(value) is not kind:
        words = f"a list of {_SEVERAL[inner[0]]}" if kind is tuple else _WORDS[kind]
        raise UserError(f"{name} is {value!r}: it must be {words}")
    return value


def override(config: Any, changes: dict[str, Any]) -> Any:
    """Change settings of a configuration.

    Args:
      config: a dataclass, whose fields may be dataclasses (sections).
      changes: values by name. A dict changes some fields of a section, as dotted names do:
        {"curiosity": {"horizon": 8}} equals {"curiosity.horizon": 8}.
    Returns:
      A new configuration. Raises a UserError for an unknown name.
    """
    # All changes of a section are made at once: one of its fields may be computed from others.
    known = [item.name for item in dataclasses.fields(config)]
    grouped: dict[str, Any] = {}
    for name, value in changes.items():
        section, dot, field = name.partition(".")
        grouped[section] = {**grouped.get(section, {}), field: value} if dot else value
    values = {}
    for name, value in grouped.items():
        if name not in known:
            raise unknown_name("setting", name, known)
        part = getattr(config, name)
        nested = dataclasses.is_dataclass(part) and isinstance(value, dict)
        values[name] = override(part, value) if nested else tuple(value) if isinstance(value, list) else value
    return dataclasses.replace(config, **values)


def flatten(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Name the values of nested tables by one dotted name each: "curiosity.horizon"."""
    flat: dict[str, Any] = {}
    for name, value in data.items():
        flat.update(flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value})
    return flat
