"""Tests of the actor pool with a scripted backend and clock, without Ray."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from byol_explore.errors import EnvironmentFailure, UserError
from byol_explore.runtime.cluster import actor_pool
from byol_explore.runtime.cluster.actor_pool import (
    BACK_OFF,
    MAX_BACK_OFF,
    MAX_CLOCK_STEP,
    MAX_FAILURES,
    START_SECONDS,
    ActorPool,
    Slot,
)
from byol_explore.runtime.cluster.messages import JoinReply, WorkerFailure, describe_worker

LIMIT = 5.0


class Reference:
    """A pending call of a worker."""

    def __init__(self, worker: "Worker", method: str) -> None:
        self.worker, self.method = worker, method


class Worker:
    def __init__(self, index: int, attempt: int) -> None:
        self.index, self.attempt, self.is_dead = index, attempt, False


class ScriptedBackend:
    """A backend whose workers answer calls with `answers(worker, method)`; None means no answer."""

    def __init__(self, answers: Callable[[Worker, str], Any]) -> None:
        self.answers, self.now = answers, 0.0
        self.workers: list[Worker] = []

    def start(self, index: int, attempt: int) -> Worker:
        self.workers.append(Worker(index, attempt))
        return self.workers[-1]

    def join(self, worker: Worker) -> Reference:
        return Reference(worker, "join")

    def ping(self, worker: Worker) -> Reference:
        return Reference(worker, "ping")

    def kill(self, worker: Worker) -> None:
        worker.is_dead = True

    def ready(self, references: list[Reference], seconds: float) -> list[Reference]:
        self.now += seconds
        return [each for each in references if self.answers(each.worker, each.method) is not None]

    def get(self, reference: Reference) -> Any:
        return self.answers(reference.worker, reference.method)

    def clock(self) -> float:
        return self.now


def healthy(worker: Worker, method: str) -> Any:
    return {"join": describe_worker(), "ping": True, "rollout": f"of {worker.index}"}[method]


def make(answers: Callable[[Worker, str], Any], size: int = 1) -> tuple[ActorPool, ScriptedBackend]:
    backend = ScriptedBackend(answers)
    return ActorPool(backend, size, LIMIT, backend.clock), backend


def poll(pool: ActorPool, times: int = 1, seconds: float = MAX_CLOCK_STEP) -> list[tuple[Slot, Any]]:
    """Request a rollout of each idle worker and poll, as often as given."""
    answers = []
    for _ in range(times):
        for slot in pool.slots:
            if slot.is_ready and not slot.pending:
                slot.pending.append(Reference(slot.worker, "rollout"))
        answers += list(pool.poll(seconds))
    return answers


def poll_until_started(pool: ActorPool, backend: ScriptedBackend, count: int) -> float:
    """Return the time at which the count-th worker was started."""
    while len(backend.workers) < count:
        poll(pool, seconds=0.25)
        assert backend.now < 1e4, "too few workers were started"
    return backend.now


def test_all_workers_join_and_deliver() -> None:
    pool, _ = make(healthy, size=3)
    assert poll(pool) == []
    assert [slot.is_ready for slot in pool.slots] == [True] * 3
    assert [answer for _, answer in poll(pool)] == ["of 0", "of 1", "of 2"]
    assert sum(pool.counts.values()) == 0


def test_restarts_back_off_exponentially_up_to_a_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor_pool, "MAX_FAILURES", 100)

    def answers(worker: Worker, method: str) -> Any:
        return WorkerFailure("scripted failure") if method == "rollout" else healthy(worker, method)

    pool, backend = make(answers)
    started = [poll_until_started(pool, backend, count) for count in range(1, 10)]
    gaps = [after - before for before, after in pairwise(started)]
    expected = [min(BACK_OFF * 2**count, MAX_BACK_OFF) for count in range(8)]
    assert all(wait <= gap <= wait + 2.0 for wait, gap in zip(expected, gaps, strict=True)), gaps
    assert expected[-1] == MAX_BACK_OFF
    assert pool.counts == {"actor_faults": 8, "actor_restarts": 8}
    assert [worker.attempt for worker in backend.workers] == list(range(9))
    assert [worker.is_dead for worker in backend.workers] == [True] * 8 + [False]


def test_a_delivery_resets_failures_in_a_row() -> None:
    """Every third answer is a failure: never MAX_FAILURES in a row, so no slot is abandoned."""
    pool, backend = make(healthy)
    delivered, get = iter(range(10**6)), backend.get

    def fail_every_third(reference: Reference) -> Any:
        fails = reference.method == "rollout" and next(delivered) % 3 == 2
        return WorkerFailure("every third") if fails else get(reference)

    backend.get = fail_every_third
    poll(pool, 200)
    assert pool.counts["actor_faults"] > 2 * MAX_FAILURES
    assert pool.counts["actors_abandoned"] == 0


def test_error_names_the_last_failure_when_all_slots_are_abandoned() -> None:
    pool, backend = make(lambda worker, method: WorkerFailure("no emulator here") if method == "join" else None, size=2)
    with pytest.raises(EnvironmentFailure) as raised:
        poll(pool, 1000)
    assert str(raised.value).startswith(f"all 2 actors failed {MAX_FAILURES} times in a row; the last failure: ")
    assert str(raised.value).endswith("no emulator here")
    assert pool.counts == {
        "actor_faults": 2 * MAX_FAILURES, "actor_restarts": 2 * (MAX_FAILURES - 1), "actors_abandoned": 2,
    }  # fmt: skip
    assert all(worker.is_dead for worker in backend.workers)


def test_one_healthy_slot_is_enough() -> None:
    pool, _ = make(lambda worker, method: healthy(worker, method) if worker.index else WorkerFailure("broken"), size=2)
    answers = poll(pool, 300)
    assert [slot.is_abandoned for slot in pool.slots] == [True, False]
    assert len(answers) > 250


def test_user_errors_are_raised_on_the_first_start_only() -> None:
    pool, _ = make(lambda worker, method: WorkerFailure("unknown environment 'x'", is_user_error=True))
    with pytest.raises(UserError, match=r"^unknown environment 'x'$"):
        poll(pool)
    pool, backend = make(healthy)
    poll(pool, 2)
    backend.answers = lambda worker, method: WorkerFailure("unknown environment 'x'", is_user_error=True)
    poll(pool, 3)
    assert pool.counts["actor_faults"] > 0


def test_another_version_of_the_package_is_a_user_error() -> None:
    def answers(worker: Worker, method: str) -> Any:
        return describe_worker()._replace(host="node7", source_fingerprint="0123456789ab")

    pool, _ = make(answers)
    with pytest.raises(UserError, match=r"on node7 is .* \(code 0123456789ab\), but here it is .*: install the same"):
        poll(pool)


@pytest.mark.parametrize("pings", [True, False])
def test_silent_worker_is_killed_unless_it_answers_a_ping(pings: bool) -> None:
    def answers(worker: Worker, method: str) -> Any:
        return None if method == "rollout" or (method == "ping" and not pings) else healthy(worker, method)

    pool, backend = make(answers)
    poll(pool, int(2.5 * LIMIT / MAX_CLOCK_STEP) + 1)
    assert pool.counts["actor_faults"] == (0 if pings else 1)
    assert backend.workers[0].is_dead != pings
    if not pings:
        assert "has not answered" in pool.last_failure


def test_worker_that_does_not_join_is_killed() -> None:
    pool, backend = make(lambda worker, method: None)
    poll(pool, int(10 * LIMIT + START_SECONDS))
    assert not backend.workers[0].is_dead
    poll(pool, 3)
    assert backend.workers[0].is_dead
    assert "has not joined within" in pool.last_failure


def test_time_between_polls_counts_at_most_max_clock_step() -> None:
    """A learner that compiles or is suspended does not poll: its workers must not time out."""
    silent: list[bool] = [False]

    def answers(worker: Worker, method: str) -> Any:
        return None if silent[0] else healthy(worker, method)

    pool, backend = make(answers)
    poll(pool, 2)
    silent[0] = True
    for _ in range(3):
        backend.now += 100 * LIMIT
        poll(pool, seconds=0.1)
    assert pool.counts["actor_faults"] == 0


def test_answers_after_a_failure_are_ignored() -> None:
    """Two answers arrive at once, and the first is a failure: the second has no effect."""
    answers: dict[str, Any] = {"join": describe_worker(), "ping": None, "rollout": None}
    pool, _ = make(lambda worker, method: answers[method])
    poll(pool, 1 + int(LIMIT) + 2)
    [slot] = pool.slots
    assert slot.ping is not None
    answers |= {"ping": WorkerFailure("died"), "rollout": "late"}
    assert poll(pool) == []
    assert slot.worker is None
    assert isinstance(answers["join"], JoinReply)
