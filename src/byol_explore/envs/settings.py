"""Settings of environments as words: `sticky=0.25`, `kwargs.render_mode=human`.

A configuration keeps words, which are the same on the command line, in a file and in Python. Each family of
environments has a dataclass that says which names it takes, and this module fills it.
"""

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_origin

from byol_explore.errors import UserError
from byol_explore.rules import check, fields_of, whole_number

Settings = TypeVar("Settings")
_WORD = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)=(.*)", re.DOTALL)
_NAMED = {"true": True, "false": False, "none": None}


def to_words(settings: Mapping[str, Any] | Iterable[str]) -> tuple[str, ...]:
    """Words from a table, in which tables may lie, or from words."""
    if isinstance(settings, str) or not isinstance(settings, Iterable):
        raise UserError(f"env_settings is {settings!r}: it must be a list of words like name=value, or a table")
    if not isinstance(settings, Mapping):
        return tuple(settings)
    words: list[str] = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            words += [f"{name}.{word}" for word in to_words(value)]
        else:
            words.append(f"{name}={_text(value)}")
    return tuple(words)


def read_words(words: Iterable[str]) -> dict[str, str]:
    """Values as they are written, by name; a UserError for what is no such word, and for a name that comes twice."""
    values: dict[str, str] = {}
    for word in words:
        match = _WORD.fullmatch(word) if isinstance(word, str) else None
        if match is None:
            raise UserError(f"env_settings has {word!r}: it must be a word like name=value")
        name, text = match.groups()
        if name in values:
            raise UserError(f"env_settings names {name!r} twice")
        values[name] = text
    return values


def merged(first: Iterable[str], second: Iterable[str]) -> tuple[str, ...]:
    """Words of both, where the second have the last say."""
    return tuple(f"{name}={text}" for name, text in {**read_words(first), **read_words(second)}.items())


def literal(text: str) -> Any:
    """A number, true, false, none, a list in brackets, or the text itself; quotes make a text of anything."""
    if text in _NAMED:
        return _NAMED[text]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _text(value: Any) -> str:
    """What `literal` reads as this value."""
    for word, named in _NAMED.items():
        if value is named:
            return word
    return value if isinstance(value, str) and literal(value) == value else repr(value)


def nested(values: Mapping[str, str]) -> dict[str, Any]:
    """Values by name, with tables where names have dots."""
    table: dict[str, Any] = {}
    for name, text in values.items():
        *outer, last = name.split(".")
        inside = table
        for part in outer:
            inside = inside.setdefault(part, {})
            if not isinstance(inside, dict):
                raise UserError(f"env_settings names {part!r} both alone and with something behind a dot")
        if last in inside:
            raise UserError(f"env_settings names {last!r} both alone and with something behind a dot")
        inside[last] = literal(text)
    return table


def known_to(kind: type, names: Iterable[str]) -> set[str]:
    """Those of the names that a dataclass of settings has."""
    tables = {name: _is_table(kinds) for name, (kinds, _) in fields_of(kind).items()}
    return {name for name in names if tables.get(name.partition(".")[0]) is ("." in name)}


def accepted_names(kind: type) -> list[str]:
    """How the settings of a dataclass are called."""
    return [f"{name}.NAME" if _is_table(kinds) else name for name, (kinds, _) in fields_of(kind).items()]


def fill(kind: type[Settings], values: Mapping[str, str]) -> Settings:
    """A dataclass of settings from the values that it knows; a UserError for the first that breaks its rule."""
    known = known_to(kind, values)
    given: dict[str, Any] = nested({name: text for name, text in values.items() if name in known and "." in name})
    for name in known - {name for name in known if "." in name}:
        given[name] = _value(values[name], fields_of(kind)[name][0])
    settings = kind(**given)
    check(settings, "env_settings.")
    return settings


def _is_table(kinds: tuple[Any, ...]) -> bool:
    return get_origin(kinds[0]) is dict


def _value(text: str, kinds: tuple[Any, ...]) -> Any:
    """A text as a field of these types takes it; what does not fit is left to the check."""
    if tuple[str, ...] in kinds:
        return tuple(filter(None, text.split("+")))
    if str in kinds:
        return None if text == "none" and type(None) in kinds else text
    value = literal(text)
    if float in kinds:
        return float(value) if type(value) is int else value
    return whole_number(text) if int in kinds and type(value) is float and value.is_integer() else value


def described(kind: type) -> list[tuple[str, str, str]]:
    """Name, default and description of each setting; the description is the text below its field."""
    [node] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(node, ast.ClassDef)
    texts: dict[str, str] = {}
    for field, after in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            text = after.value if isinstance(after, ast.Expr) else None
            texts[field.target.id] = " ".join(str(text.value).split()) if isinstance(text, ast.Constant) else ""
    usual = kind()
    shown = zip(dataclasses.fields(kind), accepted_names(kind), strict=True)
    return [(name, _default(getattr(usual, field.name)), texts[field.name]) for field, name in shown]


def _default(value: Any) -> str:
    return _text(value) if value not in ((), {}) else "nothing"
