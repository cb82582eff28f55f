"""Processes that train together by the command line: one run, one log, one line when something goes wrong."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

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


def test_wrong_values_need_no_learner(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a learner was started"))
    words = ["--distributed.processes", "2", "--distributed.coordinator"]
    code, out, err = call(capsys, "train", *words, "10.0.0.1")
    assert (code, out) == (2, "")
    assert err == "error: distributed.coordinator is '10.0.0.1': it must be host:port, such as 10.0.0.1:4711\n"


# Two processes on this machine


def commands(port: int, run: Path, *words: object, host: str = "127.0.0.1") -> list[list[object]]:
    """The same in both, but for the number; only the first has the run's directory."""
    options = ["--distributed.coordinator", f"{host}:{port}", "--distributed.processes", 2,
               "--distributed.timeout", 15, "--distributed.start-timeout", 240, *words]  # fmt: skip
    directories = [run, run.with_name("nowhere")]
    return [
        ["-m", "byol_explore.cli.attached", "train", *options, "--run-dir", directory, "--distributed.process", index]
        for index, directory in enumerate(directories)
    ]


def settings(**changes: object) -> list[str]:
    words = arguments(tiny(devices=2, **changes))  # pyright: ignore[reportArgumentType]
    return words[: words.index("--distributed.coordinator")] + words[words.index("--stop-at-success") :]


def trained(run: Path, *words: object) -> list[tuple[int, str, str]]:
    with free_port() as port, processes(*commands(port, run, *words)) as started:
        ended = [each.end() for each in started]
    assert not run.with_name("nowhere").exists()
    return ended


def contents(run: Path) -> tuple[dict[str, bytes], list[dict], dict]:
    """All that a run has learned and said, but for times."""
    checkpoints = Checkpoints(run / "checkpoints")
    arrays, meta = checkpoints._read(checkpoints.steps()[-1])
    meta.pop("seconds")
    assert json.loads((run / "summary.json").read_text())["steps"] == meta["step"]
    return {name: x.tobytes() for name, x in arrays.items()}, without_times(read_metrics(run / "metrics.jsonl")), meta


def trained_alone(run: Path, *words: object) -> None:
    with processes(["-m", "byol_explore.cli.attached", "train", *words, "--run-dir", run], devices=2) as [one]:
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


def ended_by(run: Path, end: Callable[[list[Started]], None]) -> tuple[list[tuple[int, str, str]], float]:
    """What two endless processes say when something is done to them, and how long that takes."""
    words = [*settings(log={"checkpoint_every": 2 * DISPATCH}), "--steps", 10**9]
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
