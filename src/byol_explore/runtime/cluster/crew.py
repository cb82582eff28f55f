"""The actors of a run, which may die and live again.

Every place in the crew has a worker or waits for one. A worker that fails, dies or does not answer is ended, and its
place is filled again after a while, which doubles with every failure in a row. When a place has failed too often
without delivering anything it is given up; when all are, nobody acts any more.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from byol_explore.errors import EnvironmentFailure, UserError
from byol_explore.runtime.cluster.joining import Failed, Joined, difference

BACK_OFF, LONGEST = 1.0, 60.0  # seconds before the first new start, and at most
PATIENCE = 6  # failures in a row after which a place is given up
START = 60.0  # seconds for a process to start, beside those of its environments
GLANCE = 1.0  # seconds between two looks that count: who has looked away for longer was busy or stopped


class Engine(Protocol):
    """Starts and asks workers; references are whatever can be waited for."""

    def start(self, index: int, attempt: int) -> Any:
        """A new worker."""
        ...

    def join(self, worker: Any) -> Any: ...
    def ping(self, worker: Any) -> Any: ...
    def kill(self, worker: Any) -> None: ...
    def ready(self, references: list[Any], seconds: float) -> list[Any]:
        """Those whose answers are there, after so many seconds at most."""
        ...

    def get(self, reference: Any) -> Any:
        """The answer; `Failed` if there will be none."""
        ...


class Member:
    """A place in the crew, and who fills it."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.worker: Any = None
        self.joined: Joined | None = None
        self.joining: Any = None  # references to answers
        self.ping: Any = None
        self.asked: deque[Any] = deque()
        self.attempt = 0
        self.failures = 0  # in a row
        self.since = 0.0  # when it was started, heard of, pinged, or is to be started
        self.is_given_up = False

    @property
    def acts(self) -> bool:
        return self.joined is not None

    def leave(self) -> None:
        self.worker = self.joined = self.joining = self.ping = None
        self.asked.clear()


class Crew:
    """Keeps every place filled, and says what was delivered."""

    def __init__(
        self, engine: Engine, size: int, limit: float, clock: Callable[[], float] = time.monotonic,
        what: str = "actor",
    ) -> None:  # fmt: skip
        self.engine, self.limit, self.what = engine, limit, what
        self.members = [Member(index) for index in range(size)]
        self.counts: Counter[str] = Counter()
        self.last_failure = ""
        self._clock, self._looked, self._now = clock, clock(), 0.0

    def look(self, seconds: float, *, delivers: bool = True) -> Iterator[tuple[Member, Any]]:
        """What workers have delivered, after so many seconds at most; places are filled on the way.

        Who delivers is forgiven earlier failures, unless what it says is no delivery.
        """
        self._pass_time()
        for member in self.members:
            if member.worker is None and not member.is_given_up and self._now >= member.since:
                self._start(member)
        yield from self._hear(seconds, delivers)
        self._pass_time()
        for member in self.members:
            if member.worker is not None:
                self._suspect(member)
        if all(member.is_given_up for member in self.members):
            raise EnvironmentFailure(
                f"nothing acts any more: {self._all()} given up after {PATIENCE} failures in a row; "
                f"the last: {self.last_failure}"
            )

    def _all(self) -> str:
        count = len(self.members)
        return f"all {count} {self.what}s were" if count > 1 else f"the only {self.what} was"

    def fail(self, member: Member, why: str) -> None:
        """A worker is of no use any more."""
        self.counts["actor_faults"] += 1
        name = f"{self.what} {member.index}" if len(self.members) > 1 else self.what
        self.last_failure = f"{name}: {why}"
        self.engine.kill(member.worker)
        member.leave()
        member.failures += 1
        if member.failures >= PATIENCE:
            member.is_given_up = True
            self.counts["actors_given_up"] += 1
        member.since = self._now + min(BACK_OFF * 2 ** (member.failures - 1), LONGEST)

    def close(self) -> None:
        for member in self.members:
            if member.worker is not None:
                self.engine.kill(member.worker)
            member.leave()

    def _pass_time(self) -> None:
        now = self._clock()
        self._now, self._looked = self._now + min(now - self._looked, GLANCE), now

    def _start(self, member: Member) -> None:
        member.worker = self.engine.start(member.index, member.attempt)
        member.joining = self.engine.join(member.worker)
        self.counts["actor_restarts"] += member.attempt > 0
        member.attempt += 1
        member.since = self._now

    def _hear(self, seconds: float, delivers: bool) -> Iterator[tuple[Member, Any]]:
        waiting = {}
        for member in self.members:
            first = [member.asked[0]] if member.asked else []
            waiting |= {each: member for each in (member.joining, member.ping, *first) if each is not None}
        for reference in self.engine.ready(list(waiting), seconds):
            member = waiting[reference]
            if reference not in (member.joining, member.ping, *list(member.asked)[:1]):
                continue  # its worker has failed meanwhile
            answer = self.engine.get(reference)
            member.since = self._now
            if isinstance(answer, Failed):
                self._refuse(member, answer)
            elif reference == member.joining:
                self._welcome(member, answer)
            elif reference == member.ping:
                member.ping = None
            else:
                member.asked.popleft()
                member.failures = 0 if delivers else member.failures
                yield member, answer

    def _refuse(self, member: Member, answer: Failed) -> None:
        if answer.is_mistake and member.attempt == 1 and member.joined is None:
            raise UserError(answer.why)
        self.fail(member, answer.why)

    def _welcome(self, member: Member, joined: Joined) -> None:
        if (why := difference(joined)) is None:
            member.joining, member.joined = None, joined
        else:
            self._refuse(member, Failed(why, is_mistake=True))

    def _suspect(self, member: Member) -> None:
        """Whoever was silent for long is asked whether it is there, and has as long to say so."""
        silent = self._now - member.since
        if member.joining is not None:
            if silent > 10 * self.limit + START:
                self.fail(member, f"it has not joined within {silent:.0f} s")
        elif silent > self.limit:
            if member.ping is not None:
                self.fail(member, f"it has not answered for {silent:.0f} s")
            elif member.asked:
                member.ping, member.since = self.engine.ping(member.worker), self._now
