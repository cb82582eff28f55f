"""DM-HARD-8 on servers that die, stay silent or speak another protocol: each failure is one line in bounded time."""

import re
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest

from byol_explore.envs.watchdog import run_watched
from byol_explore.errors import EnvironmentFailure
from envs.dm_hard_eight.test_env import act, copy_step, open_batch, original, times
from envs.dm_server import Behavior, DMServer, Running, running

PATIENCE = 20.0  # seconds, far more than anything here takes
QUICK = {"start_timeout": 1.0}


def failure(server: Running | str, steps: int = 1, num_envs: int = 1, **settings: Any) -> str:
    """Play steps until they fail, in bounded time; return the message after the address."""
    began = time.monotonic()
    with open_batch(original(server, **settings), num_envs) as batch:

        def play() -> None:
            batch.reset()
            for _ in range(steps):
                act(batch)

        with pytest.raises(EnvironmentFailure) as caught:
            play()
    assert time.monotonic() - began < PATIENCE
    line = str(caught.value)
    address = server if isinstance(server, str) else server.address
    start = f"environment 'dm-hard-eight:wall-sensor': its server {address} "
    assert line.startswith(start)
    assert "\n" not in line
    return line.removeprefix(start)


# Before the first episode


def test_waits_for_a_server_that_becomes_ready_slowly() -> None:
    """It refuses its first streams and is then silent for a while."""
    with running(unready=2, silent_until=0.6) as server, open_batch(original(server)) as batch:
        assert times(batch.reset()) == [0]
        assert server.servicer.streams == 3


def test_waits_for_a_server_that_listens_later() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    servers: list[Running] = []
    late = threading.Timer(0.5, lambda: servers.append(Running(DMServer(), f"127.0.0.1:{port}")))
    late.start()
    try:
        with open_batch(original(f"127.0.0.1:{port}")) as batch:
            assert times(batch.reset()) == [0]
    finally:
        late.join()
        servers[0].stop()


def test_port_without_a_listener() -> None:
    with socket.socket() as taken:  # bound, but not listening
        taken.bind(("127.0.0.1", 0))
        line = failure(f"127.0.0.1:{taken.getsockname()[1]}", **QUICK)
    assert line == "is not ready after 1 s (dm_hard_eight.start_timeout): it has not answered step"


def test_listener_that_never_answers() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        line = failure(f"127.0.0.1:{deaf.getsockname()[1]}", **QUICK)
    assert line.startswith("is not ready after 1 s (dm_hard_eight.start_timeout): it has not answered step")


def test_server_that_never_answers() -> None:
    with running(silent_until=3600.0) as server:
        assert failure(server, **QUICK).endswith("it has not answered step")


def test_server_that_is_never_ready() -> None:
    with running(unready=1000) as server:
        line = failure(server, **QUICK)
        assert line.endswith("its stream broke with UNAVAILABLE: not yet")
        assert 2 <= server.servicer.streams <= 20, "with pauses between attempts"


def test_server_of_another_protocol() -> None:
    other = grpc.server(ThreadPoolExecutor(2))
    port = other.add_secure_port("127.0.0.1:0", grpc.local_server_credentials())
    other.start()
    try:
        assert "its stream broke with UNIMPLEMENTED" in failure(f"127.0.0.1:{port}", **QUICK)
    finally:
        other.stop(None).wait()


def test_server_that_answers_a_step_before_a_world_is_joined() -> None:
    with running(answers_early=True) as server:
        assert failure(server) == "cannot be played on: it answers a step before a world has been joined"


# Wrong answers


@pytest.mark.parametrize(
    ("behavior", "line"),
    [
        (
            {"without": ("HAND_FORCE",)},
            "it offers no observation HAND_FORCE, only ACCELERATION, HAND_DISTANCE, HAND_IS_HOLDING, RGB_INTERLEAVED, "
            "Score, reward",
        ),
        ({"without": ("reward",)}, "it offers no observation reward, only .*"),
        ({"without": ("HAND_GRIP",)}, "it offers no action HAND_GRIP, only .*"),
        (
            {"changed": {"RGB_INTERLEAVED": (6, 8, 4)}},
            r"it offers the observation RGB_INTERLEAVED in the shape \(6, 8, 4\): it must be \(6, 8, 3\)",
        ),
        (
            {"changed": {"HAND_DISTANCE": (3,)}},
            r"it offers the observation HAND_DISTANCE in the shape \(3,\): it must be \(1,\)",
        ),
        ({"changed": {"LOOK_DOWN_UP": (2,)}}, r"it offers the action LOOK_DOWN_UP in the shape \(2,\): it must be .*"),
        ({"as_text": ("HAND_FORCE",)}, "it offers the observation HAND_FORCE as STRING: it must be a number"),
        ({"as_text": ("RGB_INTERLEAVED",)}, "it offers the observation RGB_INTERLEAVED as STRING: it must be UINT8"),
        ({"fault_at": 3, "fault": "error"}, "it answers step with the error 'the level is broken'"),
        ({"fault_at": 3, "fault": "shape"}, "its answer to step is wrong: .*RGB_INTERLEAVED with shape .*"),
        ({"fault_at": 3, "fault": "missing"}, "its answer to step has no HAND_FORCE"),
        ({"fault_at": 3, "fault": "state"}, "its answer to step has the state 0"),
        ({"fault_at": 3, "fault": "other"}, "it does not answer step as dm_env_rpc does: .*"),
        ({"length": 0, "fault_at": 1, "fault": "end"}, "its episode ends with its first observation"),
    ],
)
def test_wrong_answers_fail_at_once(behavior: dict[str, Any], line: str) -> None:
    """Without another attempt, which could not help."""
    with running(**behavior) as server:
        assert re.fullmatch(f"cannot be played on: {line}", failure(server, steps=4))
        assert len(server.servicer.created) == 1


