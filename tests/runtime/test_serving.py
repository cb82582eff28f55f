"""The inference server and actors that only step environments, over real sockets of this process: no Ray."""

import dataclasses
import json
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from builders import small_actor
from byol_explore.agent import perceive
from byol_explore.envs.registry import register_env
from byol_explore.errors import EnvironmentFailure, UserError
from byol_explore.networks.assembly import Actor
from byol_explore.runtime.cluster.joining import Order
from byol_explore.runtime.cluster.serving import Server
from byol_explore.runtime.cluster.stepping import Stepping
from byol_explore.runtime.cluster.wire import Greeting, Hearing, Layout
from byol_explore.runtime.host_actor import Rollout
from byol_explore.settings.config import Config
from byol_explore.spaces import ActionSpec, Image
from byol_explore.types import TimeStep
from host_worlds import PATIENCE, STEPS, Scripted, crash, host_config, payment, seen, timeline

TOKEN = "they know each other"


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


def config_for(**runtime: object) -> Config:
    return dataclasses.replace(host_config(engine="ray", inference="central", **runtime), env="scripted")


class Stage:
    """A server with a policy, and actors beside it."""

    def __init__(self, world: Scripted, actors: int, **runtime: object) -> None:
        register_env("scripted", lambda: world, replace=True)
        self.config = config_for(actors=actors, num_envs=2 * actors, **runtime)
        self.actor: Actor = small_actor(world.spec)
        self.server = Server(Order(self.config, actors, 0), world.spec, TOKEN, "127.0.0.1")
        self.actors: list[Stepping] = []
        self.ends: dict[int, BaseException | None] = {}

    def begin(self, number: int, attempt: int = 0) -> None:
        stepping = Stepping(Order(self.config, number, 0, attempt))
        self.actors.append(stepping)

        def play() -> None:
            try:
                stepping.play(self.server.address, TOKEN)
                self.ends[number] = None
            except BaseException as error:
                self.ends[number] = error

        threading.Thread(target=play, daemon=True).start()

    def take(self, count: int) -> list[Rollout]:
        taken: list[Rollout] = []
        deadline = time.monotonic() + PATIENCE
        while len(taken) < count:
            assert time.monotonic() < deadline, f"only {len(taken)} sequences came"
            taken += self.server.take(0.2)
        return taken

    def close(self) -> None:
        for stepping in self.actors:
            stepping.close()
        self.server.close()


_stages: list[Stage] = []


@pytest.fixture(autouse=True)
def nobody_left() -> Iterator[None]:
    yield
    while _stages:
        _stages.pop().close()


def stage(world: Scripted, actors: int = 1, **runtime: object) -> Stage:
    _stages.append(Stage(world, actors, **runtime))
    return _stages[-1]


def of_actor(rollouts: list[Rollout], number: int) -> list[Rollout]:
    return [rollout for rollout in rollouts if rollout.envs[0] == 2 * number]


def test_sequences_follow_each_other_and_every_number_is_where_it_belongs() -> None:
    """Observations, rewards, ends and places of three actors are those of the script, and neighbours share one."""
    place = stage(Scripted(), actors=3)
    place.server.receive(place.actor, 7)
    for number in range(3):
        place.begin(number)
    rollouts = place.take(15)
    for number in range(3):
        mine = of_actor(rollouts, number)
        assert len(mine) >= 3
        for index, rollout in enumerate(mine):
            trajectory = rollout.trajectory
            assert rollout.pulled_at == 7
            np.testing.assert_array_equal(rollout.envs, [2 * number, 2 * number + 1])
            for env in range(2):
                line = timeline(env, (index + 1) * STEPS)[index * STEPS :]
                np.testing.assert_array_equal(seen(trajectory.observation)[:, env], line)
                np.testing.assert_array_equal(trajectory.is_first[:, env], [m.time == 0 for m in line])
                paid = [
                    payment(a, m.time) if m.time else 0
                    for a, m in zip(trajectory.action.discrete[:, env, 0], line[1:], strict=True)
                ]
                np.testing.assert_array_equal(trajectory.reward[:, env], np.float32(paid))
                np.testing.assert_array_equal(rollout.episodes.ended[:, env], [m.is_last for m in line[1:]])
                np.testing.assert_array_equal(rollout.episodes.length[:, env], [m.time for m in line[1:]])
                np.testing.assert_array_equal(rollout.places[:, env], [[m.episode, 8 * m.time] for m in line[1:]])


def test_the_stored_memory_leads_to_the_stored_policies() -> None:
    """Whoever goes through a sequence from its memory on finds the policies that acted, also in batches filled up."""
    place = stage(Scripted(), actors=3)
    place.server.receive(place.actor, 0)
    for number in range(3):
        place.begin(number)
    step = jax.jit(perceive)
    for rollout in place.take(9):
        trajectory, memory = rollout.trajectory, rollout.trajectory.memory
        for t in range(STEPS):
            reward = memory.reward if t == 0 else trajectory.reward[t - 1]
            timestep = TimeStep(trajectory.observation[t], reward, None, trajectory.is_first[t], None)
            memory, policy = step(place.actor, memory, timestep)
            for logits, stored in zip(policy.logits, trajectory.policy.logits, strict=True):
                np.testing.assert_allclose(logits, stored[t], rtol=1e-5, atol=1e-6)
            memory = memory._replace(action=jax.tree.map(lambda x, t=t: x[t], trajectory.action))


