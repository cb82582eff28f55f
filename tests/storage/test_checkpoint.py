"""Checkpoints: save, restore, retention, damage."""

import asyncio
import gc
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from byol_explore.errors import UserError
from byol_explore.storage.checkpoint import Checkpoints, Score
from byol_explore.utils.files import add_checksum, split_checksum
from runs import damage


class State(NamedTuple):
    """A leaf of each kind in the state of a run."""

    weights: dict[str, Any]
    count: Any
    flags: Any
    key: Any
    empty: Any


def make_state(value: float) -> State:
    return State(
        weights={"layers": [jnp.full((3, 2), value), jnp.full((2,), -value)]},
        count=jnp.asarray(round(value), jnp.int32),
        flags=jnp.arange(5) < value,
        key=jax.random.split(jax.random.key(round(value)), 2),
        empty=jnp.zeros((4, 0), jnp.int32),
    )


def plain_leaves(state: State) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state._replace(key=jax.random.key_data(state.key)))]


def assert_state(state: Any, value: float) -> None:
    for actual, expected in zip(plain_leaves(state), plain_leaves(make_state(value)), strict=True):
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual, expected)


def save(checkpoints: Checkpoints, *steps: int, score: Score | None = 0.0) -> None:
    for step in steps:
        checkpoints.save(step, make_state(step), {"note": f"at {step}"}, score)


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints")


def folder(checkpoints: Checkpoints, step: int) -> Path:
    return checkpoints.directory / f"step_{step:012d}"


def test_restored_state_and_meta_equal_the_saved_ones(checkpoints: Checkpoints) -> None:
    save(checkpoints, 3)
    restored = checkpoints.restore(make_state(0))
    assert_state(restored.state, 3)
    assert restored.meta["note"] == "at 3"
    assert restored.meta["step"] == 3
    assert restored.skipped == []
    draw = jax.random.normal(restored.state.key[1], (4,))
    np.testing.assert_array_equal(draw, jax.random.normal(make_state(3).key[1], (4,)))


def test_arrays_get_the_shardings_of_the_template(checkpoints: Checkpoints) -> None:
    mesh = Mesh(np.asarray(jax.devices()[:2]), ("devices",))
    spread = NamedSharding(mesh, PartitionSpec("devices"))
    whole = NamedSharding(mesh, PartitionSpec())
    template = make_state(0)
    template = jax.device_put(template, whole)._replace(key=jax.device_put(template.key, spread))
    save(checkpoints, 3)
    restored = checkpoints.restore(template).state
    assert restored.key.sharding == spread
    assert restored.weights["layers"][0].sharding == whole
    assert_state(restored, 3)


def test_the_newest_two_and_the_best_are_kept(checkpoints: Checkpoints) -> None:
    for step, score in ((1, 0.1), (2, 0.7), (3, 0.3), (4, 0.2), (5, 0.4)):
        save(checkpoints, step, score=score)
    assert checkpoints.steps() == [2, 4, 5]
    assert checkpoints.best_step() == 2
    assert_state(checkpoints.restore(make_state(0), step=2).state, 2)
    assert_state(checkpoints.restore(make_state(0)).state, 5)


def test_the_newest_of_equal_scores_is_the_best(checkpoints: Checkpoints) -> None:
    save(checkpoints, 1, 2, 10, score=0.5)
    assert checkpoints.best_step() == 10
    assert checkpoints.steps() == [2, 10]


def test_a_second_number_of_a_score_only_breaks_ties(checkpoints: Checkpoints) -> None:
    """A return of thousands does not outweigh a success; without a score, a checkpoint is below all others."""
    for step, score in ((1, (0.5, 2.0)), (2, (0.5, 1.0)), (3, (0.25, 4000.0)), (4, None)):
        save(checkpoints, step, score=score)
    assert checkpoints.best_step() == 1
    assert checkpoints.steps() == [1, 3, 4]


