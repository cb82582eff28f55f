"""Rules at the fields: what they refuse, and that no number goes without one."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from byol_explore.errors import UserError
from byol_explore.rules import BelowOne, Finite, Fraction, NotNegative, OneOf, Positive, Share, Sizes, check
from byol_explore.settings.config import Config


@dataclass(frozen=True)
class Inner:
    decay: BelowOne[float] = 0.9


@dataclass(frozen=True)
class Settings:
    count: Positive[int] = 1
    weight: NotNegative[float] = 0.0
    share: Share[float] = 1.0
    part: Fraction[float | None] = None
    above: Finite[float | None] = None
    sizes: Sizes = (1, 2)
    word: Annotated[str, OneOf(("a", "b"))] = "a"
    on: bool = True
    inner: Inner = dataclasses.field(default_factory=Inner)


@pytest.mark.parametrize(
    "changes", [{}, {"weight": 3}, {"part": 0.0}, {"part": 1}, {"above": -5.0}, {"sizes": ()}, {"on": False}]
)
def test_what_is_accepted(changes: dict[str, Any]) -> None:
    check(Settings(**changes))


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
        ({"sizes": (3, "a")}, r"sizes is \(3, 'a'\): each of it must be a whole number"),
        ({"sizes": (1.5,)}, r"sizes is \(1.5,\): each of it must be a whole number"),
        ({"inner": 5}, "inner is 5: it must be Inner"),
        ({"word": "c"}, "unknown word 'c'; choose from: a, b"),
        ({"on": 1}, "on is 1: it must be true or false"),
        ({"inner": Inner(1.0)}, "inner.decay is 1.0: it must be at least 0 and below 1"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        check(Settings(**changes))


def test_a_number_without_a_rule_is_our_mistake() -> None:
    @dataclass(frozen=True)
    class Careless:
        size: int = 3

    with pytest.raises(TypeError, match=r"Careless\.size is a number without a rule"):
        check(Careless())


def test_every_field_of_the_configuration_has_its_rule() -> None:
    check(Config())
