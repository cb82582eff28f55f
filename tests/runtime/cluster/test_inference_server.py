"""Tests of the inference server and env steppers over sockets of this process, without Ray."""

import contextlib
import dataclasses
import errno
import hashlib
import json
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

from builders import small_actor
from byol_explore.agent.acting import policy_forward
from byol_explore.config.config import Config
from byol_explore.envs.registry import register_env
from byol_explore.errors import EnvironmentFailure, UserError
from byol_explore.networks.representation import Actor
from byol_explore.runtime.cluster import inference_server
from byol_explore.runtime.cluster.env_stepper import EnvStepper, first_frame_dtype, make_frame
from byol_explore.runtime.cluster.inference_server import InferenceServer
from byol_explore.runtime.cluster.messages import ActorSpec, FrameReader, Handshake
from byol_explore.runtime.rollouts import Rollout
from byol_explore.spaces import ActionSpec, Image
from byol_explore.types import TimeStep
from envs.dm_server import running
from host_worlds import PATIENCE, STEPS, Scripted, crash, host_config, payment, seen, timeline

TOKEN = "a token of this run"


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "the condition never became true"
        time.sleep(0.005)


def config_for(**runtime: object) -> Config:
    return dataclasses.replace(host_config(actor_backend="ray", inference="central", **runtime), env="scripted")


class ServerAndActors:
    """An inference server with a policy, and actors in threads of this process."""

    def __init__(self, world: Scripted, actors: int, **runtime: object) -> None:
        register_env("scripted", lambda: world, replace=True)
        self.config = config_for(num_actors=actors, num_envs=2 * actors, **runtime)
        self.policy: Actor = small_actor(world.spec)
        self.server = InferenceServer(ActorSpec(self.config, actors, 0, spec=world.spec), TOKEN, "127.0.0.1")
        self.actors: list[EnvStepper] = []
        self.ends: dict[int, BaseException | None] = {}  # by index of the actor

    def start_actor(self, index: int, attempt: int = 0) -> None:
        stepper = EnvStepper(ActorSpec(self.config, index, 0, attempt))
        self.actors.append(stepper)

        def run() -> None:
            try:
                stepper.run(self.server.address, TOKEN)
                self.ends[index] = None
            except BaseException as error:
                self.ends[index] = error

        threading.Thread(target=run, daemon=True).start()

    def take(self, count: int) -> list[Rollout]:
        taken: list[Rollout] = []
        deadline = time.monotonic() + PATIENCE
        while len(taken) < count:
            assert time.monotonic() < deadline, f"only {len(taken)} rollouts arrived"
            taken += self.server.take_rollouts(0.2)
        return taken

    def close(self) -> None:
        for stepper in self.actors:
            stepper.close()
        self.server.close()


_started: list[ServerAndActors] = []


@pytest.fixture(autouse=True)
def close_servers() -> Iterator[None]:
    yield
    while _started:
        _started.pop().close()


def start(world: Scripted, actors: int = 1, *, policy_step: int | None = 0, **runtime: object) -> ServerAndActors:
    """Start a server with parameters of `policy_step`; no actors."""
    setup = ServerAndActors(world, actors, **runtime)
    _started.append(setup)
    if policy_step is not None:
        setup.server.set_parameters(setup.policy, policy_step)
    return setup


def of_actor(rollouts: list[Rollout], index: int) -> list[Rollout]:
    return [rollout for rollout in rollouts if rollout.env_ids[0] == 2 * index]


def test_rollouts_equal_the_script_of_each_environment() -> None:
    """Observations, rewards, ends and positions of three actors are those of the script."""
    setup = start(Scripted(), actors=3, policy_step=7)
    for index in range(3):
        setup.start_actor(index)
    rollouts = setup.take(15)
    for index in range(3):
        own = of_actor(rollouts, index)
        assert len(own) >= 3
        for number, rollout in enumerate(own):
            trajectory = rollout.trajectory
            assert rollout.params_step == 7
            np.testing.assert_array_equal(rollout.env_ids, [2 * index, 2 * index + 1])
            for env in range(2):
                line = timeline(env, (number + 1) * STEPS)[number * STEPS :]
                np.testing.assert_array_equal(seen(trajectory.observation)[:, env], line)
                np.testing.assert_array_equal(trajectory.is_first[:, env], [m.time == 0 for m in line])
                rewards = [
                    payment(a, m.time) if m.time else 0
                    for a, m in zip(trajectory.action.discrete[:, env, 0], line[1:], strict=True)
                ]
                np.testing.assert_array_equal(trajectory.reward[:, env], np.float32(rewards))
                np.testing.assert_array_equal(rollout.episodes.ended[:, env], [m.is_last for m in line[1:]])
                np.testing.assert_array_equal(rollout.episodes.length[:, env], [m.time for m in line[1:]])
                np.testing.assert_array_equal(rollout.positions[:, env], [[m.episode, 8 * m.time] for m in line[1:]])


