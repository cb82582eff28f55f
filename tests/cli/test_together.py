"""Processes that train together by the command line: one run, one log, one line when something goes wrong."""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from byol_explore.cli import together
from byol_explore.report.logs import read_metrics
from byol_explore.run.checkpoint import Checkpoints
from byol_explore.settings.parts import DistributedConfig
from command_line import call
from namespaces import can_be_made, two_hosts
from pairs import PATIENCE, Started, free_port, processes
from runs import DISPATCH, arguments, tiny, without_times

SETTINGS = DistributedConfig("10.0.0.1:4711", 3, 1, start_timeout=9)
HEARTBEATS = "UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n2\nThe tasks have crashed."


# What is said of a learner that was ended


@pytest.mark.parametrize(
    ("noise", "number", "expected"),
    [
        (f"E1117 12:41:35.425002 15822 service.cc:1] {HEARTBEATS}\n", 6, "process 2 is not heard of any more"),
        ("task is set to ERROR: UNAVAILABLE: Task 2 heartbeat timeout.", 6, "process 2 is not heard of any more"),
        (
            "F1117 RPC: /xla.coordination.CoordinationService/RegisterTask",
            6,
            "3 processes did not meet at 10.0.0.1:4711",
        ),
        (
            "Terminating process because the JAX distributed service detected fatal errors.",
            6,
            "process 0 at 10.0.0.1:4711 has ended or cannot be reached",
        ),
        ("", 9, "process 1 was ended by signal 9"),
    ],
)
def test_what_jax_says_in_many_words_is_said_in_one_line(noise: str, number: int, expected: str) -> None:
    said = together.what_happened(noise, number, SETTINGS)
    assert said.startswith(expected)
    assert "\n" not in said


def test_what_the_learner_says_itself_is_passed_on_and_what_libraries_log_is_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = "W1117 12:41:49.785858   15997 manager.cc:147] Failed to retrieve\n"
    lines = ["a warning\n", log, "  and more of it\n", "error: no such world\n", "interrupted: saving\n"]
    assert together._listen(iter(lines)) == [log, "  and more of it\n"]
    assert capsys.readouterr().err == "a warning\nerror: no such world\ninterrupted: saving\n"
    traceback = ["Traceback (most recent call last):\n", "  File ...\n", "KeyboardInterrupt\n"]
    assert together._listen(iter(traceback)) == traceback, "whether it matters is known only at the end"
    assert capsys.readouterr().err == ""


def test_wrong_values_need_no_learner(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a learner was started"))
    words = ["--distributed.processes", "2", "--distributed.coordinator"]
    code, out, err = call(capsys, "train", *words, "10.0.0.1")
    assert (code, out) == (2, "")
    assert err == "error: distributed.coordinator is '10.0.0.1': it must be host:port, such as 10.0.0.1:4711\n"


# Several processes on this machine


def commands(port: int, run: Path, *words: object, host: str = "127.0.0.1", count: int = 2) -> list[list[object]]:
    """The same in all, but for the number; only the first has the run's directory."""
    options = ["--distributed.coordinator", f"{host}:{port}", "--distributed.processes", count,
               "--distributed.timeout", 15, "--distributed.start-timeout", 240, *words]  # fmt: skip
    directories = [run, *[run.with_name("nowhere")] * (count - 1)]
    return [
        ["-m", "byol_explore.cli.attached", "train", *options, "--run-dir", directory, "--distributed.process", index]
        for index, directory in enumerate(directories)
    ]


def settings(**changes: object) -> list[str]:
    words = arguments(tiny(**{"devices": 2, **changes}))  # pyright: ignore[reportArgumentType]
    return words[: words.index("--distributed.coordinator")] + words[words.index("--stop-at-success") :]


def outside(**changes: object) -> list[object]:
    """A run outside jit, with two actors in each process, each of which has whole batches of it."""
    runtime = ["--runtime.num-envs", 16, "--runtime.actors", 2, "--runtime.rollouts-per-dispatch", 1]
    return [*settings(env="gymnasium:CartPole-v1", **changes), *runtime]


def trained(run: Path, *words: object, count: int = 2) -> list[tuple[int, str, str]]:
    with free_port() as port, processes(*commands(port, run, *words, count=count)) as started:
        ended = [each.end() for each in started]
    assert not run.with_name("nowhere").exists()
    return ended


def newest(run: Path) -> tuple[dict[str, np.ndarray], dict]:
    """The arrays of the last checkpoint by name, and what is beside them."""
    checkpoints = Checkpoints(run / "checkpoints")
    return checkpoints._read(checkpoints.steps()[-1])


def contents(run: Path) -> tuple[dict[str, bytes], list[dict], dict]:
    """All that a run has learned and said, but for times."""
    arrays, meta = newest(run)
    meta.pop("seconds")
    assert json.loads((run / "summary.json").read_text())["steps"] == meta["step"]
    return {name: x.tobytes() for name, x in arrays.items()}, without_times(read_metrics(run / "metrics.jsonl")), meta


def assert_close(run: Path, other: Path) -> None:
    """What was learned is the same to rounding, and so is what was said of it."""
    (arrays, _), (expected, _) = (newest(each) for each in (run, other))
    assert arrays.keys() == expected.keys()
    for name, array in arrays.items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-3, atol=1e-5, err_msg=name)
    for row, expected_row in zip(*(read_metrics(each / "metrics.jsonl") for each in (run, other)), strict=True):
        for name in ("steps", "learner_steps", "episodes", "return_mean", "loss", "uncertainty"):
            assert row[name] == pytest.approx(expected_row[name], rel=1e-3), (row["steps"], name)


