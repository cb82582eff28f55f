"""Fixtures: a small Ray cluster per test module, and checks that nothing of it is left."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from byol_explore.runtime.cluster import actor_pool
from byol_explore.runtime.cluster.ray_client import RayConnection
from cluster.processes import cluster_processes, wait_until
from cluster.ray_runs import started

ACTORS = 4


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Start a cluster that all tests of a module use. Fails if processes or shared memory are left."""
    before, shared = cluster_processes(), set(Path("/dev/shm").iterdir())
    connection = RayConnection("", ACTORS, 0)
    try:
        yield
    finally:
        connection.close()
        wait_until(lambda: cluster_processes() <= before, "processes of Ray are left")
        assert set(Path("/dev/shm").iterdir()) <= shared
        assert not ray.is_initialized()


@pytest.fixture(autouse=True)
def close_runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the runs of a test, also if it fails, and shorten the pause before restarts."""
    monkeypatch.setattr(actor_pool, "BACK_OFF", 0.05)
    yield
    while started:
        started.pop().close()
