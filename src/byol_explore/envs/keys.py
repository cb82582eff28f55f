"""How people play an environment: which keys do what, said by the environment or made up for its actions."""

import string
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from byol_explore.errors import UserError
from byol_explore.spaces import ActionSpec
from byol_explore.types import Action

_CODES = (*(f"Digit{digit}" for digit in range(10)), *(f"Key{letter}" for letter in string.ascii_uppercase))
_PAIRS = tuple(zip("QWERTYUIOP", "ASDFGHJKLZ", strict=True))  # more of a dimension, and below it less


class Key(NamedTuple):
    """What is done while some keys are held, by the names that browsers have for them, such as KeyW."""

    codes: tuple[str, ...]
    words: str  # for people
    discrete: tuple[tuple[int, int], ...] = ()  # components of an action, and the category of each
    continuous: tuple[tuple[int, float], ...] = ()  # dimensions, and what is added to each


class Keys(NamedTuple):
    """All of them."""

    keys: tuple[Key, ...]
    per_second: float = 0.0  # steps; 0 where the world waits for a key
    mouse: tuple[tuple[int, float], tuple[int, float]] | None = None  # dimension and gain of going right, and of down
    about: str = ""  # what one has to do


@runtime_checkable
class Keyed(Protocol):
    """An environment that says how it is played."""

    @property
    def keys(self) -> Keys: ...


@runtime_checkable
class Told(Protocol):
    """An environment inside jit that says what one has to do in an episode."""

    def goal(self, state: Any) -> str: ...


def keys_of(env: Any) -> Keys:
    """Those that an environment names, or one for everything that can be done in it."""
    return env.keys if isinstance(env, Keyed) else keys_of_actions(env.spec.action, env.spec.name)


def action_of(keys: Keys, spec: ActionSpec, held: Iterable[str], mouse: tuple[float, float] = (0.0, 0.0)) -> Action:
    """[1, ...] the action while keys are held: of those that exclude each other the one with more keys counts, or the
    one that was pressed last.
    """
    order = {code: index for index, code in enumerate(held)}
    pressed = [key for key in keys.keys if all(code in order for code in key.codes)]
    pressed.sort(key=lambda key: (len(key.codes), max(order[code] for code in key.codes)))
    categories, numbers = np.zeros((1, len(spec.discrete)), np.int32), np.zeros((1, spec.continuous), np.float32)
    for key in pressed:
        for component, category in key.discrete:
            categories[0, component] = category
        for dimension, number in key.continuous:
            numbers[0, dimension] += number
    for (dimension, gain), moved in zip(keys.mouse or (), mouse, strict=False):
        numbers[0, dimension] += gain * moved
    return Action(categories, np.clip(numbers, -1.0, 1.0))


def keys_of_actions(spec: ActionSpec, name: str) -> Keys:
    """A key for each category, and two for each dimension; what cannot be told apart needs a key to do nothing."""
    codes, keys = iter(_CODES), []
    if spec.continuous:
        codes = iter(_CODES[:10])  # letters are for dimensions
    for component, categories in enumerate(spec.discrete):
        which = f" of part {component + 1}" if len(spec.discrete) > 1 else ""
        for category in range(categories):
            if (code := next(codes, None)) is None:
                raise UserError(f"{name} has more actions than keys: it cannot be played by hand")
            keys.append(Key((code,), f"action {category}{which}", discrete=((component, category),)))
    if spec.continuous > len(_PAIRS):
        raise UserError(f"{name} has {spec.continuous} dimensions of actions: more than {len(_PAIRS)} have no keys")
    for dimension, letters in zip(range(spec.continuous), _PAIRS, strict=False):
        for letter, number in zip(letters, (1.0, -1.0), strict=True):
            words = f"dimension {dimension + 1} {'up' if number > 0 else 'down'}"
            keys.append(Key((f"Key{letter}",), words, continuous=((dimension, number),)))
    return Keys(tuple(keys), per_second=10.0 if spec.continuous else 0.0)
