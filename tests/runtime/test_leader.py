"""Tests of the leader and its followers, and of the checks before they start."""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from builders import small_config
from byol_explore.agent.state import Hyperparams
from byol_explore.config.config import Config, to_dict
from byol_explore.config.sections import DistributedConfig
from byol_explore.errors import EnvironmentFailure, UserError
from byol_explore.runtime.base import DispatchOutput
from byol_explore.runtime.distributed import DistributedProcesses
from byol_explore.runtime.leader import Follower, LeaderRuntime, agree_on_config, dismiss_followers
from byol_explore.training import train as train_module
from byol_explore.training.train import train
from byol_explore.utils.interrupts import SignalGuard
from byol_explore.utils.packages import versions
from runs import files, tiny
from thread_group import make_processes, run_in_threads


class RecordingRuntime:
    """Records its calls."""

    def __init__(self, fails: bool = False) -> None:
        self.calls: list[Any] = []
        self.learner: Any = None
        self.fails = fails

    def init_on_host(self, seed: int, *, restored: bool = False) -> Any:
        self.calls.append(("init", seed, restored))
        hyperparams = Hyperparams(*(jax.device_put(np.float32(value)) for value in range(4)))
        return State(FakeLearnerState(hyperparams))

    def shard(self, state: Any) -> Any:
        self.calls.append("shard")
        return state

    def dispatch(self, state: Any) -> Any:
        if self.fails:
            raise EnvironmentFailure("scripted failure")
        self.calls.append([float(value) for value in state.learner.hyperparams])
        return state, DispatchOutput({}, np.ones((1, 1), bool), [])

    def gather(self, state: Any) -> Any:
        self.calls.append("gather")
        return jax.device_get(tuple(state.learner.hyperparams))

    def close(self) -> None:
        self.calls.append("close")


class FakeLearnerState(NamedTuple):
    hyperparams: Hyperparams


class State(NamedTuple):
    learner: FakeLearnerState


def follow(runtime: Any, process: DistributedProcesses) -> Any:
    process.broadcast = lambda tree: tree
    return Follower(small_config(), runtime, process).run()


def lead(runtime: Any, process: DistributedProcesses, act: Callable[[LeaderRuntime], Any]) -> Any:
    process.broadcast = lambda tree: tree
    with dismiss_followers(process) as outcome:
        outcome["summary"] = act(LeaderRuntime(runtime, process))
    return outcome


@pytest.mark.usefixtures("store")
def test_followers_repeat_all_calls_of_the_leader() -> None:
    first, second = RecordingRuntime(), RecordingRuntime()
    one, other = make_processes(2)

    def act(leader: LeaderRuntime) -> str:
        state = leader.init(0)
        state, output = leader.dispatch(state)
        assert output.signal is None
        hyperparams = state.learner.hyperparams._replace(mixing=jax.device_put(np.float32(7)))
        state, _ = leader.dispatch(state._replace(learner=state.learner._replace(hyperparams=hyperparams)))
        leader.gather(state)
        return "well"

    led, followed = run_in_threads(lambda: lead(first, one, act), lambda: follow(second, other))
    assert led == {"summary": "well"}, led
    assert followed == {"command": "end", "exit_code": 0, "summary": "well"}, followed
    calls = ["shard", [0.0, 1.0, 2.0, 3.0], [7.0, 1.0, 2.0, 3.0], "gather"]
    assert first.calls == [("init", 0, False), *calls]
    assert second.calls == [("init", 0, True), *calls, "close"]


@pytest.mark.usefixtures("store")
def test_signal_of_a_follower_reaches_the_leader_and_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SignalGuard, "__enter__", lambda self: setattr(self, "signal_number", 15) or self)
    one, other = make_processes(2)

    def act(leader: LeaderRuntime) -> None:
        _, output = leader.dispatch(leader.init(0))
        assert output.signal == 15
        raise SignalGuard.StoppedBySignal(output.signal)

    led, followed = run_in_threads(
        lambda: lead(RecordingRuntime(), one, act), lambda: follow(RecordingRuntime(), other)
    )
    assert isinstance(led, SignalGuard.StoppedBySignal), led
    assert followed["exit_code"] == 143