def trained_alone(run: Path, *words: object, devices: int = 2) -> None:
    with processes(["-m", "byol_explore.cli.attached", "train", *words, "--run-dir", run], devices=devices) as [one]:
        code, _, err = one.end()
        assert code == 0, err


@pytest.mark.slow
def test_two_processes_train_and_resume_as_one_with_two_devices_does(tmp_path: Path) -> None:
    """Bit for bit: at once, stopped half-way, and with the second half in one process."""
    whole, parts, other, alone = (tmp_path / name for name in ("whole", "parts", "other", "alone"))
    trained_alone(alone, *settings(dispatches=4))
    first, second = trained(whole, *settings(dispatches=4))
    assert first[0] == 0, first
    assert "done: 192 steps" in first[1]
    assert second == (0, "", "")
    assert contents(whole) == contents(alone)
    assert [code for code, *_ in trained(parts, *settings(dispatches=2))] == [0, 0]
    shutil.copytree(parts, other)
    first, second = trained(parts, "--resume", "--steps", 4 * DISPATCH)
    assert "continuing from step 96" in first[1], first
    assert second == (0, "", "")
    assert contents(parts) == contents(alone)
    trained_alone(other, "--resume", "--steps", 4 * DISPATCH)
    assert contents(other) == contents(alone)


@pytest.mark.slow
def test_four_processes_train_and_two_or_one_go_on(tmp_path: Path) -> None:
    """To rounding, as one process with four devices does."""
    alone, together_ = tmp_path / "alone", tmp_path / "together"
    trained_alone(alone, *settings(devices=4, dispatches=4), devices=4)
    first, *others = trained(together_, *settings(devices=4, dispatches=2), count=4)
    assert first[0] == 0, first
    assert others == [(0, "", "")] * 3
    first, _ = trained(together_, "--resume", "--steps", 3 * DISPATCH)
    assert first[0] == 0, first
    assert "continuing from step 96" in first[1]
    assert "on 2 devices now, after 4: results are equal to rounding" in first[1]
    trained_alone(together_, "--resume", "--steps", 4 * DISPATCH, devices=1)
    assert_close(together_, alone)


