"""Launched servers of DM-HARD-8, by an executable and by docker; none of them outlives its environment.

The executable is the server of these tests; docker is a script that runs it and records its calls.
"""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from byol_explore.envs.dm_hard_eight.env import DMHardEight
from byol_explore.envs.families import DMHardEightSettings
from byol_explore.errors import EnvironmentFailure, UserError
from envs import dm_server
from envs.dm_hard_eight.test_env import SMALL, act, open_batch, times

PATIENCE = 30.0  # seconds, far more than anything here takes
SERVE = f"#!{sys.executable}\nimport os, runpy, sys\n"


def write_script(path: Path, text: str) -> None:
    path.write_text(SERVE + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def player(tmp_path: Path) -> Path:
    """Make a directory like the original's; each server that starts writes a file named by its pid."""
    write_script(
        tmp_path / "Linux64Player",
        f"open({str(tmp_path)!r} + f'/{{os.getpid()}}.pid', 'w').write(repr([sys.argv, dict(os.environ)]))\n"
        f"runpy.run_path({dm_server.__file__!r}, run_name='__main__')\n",
    )
    return tmp_path


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a command docker with `run`, which serves on the published port, and `kill` by name."""
    write_script(
        tmp_path / "docker",
        f"here = {str(tmp_path)!r}\n"
        "words = dict(word.lstrip('-').partition('=')[::2] for word in sys.argv[2:])\n"
        "open(f'{here}/calls', 'a').write(repr(sys.argv[1:]) + chr(10))\n"
        "if sys.argv[1] == 'run':\n"
        "    open(f\"{here}/{words['name']}\", 'w').write(str(os.getpid()))\n"
        "    host, port, _ = words['publish'].split(':')\n"
        "    sys.argv = ['docker', f'--uri_address={host}:{port}']\n"
        f"    runpy.run_path({dm_server.__file__!r}, run_name='__main__')\n"
        "os.remove(f'{here}/{sys.argv[2]}')\n",
    )
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def original(**settings: Any) -> DMHardEight:
    return DMHardEight("baseball", DMHardEightSettings(**{**SMALL, "start_timeout": PATIENCE, **settings}))


def pids(directory: Path) -> list[int]:
    """Return the pids of all servers that were started."""
    return sorted(int(path.stem) for path in directory.glob("*.pid"))


def in_time(is_true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not is_true() and time.monotonic() < deadline:
        time.sleep(0.02)
    return is_true()


def state(pid: int) -> str:
    """Return the state of a process in Linux's letters: T stopped, Z ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def is_alive(pid: int) -> bool:
    return state(pid) != "Z"


# A directory


def test_each_environment_starts_the_executable_until_it_is_closed(player: Path) -> None:
    with open_batch(original(directory=str(player)), 2) as batch:
        assert times(batch.reset()) == [0, 0]
        assert times(act(batch)) == [1, 1]
        started = pids(player)
        assert len(started) == 2
        assert all(map(is_alive, started))
    assert not any(map(is_alive, started))
    arguments, environment = eval((player / f"{started[0]}.pid").read_text())
    assert arguments[1:-1] == ["-logfile", "-batchmode", "-noaudio", "--server_type=DM_ENV_RPC"]
    assert arguments[-1].startswith("--uri_address=127.0.0.1:")
    assert environment["UNITY_RENDERER"] == "software"


def test_killed_server_is_started_again(player: Path) -> None:
    with open_batch(original(directory=str(player))) as batch:
        batch.reset()
        [first] = pids(player)
        os.kill(first, signal.SIGKILL)
        cut, after = act(batch).is_last.item(), act(batch)
        assert cut
        assert after.is_first.item()
        assert times(act(batch)) == [1]
        started = pids(player)
        assert len(started) == 2
    assert not any(map(is_alive, started))


def test_stopped_server_is_killed(player: Path) -> None:
    """It does not react to SIGTERM either."""
    with open_batch(original(directory=str(player), answer_timeout=0.5)) as batch:
        batch.reset()
        [first] = pids(player)
        os.kill(first, signal.SIGSTOP)
        assert in_time(lambda: state(first) == "T")
        assert act(batch).is_last.item()
        assert not is_alive(first)
        assert act(batch).is_first.item()


def test_failure_of_the_executable_names_its_exit_code(player: Path) -> None:
    write_script(player / "Linux64Player", f"open({str(player)!r} + f'/{{os.getpid()}}.pid', 'w')\nsys.exit(7)\n")
    with (
        open_batch(original(directory=str(player), max_reconnects=1)) as batch,
        pytest.raises(EnvironmentFailure, match=r"was lost 2 times .* at last because its process ended with code 7$"),
    ):
        batch.reset()
    assert len(pids(player)) == 2


def test_executable_without_permission(player: Path) -> None:
    (player / "Linux64Player").chmod(0o600)
    with pytest.raises(UserError, match=r"it has no executable Linux64Player$"):
        original(directory=str(player))


def test_failure_of_one_environment_ends_all_servers(player: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DM_SERVER", json.dumps({"fault_at": 2, "fault": "error"}))
    batch = original(directory=str(player)).make_vector_env(2, 0)
    batch.reset()
    with pytest.raises(EnvironmentFailure, match="it answers step with the error 'the level is broken'"):
        act(batch)
    assert in_time(lambda: not any(map(is_alive, pids(player))))
    batch.close()


@pytest.mark.parametrize("way", ["directory", "docker_image"])
def test_servers_end_with_the_parent_process(player: Path, docker: Path, way: str) -> None:
    """The parent is killed."""
    place = str(player) if way == "directory" else "image:1"
    script = (
        "import time\n"
        "from byol_explore.envs.registry import make_env\n"
        f"batch = make_env('dm-hard-eight:baseball', "
        f"{way}={place!r}, resolution='8x6').make_vector_env(1, 0)\n"
        "batch.reset()\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    try:
        assert parent.stdout.readline() == b"ready\n"
        servers = pids(player) or [int(path.read_text()) for path in docker.glob("byol-explore-*")]
        assert len(servers) == 1
    finally:
        parent.kill()
        parent.communicate()
    assert in_time(lambda: not any(map(is_alive, servers)))
    assert in_time(lambda: not list(docker.glob("byol-explore-*")))


def test_the_supervisor_process_starts_without_grpc() -> None:
    """There is one per environment: gRPC would cost memory and time."""
    script = "import byol_explore.envs.dm_hard_eight.servers, sys; print('grpc' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, timeout=PATIENCE)
    assert run.stdout.split() == [b"False"]


# A container


def test_each_environment_runs_a_named_container_until_it_is_closed(docker: Path) -> None:
    """No image is pulled, and only this machine can reach the port."""
    with open_batch(original(docker_image="image:1"), 2) as batch:
        assert times(batch.reset()) == [0, 0]
        assert times(act(batch)) == [1, 1]
        servers = [int(path.read_text()) for path in docker.glob("byol-explore-*")]
        assert len(servers) == 2
    assert not any(map(is_alive, servers))
    calls = [eval(line) for line in (docker / "calls").read_text().splitlines()]
    runs, kills = [call for call in calls if call[0] == "run"], [call for call in calls if call[0] == "kill"]
    for call in runs:
        assert call[1:3] == ["--rm", "--pull=never"]
        assert call[4].startswith("--publish=127.0.0.1:")
        assert call[4].endswith(":10000")
        assert call[5:] == ["--", "image:1"]
    assert {call[1] for call in kills} == {call[3].removeprefix("--name=") for call in runs}


def test_missing_image_names_dockers_exit_code(docker: Path) -> None:
    write_script(docker / "docker", "sys.exit(125)\n")
    with (
        open_batch(original(docker_image="image:1", max_reconnects=0)) as batch,
        pytest.raises(EnvironmentFailure, match=r"was lost once .* its process ended with code 125$"),
    ):
        batch.reset()