def test_server_with_room_for_one_world() -> None:
    with running(rooms=1) as server:
        assert failure(server, num_envs=2) == (
            "cannot be played on: it answers create_world with the error 'there is a world already'; "
            "if it has room for one world only, give a server for each environment"
        )


# Losses during an episode


@pytest.mark.parametrize("how", ["cut", "silence"])
def test_loss_of_a_server_truncates_the_episode(how: str) -> None:
    """The other environment continues; the last observation is repeated, and the return bootstraps from it."""
    with (
        running(length=6, fault_at=6, fault=how) as server,
        open_batch(original(server, answer_timeout=1.5 if how == "silence" else PATIENCE), 2) as batch,
    ):
        batch.reset()
        act(batch)
        lost, after, then = copy_step(act(batch)), copy_step(act(batch)), act(batch)
        [index], [other] = np.flatnonzero(lost.is_last), np.flatnonzero(~lost.is_last)
        assert [step.observation["rgb"][index, 0, 0, 0] for step in (lost, after, then)] == [1, 0, 1]
        assert [step.observation["rgb"][other, 0, 0, 0] for step in (lost, after, then)] == [2, 3, 4]
        assert (lost.reward[index], lost.discount[index], lost.success[index]) == (0.0, 1.0, 0)
        assert after.is_first.tolist() == [index == 0, index == 1]
        assert len(server.servicer.created) == 3
        assert len({int(world.settings["seed"]) for world in server.servicer.created}) == 3, "another level"
        assert not batch.warnings()


def test_loss_of_a_server_gives_a_warning() -> None:
    with running(fault_at=2) as server, open_batch(original(server)) as batch:
        batch.reset()
        assert act(batch).is_last.item()
        assert batch.warnings() == [
            f"an episode is cut off, its server {server.address} was lost: "
            "its stream broke with UNAVAILABLE: injected fault"
        ]


def test_restarted_server_is_used_again() -> None:
    first = Running(DMServer(Behavior(length=50)))
    address = first.address
    with open_batch(original(address), 2) as batch:
        batch.reset()
        act(batch)
        first.stop()
        cut = copy_step(act(batch))
        assert cut.is_last.all()
        np.testing.assert_array_equal(cut.discount, [1.0, 1.0])
        with running(address) as second:
            after = act(batch)
            assert after.is_first.all()
            assert times(after) == [0, 0]
            assert len(second.servicer.worlds) == 2


def test_server_that_does_not_return_is_a_failure() -> None:
    server = Running(DMServer())
    with open_batch(original(server, start_timeout=2.0)) as batch:
        batch.reset()
        server.stop()
        assert act(batch).is_last.item()
        with pytest.raises(EnvironmentFailure, match=r"is not ready after 2 s \(dm_hard_eight.start_timeout\): it has"):
            act(batch)


def test_repeated_losses_are_a_failure() -> None:
    """Each loss happens in the second step of an episode, after an answered first step."""
    with running() as server:
        server.servicer._with_faults = lambda kind, answer, context, joined: (  # pyright: ignore[reportAttributeAccessIssue]
            context.abort(grpc.StatusCode.INTERNAL, "out of memory")
            if kind == "step" and any(world.time == 2 for world in server.servicer.worlds.values())
            else answer
        )
        line = failure(server, steps=100, max_reconnects=2)
    assert line == (
        "was lost 3 times without the end of an episode, at last because its stream broke with INTERNAL: out of memory"
    )


def test_whole_episode_resets_the_count_of_losses() -> None:
    with running(length=1) as server, open_batch(original(server, max_reconnects=1)) as batch:
        batch.reset()
        for _ in range(3):
            server.servicer.behavior.fault_at = server.servicer.steps + 1
            assert act(batch).discount.item() == 1.0
            assert act(batch).is_first.item()
            assert act(batch).discount.item() == 0.0
            assert act(batch).is_first.item()


def test_zero_reconnects() -> None:
    with running(fault_at=2) as server:
        assert failure(server, max_reconnects=0).startswith("was lost once without the end of an episode")


# Under a watchdog


def run_under_watchdog(server: Running, limit: float, work: Callable[[Any], Any], **settings: Any) -> None:
    run_watched([original(server, **settings)], limit, lambda envs: work(envs[0].make_vector_env(2, 0)))


def test_watchdog_ends_calls_with_a_longer_timeout() -> None:
    def work(batch: Any) -> None:
        try:
            batch.reset()
            act(batch)
        finally:
            batch.close()
            closed.set()

    closed = threading.Event()
    with running(fault_at=3, fault="silence") as server:
        began = time.monotonic()
        with pytest.raises(EnvironmentFailure, match="wall-sensor' hangs: step 1 has taken more than 1 s"):
            run_under_watchdog(server, 1.0, work, answer_timeout=600.0)
        assert closed.wait(PATIENCE)
        assert time.monotonic() - began < PATIENCE


def test_close_does_not_wait_for_a_silent_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byol_explore.envs.dm_hard_eight.env._LEAVE_SECONDS", 0.3)
    with running() as server:
        batch = original(server).make_vector_env(2, 0)
        batch.reset()
        server.servicer.behavior.silent_until = 3600.0
        began = time.monotonic()
        batch.close()
        batch.close()
        assert time.monotonic() - began < PATIENCE


def test_no_thread_is_left() -> None:
    def ours() -> list[str]:
        return [each.name for each in threading.enumerate() if each.name.startswith(("dm_env_rpc", "dm-hard-eight"))]

    with running() as server, open_batch(original(server), 2) as batch:
        batch.reset()
        assert len(ours()) == 4
        batch.close()
        deadline = time.monotonic() + PATIENCE
        while ours() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not ours()
