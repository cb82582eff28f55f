"""What environments and callbacks with curiosity have in common: what they are given, checked, and what they pay."""

from typing import Any

import numpy as np

from byol_explore.dropin.curiosity import Curiosity
from byol_explore.errors import UserError, one_line, unknown

REGIMES = ("mixed", "intrinsic")


def mixed(extrinsic: Any, intrinsic: Any, mixing: float, regime: str) -> Any:
    """The sum, in which the intrinsic part counts `mixing` times, or the intrinsic part alone."""
    return 1.0 * intrinsic if regime == "intrinsic" else extrinsic + mixing * intrinsic  # an array of its own


def check_payment(mixing: float, regime: str) -> None:
    """A UserError for what cannot be paid."""
    if regime not in REGIMES:
        raise unknown("regime", regime, list(REGIMES))
    if not isinstance(mixing, int | float | np.number) or not np.isfinite(mixing) or mixing < 0:
        raise UserError(f"mixing is {mixing!r}: it must be a number, finite and not negative")


def check_learn_every(learn_every: int) -> None:
    """A UserError for what is no number of steps."""
    if not isinstance(learn_every, int | np.integer) or isinstance(learn_every, bool) or learn_every < 1:
        raise UserError(f"learn_every is {learn_every!r}: it must be a whole number of at least 1")


def check_curiosity(curiosity: Any) -> None:
    """A UserError for what pays nothing."""
    if not isinstance(curiosity, Curiosity):
        raise UserError(f"the curiosity is {one_line(curiosity, 80)}: it must be a byol_explore.Curiosity")


def check_fits(curiosity: Curiosity, num_envs: int, observation_space: Any, action_space: Any) -> None:
    """A UserError if a curiosity is none, or was made for other environments."""
    check_curiosity(curiosity)
    if num_envs != curiosity.num_envs:
        raise UserError(f"num_envs is {num_envs}: it must be {curiosity.num_envs}, as the curiosity has it")
    ours = {"observation": curiosity.reader.observation_space, "action": curiosity.reader.action_space}
    theirs = {"observation": observation_space, "action": action_space}
    for side, space in theirs.items():
        if space != ours[side]:
            raise UserError(
                f"the {side} space of the environments is {one_line(space, 100)}: it must be that of the curiosity, "
                f"{one_line(ours[side], 100)}"
            )
