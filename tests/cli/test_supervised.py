"""Distributed training by the command line: one run, one log, errors of one line."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import SMALL_STEPS
from byol_explore.cli import supervised
from byol_explore.config.sections import DistributedConfig
from byol_explore.errors import PeerLost
from byol_explore.storage.checkpoint import Checkpoints
from byol_explore.storage.metrics import read_metrics
from child_processes import PATIENCE, Started, free_port, processes
from command_line import call
from network_namespaces import namespaces_available, two_hosts
from runs import DISPATCH, arguments, tiny, without_times

SETTINGS = DistributedConfig("10.0.0.1:4711", 3, 1)


# What the supervisor prints


def supervise_script(monkeypatch: pytest.MonkeyPatch, script: str) -> int:
    """Supervise a Python script in place of the learner."""

    def spawn(command: list[str], **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", script], start_new_session=True, **options)

    monkeypatch.setattr(supervised, "spawn_child", spawn)
    return supervised.supervise([], SETTINGS)


def test_the_last_lines_of_a_killed_learner_are_printed_unchanged(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "import os, sys\nfor i in range(50): print('line', i, file=sys.stderr, flush=True)\nos.abort()"
    with pytest.raises(
        PeerLost, match=r"^process 1 of 3 \(coordinator 10\.0\.0\.1:4711\) was killed by signal 6; .* --resume"
    ):
        supervise_script(monkeypatch, script)
    assert capsys.readouterr().err == "".join(f"line {i}\n" for i in range(30, 50))


def test_tracebacks_are_whole_and_library_lines_only_on_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "print('W1117 manager.cc:147] Failed', *range(25), 'error: no such world', sep='\\n', file=sys.stderr)"
    for code, expected in ((1, 27), (2, 1)):
        assert supervise_script(monkeypatch, f"import sys\n{lines}\nsys.exit({code})") == code
        printed = capsys.readouterr().err.splitlines()
        assert printed[0] == "error: no such world"
        assert len(printed) == expected


def test_wrong_values_start_no_learner(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a learner was started"))
    words = ["--distributed.num-processes", "2", "--distributed.coordinator-address"]
    code, out, err = call(capsys, "train", *words, "10.0.0.1")
    assert (code, out) == (2, "")
    assert err == "error: distributed.coordinator_address is '10.0.0.1': it must be host:port, such as 10.0.0.1:4711\n"


# Several processes on this machine


def commands(port: int, run: Path, *words: object, host: str = "127.0.0.1", count: int = 2) -> list[list[object]]:
    """Return the command of each process. They differ in process id, and only the first has the run directory."""
    options = ["--distributed.coordinator-address", f"{host}:{port}", "--distributed.num-processes", count,
               "--distributed.heartbeat-timeout", 15, "--distributed.initialization-timeout", 240, *words]  # fmt: skip
    directories = [run, *[run.with_name("nowhere")] * (count - 1)]
    return [
        [
            "-m",
            "byol_explore.cli.supervised",
            "train",
            *options,
            "--run-dir",
            directory,
            "--distributed.process-id",
            index,
        ]
        for index, directory in enumerate(directories)
    ]


def settings(**changes: object) -> list[str]:
    words = arguments(tiny(**{"devices": 2, **changes}))  # pyright: ignore[reportArgumentType]
    return words[: words.index("--distributed.coordinator-address")] + words[words.index("--stop-at-success-rate") :]


def settings_outside_jit(**changes: object) -> list[object]:
    """Configure a run outside jit, with two actors in each process and whole batches for each actor."""
    runtime = ["--runtime.num-envs", 16, "--runtime.num-actors", 2, "--runtime.rounds-per-dispatch", 1]
    return [*settings(env="gymnasium:CartPole-v1", **changes), *runtime]


def train_processes(run: Path, *words: object, count: int = 2) -> list[tuple[int, str, str]]:
    with free_port() as port, processes(*commands(port, run, *words, count=count)) as started:
        ended = [each.end() for each in started]
    assert not run.with_name("nowhere").exists()
    return ended


def load_newest(run: Path) -> tuple[dict[str, np.ndarray], dict]:
    """Load the arrays of the last checkpoint by name, and its metadata."""
    checkpoints = Checkpoints(run / "checkpoints")
    return checkpoints._read(checkpoints.steps()[-1])


def read_results(run: Path) -> tuple[dict[str, bytes], list[dict], dict]:
    """Return the results and logs of a run without times."""
    arrays, meta = load_newest(run)
    meta.pop("seconds")
    assert json.loads((run / "summary.json").read_text())["steps"] == meta["step"]
    return {name: x.tobytes() for name, x in arrays.items()}, without_times(read_metrics(run / "metrics.jsonl")), meta


def assert_close(run: Path, other: Path) -> None:
    """Assert that results and logs are equal up to rounding."""
    (arrays, _), (expected, _) = (load_newest(each) for each in (run, other))
    assert arrays.keys() == expected.keys()
    for name, array in arrays.items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-3, atol=1e-5, err_msg=name)
    for row, expected_row in zip(*(read_metrics(each / "metrics.jsonl") for each in (run, other)), strict=True):
        for name in ("steps", "learner_steps", "num_episodes", "return_mean", "loss", "uncertainty"):
            assert row[name] == pytest.approx(expected_row[name], rel=1e-3), (row["steps"], name)


def train_one_process(run: Path, *words: object, devices: int = 2) -> None:
    with processes(["-m", "byol_explore.cli.supervised", "train", *words, "--run-dir", run], devices=devices) as [one]:
        code, _, err = one.end()
        assert code == 0, err


@pytest.mark.slow
def test_two_processes_equal_one_with_two_devices(tmp_path: Path) -> None:
    """Results are bit-equal in one session, interrupted half-way, and with the second half in one process."""
    whole, parts, other, alone = (tmp_path / name for name in ("whole", "parts", "other", "alone"))
    train_one_process(alone, *settings(dispatches=4))
    first, second = train_processes(whole, *settings(dispatches=4))
    assert first[0] == 0, first
    assert "done: 192 steps" in first[1]
    assert second == (0, "", "")
    assert read_results(whole) == read_results(alone)
    assert [code for code, *_ in train_processes(parts, *settings(dispatches=2))] == [0, 0]
    shutil.copytree(parts, other)
    first, second = train_processes(parts, "--resume", "--steps", 4 * DISPATCH)
    assert "continuing from step 96" in first[1], first
    assert second == (0, "", "")
    assert read_results(parts) == read_results(alone)
    train_one_process(other, "--resume", "--steps", 4 * DISPATCH)
    assert read_results(other) == read_results(alone)


@pytest.mark.slow
def test_four_processes_train_and_two_or_one_resume(tmp_path: Path) -> None:
    """Results equal those of one process with four devices up to rounding."""
    alone, together_ = tmp_path / "alone", tmp_path / "together"
    train_one_process(alone, *settings(devices=4, dispatches=4, optimizer=SMALL_STEPS), devices=4)
    first, *others = train_processes(together_, *settings(devices=4, dispatches=2, optimizer=SMALL_STEPS), count=4)
    assert first[0] == 0, first
    assert others == [(0, "", "")] * 3
    first, _ = train_processes(together_, "--resume", "--steps", 3 * DISPATCH)
    assert first[0] == 0, first
    assert "continuing from step 96" in first[1]
    assert "on 2 devices now, after 4: results are equal to rounding" in first[1]
    train_one_process(together_, "--resume", "--steps", 4 * DISPATCH, devices=1)
    assert_close(together_, alone)


@pytest.mark.slow
def test_one_process_trains_then_two_then_three_resume(tmp_path: Path) -> None:
    """Resume on more devices, and on a number that does not divide theirs: equal up to rounding."""
    words = ["--runtime.num-envs", 12, "--runtime.batch-size", 6]
    alone, grown = tmp_path / "alone", tmp_path / "grown"
    steps = [36 * count for count in (2, 4, 6)]  # dispatches of 12 environments and three steps
    words = [*settings(devices=1, optimizer=SMALL_STEPS), *words]
    train_one_process(alone, *words, "--steps", steps[2], devices=1)
    train_one_process(grown, *words, "--steps", steps[0], devices=1)
    for count, until in ((2, steps[1]), (3, steps[2])):
        first, *others = train_processes(grown, "--resume", "--steps", until, count=count)
        assert first[0] == 0, first
        assert f"on {count} devices now, after 1: results are equal to rounding" in first[1]
        assert others == [(0, "", "")] * (count - 1)
    assert_close(grown, alone)


@pytest.mark.slow
def test_two_processes_train_outside_jit_and_resume(tmp_path: Path) -> None:
    """Resume in two processes, and in one with fewer devices."""
    run = tmp_path / "run"
    first, second = train_processes(run, *settings_outside_jit(dispatches=4))
    assert first[0] == 0, first
    assert "done: 192 steps" in first[1]
    assert second == (0, "", "")
    rows = read_metrics(run / "metrics.jsonl")
    assert [row["steps"] for row in rows] == [48, 96, 144, 192]
    assert all(0 <= row["learner_idle_fraction"] <= 1 and row["policy_lag"] >= 0 for row in rows)
    assert Checkpoints(run / "checkpoints").steps()[-1] == 192
    first, second = train_processes(run, "--resume", "--steps", 6 * DISPATCH)
    assert "continuing from step 192" in first[1], first
    assert second == (0, "", "")
    train_one_process(run, "--resume", "--steps", 8 * DISPATCH, devices=1)
    assert [row["steps"] for row in read_metrics(run / "metrics.jsonl")] == [48 * (1 + i) for i in range(8)]
    arrays, meta = load_newest(run)
    assert meta["step"] == 8 * DISPATCH
    assert arrays["learner.step"] == 8 * DISPATCH // (4 * 3)  # updates from batches of 4 sequences of 3 transitions


def test_ctrl_c_ends_the_wait_for_other_processes(tmp_path: Path) -> None:
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
def test_missing_peers_are_an_error_of_one_line(who: int, tmp_path: Path) -> None:
    with free_port() as port:
        words = [*commands(port, tmp_path / "run")[who], "--distributed.initialization-timeout", 5]
        with processes(words) as [one]:
            code, out, err = one.end()
    assert (code, out) == (5, "")
    assert err.splitlines()[-1].startswith(
        f"error: process {who} of 2 (coordinator 127.0.0.1:{port}) was killed by signal 6; "
    )


def wait_for_dispatches(run: Path, started: list[Started]) -> int:
    """Wait for a few logged dispatches and return their number."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        rows = read_metrics(run / "metrics.jsonl") if (run / "metrics.jsonl").exists() else []
        if len(rows) > 3:
            return len(rows)
        assert all(each.process.poll() is None for each in started), [each.end() for each in started]
        time.sleep(0.05)
    raise AssertionError("it does not begin")


