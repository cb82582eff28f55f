"""One process per run directory."""

import subprocess
import sys
from pathlib import Path

import pytest

from byol_explore.errors import UserError
from byol_explore.run.locking import DirectoryLock, is_held


def test_a_second_holder_is_refused_until_the_first_lets_go(tmp_path: Path) -> None:
    first, second = DirectoryLock(tmp_path / "run"), DirectoryLock(tmp_path / "run")
    first.acquire()
    with pytest.raises(UserError, match="another process is training in"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()
    assert list((tmp_path / "run").iterdir()) == []


def test_a_killed_process_leaves_nothing_locked(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from byol_explore.run.locking import DirectoryLock\n"
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


def test_whether_a_directory_is_held_can_be_asked(tmp_path: Path) -> None:
    assert not is_held(tmp_path / "run")
    assert not (tmp_path / "run").exists()
    lock = DirectoryLock(tmp_path / "run")
    lock.acquire()
    assert is_held(tmp_path / "run")
    lock.release()
    assert not is_held(tmp_path / "run")
