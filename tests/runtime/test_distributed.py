"""Tests of the exchange between processes and of the loss of one."""

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from byol_explore.errors import PeerLost, UserError
from byol_explore.runtime import distributed
from byol_explore.runtime.distributed import SINGLE_PROCESS, DistributedProcesses
from thread_group import COUNT, KeyValueStore, make_processes, run_in_threads


@pytest.mark.usefixtures("store")
def test_all_gather_returns_the_objects_of_each_round_in_order(store: KeyValueStore) -> None:
    group = make_processes()

    def gather(process: DistributedProcesses) -> list[Any]:
        return [process.all_gather_objects([process.index, number]) for number in range(5)]

    expected = [[[index, number] for index in range(COUNT)] for number in range(5)]
    assert run_in_threads(*(lambda process=process: gather(process) for process in group)) == [expected] * COUNT
    assert len(store.values) <= 2 * COUNT, "objects of earlier rounds are left in the store"


def test_single_process_gathers_its_own_objects() -> None:
    assert SINGLE_PROCESS.all_gather_objects({"a": 1}) == [{"a": 1}]
    assert SINGLE_PROCESS.all_gather_arrays({"a": np.arange(3)})["a"].tolist() == [[0, 1, 2]]


def test_failure_of_one_process_ends_the_others_with_its_reason(store: KeyValueStore) -> None:
    first, second, third = make_processes()
    results = run_in_threads(
        lambda: first.all_gather_objects(1),
        lambda: second.all_gather_objects(1),
        lambda: third.report_failure(UserError("no such world")),
    )
    for one, error in zip((first, second), results[:2], strict=True):
        assert isinstance(error, PeerLost)
        assert str(error) == "process 2 has ended: no such world"
        one.report_failure(error)  # adds no second report
    assert [key for key in store.values if "/failed/" in key] == ["byol_explore/failed/2"]


def test_process_0_waits_until_the_others_have_read_why_it_ends(
    store: KeyValueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = make_processes(2)

    def receive() -> PeerLost:
        with pytest.raises(PeerLost) as caught:
            second.all_gather_objects(0)
        assert not reporting.done(), "JAX would end this process now"
        second.report_failure(caught.value)
        return caught.value

    with monkeypatch.context() as patch, ThreadPoolExecutor() as pool:
        patch.setattr(distributed, "_FAILURE_SECONDS", 300.0)
        reporting = pool.submit(first.report_failure, ValueError("a mistake"))
        assert str(receive()) == "process 0 has ended: ValueError a mistake"
        reporting.result(60)
    first, _ = make_processes(2)
    store.values.clear()
    first.report_failure(ValueError("unread"))  # returns after the time limit


@pytest.mark.usefixtures("store")
def test_ctrl_c_in_one_process_ends_all_with_its_exit_code() -> None:
    first, second = make_processes(2)
    _, error = run_in_threads(lambda: first.report_failure(KeyboardInterrupt()), lambda: second.all_gather_objects(0))
    assert isinstance(error, PeerLost)
    assert (str(error), error.exit_code) == ("process 0 has ended: interrupted", 130)
    assert PeerLost("for another reason").exit_code == 5


@pytest.mark.usefixtures("store")
def test_ctrl_c_that_a_library_swallowed_is_raised_later() -> None:
    one, _ = make_processes(2)
    with contextlib.suppress(KeyboardInterrupt):
        one.interrupt(2, None)
    with pytest.raises(KeyboardInterrupt):
        one.all_gather_objects(0)


@pytest.mark.usefixtures("store")
def test_process_0_does_not_wait_for_processes_that_failed_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "_FAILURE_SECONDS", 300.0)
    first, second, third = make_processes()
    run_in_threads(*(lambda one=one: one.report_failure(UserError("no such world")) for one in (second, third)))
    run_in_threads(lambda: first.report_failure(UserError("no such world")))


def test_lost_store_is_reported_as_a_lost_process(store: KeyValueStore) -> None:
    store.is_gone = True
    with pytest.raises(PeerLost, match="process 1 has ended or cannot be reached; continue with --resume"):
        make_processes(2)[0].all_gather_objects(0)
    with pytest.raises(PeerLost, match="another process has ended"):
        make_processes()[0].all_gather_objects(0)
    make_processes()[1].report_failure(UserError("not sent"))


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("kind", [RuntimeError, ValueError])
def test_own_errors_of_a_program_are_not_taken_for_a_lost_process(kind: type[Exception]) -> None:
    one = make_processes(2)[0]
    with pytest.raises(PeerLost), one.peer_errors():
        raise kind("UNKNOWN: Gloo all-reduce failed: Connection closed by peer")
    for own in ("RESOURCE_EXHAUSTED: Out of memory", "shapes do not fit"):
        with pytest.raises(kind, match=own), one.peer_errors():
            raise kind(own)