def test_stored_recurrent_state_reproduces_the_stored_policies() -> None:
    """Unroll a rollout from its stored state; three actors make batches that are filled up."""
    setup = start(Scripted(), actors=3)
    for index in range(3):
        setup.start_actor(index)
    step = jax.jit(policy_forward)
    for rollout in setup.take(9):
        trajectory, memory = rollout.trajectory, rollout.trajectory.initial_state
        for t in range(STEPS):
            reward = memory.prev_reward if t == 0 else trajectory.reward[t - 1]
            timestep = TimeStep(trajectory.observation[t], reward, None, trajectory.is_first[t], None, None)
            memory, policy = step(setup.policy, memory, timestep)
            for logits, stored in zip(policy.logits, trajectory.behaviour_policy.logits, strict=True):
                np.testing.assert_allclose(logits, stored[t], rtol=1e-5, atol=1e-6)
            memory = memory._replace(prev_action=jax.tree.map(lambda x, t=t: x[t], trajectory.action))


def test_actors_are_answered_in_one_batch() -> None:
    setup = start(Scripted(), actors=4)
    for index in range(4):
        setup.start_actor(index)
    setup.take(40)
    statistics = setup.server.statistics()
    assert max(statistics.batches) == 8, "never all four actors in one batch"
    assert 0.0 < min(statistics.waits) <= max(statistics.waits)


def test_slow_actor_does_not_hold_up_the_others() -> None:
    def hook(event: str, count: int) -> None:
        if event == "step":
            time.sleep(0.3)

    worlds = iter([Scripted(hook), Scripted()])
    setup = start(Scripted(), actors=2)
    register_env("scripted", lambda: next(worlds), replace=True)
    setup.start_actor(0)
    setup.start_actor(1)
    assert len(of_actor(setup.take(12), 1)) >= 10


def test_actor_with_unfetched_rollouts_waits_and_loses_none() -> None:
    world = Scripted()
    setup = start(world, queue_size=1)
    setup.start_actor(0)
    full = 2 * STEPS  # two rollouts wait, and the next is not begun
    wait_until(lambda: bool(world.batches) and world.batches[-1].count == full)
    time.sleep(0.3)
    assert world.batches[-1].count == full
    counts = [seen(rollout.trajectory.observation)[:, 0, 3].tolist() for rollout in setup.take(6)]
    assert counts == [list(range(i * STEPS, (i + 1) * STEPS + 1)) for i in range(len(counts))]


def test_new_actor_replaces_the_old_one_of_its_index() -> None:
    setup = start(Scripted())
    setup.start_actor(0)
    setup.take(2)
    setup.start_actor(0, attempt=1)
    wait_until(lambda: 0 in setup.ends)
    assert setup.ends[0] is None, "the end of its connection is no error of the old actor"
    later = setup.take(6)
    assert any(seen(rollout.trajectory.observation)[0, 0, 3] == 0 for rollout in later), "no new episodes"


def test_server_survives_an_actor_that_disconnects_while_it_is_replaced() -> None:
    """Both events arrive in one round of the selector: the server is blocked until both connections have sent."""
    setup = start(Scripted(), policy_step=None)
    server = setup.server
    handshake = Handshake(0, layout()).encode(TOKEN)
    with (
        socket.create_connection(server.address, PATIENCE) as old,
        socket.create_connection(server.address, PATIENCE) as new,
    ):
        old.sendall(handshake)
        new.sendall(handshake[:4])
        wait_until(lambda: [client.actor_index for client in server._clients.values()] == [0, -1])
        wait_until(
            lambda: all(
                client.reader._filled or client.reader._expects != "greeting" for client in server._clients.values()
            )
        )
        with server._lock, socket.create_connection(server.address, PATIENCE):
            new.sendall(handshake[4:])
            old.shutdown(socket.SHUT_RDWR)
            time.sleep(0.2)
        wait_until(lambda: [each.actor_index for each in server._clients.values()] == [0] or server.failure is not None)
        assert server.failure is None


def test_failing_environment_is_named_and_other_actors_continue() -> None:
    worlds = iter([Scripted(crash("step", 2, ValueError("scripted failure"))), Scripted()])
    setup = start(Scripted(), actors=2)
    register_env("scripted", lambda: next(worlds), replace=True)
    setup.start_actor(0)
    setup.start_actor(1)
    wait_until(lambda: 0 in setup.ends)
    assert isinstance(setup.ends[0], EnvironmentFailure)
    assert str(setup.ends[0]) == "environment 'scripted' failed in step 3: ValueError: scripted failure"
    assert len(of_actor(setup.take(5), 1)) >= 4