@pytest.mark.slow
def test_one_process_trains_and_two_go_on_and_then_three(tmp_path: Path) -> None:
    """With more devices than it began with, and a number that does not divide theirs: to rounding what one does."""
    words = ["--runtime.num-envs", 12, "--runtime.batch-size", 6]
    alone, grown = tmp_path / "alone", tmp_path / "grown"
    steps = [36 * count for count in (2, 4, 6)]  # dispatches of 12 environments and three steps
    trained_alone(alone, *settings(devices=1), *words, "--steps", steps[2], devices=1)
    trained_alone(grown, *settings(devices=1), *words, "--steps", steps[0], devices=1)
    for count, until in ((2, steps[1]), (3, steps[2])):
        first, *others = trained(grown, "--resume", "--steps", until, count=count)
        assert first[0] == 0, first
        assert f"on {count} devices now, after 1: results are equal to rounding" in first[1]
        assert others == [(0, "", "")] * (count - 1)
    assert_close(grown, alone)


@pytest.mark.slow
def test_two_processes_train_outside_jit_with_actors_of_their_own_and_resume(tmp_path: Path) -> None:
    """By two and by one, which has a device less."""
    run = tmp_path / "run"
    first, second = trained(run, *outside(dispatches=4))
    assert first[0] == 0, first
    assert "done: 192 steps" in first[1]
    assert second == (0, "", "")
    rows = read_metrics(run / "metrics.jsonl")
    assert [row["steps"] for row in rows] == [48, 96, 144, 192]
    assert all(0 <= row["learner_wait"] <= 1 and row["policy_lag"] >= 0 for row in rows)
    assert Checkpoints(run / "checkpoints").steps()[-1] == 192
    first, second = trained(run, "--resume", "--steps", 6 * DISPATCH)
    assert "continuing from step 192" in first[1], first
    assert second == (0, "", "")
    trained_alone(run, "--resume", "--steps", 8 * DISPATCH, devices=1)
    assert [row["steps"] for row in read_metrics(run / "metrics.jsonl")] == [48 * (1 + i) for i in range(8)]
    arrays, meta = newest(run)
    assert meta["step"] == 8 * DISPATCH
    assert arrays["learner.step"] == 8 * DISPATCH // (4 * 3)  # updates from batches of 4 sequences of 3 transitions


def test_ctrl_c_is_heard_while_others_are_waited_for(tmp_path: Path) -> None:
    with free_port() as port, processes(commands(port, tmp_path / "run")[0]) as [one]:
        deadline = time.monotonic() + PATIENCE
        while not _is_listened_at(port):
            assert one.process.poll() is None, one.end()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        one.process.send_signal(signal.SIGINT)
        assert one.process.wait(timeout=60) == 130
        assert one.end() == (130, "", "interrupted\n")


