"""Tests of a Ray cluster of two hosts: the documented commands, a link that is cut for a while, and a lost host."""

import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from cluster.nodes import Nodes, two_nodes
from cluster.processes import PATIENCE, wait_until
from cluster.recorder import ENOUGH
from cluster.test_whole_runs import config_for, logged
from runs import DISPATCH, arguments

ACTORS, CPUS = 2, (3, 2)  # one actor on each host, and room for all on the first
CUT = 20.0  # seconds
FAST_DETECTION = {  # Ray declares a host lost after 3 times 2 seconds instead of a minute
    "RAY_health_check_initial_delay_ms": "1000", "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000", "RAY_health_check_failure_threshold": "3",
}  # fmt: skip


class Run:
    """A run whose learner is on the first host, and the records of its environments."""

    def __init__(self, nodes: Nodes, directory: Path, **runtime: object) -> None:
        self.nodes, self.directory, self._records = nodes, directory / "run", directory / "records"
        config = config_for(10**9, ray_address=nodes.address, num_actors=ACTORS, **runtime)
        config = dataclasses.replace(
            config, env="gymnasium:cluster.recorder:Recorder-v0", env_kwargs=(f"records={self._records}",),
            success_threshold=0.5, stop_at_success_rate=1.0,
        )  # fmt: skip
        command = ["byol-explore", "train", "--quiet", *arguments(config), "--run-dir", self.directory]
        self.process: subprocess.Popen[str] = nodes.spawn(0, *command)

    def steps_by_process(self, index: int) -> dict[str, int]:
        """Return the steps of every process that has acted on a host."""
        directory = self._records / str(Path(f"/var/run/netns/{self.nodes.hosts.names[index]}").stat().st_ino)
        sizes = {path.name: path.stat().st_size for path in directory.glob("*")}
        return {name: size for name, size in sizes.items() if size}

    def steps_on(self, index: int) -> int:
        return sum(self.steps_by_process(index).values())

    def wait_for_all(self) -> float:
        """Return the seconds until as many processes as actors have acted again, on any host."""
        began, before = time.monotonic(), self.steps_by_process(0) | self.steps_by_process(1)

        def is_done() -> bool:
            assert self.process.poll() is None, self.process.communicate()
            now = self.steps_by_process(0) | self.steps_by_process(1)
            return sum(steps > before.get(pid, 0) + 50 for pid, steps in now.items()) == ACTORS

        wait_until(is_done, "not all actors act")
        return time.monotonic() - began

    def counter(self, name: str) -> int:
        rows = logged(self.directory)
        return rows[-1][name] if rows else 0

    def wait_for_steps(self, *indices: int) -> float:
        """Return the seconds until there are new steps on these hosts, and new lines in the log."""
        began, before = time.monotonic(), [self.steps_on(index) for index in indices]
        lines = len(logged(self.directory))

        def is_done() -> bool:
            assert self.process.poll() is None, self.process.communicate()
            steps = [self.steps_on(index) for index in indices]
            return all(after > earlier + 50 for earlier, after in zip(before, steps, strict=True))

        wait_until(is_done, f"no steps on hosts {indices}")
        wait_until(lambda: len(logged(self.directory)) >= lines + 3, "the learner does not continue")
        return time.monotonic() - began

    def finish(self) -> str:
        """Let episodes succeed, which ends the run. Returns its output."""
        (self._records / ENOUGH).touch()
        out, err = self.process.communicate(timeout=PATIENCE)
        assert (self.process.returncode, err) == (0, "")
        return out

    def check(self) -> None:
        """Check that every step was counted once, and every new process as one restart after one fault."""
        rows = logged(self.directory)
        assert rows[0]["steps"] == DISPATCH
        assert all(after["steps"] - row["steps"] == DISPATCH for row, after in pairwise(rows)), (
            "lines are missing or repeated"
        )
        processes = len(self.steps_by_process(0)) + len(self.steps_by_process(1))
        counts = ("actor_faults", "actor_restarts", "actors_abandoned")
        assert [rows[-1][name] for name in counts] == [processes - ACTORS, processes - ACTORS, 0]
        assert not self.nodes.actors(0) | self.nodes.actors(1), "actors are left"


@contextmanager
def running(directory: Path, variables: dict[str, str], **runtime: object) -> Iterator[Run]:
    """Start a run that acts on both hosts."""
    shared = set(Path("/dev/shm").iterdir())
    with two_nodes(directory, CPUS, **variables) as nodes:
        run = Run(nodes, directory, **runtime)
        try:
            run.wait_for_steps(0, 1)
            assert [len(run.steps_by_process(index)) for index in range(2)] == [1, 1]
            yield run
        finally:
            if run.process.poll() is None:
                run.process.kill()
                run.process.communicate()
    assert set(Path("/dev/shm").iterdir()) <= shared
    assert not any(path.exists() for path in nodes.files)


def test_lost_host_costs_one_restart_on_the_other(tmp_path: Path) -> None:
    with running(tmp_path, FAST_DETECTION) as run:
        run.nodes.hosts.cut()
        run.nodes.hosts.end(1)
        run.wait_for_steps(0)
        wait_until(lambda: len(run.steps_by_process(0)) == ACTORS, "the lost actor is not replaced")
        run.wait_for_steps(0)
        run.finish()
        run.check()
        assert run.counter("actor_restarts") == 1


@pytest.mark.slow
@pytest.mark.parametrize(("inference", "limit"), [("local", 60.0), ("local", 5.0), ("central", 60.0)])
def test_link_that_is_cut_for_a_while_costs_at_most_the_actor_behind_it(
    inference: str, limit: float, tmp_path: Path
) -> None:
    """Ray's default time limits tolerate a host that does not answer for 20 seconds.

    With a shorter step timeout the learner starts a new actor, on either host.
    """
    with running(tmp_path, {}, inference=inference, step_timeout=limit) as run:
        run.nodes.hosts.cut()
        began = time.monotonic()
        while time.monotonic() < began + CUT:
            run.wait_for_steps(0)
        before = run.steps_on(1)
        run.nodes.hosts.join()
        assert run.steps_on(1) == before
        run.wait_for_all()
        assert run.finish() == ""
        run.check()
        assert run.counter("actor_restarts") == 1 if limit < CUT else run.counter("actor_restarts") <= 1


@pytest.mark.slow
def test_link_that_is_cut_for_longer_than_ray_waits_costs_the_host(tmp_path: Path) -> None:
    with running(tmp_path, FAST_DETECTION) as run:
        nodes = run.nodes
        nodes.hosts.cut()
        wait_until(lambda: len(run.steps_by_process(0)) == ACTORS, "the lost actor is not replaced")
        nodes.hosts.join()
        wait_until(lambda: not nodes.actors(1), "the lost actor still acts")
        os.killpg(run.process.pid, signal.SIGINT)
        run.process.communicate(timeout=PATIENCE)
        assert run.process.returncode == 130
        run.check()
