"""How the first process is followed, who fits together, and what all are told of the directory of a run."""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from builders import small_config
from byol_explore.errors import EnvironmentFailure, UserError
from byol_explore.interrupts import Interrupts
from byol_explore.learner_state import Dials
from byol_explore.run import training
from byol_explore.run.training import train
from byol_explore.runtime.base import DispatchOutput
from byol_explore.runtime.leading import Follower, Leading, dismissing, introduce
from byol_explore.runtime.processes import Together
from byol_explore.settings.config import Config, to_dict
from byol_explore.settings.parts import DistributedConfig
from byol_explore.versions import versions
from members import at_once, members
from runs import files, tiny


class Runtime:
    """Writes down what it is asked for."""

    def __init__(self, fails: bool = False) -> None:
        self.asked: list[Any] = []
        self.learner: Any = None
        self.fails = fails

    def fresh(self, seed: int, *, restored: bool = False) -> Any:
        self.asked.append(("fresh", seed, restored))
        dials = Dials(*(jax.device_put(np.float32(value)) for value in range(4)))
        return State(Inner(dials))

    def place(self, state: Any) -> Any:
        self.asked.append("place")
        return state

    def dispatch(self, state: Any) -> Any:
        if self.fails:
            raise EnvironmentFailure("the world has ended")
        self.asked.append([float(dial) for dial in state.learner.dials])
        return state, DispatchOutput({}, np.ones((1, 1), bool), [])

    def gathered(self, state: Any) -> Any:
        self.asked.append("gather")
        return jax.device_get(tuple(state.learner.dials))

    def close(self) -> None:
        self.asked.append("close")


@dataclasses.dataclass(frozen=True)
class Inner:
    dials: Dials

    def _replace(self, **changes: Any) -> "Inner":
        return dataclasses.replace(self, **changes)


@dataclasses.dataclass(frozen=True)
class State(Inner):
    learner: Inner = None  # pyright: ignore[reportAssignmentType]

    def __init__(self, learner: Inner) -> None:
        object.__setattr__(self, "learner", learner)

    def _replace(self, **changes: Any) -> "State":
        return State(changes["learner"])


def follow(runtime: Any, one: Together) -> Any:
    one.same = lambda tree: tree
    return Follower(small_config(), runtime, one).go()


def lead(runtime: Any, one: Together, act: Callable[[Leading], Any]) -> Any:
    one.same = lambda tree: tree
    with dismissing(one) as outcome:
        outcome["summary"] = act(Leading(runtime, one))
    return outcome


@pytest.mark.usefixtures("store")
def test_whatever_the_first_does_the_others_do() -> None:
    first, second = Runtime(), Runtime()
    one, other = members(2)

    def act(leading: Leading) -> str:
        state = leading.init(0)
        state, output = leading.dispatch(state)
        assert output.signal is None
        dials = state.learner.dials._replace(mixing=jax.device_put(np.float32(7)))
        state, _ = leading.dispatch(state._replace(learner=state.learner._replace(dials=dials)))
        leading.gathered(state)
        return "well"

    led, followed = at_once(lambda: lead(first, one, act), lambda: follow(second, other))
    assert led == {"summary": "well"}, led
    assert followed == {"order": "end", "exit_code": 0, "summary": "well"}, followed
    orders = ["place", [0.0, 1.0, 2.0, 3.0], [7.0, 1.0, 2.0, 3.0], "gather"]
    assert first.asked == [("fresh", 0, False), *orders]
    assert second.asked == [("fresh", 0, True), *orders, "close"]


@pytest.mark.usefixtures("store")
def test_a_signal_at_another_process_reaches_the_first_and_an_interruption_reaches_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Interrupts, "__enter__", lambda self: setattr(self, "received", 15) or self)
    one, other = members(2)

    def act(leading: Leading) -> None:
        _, output = leading.dispatch(leading.init(0))
        assert output.signal == 15
        raise Interrupts.Stopped(output.signal)

    led, followed = at_once(lambda: lead(Runtime(), one, act), lambda: follow(Runtime(), other))
    assert isinstance(led, Interrupts.Stopped), led
    assert followed["exit_code"] == 143


