"""Settings of a study: configuration fields by their dotted names."""

import dataclasses
import types
from typing import Any, get_args, get_origin

from byol_explore.envs.settings import merged, to_words
from byol_explore.errors import UserError, unknown
from byol_explore.settings.config import Config
from byol_explore.settings.words import setting_kinds

_TABLE = "env_settings"  # a field that is words, and may be written as a table
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
_SEVERAL = {int: "whole numbers", str: "texts"}


def check_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """The values as the configuration holds them; a UserError for a wrong name or type."""
    kinds = setting_kinds()
    checked: dict[str, Any] = {}
    for name, value in settings.items():
        if name.startswith(f"{_TABLE}."):
            word = to_words({name.removeprefix(f"{_TABLE}."): value})
            checked[_TABLE] = merged(checked.get(_TABLE, ()), word)
            continue
        if name not in kinds:
            section = name.rpartition(".")[0] + "."
            neighbours = [each for each in kinds if each.startswith(section)]
            raise unknown("setting", name, neighbours or list(kinds))
        checked[name] = _as_kind(name, value, kinds[name])
    return checked


def apply_settings(config: Config, settings: dict[str, Any]) -> Config:
    """The configuration with these fields changed, and settings of environments joined to those that it has."""
    for name, value in settings.items():
        section, _, field = name.rpartition(".")
        if section:
            part = dataclasses.replace(getattr(config, section), **{field: value})
            config = dataclasses.replace(config, **{section: part})  # pyright: ignore[reportArgumentType]
        else:
            value = merged(config.env_settings, value) if field == _TABLE else value
            config = dataclasses.replace(config, **{field: value})
    return config


def joined_settings(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Both, where the second have the last say; settings of environments are joined name by name too."""
    words = merged(first.get(_TABLE, ()), second.get(_TABLE, ()))
    return {**first, **second, **({_TABLE: words} if words else {})}


def _as_kind(name: str, value: Any, kind: Any) -> Any:
    choices = (
        [each for each in get_args(kind) if each is not type(None)] if isinstance(kind, types.UnionType) else [kind]
    )
    if name == _TABLE:
        if isinstance(value, list) and all(type(each) is str for each in value):
            return merged(value, ())
        raise UserError(f"setting {name} is {value!r}: it must be a table, or a list of words like name=value")
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
        raise UserError(f"setting {name} is {value!r}: it must be {words}")
    return value