def test_a_checkpoint_without_readable_score_is_not_the_best(checkpoints: Checkpoints) -> None:
    save(checkpoints, 1)
    assert checkpoints.scores() == {1: 0.0}
    metadata = json.loads((folder(checkpoints, 1) / "meta" / "metadata").read_text())
    changed = [json.dumps({**metadata, "score": 9.0}), *(
        json.dumps(add_checksum({**split_checksum(metadata)[0], "score": score}))
        for score in ("high", [None], {}, [[1.0], [2.0, 3.0]])
    )]  # fmt: skip
    for text in ("{ half", "[]", "{}", "7", "null", "[" * 10**5, *changed):
        (folder(checkpoints, 1) / "meta" / "metadata").write_text(text)
        assert checkpoints.best_step() is None
        assert checkpoints.without_score() == ["step_000000000001 (its score is damaged)"]
    save(checkpoints, 2)
    assert checkpoints.best_step() == 2


def test_unfinished_checkpoints_are_ignored_and_deleted(
    checkpoints: Checkpoints, capfd: pytest.CaptureFixture[str]
) -> None:
    save(checkpoints, 1)
    for step in (2, 3):
        shutil.copytree(folder(checkpoints, 1), f"{folder(checkpoints, step)}.orbax-checkpoint-tmp")
    assert checkpoints.steps() == [1]
    assert_state(checkpoints.restore(make_state(0)).state, 1)
    save(checkpoints, 2)
    assert checkpoints.steps() == [1, 2]
    assert not list(checkpoints.directory.glob("*tmp*"))
    assert_state(checkpoints.restore(make_state(0)).state, 2)
    assert capfd.readouterr().err == ""


def test_flipped_bits_never_change_the_restored_state(
    checkpoints: Checkpoints, capfd: pytest.CaptureFixture[str]
) -> None:
    """Damage each file: either the checkpoint is skipped, or its contents are still right."""
    save(checkpoints, 1, 2)
    skipped = set()
    for path in sorted(folder(checkpoints, 2).rglob("*")):
        if path.is_file():
            before = path.read_bytes()
            damage(path)
            restored = checkpoints.restore(make_state(0))
            assert_state(restored.state, restored.meta["step"])
            assert restored.meta["note"] == f"at {restored.meta['step']}"
            if restored.skipped:
                assert restored.meta["step"] == 1
                assert restored.skipped[0].startswith("step_000000000002 (")
                skipped.add(path.relative_to(folder(checkpoints, 2)).parts[0])
            path.write_bytes(before)
    assert {"meta", "state"} <= skipped
    assert checkpoints.restore(make_state(0)).skipped == []
    assert capfd.readouterr().err == ""


def test_late_read_errors_are_not_printed(checkpoints: Checkpoints, caplog: pytest.LogCaptureFixture) -> None:
    """Orbax reads all arrays at once and raises the first error. Errors of other tasks are still logged."""
    save(checkpoints, 1)
    checkpoints.restore(make_state(0))

    async def fail(message: str) -> None:
        raise ValueError(message)

    async def forget() -> None:
        tasks = [asyncio.create_task(fail(message)) for message in ("DATA_LOSS: Error reading", "of another task")]
        await asyncio.wait(tasks)

    asyncio.run(forget())
    gc.collect()
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["of another task"]


