"""Actors that die and live again, with an engine and a clock of the tests' own: no Ray."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from byol_explore.errors import EnvironmentFailure, UserError
from byol_explore.runtime.cluster import crew as crew_module
from byol_explore.runtime.cluster.crew import BACK_OFF, GLANCE, LONGEST, PATIENCE, START, Crew, Member
from byol_explore.runtime.cluster.joining import Failed, Joined, introduce

LIMIT = 5.0


class Reference:
    """To an answer that is not there yet."""

    def __init__(self, worker: "Worker", what: str) -> None:
        self.worker, self.what = worker, what


class Worker:
    def __init__(self, index: int, attempt: int) -> None:
        self.index, self.attempt, self.is_dead = index, attempt, False


class Script:
    """An engine: `answers` says what a worker answers to a question, None for nothing."""

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
        return [each for each in references if self.answers(each.worker, each.what) is not None]

    def get(self, reference: Reference) -> Any:
        return self.answers(reference.worker, reference.what)

    def clock(self) -> float:
        return self.now


def well(worker: Worker, what: str) -> Any:
    """Joins, answers, delivers."""
    return {"join": introduce(), "ping": True, "rollout": f"of {worker.index}"}[what]


def make(answers: Callable[[Worker, str], Any], size: int = 1) -> tuple[Crew, Script]:
    script = Script(answers)
    return Crew(script, size, LIMIT, script.clock), script


def ask(crew: Crew) -> None:
    for member in crew.members:
        if member.acts and not member.asked:
            member.asked.append(Reference(member.worker, "rollout"))


def look(crew: Crew, times: int = 1, seconds: float = GLANCE) -> list[tuple[Member, Any]]:
    heard = []
    for _ in range(times):
        ask(crew)
        heard += list(crew.look(seconds))
    return heard


def until_started(crew: Crew, script: Script, count: int) -> float:
    """The time at which the count-th worker has been started."""
    while len(script.workers) < count:
        look(crew, seconds=0.25)
        assert script.now < 1e4, "it never happened"
    return script.now


def test_everybody_joins_and_delivers() -> None:
    crew, _ = make(well, size=3)
    assert look(crew) == []
    assert [member.acts for member in crew.members] == [True] * 3
    assert [answer for _, answer in look(crew)] == ["of 0", "of 1", "of 2"]
    assert sum(crew.counts.values()) == 0


def test_a_place_is_filled_again_after_a_while_that_doubles_and_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew_module, "PATIENCE", 100)

    def answers(worker: Worker, what: str) -> Any:
        return Failed("it was told to") if what == "rollout" else well(worker, what)

    crew, script = make(answers)
    started = [until_started(crew, script, count) for count in range(1, 10)]
    gaps = [after - before for before, after in pairwise(started)]
    expected = [min(BACK_OFF * 2**count, LONGEST) for count in range(8)]
    assert all(wait <= gap <= wait + 2.0 for wait, gap in zip(expected, gaps, strict=True)), gaps
    assert expected[-1] == LONGEST
    assert crew.counts == {"actor_faults": 8, "actor_restarts": 8}
    assert [worker.attempt for worker in script.workers] == list(range(9))
    assert [worker.is_dead for worker in script.workers] == [True] * 8 + [False]


def test_whoever_delivers_is_forgiven() -> None:
    """Every third answer is a failure: never many in a row, so nobody is given up."""
    crew, script = make(well)
    delivered, get = iter(range(10**6)), script.get

    def now_and_then(reference: Reference) -> Any:
        fails = reference.what == "rollout" and next(delivered) % 3 == 2
        return Failed("now and then") if fails else get(reference)

    script.get = now_and_then
    look(crew, 200)
    assert crew.counts["actor_faults"] > 2 * PATIENCE
    assert crew.counts["actors_given_up"] == 0


def test_when_all_are_given_up_one_line_says_why() -> None:
    crew, script = make(lambda worker, what: Failed("no emulator here") if what == "join" else None, size=2)
    with pytest.raises(EnvironmentFailure) as raised:
        look(crew, 1000)
    assert str(raised.value).startswith(f"nothing acts any more: all 2 actors were given up after {PATIENCE} failures")
    assert str(raised.value).endswith("no emulator here")
    assert crew.counts == {
        "actor_faults": 2 * PATIENCE, "actor_restarts": 2 * (PATIENCE - 1), "actors_given_up": 2,
    }  # fmt: skip
    assert all(worker.is_dead for worker in script.workers)


def test_as_long_as_one_acts_the_others_may_be_given_up() -> None:
    crew, _ = make(lambda worker, what: well(worker, what) if worker.index else Failed("broken"), size=2)
    heard = look(crew, 300)
    assert [member.is_given_up for member in crew.members] == [True, False]
    assert len(heard) > 250


def test_the_first_mistake_of_a_user_is_said_at_once_and_later_ones_are_failures() -> None:
    crew, _ = make(lambda worker, what: Failed("unknown environment 'x'", is_mistake=True))
    with pytest.raises(UserError, match=r"^unknown environment 'x'$"):
        look(crew)
    crew, script = make(well)
    look(crew, 2)
    script.answers = lambda worker, what: Failed("unknown environment 'x'", is_mistake=True)
    look(crew, 3)
    assert crew.counts["actor_faults"] > 0


def test_another_version_of_the_package_is_named() -> None:
    def answers(worker: Worker, what: str) -> Any:
        return introduce()._replace(host="node7", code="0123456789ab")

    crew, _ = make(answers)
    with pytest.raises(UserError, match=r"on node7 is .* \(code 0123456789ab\), but here it is .*: install the same"):
        look(crew)


@pytest.mark.parametrize("pings", [True, False])
def test_whoever_is_silent_is_asked_whether_it_is_there(pings: bool) -> None:
    """A long rollout is no fault; a process that does not even say so is ended."""

    def answers(worker: Worker, what: str) -> Any:
        return None if what == "rollout" or (what == "ping" and not pings) else well(worker, what)

    crew, script = make(answers)
    look(crew, int(2.5 * LIMIT / GLANCE) + 1)
    assert crew.counts["actor_faults"] == (0 if pings else 1)
    assert script.workers[0].is_dead != pings
    if not pings:
        assert "has not answered" in crew.last_failure


def test_who_does_not_join_is_ended() -> None:
    crew, script = make(lambda worker, what: None)
    look(crew, int(10 * LIMIT + START))
    assert not script.workers[0].is_dead
    look(crew, 3)
    assert script.workers[0].is_dead
    assert "has not joined within" in crew.last_failure


def test_time_in_which_nobody_looked_does_not_count() -> None:
    """The learner compiles, or was stopped: nobody has been silent meanwhile."""
    deaf: list[bool] = [False]

    def answers(worker: Worker, what: str) -> Any:
        return None if deaf[0] else well(worker, what)

    crew, script = make(answers)
    look(crew, 2)
    deaf[0] = True
    for _ in range(3):
        script.now += 100 * LIMIT
        look(crew, seconds=0.1)
    assert crew.counts["actor_faults"] == 0


def test_what_a_worker_said_before_it_failed_is_not_taken_for_its_successors() -> None:
    """Two answers are there at once, and the first is a failure: nothing follows from the second."""
    said: dict[str, Any] = {"join": introduce(), "ping": None, "rollout": None}
    crew, _ = make(lambda worker, what: said[what])
    look(crew, 1 + int(LIMIT) + 2)
    [member] = crew.members
    assert member.ping is not None
    said |= {"ping": Failed("died"), "rollout": "late"}
    assert look(crew) == []
    assert member.worker is None
    assert isinstance(said["join"], Joined)
