"""A small Ray cluster for all tests of a file that wants one; whatever became of them, nothing of it is left behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from byol_explore.runtime.cluster import crew
from byol_explore.runtime.cluster.connecting import Connection
from cluster.crews import started
from cluster.watching import ours, until

ACTORS = 4


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Found by everybody who would start one; ended at last, and looked after."""
    before, shared = ours(), set(Path("/dev/shm").iterdir())
    connection = Connection("", ACTORS, 0)
    try:
        yield
    finally:
        connection.close()
        until(lambda: ours() <= before, "processes of Ray are left")
        assert set(Path("/dev/shm").iterdir()) <= shared
        assert not ray.is_initialized()


@pytest.fixture(autouse=True)
def nobody_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test that fails does not disturb the next; and nobody waits long before a new start."""
    monkeypatch.setattr(crew, "BACK_OFF", 0.05)
    yield
    while started:
        started.pop().close()