def test_truncated_and_missing_files_are_noticed(checkpoints: Checkpoints) -> None:
    save(checkpoints, 1, 2)
    for name in ("meta/metadata", "state/manifest.ocdbt", "state/_METADATA"):
        path = folder(checkpoints, 2) / name
        before = path.read_bytes()
        for change in (lambda path, text: path.write_bytes(text[: len(text) // 2]), lambda path, _: path.unlink()):
            change(path, before)
            restored = checkpoints.restore(make_state(0))
            assert_state(restored.state, 1)
            assert len(restored.skipped) == 1
        path.write_bytes(before)


def test_damaged_checkpoints_are_renamed_and_no_longer_the_newest(checkpoints: Checkpoints) -> None:
    """Otherwise each new checkpoint would be deleted right after it was written."""
    save(checkpoints, 1, score=1.0)
    save(checkpoints, 8, 9)
    for step in (8, 9):
        damage(folder(checkpoints, step) / "meta" / "metadata")
    for _ in range(2):  # the second time, renamed ones are there already
        restored = checkpoints.restore(make_state(0))
        checkpoints.quarantine(after=restored.meta["step"])
        assert [name.split()[0] for name in restored.skipped] == ["step_000000000009", "step_000000000008"]
        assert checkpoints.steps() == [1]
        save(checkpoints, 2, 3)
        assert checkpoints.steps() == [1, 2, 3]
        assert_state(checkpoints.restore(make_state(0)).state, 3)
        renamed = sorted(checkpoints.directory.glob("damaged_step_*"))
        assert [path.name for path in renamed] == ["damaged_step_000000000008", "damaged_step_000000000009"]
        for step in (2, 3):
            shutil.rmtree(folder(checkpoints, step))
        for path in renamed:
            shutil.copytree(path, path.with_name(path.name.removeprefix("damaged_")))


def test_arrays_of_another_checkpoint_are_noticed(checkpoints: Checkpoints) -> None:
    """The files are intact for Orbax, but their checksums differ from the saved ones."""
    save(checkpoints, 1, 2)
    shutil.rmtree(folder(checkpoints, 2) / "state")
    shutil.copytree(folder(checkpoints, 1) / "state", folder(checkpoints, 2) / "state")
    restored = checkpoints.restore(make_state(0))
    assert_state(restored.state, 1)
    assert "checksum" in restored.skipped[0]


def test_changed_metadata_is_noticed(checkpoints: Checkpoints) -> None:
    save(checkpoints, 1, 2)
    path = folder(checkpoints, 2) / "meta" / "metadata"
    path.write_text(path.read_text().replace("at 2", "at 3"))
    restored = checkpoints.restore(make_state(0))
    assert restored.meta["note"] == "at 1"
    assert "checksum of meta" in restored.skipped[0]


def test_the_error_names_all_damaged_checkpoints(checkpoints: Checkpoints) -> None:
    save(checkpoints, 1, 2)
    for step in (1, 2):
        (folder(checkpoints, step) / "meta" / "metadata").write_text("")
    with pytest.raises(UserError, match=r"no whole checkpoint.*step_0+2 .*step_0+1 "):
        checkpoints.restore(make_state(0))


def test_restore_without_checkpoints_is_refused(checkpoints: Checkpoints) -> None:
    assert checkpoints.steps() == []
    assert checkpoints.best_step() is None
    with pytest.raises(UserError, match="no whole checkpoint in"):
        checkpoints.restore(make_state(0))
    with pytest.raises(UserError, match="step_000000000007"):
        checkpoints.restore(make_state(0), step=7)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda state: state._replace(count=jnp.zeros(())), r"count is int32\[\], not float32\[\]"),
        (lambda state: state._replace(flags=jnp.zeros((6,), bool)), r"flags is bool\[5\], not bool\[6\]"),
        (lambda state: state._replace(flags=jnp.zeros((4,), bool)), r"flags is bool\[5\], not bool\[4\]"),
        (lambda state: state._replace(key=state.key[:1]), r"key is uint32\[2, 2\], not uint32\[1, 2\]"),
        (lambda state: state._replace(weights={"other": jnp.zeros(2)}), "weights.other is missing"),
        (lambda state: state._replace(weights={}), "it also has weights.layers.0"),
    ],
    ids=["dtype", "larger", "smaller", "keys", "renamed", "fewer"],
)
def test_a_checkpoint_of_another_network_is_refused(
    checkpoints: Checkpoints, change: Callable[[State], State], complaint: str
) -> None:
    save(checkpoints, 1)
    with pytest.raises(UserError, match=f"another network: {complaint}"):
        checkpoints.restore(change(make_state(0)))


def test_a_part_is_restored_from_shapes_alone(checkpoints: Checkpoints) -> None:
    save(checkpoints, 2)
    shapes = jax.eval_shape(lambda: make_state(0).weights["layers"])
    layers = checkpoints.restore(shapes, part="weights.layers").state
    np.testing.assert_array_equal(layers[0], np.full((3, 2), 2.0))
    np.testing.assert_array_equal(layers[1], np.full((2,), -2.0))
    with pytest.raises(UserError, match="another network: it also has 1"):
        checkpoints.restore(shapes[:1], part="weights.layers")
