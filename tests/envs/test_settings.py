"""Settings of environments: words, their values, and the dataclass that takes them."""

from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byol_explore.envs.settings import (
    accepted_names,
    described,
    fill,
    known_to,
    literal,
    merged,
    nested,
    read_words,
    to_words,
)
from byol_explore.errors import UserError
from byol_explore.rules import Fraction, OneOf, Positive


@dataclass(frozen=True)
class Kitchen:
    """What there is to set."""

    plates: Positive[int] = 4
    """How many
    there are."""
    heat: Fraction[float] = 0.5
    """Of the oven."""
    cook: Annotated[str, OneOf(("me", "you"))] = "me"
    """Who does it."""
    open: bool = False
    """Whether guests may come."""
    guest: str | None = None
    """Who comes."""
    limit: Positive[int | None] = None
    """Minutes."""
    spices: tuple[str, ...] = ()
    """In this order."""
    extras: dict[str, Any] = field(default_factory=dict)
    """Whatever else."""


def kitchen(*words: str) -> Kitchen:
    return fill(Kitchen, read_words(words))


def test_values_have_the_types_of_their_fields() -> None:
    words = ("plates=7", "heat=1", "cook=you", "open=true", "guest=4", "limit=9", "spices=salt+a:b",
             "extras.size=[1,2]", "extras.deep.er=none", "extras.deep.est='3'")  # fmt: skip
    extras = {"size": [1, 2], "deep": {"er": None, "est": "3"}}
    assert kitchen(*words) == Kitchen(7, 1.0, "you", True, "4", 9, ("salt", "a:b"), extras)
    assert isinstance(kitchen("heat=1").heat, float)
    assert kitchen() == kitchen("guest=none", "limit=none", "spices=") == Kitchen()


def test_a_class_takes_what_it_knows() -> None:
    """What it does not know may be for another one; whoever asks all of them complains."""
    names = ["plates", "plate", "extras.a.b", "extras", "plates.a", "other"]
    assert known_to(Kitchen, names) == {"plates", "extras.a.b"}
    assert kitchen("plate=3", "plates.a=5", "extras=1") == Kitchen()
    assert accepted_names(Kitchen)[-2:] == ["spices", "extras.NAME"]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("plates=0", "env_settings.plates is 0: it must be positive"),
        ("plates=2.5", "env_settings.plates is 2.5: it must be a whole number"),
        ("plates=many", "env_settings.plates is 'many': it must be a whole number"),
        ("plates=true", "env_settings.plates is True: it must be a whole number"),
        ("heat=1.5", "env_settings.heat is 1.5: it must lie between 0 and 1"),
        ("heat=nan", "env_settings.heat is 'nan': it must be a number"),
        ("open=yes", "env_settings.open is 'yes': it must be true or false"),
        ("cook=dog", "unknown env_settings.cook 'dog'; choose from: me, you"),
        ("limit=-1", "env_settings.limit is -1: it must be positive"),
        ("plates", "env_settings has 'plates': it must be a word like name=value"),
        ("=4", "env_settings has '=4': it must be a word like name=value"),
        ("a b=4", "env_settings has 'a b=4': it must be a word like name=value"),
    ],
)
def test_wrong_words_are_named_in_one_line(word: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        kitchen(word)
    assert str(caught.value) == message


def test_a_whole_number_may_be_written_short() -> None:
    assert (kitchen("plates=1e3").plates, type(kitchen("plates=1e3").plates)) == (1000, int)


def test_a_name_comes_once() -> None:
    with pytest.raises(UserError, match="env_settings names 'plates' twice"):
        read_words(["plates=1", "heat=1", "plates=1"])
    for words in (["a=1", "a.b=2"], ["a.b=2", "a=1"]):
        with pytest.raises(UserError, match="names 'a' both alone and with something behind a dot"):
            nested(read_words(words))
    assert merged(["a=1", "b=2"], ["c=4", "a=3"]) == ("a=3", "b=2", "c=4")


plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
names = st.from_regex(r"[a-z_]{1,5}", fullmatch=True)
tables = st.dictionaries(names, plain | st.lists(plain, max_size=3) | st.dictionaries(names, plain, min_size=1))


@given(table=tables)
def test_a_table_survives_as_words(table: dict[str, Any]) -> None:
    words = to_words(table)
    assert nested(read_words(words)) == table
    assert to_words(words) == words


@pytest.mark.parametrize(
    ("text", "value"),
    [("4", 4), ("-.5", -0.5), ("1e-3", 1e-3), ("true", True), ("false", False), ("none", None), ("human", "human"),
     ("'4'", "4"), ("(1, 2)", (1, 2)), ("", ""), ("a=b", "a=b"), ("__import__('os')", "__import__('os')")],
)  # fmt: skip
def test_values_are_read_as_they_look(text: str, value: Any) -> None:
    assert literal(text) == value
    assert type(literal(text)) is type(value)


def test_one_text_is_not_a_list_of_words() -> None:
    with pytest.raises(UserError, match="env_settings is 'sticky=1': it must be a list of words like name=value"):
        to_words("sticky=1")


def test_settings_describe_themselves() -> None:
    shown = described(Kitchen)
    assert shown[0] == ("plates", "4", "How many there are.")
    assert shown[3] == ("open", "false", "Whether guests may come.")
    assert shown[4:6] == [("guest", "none", "Who comes."), ("limit", "none", "Minutes.")]
    assert shown[-2:] == [("spices", "nothing", "In this order."), ("extras.NAME", "nothing", "Whatever else.")]