def with_greeting(text: bytes, token: str = TOKEN) -> bytes:
    return hashlib.sha256(token.encode()).digest() + struct.pack("<I", len(text)) + text


def handshake_text(*fields: list[object]) -> bytes:
    return json.dumps({"actor": 0, "dtype": fields}).encode()


def is_closed(connection: socket.socket) -> bool:
    """Wait until the server has closed a connection; it resets one whose bytes it has not read."""
    connection.settimeout(PATIENCE)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def layout() -> np.dtype:
    """Return the layout of an actor's frames."""
    world = Scripted()
    batch = world.make_vector_env(2, 0)
    return first_frame_dtype(make_frame(batch, batch.reset(), 0.0), world.spec.observation)


INVALID_HANDSHAKES = [
    b"[" * 60_000,  # deeper than Python recurses
    b'{"actor": 1e999, "dtype": []}',
    handshake_text(["reward", "(2,", [2]]),  # NumPy evaluates it as Python
    handshake_text(["reward", "|u1", [-2]]),
    handshake_text(["reward", "|u1", [2]], ["reward", "|u1", [2]]),
    handshake_text(*[[f"{i}", "|u1", [2**31 - 1]] for i in range(3)]),  # the item size overflows in NumPy
    handshake_text(["reward", "<f8", [2**62]]),
    handshake_text(["reward", "<f4", [2**28]]),  # a gigabyte
    handshake_text(["reward", "<f4", [2]]),  # not all that a frame must have
    handshake_text(*[[f"{i}", "|u1", []] for i in range(2_500)]),
]


def test_actor_with_other_spaces_than_the_learner_does_not_start() -> None:
    world = Scripted()
    setup = start(world, policy_step=None)
    learners = world.spec._replace(action=ActionSpec(discrete=(7,)))
    with pytest.raises(UserError, match=r"environment 'scripted' on .* has the action .*, but for the learner .*7"):
        EnvStepper(ActorSpec(setup.config, 0, 0, spec=learners))
    EnvStepper(ActorSpec(setup.config, 0, 0, spec=world.spec._replace(max_steps=5))).close()


def test_invalid_handshakes_are_disconnected() -> None:
    setup = start(Scripted(), policy_step=None)
    dtype = layout()
    invalid = [
        Handshake(0, dtype).encode("another token"),
        Handshake(5, dtype).encode(TOKEN),
        Handshake(0, np.dtype([*dtype.descr, ("more", "<f4", (2,))])).encode(TOKEN),
        with_greeting(b"")[:32] + struct.pack("<I", 2**31),
        with_greeting(b"{}"),
        with_greeting(b"\xff\xfe\x00\x01"),
        *map(with_greeting, INVALID_HANDSHAKES),
    ]
    for text in invalid:
        with socket.create_connection(setup.server.address, PATIENCE) as connection:
            connection.sendall(text)
            assert is_closed(connection), text
    assert setup.server.failure is None
    setup.server.set_parameters(setup.policy, 0)
    setup.start_actor(0)
    assert setup.take(1)


def test_dtype_of_objects_is_refused() -> None:
    one, other = socket.socketpair()
    with one, other:
        one.sendall(with_greeting(handshake_text(["reward", "O", [2]])))
        reader = FrameReader(TOKEN)
        assert reader.read(other) is None
        with pytest.raises(ValueError, match="numbers"):
            reader.read(other)


def test_a_wrong_token_is_refused_before_its_handshake_is_read() -> None:
    one, other = socket.socketpair()
    with one, other:
        one.sendall(with_greeting(b"x" * 60_000, "another token"))
        reader = FrameReader(TOKEN)
        with pytest.raises(ValueError, match="another token"):
            reader.read(other)
        assert len(reader._buffer) == 36
    assert TOKEN.encode() not in Handshake(0, layout()).encode(TOKEN), "the token itself is never sent"
    assert TOKEN not in repr(Handshake(0, layout()))


def test_frames_that_were_not_asked_for_end_their_connection() -> None:
    """An actor sends a frame, and the next one behind the action that answers it."""
    setup = start(Scripted(), policy_step=None)
    dtype = layout()
    with socket.create_connection(setup.server.address, PATIENCE) as connection:
        connection.sendall(Handshake(0, dtype).encode(TOKEN) + bytes(2 * dtype.itemsize))
        assert is_closed(connection)
    assert setup.server.failure is None


