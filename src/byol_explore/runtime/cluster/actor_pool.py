"""A pool of worker slots: restarts with back-off, and a check that workers are alive. No Ray.

What happens when a worker hangs:

1. An environment that hangs is noticed inside the worker by `envs/watchdog.py`, after `runtime.step_timeout` seconds.
   The worker answers with a `WorkerFailure`.
2. A worker that has not answered for `timeout` seconds is pinged. A process that is alive answers the ping in a thread
   of its own (`workers.py`), and may continue with a long rollout. A process that is stopped, lost, or blocked by a
   library that holds the GIL does not answer: after another `timeout` seconds it has failed.
3. A worker that has failed is killed, and its pending calls are forgotten. Its slot starts a new one after a pause,
   with new seeds.

The learner continues with the rollouts of the other slots meanwhile.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from byol_explore.errors import EnvironmentFailure, UserError
from byol_explore.runtime.cluster.messages import JoinReply, WorkerFailure, version_mismatch

BACK_OFF, MAX_BACK_OFF = 1.0, 60.0  # seconds before the first restart, and at most; doubles with each failure
MAX_FAILURES = 6  # failures in a row after which a slot is abandoned
START_SECONDS = 60.0  # seconds for a process to start, beside the time of its environments
# Cap on the clock per poll: a learner that compiles or was suspended must not time out its actors.
MAX_CLOCK_STEP = 1.0


class WorkerBackend(Protocol):
    """Start workers and call them. Calls return references, which `ready` waits for."""

    def start(self, index: int, attempt: int, /) -> Any: ...
    def join(self, worker: Any) -> Any: ...
    def ping(self, worker: Any) -> Any: ...
    def kill(self, worker: Any) -> None: ...
    def ready(self, references: list[Any], seconds: float) -> list[Any]:
        """Return the references that have answers, after at most that many seconds."""
        ...

    def get(self, reference: Any) -> Any:
        """Return an answer, or a `WorkerFailure` if there will be none."""
        ...


class Slot:
    """A place for one worker: its process, its pending calls and its failures."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.worker: Any = None
        self.join_reply: JoinReply | None = None
        self.join: Any = None  # reference; None after the worker has joined
        self.ping: Any = None  # reference, if a ping is pending
        self.pending: deque[Any] = deque()  # references of calls, oldest first
        self.attempt = 0
        self.failures = 0  # in a row
        self.last_heard = 0.0  # when it was started, last answered or was pinged
        self.start_at = 0.0  # when to start a worker, if there is none
        self.is_abandoned = False

    @property
    def is_ready(self) -> bool:
        return self.join_reply is not None

    def clear(self) -> None:
        self.worker = self.join_reply = self.join = self.ping = None
        self.pending.clear()


class ActorPool:
    """Keep `size` worker slots filled.

    Restart a failed worker with exponential back-off. Abandon a slot after MAX_FAILURES failures in a row; raise an
    EnvironmentFailure when all slots are abandoned.
    """

    def __init__(
        self, backend: WorkerBackend, size: int, timeout: float, clock: Callable[[], float] = time.monotonic,
        worker_name: str = "actor",
    ) -> None:  # fmt: skip
        self.backend, self.timeout, self.worker_name = backend, timeout, worker_name
        self.slots = [Slot(index) for index in range(size)]
        self.counts: Counter[str] = Counter()
        self.last_failure = ""
        self._clock, self._last_poll, self._now = clock, clock(), 0.0

    def poll(self, seconds: float, *, resets_failures: bool = True) -> Iterator[tuple[Slot, Any]]:
        """Start workers, yield answers that arrive within that many seconds, and check that workers are alive.

        An answer ends the slot's failures in a row, unless `resets_failures` is false.
        """
        self._advance_clock()
        for slot in self.slots:
            if slot.worker is None and not slot.is_abandoned and self._now >= slot.start_at:
                self._start(slot)
        yield from self._receive(seconds, resets_failures)
        self._advance_clock()
        for slot in self.slots:
            if slot.worker is not None:
                self._check_liveness(slot)
        if all(slot.is_abandoned for slot in self.slots):
            count, name = len(self.slots), self.worker_name
            workers = f"all {count} {name}s" if count > 1 else f"the only {name}"
            raise EnvironmentFailure(
                f"{workers} failed {MAX_FAILURES} times in a row; the last failure: {self.last_failure}"
            )

    def fail(self, slot: Slot, reason: str) -> None:
        """Kill a worker, and schedule the next start of its slot or abandon it."""
        self.counts["actor_faults"] += 1
        name = f"{self.worker_name} {slot.index}" if len(self.slots) > 1 else self.worker_name
        self.last_failure = f"{name}: {reason}"
        self.backend.kill(slot.worker)
        slot.clear()
        slot.failures += 1
        if slot.failures >= MAX_FAILURES:
            slot.is_abandoned = True
            self.counts["actors_abandoned"] += 1
        slot.start_at = self._now + min(BACK_OFF * 2 ** (slot.failures - 1), MAX_BACK_OFF)

    def close(self) -> None:
        for slot in self.slots:
            if slot.worker is not None:
                self.backend.kill(slot.worker)
            slot.clear()

    def _advance_clock(self) -> None:
        now = self._clock()
        self._now, self._last_poll = self._now + min(now - self._last_poll, MAX_CLOCK_STEP), now

    def _start(self, slot: Slot) -> None:
        slot.worker = self.backend.start(slot.index, slot.attempt)
        slot.join = self.backend.join(slot.worker)
        self.counts["actor_restarts"] += slot.attempt > 0
        slot.attempt += 1
        slot.last_heard = self._now

    def _receive(self, seconds: float, resets_failures: bool) -> Iterator[tuple[Slot, Any]]:
        waiting = {}
        for slot in self.slots:
            calls = (slot.join, slot.ping, *list(slot.pending)[:1])
            waiting |= {reference: slot for reference in calls if reference is not None}
        for reference in self.backend.ready(list(waiting), seconds):
            slot = waiting[reference]
            if reference not in (slot.join, slot.ping, *list(slot.pending)[:1]):
                continue  # an answer before it in this loop was a failure, which cleared the slot
            answer = self.backend.get(reference)
            slot.last_heard = self._now
            if reference == slot.join and not isinstance(answer, WorkerFailure) and (why := version_mismatch(answer)):
                answer = WorkerFailure(why, is_user_error=True)
            if isinstance(answer, WorkerFailure):
                if answer.is_user_error and slot.attempt == 1 and not slot.is_ready:
                    raise UserError(answer.reason)  # a restart would fail in the same way
                self.fail(slot, answer.reason)
            elif reference == slot.join:
                slot.join, slot.join_reply = None, answer
            elif reference == slot.ping:
                slot.ping = None
            else:
                slot.pending.popleft()
                slot.failures = 0 if resets_failures else slot.failures
                yield slot, answer

    def _check_liveness(self, slot: Slot) -> None:
        """Ping a worker that was silent for `timeout` seconds; fail it if the ping times out."""
        silent = self._now - slot.last_heard
        if slot.join is not None:
            if silent > 10 * self.timeout + START_SECONDS:
                self.fail(slot, f"it has not joined within {silent:.0f} s")
        elif silent > self.timeout:
            if slot.ping is not None:
                self.fail(slot, f"it has not answered for {silent:.0f} s")
            elif slot.pending:
                slot.ping, slot.last_heard = self.backend.ping(slot.worker), self._now