@pytest.mark.usefixtures("store")
def test_followers_still_gather_after_an_environment_failure() -> None:
    second = RecordingRuntime(fails=True)
    one, other = make_processes(2)

    def act(leader: LeaderRuntime) -> None:
        state = leader.init(0)
        with contextlib.suppress(EnvironmentFailure):
            leader.dispatch(state)
        leader.gather(state)

    run_in_threads(lambda: lead(RecordingRuntime(fails=True), one, act), lambda: follow(second, other))
    assert second.calls[-2:] == ["gather", "close"]


# Agreement on the configuration


def agreed(first: Config, second: Config, **others: Any) -> list[Any]:
    one, other = make_processes(2)
    flags = {"resume": False, **others}
    return run_in_threads(
        lambda: agree_on_config(one, first, resume=flags["resume"]),
        lambda: agree_on_config(other, second, resume=flags.get("resume_there", flags["resume"])),
    )


def with_process(config: Config, process: int) -> Config:
    return dataclasses.replace(config, distributed=DistributedConfig("127.0.0.1:1", 2, process))


@pytest.mark.usefixtures("store")
def test_processes_with_equal_configurations_agree() -> None:
    pair = [with_process(small_config(), index) for index in range(2)]
    assert agreed(*pair) == pair


@pytest.mark.usefixtures("store")
def test_different_seed_is_named_in_all_processes() -> None:
    other = dataclasses.replace(small_config(), seed=3)
    for error in agreed(with_process(small_config(), 0), with_process(other, 1)):
        assert isinstance(error, UserError)
        assert str(error) == "process 1 does not fit process 0: its seed is 3, not 0"


@pytest.mark.usefixtures("store")
def test_resumed_run_has_the_configuration_of_process_0() -> None:
    first = with_process(dataclasses.replace(small_config(), seed=3), 0)
    given, taken = agreed(first, with_process(Config(), 1), resume=True)
    assert given == first
    assert taken == with_process(first, 1)


@pytest.mark.usefixtures("store")
def test_resuming_in_one_process_only_is_refused() -> None:
    pair = [with_process(small_config(), index) for index in range(2)]
    for error in agreed(*pair, resume=True, resume_there=False):
        assert "only one of them is to resume" in str(error)


@pytest.mark.usefixtures("store")
def test_versions_and_devices_must_agree() -> None:
    one, other = make_processes(2)
    for change, words in (
        ({"devices": 4}, "it has 4 devices"),
        ({"versions": {**versions(), "jax": "0.2"}}, "its jax is 0.2, not"),
    ):
        first, _ = run_in_threads(
            lambda: agree_on_config(one, with_process(small_config(), 0), resume=False),
            lambda change=change: other.all_gather_objects({**mine(), **change}),
        )
        assert isinstance(first, UserError), first
        assert words in str(first)


def mine() -> dict[str, Any]:
    config = json.loads(json.dumps(to_dict(with_process(small_config(), 1))))
    return {"config": config, "resume": False, "versions": versions(), "devices": jax.local_device_count()}


# Existing run directories


@contextlib.contextmanager
def join_threads(settings: DistributedConfig) -> Iterator[DistributedProcesses]:
    """Replace `join_process_group` for threads."""
    one = DistributedProcesses(settings)
    try:
        yield one
    except BaseException as error:
        one.report_failure(error)
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
def test_error_of_process_0_reaches_all_before_anything_is_made(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], words: str
) -> None:
    """The others make no directory, and compile nothing for a run that cannot begin."""
    monkeypatch.setattr(train_module, "join_process_group", join_threads)
    monkeypatch.setattr(train_module, "make_runtime", lambda *_: pytest.fail("a runtime was made"))
    before, config = files(directory), tiny(dispatches=1)
    first, second = run_in_threads(
        lambda: train(with_process(config, 0), directory, **changes),
        lambda: train(with_process(config, 1), tmp_path / "nowhere", **changes),
    )
    assert isinstance(first, UserError), first
    assert str(first).endswith(words.format(directory=directory))
    assert str(second) == f"process 0 has ended: {first}"
    assert files(directory) == before
    assert not (tmp_path / "nowhere").exists()