def test_strangers_are_limited_in_time_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference_server, "MAX_STRANGERS", 4)
    setup = start(Scripted(), actors=1)
    with contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(socket.create_connection(setup.server.address, PATIENCE)) for _ in range(9)]
        for stranger in strangers[:4]:  # five of nine may stay: four, and one for the actor
            assert is_closed(stranger)
        wait_until(lambda: len(setup.server._clients) == 5)
        setup.start_actor(0)
        assert setup.take(2)
        monkeypatch.setattr(inference_server, "HANDSHAKE_SECONDS", 0.0)
        for stranger in strangers[4:]:
            assert is_closed(stranger)
        assert setup.take(2), "an actor has no such limit"


def test_a_server_without_descriptors_accepts_again_later() -> None:
    setup = start(Scripted(), policy_step=None)
    listener, accept = setup.server._listener, setup.server._listener.accept
    refused: list[float] = []

    class Refusing:
        """A listener that has no descriptor left five times."""

        def __getattr__(self, name: str) -> Any:
            return getattr(listener, name)

        def accept(self) -> Any:
            if len(refused) < 5:
                refused.append(time.monotonic())
                raise OSError(errno.EMFILE, "Too many open files")
            return accept()

    setup.server._listener = Refusing()  # type: ignore[assignment]
    setup.server.set_parameters(setup.policy, 0)
    setup.start_actor(0)
    assert setup.take(1)
    assert np.all(np.diff(refused) > 0.05), "it must not ask all the time"


def test_actions_that_an_environment_keeps_are_not_overwritten() -> None:
    setup = start(world := Scripted())
    kept: list[np.ndarray] = []
    make_vector_env = world.make_vector_env

    def make_keeping(num_envs: int, seed: int) -> Any:
        batch = make_vector_env(num_envs, seed)
        step = batch.step
        batch.step = lambda action: kept.append(action.discrete) or step(action)
        return batch

    world.make_vector_env = make_keeping  # type: ignore[method-assign]
    setup.start_actor(0)
    actions = np.concatenate([rollout.trajectory.action.discrete for rollout in setup.take(3)])
    np.testing.assert_array_equal(kept[: len(actions)], actions)


def test_observations_have_the_dtype_of_their_space() -> None:
    """A first observation of integers must not truncate the fractions of later ones."""
    setup = start(world := Scripted())
    make_vector_env = world.make_vector_env

    def make_with_integer_reset(num_envs: int, seed: int) -> Any:
        batch = make_vector_env(num_envs, seed)
        reset = batch.reset
        batch.reset = lambda: reset()._replace(observation=np.zeros((num_envs, 4), int))
        return batch

    world.make_vector_env = make_with_integer_reset  # type: ignore[method-assign]
    setup.start_actor(0)
    observation = setup.take(1)[0].trajectory.observation
    assert observation.dtype == np.float32
    np.testing.assert_array_equal(seen(observation)[1:, 1], timeline(1, STEPS)[1:])


class AtariSized(Scripted):
    """Observations have the size of Atari's frames."""

    def __init__(self) -> None:
        super().__init__()
        self.spec = self.spec._replace(observation=Image(84, 84, 1), action=ActionSpec(discrete=(3,)))

    def make_vector_env(self, num_envs: int, seed: int) -> Any:
        batch = super().make_vector_env(num_envs, seed)
        batch._observe = lambda: np.zeros((num_envs, 84, 84, 1), np.uint8)  # type: ignore[method-assign]
        return batch


def test_every_observation_is_sent_once() -> None:
    setup = start(AtariSized())
    setup.start_actor(0)
    setup.take(10)
    statistics = setup.server.statistics()
    bytes_sent = statistics.received + statistics.sent
    assert 1.0 <= bytes_sent / (statistics.steps * 84 * 84) <= 1.2


def test_stepping_needs_no_jax() -> None:
    """Check all imported modules, for Gymnasium, Atari and DM-HARD-8, with one task and with two."""
    code = """
import sys
from byol_explore.runtime.cluster import env_stepper
from byol_explore.envs.families import DMHardEightSettings
from byol_explore.envs.host_vector import make_host_vector_env
from byol_explore.envs.names import EnvSettings
from byol_explore.envs.registry import make_envs
games = ["atari:freeway", "atari:alien"]
for names in (["gymnasium:CartPole-v1"], games[:1], games, ["dm-hard-eight:baseball"]):
    is_remote = names[0].startswith("dm-hard-eight")
    server = DMHardEightSettings(servers=(sys.argv[1],) if is_remote else ())
    batch = make_host_vector_env(make_envs(names, EnvSettings(dm_hard_eight=server)), 2, 0)
    frame = env_stepper.make_frame(batch, batch.reset(), 0.0)
    assert len(frame["reward"]) == 2
    batch.close()
print(sorted(name for name in sys.modules if name.split(".")[0] in ("jax", "jaxlib", "equinox", "optax")))
"""
    with running() as server:
        command = [sys.executable, "-c", code, server.address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
