"""Child processes of a study: cores, logs, exit codes."""

import os
import sys
import time
from pathlib import Path

import pytest

from byol_explore.study.launchers import ChildProcess, core_shares
from byol_explore.utils.processes import available_core_ids


@pytest.mark.parametrize(
    ("parallel", "cores", "expected"),
    [
        (1, [0, 1], [(0, 1)]),
        (2, [2, 5], [(2,), (5,)]),
        (2, [0, 1, 2, 3, 4], [(0, 1), (2, 3, 4)]),
        (3, [0, 1], [(0,), (1,), (0,)]),
    ],
)
def test_core_shares(parallel: int, cores: list[int], expected: list[tuple[int, ...]]) -> None:
    assert core_shares(parallel, cores) == expected


def wait(child: ChildProcess) -> int:
    deadline = time.monotonic() + 60
    while (code := child.exit_code()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return code


def start(tmp_path: Path, code: str) -> ChildProcess:
    return ChildProcess(
        [sys.executable, "-S", "-E", "-c", code], tmp_path / "logs" / "x.log", "the command", [available_core_ids()[0]]
    )


def test_log_is_appended_to_on_every_start(tmp_path: Path) -> None:
    child = start(tmp_path, "import sys; print('first'); sys.exit(4)")
    assert (wait(child), child.last_log_line()) == (4, "first")
    silent = start(tmp_path, "")
    assert (wait(silent), silent.last_log_line()) == (0, "")
    assert (tmp_path / "logs" / "x.log").read_text() == "$ the command\nfirst\n$ the command\n"


def test_last_log_line_has_no_error_prefix(tmp_path: Path) -> None:
    child = start(tmp_path, r"print('a\nerror: b\n\n  ')")
    wait(child)
    assert child.last_log_line() == "b"


def test_process_is_limited_to_its_cores_and_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")  # what the user has set stays
    cores = "os.sched_getaffinity(0)" if hasattr(os, "sched_getaffinity") else "{0}"
    threads = "*(os.environ[name] for name in ('NPROC', 'OMP_NUM_THREADS'))"
    child = start(tmp_path, f"import os, time; time.sleep(0.1); print({cores}, {threads})")
    wait(child)
    assert child.last_log_line() == f"{{{available_core_ids()[0]}}} 1 7"


def test_kill_ends_child_processes_too(tmp_path: Path) -> None:
    code = "import os, time; child = os.fork(); print(os.getpid(), flush=True); time.sleep(600)"
    child = start(tmp_path, code)
    log, deadline = tmp_path / "logs" / "x.log", time.monotonic() + 60
    while len(log.read_text().splitlines()) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    both = [int(line) for line in log.read_text().splitlines()[1:]]
    child.kill()
    assert child.exit_code() == -9
    child.kill()  # once more does no harm
    while any(is_alive(each) for each in both):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Return True if a process runs: zombies count as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_last_log_line_is_short_and_printable(tmp_path: Path) -> None:
    child = start(tmp_path, r"print('x' * 100_000); print('a\x1b[31m\rb' + 'y' * 100_000, end='')")
    wait(child)
    assert len(child.last_log_line()) == 1000
    (tmp_path / "logs" / "x.log").unlink()
    assert child.last_log_line() == ""
    short = start(tmp_path, r"print('a\x1b[31mb')")
    wait(short)
    assert short.last_log_line() == r"a\x1b[31mb"