def test_several_actors_are_answered_at_once() -> None:
    place = stage(Scripted(), actors=4)
    place.server.receive(place.actor, 0)
    for number in range(4):
        place.begin(number)
    place.take(40)
    statistics = place.server.statistics()
    assert max(statistics.batches) == 8, "all four at once"
    assert 0.0 < min(statistics.waits) <= max(statistics.waits)


def test_one_that_is_slow_is_not_waited_for() -> None:
    def hook(event: str, count: int) -> None:
        if event == "step":
            time.sleep(0.3)

    worlds = iter([Scripted(hook), Scripted()])
    place = stage(Scripted(), actors=2)
    register_env("scripted", lambda: next(worlds), replace=True)
    place.server.receive(place.actor, 0)
    place.begin(0)
    place.begin(1)
    rollouts = place.take(12)
    assert len(of_actor(rollouts, 1)) >= 10


def test_who_is_not_fetched_from_waits_and_nothing_is_lost() -> None:
    world = Scripted()
    place = stage(world, queue_size=1)
    place.server.receive(place.actor, 0)
    place.begin(0)
    full = 2 * STEPS  # two sequences wait, and the next is not begun
    until(lambda: bool(world.batches) and world.batches[-1].count == full)
    time.sleep(0.3)
    assert world.batches[-1].count == full
    counts = [seen(rollout.trajectory.observation)[:, 0, 3].tolist() for rollout in place.take(6)]
    assert counts == [list(range(i * STEPS, (i + 1) * STEPS + 1)) for i in range(len(counts))]


def test_a_new_actor_takes_the_place_of_the_old_one() -> None:
    place = stage(Scripted())
    place.server.receive(place.actor, 0)
    place.begin(0)
    place.take(2)
    place.begin(0, attempt=1)
    until(lambda: 0 in place.ends)
    assert place.ends[0] is None, "the old one is told by the end of its connection"
    later = place.take(6)
    assert any(seen(rollout.trajectory.observation)[0, 0, 3] == 0 for rollout in later), "new episodes"


def test_an_actor_that_ends_in_the_moment_in_which_another_takes_its_place_does_not_harm_the_server() -> None:
    """Both are heard of in one look: the server is held up, at a third one's door, until both have spoken."""
    place = stage(Scripted())
    server, greeting = place.server, Greeting(TOKEN, 0, 0, Layout.of({"reward": np.zeros(2, np.float32)})).encode()
    with (
        socket.create_connection(server.address, PATIENCE) as old,
        socket.create_connection(server.address, PATIENCE) as new,
    ):
        old.sendall(greeting)
        new.sendall(greeting[:4])
        until(lambda: [caller.number for caller in server._callers.values()] == [0, -1])
        until(lambda: all(caller.hearing._expects != "length" for caller in server._callers.values()))
        with server._lock, socket.create_connection(server.address, PATIENCE):
            new.sendall(greeting[4:])
            old.shutdown(socket.SHUT_RDWR)
            time.sleep(0.2)
        until(lambda: [caller.number for caller in server._callers.values()] == [0] or server.failure is not None)
        assert server.failure is None


def test_an_environment_that_fails_is_named_and_the_others_go_on() -> None:
    worlds = iter([Scripted(crash("step", 2, ValueError("it was told to"))), Scripted()])
    place = stage(Scripted(), actors=2)
    register_env("scripted", lambda: next(worlds), replace=True)
    place.server.receive(place.actor, 0)
    place.begin(0)
    place.begin(1)
    until(lambda: 0 in place.ends)
    assert isinstance(place.ends[0], EnvironmentFailure)
    assert str(place.ends[0]) == "environment 'scripted' failed in step 3: ValueError: it was told to"
    assert len(of_actor(place.take(5), 1)) >= 4


def lengthy(words: bytes) -> bytes:
    return struct.pack("<I", len(words)) + words


def words_with(*layout: list[object]) -> bytes:
    return json.dumps({"token": TOKEN, "actor": 0, "attempt": 0, "layout": layout}).encode()


UNREADABLE = [
    b"[" * 60_000,  # deeper than Python goes
    b'{"token": "", "actor": 1e999, "attempt": 0, "layout": []}',
    words_with(["reward", "(2,", [2]]),  # NumPy reads it as Python
    words_with(["reward", "|u1", [-2]]),
    words_with(["reward", "|u1", [2]], ["reward", "|u1", [2]]),
    words_with(*[[f"{i}", "|u1", [2**31 - 1]] for i in range(3)]),  # more than the size that NumPy makes of it
]


