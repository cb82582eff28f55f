"""Rules for the values of settings, in the annotations of their fields: `steps: Positive[int]`.

`field_rules` refuses a class that has a number without a rule, so a new field cannot accept 0 by accident.
"""

import dataclasses
import math
import re
import types
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from byol_explore.errors import UserError, unknown_name
from byol_explore.utils.formatting import one_line

Number = TypeVar("Number", int, float, int | None, float | None, tuple[int, ...], int | tuple[int, ...])


@dataclass(frozen=True)
class Rule:
    """A condition on a finite number, and its error message."""

    message: str
    predicate: Callable[[float], bool]


@dataclass(frozen=True)
class OneOf:
    """A text out of a list."""

    choices: tuple[str, ...]


MAX_INT = 10**15  # counts of steps over many environments still fit into 64 bits

Positive = Annotated[Number, Rule("it must be positive", lambda x: x > 0)]
NonNegative = Annotated[Number, Rule("it must not be negative", lambda x: x >= 0)]
Fraction = Annotated[Number, Rule("it must lie between 0 and 1", lambda x: 0 <= x <= 1)]
PositiveFraction = Annotated[Number, Rule("it must be above 0 and at most 1", lambda x: 0 < x <= 1)]
FractionBelowOne = Annotated[Number, Rule("it must be at least 0 and below 1", lambda x: 0 <= x < 1)]
AtLeastTwo = Annotated[Number, Rule("it must be at least 2", lambda x: x >= 2)]
Sizes = Annotated[tuple[int, ...], Rule("sizes must be at least 1", lambda x: x >= 1)]
Finite = Annotated[Number, Rule("it must be finite", lambda _: True)]


def validate(settings: Any, prefix: str = "") -> None:
    """Raise a UserError that names the first field whose value has the wrong type or breaks its rule."""
    for name, (kinds, marks) in field_rules(type(settings)).items():
        value, path = getattr(settings, name), prefix + name
        if dataclasses.is_dataclass(value):
            validate(value, path + ".")
            continue
        _check_type(value, kinds, path)
        for mark in marks:
            _check_mark(value, mark, path)


def _check_mark(value: Any, mark: Any, path: str) -> None:
    if isinstance(mark, OneOf) and value not in mark.choices:
        raise unknown_name(path, value, list(mark.choices))
    if not isinstance(mark, Rule) or value is None:
        return
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, float) and not math.isfinite(number):
            raise UserError(f"{path} is {value}: it must be finite")
        if not mark.predicate(number):
            raise UserError(f"{path} is {value}: {mark.message}")
        if isinstance(number, int) and abs(number) > MAX_INT:
            raise UserError(f"{path} is {one_line(value, 40)}: it must be at most {MAX_INT}")


def parse_int(text: str) -> int:
    """Parse a whole number, also written as 1e6, 2.5e6 or 1_000_000; raise a ValueError for other texts."""
    try:
        number = Decimal(text)
        if number.is_finite() and abs(number.adjusted()) < 100 and number == number.to_integral_value():
            return int(number)
    except ArithmeticError:
        pass
    raise ValueError(f"{text!r} is no whole number")


def parse_host_port(address: str) -> tuple[str, int] | None:
    """Split host:port, where an IPv6 host has brackets; None unless the port is one of 1 to 65535."""
    match = re.fullmatch(r"(?:([\w.-]+)|\[([0-9a-fA-F:.%\w]+)\]):(\d{1,5})", address, re.ASCII)
    if match and 0 < int(match[3]) < 2**16:
        return match[1] or match[2], int(match[3])
    return None


def _check_type(value: Any, kinds: tuple[Any, ...], path: str) -> None:
    accepted = tuple(get_origin(kind) or kind for kind in kinds)
    fits = isinstance(value, accepted) and (bool in accepted or not isinstance(value, bool))
    if not fits and not (float in accepted and isinstance(value, int) and not isinstance(value, bool)):
        words = [_WORDS.get(kind) or str(kind.__name__) for kind in accepted]
        raise UserError(f"{path} is {value!r}: it must be {' or '.join(words)}")
    if isinstance(value, tuple):
        [element] = {get_args(kind)[0] for kind in kinds if get_origin(kind) is tuple}
        for item in value:
            if type(item) is not element:
                raise UserError(f"{path} is {value!r}: each element must be {_WORDS[element]}")


_WORDS: dict[Any, str] = {
    int: "a whole number", float: "a number", bool: "true or false", str: "text", tuple: "a tuple", type(None): "None",
}  # fmt: skip


@cache
def field_rules(kind: type) -> dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Return the types and rules of each field of a dataclass; raise a TypeError if a number has no rule."""
    hints = get_type_hints(kind, include_extras=True)
    fields = {}
    for item in dataclasses.fields(kind):
        hint = hints[item.name]
        marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        hint = get_args(hint)[0] if marks else hint
        union = get_origin(hint) in (types.UnionType, Union)
        kinds = get_args(hint) if union else (hint,)
        if any(part in (int, float, tuple[int, ...]) for part in kinds) and not any(isinstance(m, Rule) for m in marks):
            raise TypeError(f"{kind.__name__}.{item.name} is a number without a rule")
        fields[item.name] = (kinds, marks)
    return fields
