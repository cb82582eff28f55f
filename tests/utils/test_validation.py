"""Rules at the fields: what they refuse, and that no number goes without one."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from byol_explore.config.config import Config
from byol_explore.errors import UserError
from byol_explore.utils.validation import (
    Finite,
    Fraction,
    FractionBelowOne,
    NonNegative,
    OneOf,
    Positive,
    PositiveFraction,
    Sizes,
    parse_host_port,
    validate,
)


@dataclass(frozen=True)
class Inner:
    decay: FractionBelowOne[float] = 0.9


@dataclass(frozen=True)
class Settings:
    count: Positive[int] = 1
    weight: NonNegative[float] = 0.0
    share: PositiveFraction[float] = 1.0
    part: Fraction[float | None] = None
    above: Finite[float | None] = None
    sizes: Sizes = (1, 2)
    word: Annotated[str, OneOf(("a", "b"))] = "a"
    on: bool = True
    inner: Inner = dataclasses.field(default_factory=Inner)


@pytest.mark.parametrize(
    "changes", [{}, {"weight": 3}, {"part": 0.0}, {"part": 1}, {"above": -5.0}, {"sizes": ()}, {"on": False}]
)
def test_accepted_values(changes: dict[str, Any]) -> None:
    validate(Settings(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": 0}, "count is 0: it must be positive"),
        ({"count": 10**15 + 1}, "count is 1000000000000001: it must be at most 1000000000000000"),
        ({"count": 10**400}, r"count is 10+\.\.\.: it must be at most 1000000000000000"),
        ({"count": 1.0}, "count is 1.0: it must be a whole number"),
        ({"count": True}, "count is True: it must be a whole number"),
        ({"count": "1"}, "count is '1': it must be a whole number"),
        ({"weight": -0.5}, "weight is -0.5: it must not be negative"),
        ({"weight": float("nan")}, "weight is nan: it must be finite"),
        ({"share": 0.0}, "share is 0.0: it must be above 0 and at most 1"),
        ({"part": 1.5}, "part is 1.5: it must lie between 0 and 1"),
        ({"above": float("inf")}, "above is inf: it must be finite"),
        ({"sizes": (3, 0)}, r"sizes is \(3, 0\): sizes must be at least 1"),
        ({"sizes": (3, "a")}, r"sizes is \(3, 'a'\): each element must be a whole number"),
        ({"sizes": (1.5,)}, r"sizes is \(1.5,\): each element must be a whole number"),
        ({"inner": 5}, "inner is 5: it must be Inner"),
        ({"word": "c"}, "unknown word 'c'; choose from: a, b"),
        ({"on": 1}, "on is 1: it must be true or false"),
        ({"inner": Inner(1.0)}, "inner.decay is 1.0: it must be at least 0 and below 1"),
    ],
)
def test_refused_values(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        validate(Settings(**changes))


def test_a_number_without_a_rule_is_our_mistake() -> None:
    @dataclass(frozen=True)
    class Careless:
        size: int = 3

    with pytest.raises(TypeError, match=r"Careless\.size is a number without a rule"):
        validate(Careless())


def test_every_field_of_the_configuration_has_its_rule() -> None:
    validate(Config())


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("localhost:10000", ("localhost", 10000)),
        ("10.0.0.1:1", ("10.0.0.1", 1)),
        ("[::1]:65535", ("::1", 65535)),
        *[(wrong, None) for wrong in ("localhost", "a:0", "a:65536", ":80", "a b:80", "http://a:80", "::1:80", "a:٣")],
    ],
)
def test_host_and_port_are_split(address: str, expected: tuple[str, int] | None) -> None:
    assert parse_host_port(address) == expected
