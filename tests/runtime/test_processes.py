"""What processes tell each other, and what they do when one is lost."""

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from byol_explore.errors import ProcessLost, UserError
from byol_explore.runtime import processes as module
from byol_explore.runtime.processes import ALONE, Together
from members import COUNT, Store, at_once, members


@pytest.mark.usefixtures("store")
def test_everybody_hears_what_each_says_round_by_round(store: Store) -> None:
    all_of_them = members()

    def talk(one: Together) -> list[Any]:
        return [one.everybody([one.index, number]) for number in range(5)]

    expected = [[[index, number] for index in range(COUNT)] for number in range(5)]
    assert at_once(*(lambda one=one: talk(one) for one in all_of_them)) == [expected] * COUNT
    assert len(store.values) <= 2 * COUNT, "what was said long ago is forgotten"


def test_whoever_is_alone_hears_itself() -> None:
    assert ALONE.everybody({"a": 1}) == [{"a": 1}]
    assert ALONE.gather({"a": np.arange(3)})["a"].tolist() == [[0, 1, 2]]


def test_a_failure_of_one_ends_the_others_in_its_words(store: Store) -> None:
    first, second, third = members()
    results = at_once(
        lambda: first.everybody(1), lambda: second.everybody(1), lambda: third.fail(UserError("no such world"))
    )
    for one, error in zip((first, second), results[:2], strict=True):
        assert isinstance(error, ProcessLost)
        assert str(error) == "process 2 has ended: no such world"
        one.fail(error)  # which tells nothing new
    assert [key for key in store.values if "/failed/" in key] == ["byol_explore/failed/2"]


def test_the_first_waits_a_while_until_all_have_heard_why_it_ends(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = members(2)

    def hear() -> ProcessLost:
        with pytest.raises(ProcessLost) as caught:
            second.everybody(0)
        assert not telling.done(), "JAX would end this one now"
        second.fail(caught.value)
        return caught.value

    with monkeypatch.context() as patch, ThreadPoolExecutor() as pool:
        patch.setattr(module, "_PATIENCE", 300.0)
        telling = pool.submit(first.fail, ValueError("a mistake"))
        assert str(hear()) == "process 0 has ended: ValueError a mistake"
        telling.result(60)
    first, _ = members(2)
    store.values.clear()
    first.fail(ValueError("nobody hears it"))  # and comes back all the same


@pytest.mark.usefixtures("store")
def test_ctrl_c_at_one_ends_all_with_its_code() -> None:
    first, second = members(2)
    _, error = at_once(lambda: first.fail(KeyboardInterrupt()), lambda: second.everybody(0))
    assert isinstance(error, ProcessLost)
    assert (str(error), error.exit_code) == ("process 0 has ended: interrupted", 130)
    assert ProcessLost("for another reason").exit_code == 5


@pytest.mark.usefixtures("store")
def test_a_ctrl_c_that_a_library_has_swallowed_is_not_lost() -> None:
    one, _ = members(2)
    with contextlib.suppress(KeyboardInterrupt):
        one.interrupt(2, None)
    with pytest.raises(KeyboardInterrupt):
        one.everybody(0)


@pytest.mark.usefixtures("store")
def test_the_first_does_not_wait_for_those_that_fail_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 300.0)
    first, second, third = members()
    at_once(*(lambda one=one: one.fail(UserError("no such world")) for one in (second, third)))
    at_once(lambda: first.fail(UserError("no such world")))


def test_a_store_that_is_gone_is_the_loss_of_a_process(store: Store) -> None:
    store.is_gone = True
    with pytest.raises(ProcessLost, match="process 1 has ended or cannot be reached; continue with --resume"):
        members(2)[0].everybody(0)
    with pytest.raises(ProcessLost, match="another process has ended"):
        members()[0].everybody(0)
    members()[1].fail(UserError("nobody listens"))


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("kind", [RuntimeError, ValueError])
def test_only_what_the_loss_of_another_does_to_a_program_is_called_that(kind: type[Exception]) -> None:
    one = members(2)[0]
    with pytest.raises(ProcessLost), one.noticing():
        raise kind("UNKNOWN: Gloo all-reduce failed: Connection closed by peer")
    for own in ("RESOURCE_EXHAUSTED: Out of memory", "shapes do not fit"):
        with pytest.raises(kind, match=own), one.noticing():
            raise kind(own)