@pytest.mark.usefixtures("store")
def test_after_a_failure_of_environments_the_others_still_help_to_save() -> None:
    second = Runtime(fails=True)
    one, other = members(2)

    def act(leading: Leading) -> None:
        state = leading.init(0)
        with contextlib.suppress(EnvironmentFailure):
            leading.dispatch(state)
        leading.gathered(state)

    at_once(lambda: lead(Runtime(fails=True), one, act), lambda: follow(second, other))
    assert second.asked[-2:] == ["gather", "close"]


# Who fits together


def introduced(first: Config, second: Config, **others: Any) -> list[Any]:
    one, other = members(2)
    flags = {"resume": False, **others}
    return at_once(
        lambda: introduce(one, first, resume=flags["resume"]),
        lambda: introduce(other, second, resume=flags.get("resume_there", flags["resume"])),
    )


def with_process(config: Config, process: int) -> Config:
    return dataclasses.replace(config, distributed=DistributedConfig("127.0.0.1:1", 2, process))


@pytest.mark.usefixtures("store")
def test_processes_with_the_same_configuration_fit_together() -> None:
    pair = [with_process(small_config(), index) for index in range(2)]
    assert introduced(*pair) == pair


@pytest.mark.usefixtures("store")
def test_another_seed_is_named_in_all_of_them() -> None:
    other = dataclasses.replace(small_config(), seed=3)
    for error in introduced(with_process(small_config(), 0), with_process(other, 1)):
        assert isinstance(error, UserError)
        assert str(error) == "process 1 does not fit process 0: its seed is 3, not 0"


@pytest.mark.usefixtures("store")
def test_a_run_that_goes_on_has_the_configuration_that_the_first_has_read() -> None:
    first = with_process(dataclasses.replace(small_config(), seed=3), 0)
    given, taken = introduced(first, with_process(Config(), 1), resume=True)
    assert given == first
    assert taken == with_process(first, 1)


@pytest.mark.usefixtures("store")
def test_only_one_that_resumes_is_refused() -> None:
    pair = [with_process(small_config(), index) for index in range(2)]
    for error in introduced(*pair, resume=True, resume_there=False):
        assert "only one of them is to resume" in str(error)


@pytest.mark.usefixtures("store")
def test_versions_and_devices_must_agree() -> None:
    one, other = members(2)
    for change, words in (
        ({"devices": 4}, "it has 4 devices"),
        ({"versions": {**versions(), "jax": "0.2"}}, "its jax is 0.2, not"),
    ):
        first, _ = at_once(
            lambda: introduce(one, with_process(small_config(), 0), resume=False),
            lambda change=change: other.everybody({**mine(), **change}),
        )
        assert isinstance(first, UserError), first
        assert words in str(first)


def mine() -> dict[str, Any]:
    config = json.loads(json.dumps(to_dict(with_process(small_config(), 1))))
    return {"config": config, "resume": False, "versions": versions(), "devices": jax.local_device_count()}


# Where a run is already


@contextlib.contextmanager
def met(settings: DistributedConfig) -> Iterator[Together]:
    """As `joined`, for threads."""
    one = Together(settings)
    try:
        yield one
    except BaseException as error:
        one.fail(error)
        raise


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "already holds a run: continue it with --resume in all 2 processes, or begin anew with --force or choose "
         "another --run-dir in process 0"),
        ({"resume": True}, "steps is 48, but {directory} has 96 already: leave it out, or ask for more"),
    ],
)  # fmt: skip
def test_all_are_told_what_the_first_finds_before_anything_is_made(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], words: str
) -> None:
    """The others have no directory, and nothing to compile for a run that cannot begin."""
    monkeypatch.setattr(training, "joined", met)
    monkeypatch.setattr(training, "make_runtime", lambda *_: pytest.fail("a runtime was made"))
    before, config = files(directory), tiny(dispatches=1)
    first, second = at_once(
        lambda: train(with_process(config, 0), directory, **changes),
        lambda: train(with_process(config, 1), tmp_path / "nowhere", **changes),
    )
    assert isinstance(first, UserError), first
    assert str(first).endswith(words.format(directory=directory))
    assert str(second) == f"process 0 has ended: {first}"
    assert files(directory) == before
    assert not (tmp_path / "nowhere").exists()