def learner_pid(one: Started) -> int:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(one.process.pid)], capture_output=True, text=True)
    return int(listed.stdout)


def end_processes(
    run: Path, end: Callable[[list[Started]], None], words: Sequence[object] = ()
) -> tuple[list[tuple[int, str, str]], float]:
    """Return the messages of two endless processes after an action on them, and how long it took."""
    words = [*(words or settings(log={"checkpoint_every": 2 * DISPATCH})), "--steps", 10**9]
    with free_port() as port, processes(*commands(port, run, *words)) as started:
        wait_for_dispatches(run, started)
        end(started)
        began = time.monotonic()
        return [each.end() for each in started], time.monotonic() - began


@pytest.mark.slow
@pytest.mark.parametrize("who", [0, 1])
def test_signal_to_one_process_saves_once_and_ends_all(who: int, tmp_path: Path) -> None:
    run = tmp_path / "run"
    ended, _ = end_processes(run, lambda started: started[who].process.send_signal(signal.SIGTERM))
    assert [code for code, *_ in ended] == [143, 143], ended
    assert "interrupted: saved at step" in ended[0][1]
    assert (ended[1][1], ended[1 - who][2]) == ("", "")
    assert Checkpoints(run / "checkpoints").steps()[-1] == read_metrics(run / "metrics.jsonl")[-1]["steps"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("who", "words"),
    [([0], settings()), ([1], settings()), ([0, 1], settings()), ([1], settings_outside_jit())],
    ids=["first", "second", "both", "second-outside-jit"],
)
def test_ctrl_c_at_one_or_all_saves_ends_all_and_resumes(who: list[int], words: list[object], tmp_path: Path) -> None:
    run = tmp_path / "run"

    def interrupt(started: list[Started]) -> None:
        for index in who:
            started[index].process.send_signal(signal.SIGINT)

    ended, seconds = end_processes(run, interrupt, words)
    assert [code for code, *_ in ended] == [130, 130], ended
    assert seconds < 120
    for index, (_, _, err) in enumerate(ended):
        assert err.strip() == (
            "interrupted: saving after this dispatch; once more stops at once" if index in who else ""
        )
    steps = Checkpoints(run / "checkpoints").steps()[-1]
    assert f"interrupted: saved at step {steps:,}; continue with --resume" in ended[0][1]
    first, second = train_processes(run, "--resume", "--steps", steps + 2 * DISPATCH)
    assert first[0] == 0, first
    assert f"continuing from step {steps:,}" in first[1]
    assert second == (0, "", "")


