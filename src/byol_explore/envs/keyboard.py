"""Keyboards for human play, defined by the environment or made from its action space."""

import string
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from byol_explore.envs.interface import BaseEnvironment
from byol_explore.errors import UserError
from byol_explore.spaces import ActionSpec
from byol_explore.types import Action

_CODES = (*(f"Digit{digit}" for digit in range(10)), *(f"Key{letter}" for letter in string.ascii_uppercase))
_PAIRS = tuple(zip("QWERTYUIOP", "ASDFGHJKLZ", strict=True))  # keys that raise and lower one dimension


class Key(NamedTuple):
    """Part of an action while some keys are held. Key codes are those of browsers, such as KeyW."""

    key_codes: tuple[str, ...]
    label: str  # shown to the player
    discrete: tuple[tuple[int, int], ...] = ()  # (component, category) pairs
    continuous: tuple[tuple[int, float], ...] = ()  # (dimension, amount added) pairs


class Keyboard(NamedTuple):
    """All keys of an environment."""

    keys: tuple[Key, ...]
    steps_per_second: float = 0.0  # 0: the environment waits for a key
    mouse: tuple[tuple[int, float], tuple[int, float]] | None = None  # (dimension, gain) of moving right and down
    goal: str = ""  # of the game, for the player


def keyboard_for(env: BaseEnvironment) -> Keyboard:
    """Return the environment's own keyboard, or one made from its action space."""
    return env.keys or default_keyboard(env.spec.action, env.spec.name)


def action_from_keys(
    keys: Keyboard, spec: ActionSpec, held: Iterable[str], mouse: tuple[float, float] = (0.0, 0.0)
) -> Action:
    """Return the action [1, ...] while keys are held.

    If several keys set one component, the combination of more keys wins, then the one that was pressed last.
    """
    order = {code: index for index, code in enumerate(held)}
    pressed = [key for key in keys.keys if all(code in order for code in key.key_codes)]
    pressed.sort(key=lambda key: (len(key.key_codes), max(order[code] for code in key.key_codes)))
    categories, numbers = np.zeros((1, len(spec.discrete)), np.int32), np.zeros((1, spec.continuous), np.float32)
    for key in pressed:
        for component, category in key.discrete:
            categories[0, component] = category
        for dimension, number in key.continuous:
            numbers[0, dimension] += number
    for (dimension, gain), moved in zip(keys.mouse or (), mouse, strict=False):
        numbers[0, dimension] += gain * moved
    return Action(categories, np.clip(numbers, -1.0, 1.0))


def default_keyboard(spec: ActionSpec, name: str) -> Keyboard:
    """Make a key for each category and two for each dimension; a UserError if there are not enough keys."""
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
    return Keyboard(tuple(keys), steps_per_second=10.0 if spec.continuous else 0.0)
