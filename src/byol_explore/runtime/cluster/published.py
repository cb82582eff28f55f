"""The policy's parameters in Ray's object store, which may be full."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from byol_explore.errors import EnvironmentFailure
from byol_explore.runtime.cluster.engine import in_words
from byol_explore.runtime.cluster.rays import RayError

PAUSE = 1.0  # seconds between two attempts
PATIENCE = 60  # refusals in a row after which there is no hope


class Published:
    """The newest parameters that there was room for; newer ones wait, and are tried again.

    Actors go on with those that they have. Their sequences are as old as these, so that what is too old is dropped.
    """

    def __init__(self, put: Callable[[Any], Any], clock: Callable[[], float] = time.monotonic) -> None:
        self.references: list[Any] = []  # to the parameters; empty as long as there were none
        self.version = 0
        self.step = 0  # of the learner, up to which they were the newest
        self.counts: Counter[str] = Counter()
        self._put, self._clock = put, clock
        self._waiting: Any = None
        self._now = 0  # the learner's step
        self._refusals, self._due, self._why = 0, 0.0, ""

    @property
    def are_newest(self) -> bool:
        return self._waiting is None

    def offer(self, parameters: Any | None, step: int) -> bool:
        """Whether there are new parameters now; without any, those that are there are still the newest at this step."""
        self._now = step
        if parameters is not None:
            self._waiting = parameters
        elif self.are_newest:
            self.step = step
        return self.try_again()

    def try_again(self) -> bool:
        """Whether those that have waited are there now."""
        if self.are_newest or self._clock() < self._due:
            return False
        try:
            self.references = [self._put(self._waiting)]
        except RayError as error:
            self._refusals, self._due, self._why = self._refusals + 1, self._clock() + PAUSE, in_words(error)
            self.counts["parameters_refused"] += 1
            return False
        self._waiting, self._refusals, self._due = None, 0, 0.0
        self.version, self.step = self.version + 1, self._now
        return True

    def check(self) -> None:
        """An EnvironmentFailure when there has been no room for too long."""
        if self._refusals >= PATIENCE:
            raise EnvironmentFailure(
                f"Ray has refused to take the policy's parameters {self._refusals} times in a row ({self._why}): start "
                "it with a larger --object-store-memory, or make room on the disk that it spills to"
            )
