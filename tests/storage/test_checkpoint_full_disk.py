"""A full disk: an error of one line, no partial files, and the run continues with room again."""

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from byol_explore.errors import UserError
from byol_explore.storage.checkpoint import Checkpoints
from byol_explore.storage.metrics import read_metrics
from byol_explore.training.output import JsonLinesWriter
from runs import DISPATCH, HALF, assert_same_runs, config_for, files, half, resume, run, uninterrupted

NOISE = jax.random.bits(jax.random.key(0), (50_000,))  # cannot be compressed


@contextlib.contextmanager
def max_file_size(size: int) -> Iterator[None]:
    """Limit the size of files to imitate a full disk, which would need root."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints")


def test_a_failed_save_leaves_no_files(checkpoints: Checkpoints, capfd: pytest.CaptureFixture[str]) -> None:
    checkpoints.save(1, {"x": jnp.ones(3)}, {}, 0.0)
    with max_file_size(100_000), pytest.raises(UserError) as raised:
        checkpoints.save(2, {"x": NOISE}, {}, 0.0)
    assert str(raised.value) == (
        f"a checkpoint could not be written to {checkpoints.directory}/step_000000000002: "
        "File too large; the newest one is of step 1"
    )
    assert capfd.readouterr().err == ""
    assert sorted(path.name for path in checkpoints.directory.iterdir()) == ["step_000000000001"]
    np.testing.assert_array_equal(checkpoints.restore({"x": jnp.ones(3)}).state["x"], 1.0)
    checkpoints.save(2, {"x": NOISE}, {}, 0.0)
    np.testing.assert_array_equal(checkpoints.restore({"x": NOISE}).state["x"], NOISE)


def test_metadata_that_does_not_fit_is_an_error_of_one_line(
    checkpoints: Checkpoints, capfd: pytest.CaptureFixture[str]
) -> None:
    """Another part of Orbax writes it, and prints the errors that it raises."""
    with max_file_size(10_000), pytest.raises(UserError, match=r"could not be written to .*File too large"):
        checkpoints.save(1, {"x": jnp.ones(3)}, {"note": "x" * 50_000}, 0.0)
    assert capfd.readouterr().err == ""
    assert list(checkpoints.directory.iterdir()) == []


def test_the_error_names_a_full_disk(checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message is one of Orbax."""

    def full(*_: Any, **__: Any) -> None:
        raise ValueError(
            'RESOURCE_EXHAUSTED: Error writing "a/0" in OCDBT database at local file "d/": Failed writing: "d/8": '
            "Failed to write 2595706 bytes to file 14: No space left on device [os_error_code='28']"
        )

    monkeypatch.setattr(ocp.Checkpointer, "save", full)
    with pytest.raises(UserError, match=r"could not be written to .*: No space left on device; there is none yet"):
        checkpoints.save(1, {"x": jnp.ones(3)}, {}, 0.0)


def test_other_errors_of_a_save_are_raised_unchanged(checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    error = ValueError("too many values to unpack")

    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(ocp.Checkpointer, "save", fail)
    with pytest.raises(ValueError, match="too many values") as raised:
        checkpoints.save(1, {"x": jnp.ones(3)}, {}, 0.0)
    assert raised.value is error


def test_a_run_continues_when_there_is_room_again(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    directory = half(root, tmp_path / "run")
    before = Checkpoints(directory / "checkpoints").steps()
    with max_file_size(10_000), pytest.raises(UserError, match=rf"could not be .* is of step {HALF * DISPATCH}$"):
        run(config_for(), directory, resume=True)
    assert Checkpoints(directory / "checkpoints").steps() == before
    assert capfd.readouterr().err == ""
    resume(directory, monkeypatch)
    assert [name for name in files(directory) if "tmp" in name] == []  # nor of threads that still wrote
    assert_same_runs(directory, uninterrupted(root, 1))


def test_an_unwritable_line_is_an_error_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """No bytes stay in a buffer, where writing them would fail again when the file is closed."""
    writer = JsonLinesWriter(tmp_path / "metrics.jsonl")
    with max_file_size(100):
        writer.write({"steps": 1})
        with pytest.raises(OSError, match="File too large"):
            writer.write({"steps": 2, "words": "x" * 1000})
        writer.close()
        del writer
    assert capfd.readouterr().err == ""
    again = JsonLinesWriter(tmp_path / "metrics.jsonl", keep_until=1)
    again.write({"steps": 2})
    again.close()
    assert [row["steps"] for row in read_metrics(tmp_path / "metrics.jsonl")] == [1, 2]
