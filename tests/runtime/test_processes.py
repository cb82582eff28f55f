"""What processes tell each other, what they do when one is lost, and how the first is followed."""

import contextlib
import dataclasses
import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from builders import make_spec, small_actor, small_config
from byol_explore.errors import EnvironmentFailure, ProcessLost, UserError
from byol_explore.interrupts import Interrupts
from byol_explore.learner_state import Dials
from byol_explore.run import training
from byol_explore.run.training import train
from byol_explore.runtime import processes as module
from byol_explore.runtime.base import DispatchOutput
from byol_explore.runtime.devices import choose_actor_devices, choose_devices
from byol_explore.runtime.leading import Follower, Leading, dismissing, introduce
from byol_explore.runtime.processes import ALONE, Together, joined
from byol_explore.runtime.sebulba import Sebulba, share_of
from byol_explore.settings.config import Config, to_dict
from byol_explore.settings.parts import DistributedConfig, RuntimeConfig
from byol_explore.versions import versions
from host_worlds import Scripted
from learning_together import Given
from pairs import free_port
from runs import files, tiny

COUNT = 3


class Store:
    """The coordinator's store, for threads."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.changed = threading.Condition()
        self.is_gone = False

    def key_value_set(self, key: str, value: str) -> None:
        self._check()
        with self.changed:
            if key in self.values:
                raise RuntimeError(f"ALREADY_EXISTS: Config key {key} already exists.")
            self.values[key] = value
            self.changed.notify_all()

    def blocking_key_value_get(self, key: str, milliseconds: int) -> str:
        self._check()
        with self.changed:
            if not self.changed.wait_for(lambda: key in self.values or self.is_gone, milliseconds / 1000):
                raise RuntimeError(f"DEADLINE_EXCEEDED: GetKeyValue() timed out with key: {key}")
            self._check()
            return self.values[key]

    def key_value_delete(self, key: str) -> None:
        with self.changed:
            self.values.pop(key, None)

    def key_value_dir_get(self, folder: str) -> list[tuple[str, str]]:
        self._check()
        return [(key, value) for key, value in self.values.items() if key.startswith(f"{folder}/")]

    def _check(self) -> None:
        if self.is_gone:
            raise RuntimeError("UNAVAILABLE: failed to connect to all addresses")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    store = Store()
    monkeypatch.setattr(module, "_store", lambda: store)
    monkeypatch.setattr(module, "_LOOK", 20)
    monkeypatch.setattr(module, "_PATIENCE", 0.2)
    monkeypatch.setattr(module, "_LAST_WORDS", 0.0)
    return store


def members(count: int = COUNT) -> list[Together]:
    return [Together(DistributedConfig("127.0.0.1:1", count, index)) for index in range(count)]


def at_once(*functions: Callable[[], Any]) -> list[Any]:
    """What each returns or raises, all in threads of their own."""
    results: list[Any] = [None] * len(functions)

    def run(index: int) -> None:
        try:
            results[index] = functions[index]()
        except BaseException as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "it hangs"
    return results


# What they say


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


# Who leads and who follows


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


# Where they find each other


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        coordinator = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(
            UserError, match=f"{coordinator}, but process 0 cannot listen there: Address already in use"
        ):
            joined(DistributedConfig(coordinator, 2, 0)).__enter__()


def test_a_coordinator_that_nobody_knows_is_named() -> None:
    with pytest.raises(UserError, match=r"distributed.coordinator is nowhere.invalid:1, which is not to be reached"):
        joined(DistributedConfig("nowhere.invalid:1", 2, 1)).__enter__()


def test_processes_must_come_together_before_jax_is_used() -> None:
    jax.devices()
    with free_port() as port, pytest.raises(UserError, match="must be called before any JAX calls"):
        joined(DistributedConfig(f"127.0.0.1:{port}", 2, 0)).__enter__()


# What each has


def test_every_process_gives_equally_many_devices_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclasses.dataclass(frozen=True)
    class Device:
        process_index: int
        number: int

    devices = [Device(process, number) for process in (1, 0) for number in range(3)]
    monkeypatch.setattr(jax, "devices", lambda: devices)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(jax, "process_index", lambda: 1)

    def chosen(batch: int, **settings: int) -> list[tuple[int, int]]:
        config = dataclasses.replace(Config(), runtime=RuntimeConfig(batch_size=batch, num_envs=batch, **settings))
        return [(device.process_index, device.number) for device in choose_devices(config)]

    assert chosen(6) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert chosen(8) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert chosen(6, actor_devices=2) == chosen(2) == [(0, 0), (1, 0)]
    with pytest.raises(UserError, match=r"runtime.devices 3 cannot share .*: 0 \(automatic\), 2, 6"):
        chosen(6, devices=3)
    acting = dataclasses.replace(Config(), runtime=RuntimeConfig(actor_devices=2))
    assert choose_actor_devices(acting) == [Device(1, 1), Device(1, 2)]


def test_actors_of_each_process_have_a_share_of_the_environments_and_seeds_of_their_own() -> None:
    config = small_config()
    assert share_of(config, ALONE) is config
    shares = [share_of(dataclasses.replace(config, runtime=RuntimeConfig(num_envs=12)), one) for one in _three()]
    assert [each.runtime.num_envs for each in shares] == [4, 4, 4]
    assert len({each.seed for each in shares}) == 3


class Telling:
    """Two processes, of which the other says always the same."""

    index, count = 0, 2

    def __init__(self, said: Any) -> None:
        self.said = said

    def everybody(self, mine: Any) -> list[Any]:
        return [mine, self.said]


def test_a_rollout_is_learned_from_only_if_every_process_has_one() -> None:
    runtime = Sebulba(small_config(), [Scripted()])
    runtime.source = Given(ALONE)
    runtime.source.start(small_actor(make_spec("vector")), 0, 0)
    runtime.processes = Telling(["the world has ended", None])  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(EnvironmentFailure, match="process 1: the world has ended"):
        runtime._next()
    runtime.processes = Telling([None, 3])  # pyright: ignore[reportAttributeAccessIssue]
    assert runtime._next().pulled_at == 1.5
    runtime._failure = EnvironmentFailure("mine")
    with pytest.raises(EnvironmentFailure, match="mine"):
        runtime._next()


def _three() -> list[Any]:
    @dataclasses.dataclass
    class One:
        index: int
        count: int = 3

    return [One(index) for index in range(3)]
