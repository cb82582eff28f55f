"""When an episode is a success, and how often episodes are.

What a user says goes first, then what the environment says of its episode, then the environment's own threshold. Where
none of them says anything, success is not defined: that is not the same as never.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from byol_explore.envs.base import EnvSpec
from byol_explore.types import UNSAID


class SuccessRule(NamedTuple):
    """What makes an episode of a task a success."""

    above: float  # the return that must be exceeded; infinite where nobody knows one
    heeds_environment: bool = True  # which may judge its episodes itself

    def judge(self, episode_return: np.ndarray, told: np.ndarray) -> np.ndarray:
        """Successes [...] int8: 1, 0 or UNSAID, from returns and from what the environment told."""
        by_return = np.where(math.isinf(self.above), UNSAID, episode_return > self.above)
        heard = (told != UNSAID) & self.heeds_environment
        return np.where(heard, told, by_return).astype(np.int8)


def success_rules(specs: Iterable[EnvSpec], above: float | None) -> list[SuccessRule]:
    """A rule for each task; a threshold that was given (`above`) holds for all of them."""
    if above is not None:
        return [SuccessRule(above, heeds_environment=False) for _ in specs]
    return [SuccessRule(spec.success_above) for spec in specs]


def rate(successes: np.ndarray | Sequence[int]) -> float | None:
    """The share of successes, None where nobody has judged an episode.

    Where some are judged the others count as failures: there are environments that tell of their successes only.
    """
    told = np.asarray(successes)
    return float(np.mean(told == 1)) if np.any(told != UNSAID) else None
