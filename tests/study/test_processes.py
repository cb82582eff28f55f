"""Processes with a share of the cores, a log, and an end."""

import os
import sys
import time
from pathlib import Path

import pytest

from byol_explore.study.processes import Child, core_shares, usable_cores


@pytest.mark.parametrize(
    ("parallel", "cores", "expected"),
    [
        (1, [0, 1], [(0, 1)]),
        (2, [2, 5], [(2,), (5,)]),
        (2, [0, 1, 2, 3, 4], [(0, 1), (2, 3, 4)]),
        (3, [0, 1], [(0,), (1,), (0,)]),
    ],
)
def test_cores_are_shared_out(parallel: int, cores: list[int], expected: list[tuple[int, ...]]) -> None:
    assert core_shares(parallel, cores) == expected


def wait(child: Child) -> int:
    deadline = time.monotonic() + 60
    while (code := child.exit_code()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return code


def start(tmp_path: Path, code: str) -> Child:
    return Child(
        [sys.executable, "-S", "-E", "-c", code], tmp_path / "logs" / "x.log", "the command", [usable_cores()[0]]
    )


def test_what_a_process_says_is_kept_from_one_start_to_the_next(tmp_path: Path) -> None:
    child = start(tmp_path, "import sys; print('first'); sys.exit(4)")
    assert (wait(child), child.last_words()) == (4, "first")
    silent = start(tmp_path, "")
    assert (wait(silent), silent.last_words()) == (0, "")
    assert (tmp_path / "logs" / "x.log").read_text() == "$ the command\nfirst\n$ the command\n"


def test_the_last_line_is_told_without_what_every_error_begins_with(tmp_path: Path) -> None:
    child = start(tmp_path, r"print('a\nerror: b\n\n  ')")
    wait(child)
    assert child.last_words() == "b"


def test_a_process_may_use_its_cores_and_as_many_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")  # what the user has set stays
    cores = "os.sched_getaffinity(0)" if hasattr(os, "sched_getaffinity") else "{0}"
    threads = "*(os.environ[name] for name in ('NPROC', 'OMP_NUM_THREADS'))"
    child = start(tmp_path, f"import os, time; time.sleep(0.1); print({cores}, {threads})")
    wait(child)
    assert child.last_words() == f"{{{usable_cores()[0]}}} 1 7"


def test_a_killed_process_takes_its_own_processes_along(tmp_path: Path) -> None:
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
    """Neither gone nor waiting to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_last_words_are_one_line_that_can_be_read(tmp_path: Path) -> None:
    child = start(tmp_path, r"print('x' * 100_000); print('a\x1b[31m\rb' + 'y' * 100_000, end='')")
    wait(child)
    assert len(child.last_words()) == 1000
    (tmp_path / "logs" / "x.log").unlink()
    assert child.last_words() == ""
    short = start(tmp_path, r"print('a\x1b[31mb')")
    wait(short)
    assert short.last_words() == r"a\x1b[31mb"
