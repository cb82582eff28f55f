"""One process per run directory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from byol_explore.errors import UserError
from byol_explore.utils.files import DirectoryLock, is_locked


def test_a_second_holder_is_refused_until_the_first_lets_go(tmp_path: Path) -> None:
    first, second = DirectoryLock(tmp_path / "run"), DirectoryLock(tmp_path / "run")
    first.acquire()
    with pytest.raises(UserError, match="another process is training in"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_a_killed_process_leaves_nothing_locked(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from byol_explore.utils.files import DirectoryLock\n"
        "DirectoryLock(Path(sys.argv[1])).acquire()\n"
        "lock = DirectoryLock(Path(sys.argv[2])); lock.acquire(); print('held', flush=True); time.sleep(600)"
    )
    arguments = [str(tmp_path / "dropped"), str(tmp_path / "held")]
    with subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(UserError):
            DirectoryLock(tmp_path / "held").acquire()
        holder.kill()
        holder.wait()
    lock = DirectoryLock(tmp_path / "held")
    lock.acquire()
    lock.release()


def test_is_locked_tells_if_a_directory_is_locked(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "run")
    assert not (tmp_path / "run").exists()
    lock = DirectoryLock(tmp_path / "run")
    lock.acquire()
    assert is_locked(tmp_path / "run")
    lock.release()
    assert not is_locked(tmp_path / "run")


def test_directories_that_were_made_for_it_and_are_empty_go_with_it(tmp_path: Path) -> None:
    with DirectoryLock(tmp_path / "runs" / "rooms" / "one"):
        (tmp_path / "runs" / "other").mkdir()
    assert [path.name for path in tmp_path.rglob("*")] == ["runs", "other"]
    with DirectoryLock(tmp_path / "runs" / "other"):
        pass
    assert (tmp_path / "runs" / "other").exists(), "it was there before"
    with DirectoryLock(tmp_path / "runs" / "used"):
        (tmp_path / "runs" / "used" / "config.json").touch()
    assert (tmp_path / "runs" / "used" / "config.json").exists()


def test_a_directory_that_was_removed_in_between_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The previous holder has released and removed the directory: a lock on a path that is gone excludes no one."""
    first, second = DirectoryLock(tmp_path / "run"), DirectoryLock(tmp_path / "run")
    first.acquire()
    open_directory = os.open

    def late(path: Path, *flags: int) -> int:
        descriptor = open_directory(path, *flags)
        first.release()
        return descriptor

    monkeypatch.setattr(os, "open", late)
    second.acquire()
    monkeypatch.undo()
    with pytest.raises(UserError, match="another process is training in"):
        DirectoryLock(tmp_path / "run").acquire()
    second.release()


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UserError, match=r"thesis\.tex is a file: choose another --run-dir"):
        DirectoryLock(tmp_path / "thesis.tex").acquire()