def test_an_actor_whose_environments_are_others_than_the_learners_does_not_begin() -> None:
    world = Scripted()
    place = stage(world)
    learners = world.spec._replace(action=ActionSpec(discrete=(7,)))
    with pytest.raises(UserError, match=r"environment 'scripted' on .* has the action .*, but for the learner .*7"):
        Stepping(Order(place.config, 0, 0, spec=learners))
    Stepping(Order(place.config, 0, 0, spec=world.spec._replace(max_steps=5))).close()


def test_strangers_are_not_answered() -> None:
    place = stage(Scripted())
    layout = Layout.of({"reward": np.zeros(2, np.float32)})
    nonsense = [
        Greeting("stranger", 0, 0, layout).encode(),
        Greeting(TOKEN, 5, 0, layout).encode(),
        struct.pack("<I", 2**31),
        struct.pack("<I", 2) + b"{}",
        struct.pack("<I", 4) + b"\xff\xfe\x00\x01",
        *map(lengthy, UNREADABLE),
    ]
    for words in nonsense:
        with socket.create_connection(place.server.address, PATIENCE) as connection:
            connection.sendall(words)
            assert connection.recv(1) == b"", words
    assert place.server.failure is None
    place.server.receive(place.actor, 0)
    place.begin(0)
    assert place.take(1)


def test_an_array_of_objects_is_refused() -> None:
    words = json.dumps({"token": "", "actor": 0, "attempt": 0, "layout": [["reward", "O", [2]]]}).encode()
    one, other = socket.socketpair()
    with one, other:
        one.sendall(struct.pack("<I", len(words)) + words)
        hearing = Hearing()
        assert hearing.hear(other) is None
        with pytest.raises(ValueError, match="numbers"):
            hearing.hear(other)


def test_actions_that_an_environment_keeps_stay_what_they_were() -> None:
    """One that pays for the difference to the last action keeps that."""
    place = stage(world := Scripted())
    kept: list[np.ndarray] = []
    batch_of = world.batch

    def keeping(num_envs: int, seed: int) -> Any:
        batch = batch_of(num_envs, seed)
        step = batch.step
        batch.step = lambda action: kept.append(action.discrete) or step(action)
        return batch

    world.batch = keeping  # type: ignore[method-assign]
    place.server.receive(place.actor, 0)
    place.begin(0)
    chosen = np.concatenate([rollout.trajectory.action.discrete for rollout in place.take(3)])
    np.testing.assert_array_equal(kept[: len(chosen)], chosen)


def test_observations_have_the_dtype_of_their_spec_whatever_the_first_one_has() -> None:
    """As with local inference: zeros that are whole numbers may begin what has fractions."""
    place = stage(world := Scripted())
    batch_of = world.batch

    def beginning_with_integers(num_envs: int, seed: int) -> Any:
        batch = batch_of(num_envs, seed)
        reset = batch.reset
        batch.reset = lambda: reset()._replace(observation=np.zeros((num_envs, 4), int))
        return batch

    world.batch = beginning_with_integers  # type: ignore[method-assign]
    place.server.receive(place.actor, 0)
    place.begin(0)
    observation = place.take(1)[0].trajectory.observation
    assert observation.dtype == np.float32
    np.testing.assert_array_equal(seen(observation)[1:, 1], timeline(1, STEPS)[1:])


class Pictures(Scripted):
    """Of the size that Atari's have."""

    def __init__(self) -> None:
        super().__init__()
        self.spec = self.spec._replace(observation=Image(84, 84, 1), action=ActionSpec(discrete=(3,)))

    def batch(self, num_envs: int, seed: int) -> Any:
        batch = super().batch(num_envs, seed)
        batch._observe = lambda: np.zeros((num_envs, 84, 84, 1), np.uint8)  # type: ignore[method-assign]
        return batch


def test_every_picture_crosses_once() -> None:
    place = stage(Pictures())
    place.server.receive(place.actor, 0)
    place.begin(0)
    place.take(10)
    statistics = place.server.statistics()
    moved = statistics.received + statistics.sent
    assert 1.0 <= moved / (statistics.steps * 84 * 84) <= 1.2


def test_stepping_needs_no_jax(tmp_path: Path) -> None:
    """Nor does anything that it imports, for Gymnasium's environments and for Atari's, one task or two."""
    code = """
import sys
from byol_explore.runtime.cluster import stepping
from byol_explore.envs.host_tasks import make_batch
from byol_explore.envs.registry import make_envs
for names in (["gymnasium:CartPole-v1"], ["atari:freeway"], ["atari:freeway", "atari:alien"]):
    batch = make_batch(make_envs(names), 2, 0)
    frame = stepping.frame_of(batch, batch.reset(), 0.0)
    assert len(frame["reward"]) == 2
    batch.close()
print(sorted(name for name in sys.modules if name.split(".")[0] in ("jax", "jaxlib", "equinox", "optax")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