def _is_listened_at(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("who", [0, 1])
def test_a_process_whose_others_never_come_ends_in_one_line(who: int, tmp_path: Path) -> None:
    with free_port() as port:
        words = [*commands(port, tmp_path / "run")[who], "--distributed.start-timeout", 5]
        with processes(words) as [one]:
            code, out, err = one.end()
    assert (code, out) == (5, "")
    assert err == f"error: 2 processes did not meet at 127.0.0.1:{port} within 5 s\n"


def when_it_runs(run: Path, started: list[Started]) -> int:
    """The number of dispatches that are logged, a few."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        rows = read_metrics(run / "metrics.jsonl") if (run / "metrics.jsonl").exists() else []
        if len(rows) > 3:
            return len(rows)
        assert all(each.process.poll() is None for each in started), [each.end() for each in started]
        time.sleep(0.05)
    raise AssertionError("it does not begin")


def learner_of(one: Started) -> int:
    said = subprocess.run(["ps", "-o", "pid=", "--ppid", str(one.process.pid)], capture_output=True, text=True)
    return int(said.stdout)


def ended_by(
    run: Path, end: Callable[[list[Started]], None], words: Sequence[object] = ()
) -> tuple[list[tuple[int, str, str]], float]:
    """What two endless processes say when something is done to them, and how long that takes."""
    words = [*(words or settings(log={"checkpoint_every": 2 * DISPATCH})), "--steps", 10**9]
    with free_port() as port, processes(*commands(port, run, *words)) as started:
        when_it_runs(run, started)
        end(started)
        began = time.monotonic()
        return [each.end() for each in started], time.monotonic() - began


@pytest.mark.slow
@pytest.mark.parametrize("who", [0, 1])
def test_a_signal_at_any_process_saves_once_and_ends_all(who: int, tmp_path: Path) -> None:
    run = tmp_path / "run"
    ended, _ = ended_by(run, lambda started: started[who].process.send_signal(signal.SIGTERM))
    assert [code for code, *_ in ended] == [143, 143], ended
    assert "interrupted: saved at step" in ended[0][1]
    assert (ended[1][1], ended[1 - who][2]) == ("", "")
    assert Checkpoints(run / "checkpoints").steps()[-1] == read_metrics(run / "metrics.jsonl")[-1]["steps"]


@pytest.mark.slow
@pytest.mark.parametrize("words", [settings(), outside()], ids=["inside", "outside"])
@pytest.mark.parametrize("who", [[0], [1], [0, 1]], ids=["first", "second", "both"])
def test_ctrl_c_at_one_or_all_saves_and_ends_all_and_they_go_on(
    who: list[int], words: list[object], tmp_path: Path
) -> None:
    run = tmp_path / "run"

    def interrupt(started: list[Started]) -> None:
        for index in who:
            started[index].process.send_signal(signal.SIGINT)

    ended, seconds = ended_by(run, interrupt, words)
    assert [code for code, *_ in ended] == [130, 130], ended
    assert seconds < 120
    for index, (_, _, err) in enumerate(ended):
        assert err.strip() == ("interrupted: saving after this round; once more stops at once" if index in who else "")
    steps = Checkpoints(run / "checkpoints").steps()[-1]
    assert f"interrupted: saved at step {steps:,}; continue with --resume" in ended[0][1]
    first, second = trained(run, "--resume", "--steps", steps + 2 * DISPATCH)
    assert first[0] == 0, first
    assert f"continuing from step {steps:,}" in first[1]
    assert second == (0, "", "")


@pytest.mark.slow
@pytest.mark.parametrize(("who", "number"), [(0, signal.SIGKILL), (1, signal.SIGKILL), (1, signal.SIGSTOP)])
def test_a_process_that_is_lost_ends_the_other_in_one_line(who: int, number: int, tmp_path: Path) -> None:
    run = tmp_path / "run"
    stopped: list[int] = []

    def end(started: list[Started]) -> None:
        stopped.append(learner_of(started[who]))
        os.kill(stopped[0], number)
        if number == signal.SIGSTOP:  # it will never end by itself
            started[1 - who].end()
            os.kill(stopped[0], signal.SIGKILL)

    ended, seconds = ended_by(run, end)
    code, _, err = ended[1 - who]
    assert code == 5, ended
    assert err.startswith("error: process ")
    assert err.count("\n") == 1, err
    assert f"process {who}" in err
    assert "--resume" in err
    assert seconds < 120
    steps = Checkpoints(run / "checkpoints").steps()[-1]
    first, _ = trained(run, "--resume", "--steps", steps + 4 * DISPATCH)
    assert first[0] == 0, first
    assert f"continuing from step {steps:,}" in first[1]


@pytest.mark.slow
def test_hosts_train_together_and_a_link_that_is_cut_ends_both(tmp_path: Path) -> None:
    """Hosts are network namespaces: all that they have of each other is the link between them."""
    if not can_be_made():
        pytest.skip("network namespaces cannot be made here: that needs ip, and the rights of an administrator")
    run = tmp_path / "run"
    words = [*settings(log={"checkpoint_every": 2 * DISPATCH}), "--steps", 10**9]
    with two_hosts() as hosts:
        inside = [hosts.inside(index) for index in range(2)]
        with processes(*commands(4711, run, *words, host=hosts.addresses[0]), inside=inside) as started:
            when_it_runs(run, started)
            hosts.cut()
            began = time.monotonic()
            for code, _, err in (each.end() for each in started):
                assert code == 5, err
                assert err.startswith("error: process "), err
                assert err.count("\n") == 1, err
            assert time.monotonic() - began < 120