@pytest.mark.slow
@pytest.mark.parametrize(("who", "number"), [(0, signal.SIGKILL), (1, signal.SIGKILL), (1, signal.SIGSTOP)])
def test_lost_process_ends_the_other_in_one_line(who: int, number: int, tmp_path: Path) -> None:
    run = tmp_path / "run"
    stopped: list[int] = []

    def end(started: list[Started]) -> None:
        stopped.append(learner_pid(started[who]))
        os.kill(stopped[0], number)
        if number == signal.SIGSTOP:  # it will never end by itself
            started[1 - who].end()
            os.kill(stopped[0], signal.SIGKILL)

    ended, seconds = end_processes(run, end)
    code, _, err = ended[1 - who]
    assert code == 5, ended
    last = err.splitlines()[-1]
    assert last.startswith("error: process "), err
    assert "--resume" in last
    assert seconds < 120
    steps = Checkpoints(run / "checkpoints").steps()[-1]
    first, _ = train_processes(run, "--resume", "--steps", steps + 4 * DISPATCH)
    assert first[0] == 0, first
    assert f"continuing from step {steps:,}" in first[1]


@pytest.mark.slow
def test_cut_link_between_hosts_ends_both_processes(tmp_path: Path) -> None:
    """Hosts are network namespaces that share only the link between them."""
    if not namespaces_available():
        pytest.skip("network namespaces cannot be made here: that needs ip, and the rights of an administrator")
    run = tmp_path / "run"
    words = [*settings(log={"checkpoint_every": 2 * DISPATCH}), "--steps", 10**9]
    with two_hosts() as hosts:
        inside = [hosts.inside(index) for index in range(2)]
        with processes(*commands(4711, run, *words, host=hosts.addresses[0]), inside=inside) as started:
            wait_for_dispatches(run, started)
            hosts.cut()
            began = time.monotonic()
            for code, _, err in (each.end() for each in started):
                assert code == 5, err
                assert err.splitlines()[-1].startswith("error: process "), err
            assert time.monotonic() - began < 120
