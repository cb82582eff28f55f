"""Checkpoints: whole or not at all, and never silently wrong."""

import asyncio
import gc
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
from byol_explore.run.checkpoint import Checkpoints
from runs import damage


class State(NamedTuple):
    """One of each kind that a run has."""

    weights: dict[str, Any]
    count: Any
    flags: Any
    key: Any
    nothing: Any


def make_state(value: float) -> State:
    return State(
        weights={"layers": [jnp.full((3, 2), value), jnp.full((2,), -value)]},
        count=jnp.asarray(round(value), jnp.int32),
        flags=jnp.arange(5) < value,
        key=jax.random.split(jax.random.key(round(value)), 2),
        nothing=jnp.zeros((4, 0), jnp.int32),
    )


def plain(state: State) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state._replace(key=jax.random.key_data(state.key)))]


def assert_is(state: Any, value: float) -> None:
    for actual, expected in zip(plain(state), plain(make_state(value)), strict=True):
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual, expected)


def save(checkpoints: Checkpoints, *steps: int, score: float = 0.0) -> None:
    for step in steps:
        checkpoints.save(step, make_state(step), {"note": f"at {step}"}, score)


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints")


def folder(checkpoints: Checkpoints, step: int) -> Path:
    return checkpoints.directory / f"step_{step:012d}"


def test_everything_comes_back(checkpoints: Checkpoints) -> None:
    save(checkpoints, 3)
    restored = checkpoints.restore(make_state(0))
    assert_is(restored.state, 3)
    assert restored.meta["note"] == "at 3"
    assert restored.meta["step"] == 3
    assert restored.damaged == []
    draw = jax.random.normal(restored.state.key[1], (4,))
    np.testing.assert_array_equal(draw, jax.random.normal(make_state(3).key[1], (4,)))


def test_arrays_go_where_the_template_has_them(checkpoints: Checkpoints) -> None:
    mesh = Mesh(np.asarray(jax.devices()[:2]), ("devices",))
    spread = NamedSharding(mesh, PartitionSpec("devices"))
    whole = NamedSharding(mesh, PartitionSpec())
    template = make_state(0)
    template = jax.device_put(template, whole)._replace(key=jax.device_put(template.key, spread))
    save(checkpoints, 3)
    restored = checkpoints.restore(template).state
    assert restored.key.sharding == spread
    assert restored.weights["layers"][0].sharding == whole
    assert_is(restored, 3)


def test_the_newest_two_and_the_best_are_kept(checkpoints: Checkpoints) -> None:
    for step, score in ((1, 0.1), (2, 0.7), (3, 0.3), (4, 0.2), (5, 0.4)):
        save(checkpoints, step, score=score)
    assert checkpoints.steps() == [2, 4, 5]
    assert checkpoints.best_step() == 2
    assert_is(checkpoints.restore(make_state(0), step=2).state, 2)
    assert_is(checkpoints.restore(make_state(0)).state, 5)


def test_of_equally_good_ones_the_newest_is_best(checkpoints: Checkpoints) -> None:
    save(checkpoints, 1, 2, 10, score=0.5)
    assert checkpoints.best_step() == 10
    assert checkpoints.steps() == [2, 10]


def test_without_scores_nothing_is_best(checkpoints: Checkpoints) -> None:
    save(checkpoints, 1)
    (checkpoints.directory / "scores.json").write_text("{ half")
    assert checkpoints.best_step() is None
    save(checkpoints, 2)
    assert checkpoints.best_step() == 2


def test_an_unfinished_write_is_ignored_and_cleared_away(
    checkpoints: Checkpoints, capfd: pytest.CaptureFixture[str]
) -> None:
    save(checkpoints, 1)
    for step in (2, 3):
        shutil.copytree(folder(checkpoints, 1), f"{folder(checkpoints, step)}.orbax-checkpoint-tmp")
    assert checkpoints.steps() == [1]
    assert_is(checkpoints.restore(make_state(0)).state, 1)
    save(checkpoints, 2)
    assert checkpoints.steps() == [1, 2]
    assert not list(checkpoints.directory.glob("*tmp*"))
    assert_is(checkpoints.restore(make_state(0)).state, 2)
    assert capfd.readouterr().err == ""


def test_a_file_with_flipped_bits_is_noticed(checkpoints: Checkpoints, capfd: pytest.CaptureFixture[str]) -> None:
    """Whichever file it is: either the checkpoint is not used, or nothing that matters was in that place."""
    save(checkpoints, 1, 2)
    skipped = set()
    for path in sorted(folder(checkpoints, 2).rglob("*")):
        if path.is_file():
            before = path.read_bytes()
            damage(path)
            restored = checkpoints.restore(make_state(0))
            assert_is(restored.state, restored.meta["step"])
            assert restored.meta["note"] == f"at {restored.meta['step']}"
            if restored.damaged:
                assert restored.meta["step"] == 1
                assert restored.damaged[0].startswith("step_000000000002 (")
                skipped.add(path.relative_to(folder(checkpoints, 2)).parts[0])
            path.write_bytes(before)
    assert {"meta", "state"} <= skipped
    assert checkpoints.restore(make_state(0)).damaged == []
    assert capfd.readouterr().err == ""


def test_reads_that_fail_after_another_one_are_not_printed(
    checkpoints: Checkpoints, caplog: pytest.LogCaptureFixture
) -> None:
    """Orbax reads all arrays at once and hears of the first that fails; other forgotten tasks are still told of."""
    save(checkpoints, 1)
    checkpoints.restore(make_state(0))

    async def fail(words: str) -> None:
        raise ValueError(words)

    async def forget() -> None:
        tasks = [asyncio.create_task(fail(words)) for words in ("DATA_LOSS: Error reading", "of somebody else")]
        await asyncio.wait(tasks)

    asyncio.run(forget())
    gc.collect()
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["of somebody else"]


def test_a_file_cut_short_or_missing_is_noticed(checkpoints: Checkpoints) -> None:
    save(checkpoints, 1, 2)
    for name in ("meta/metadata", "state/manifest.ocdbt", "state/_METADATA"):
        path = folder(checkpoints, 2) / name
        before = path.read_bytes()
        for change in (lambda path, text: path.write_bytes(text[: len(text) // 2]), lambda path, _: path.unlink()):
            change(path, before)
            restored = checkpoints.restore(make_state(0))
            assert_is(restored.state, 1)
            assert len(restored.damaged) == 1
        path.write_bytes(before)


def test_damaged_ones_are_set_aside_and_no_longer_count_as_newest(checkpoints: Checkpoints) -> None:
    """Otherwise each new one would be dropped as soon as it was written."""
    save(checkpoints, 1, score=1.0)
    save(checkpoints, 8, 9)
    for step in (8, 9):
        damage(folder(checkpoints, step) / "meta" / "metadata")
    for _ in range(2):  # the second time those of the first are there already
        restored = checkpoints.restore(make_state(0))
        checkpoints.set_aside(after=restored.meta["step"])
        assert [name.split()[0] for name in restored.damaged] == ["step_000000000009", "step_000000000008"]
        assert checkpoints.steps() == [1]
        save(checkpoints, 2, 3)
        assert checkpoints.steps() == [1, 2, 3]
        assert_is(checkpoints.restore(make_state(0)).state, 3)
        aside = sorted(checkpoints.directory.glob("damaged_step_*"))
        assert [path.name for path in aside] == ["damaged_step_000000000008", "damaged_step_000000000009"]
        for step in (2, 3):
            shutil.rmtree(folder(checkpoints, step))
        for path in aside:
            shutil.copytree(path, path.with_name(path.name.removeprefix("damaged_")))


def test_arrays_of_another_checkpoint_are_noticed_by_their_checksums(checkpoints: Checkpoints) -> None:
    """Files that are whole for Orbax and still not what was saved."""
    save(checkpoints, 1, 2)
    shutil.rmtree(folder(checkpoints, 2) / "state")
    shutil.copytree(folder(checkpoints, 1) / "state", folder(checkpoints, 2) / "state")
    restored = checkpoints.restore(make_state(0))
    assert_is(restored.state, 1)
    assert "checksum" in restored.damaged[0]


def test_a_changed_note_is_noticed_by_its_checksum(checkpoints: Checkpoints) -> None:
    save(checkpoints, 1, 2)
    path = folder(checkpoints, 2) / "meta" / "metadata"
    path.write_text(path.read_text().replace("at 2", "at 3"))
    restored = checkpoints.restore(make_state(0))
    assert restored.meta["note"] == "at 1"
    assert "checksum of meta" in restored.damaged[0]


def test_when_all_are_damaged_the_user_is_told_which(checkpoints: Checkpoints) -> None:
    save(checkpoints, 1, 2)
    for step in (1, 2):
        (folder(checkpoints, step) / "meta" / "metadata").write_text("")
    with pytest.raises(UserError, match=r"no whole checkpoint.*step_0+2 .*step_0+1 "):
        checkpoints.restore(make_state(0))


def test_none_at_all(checkpoints: Checkpoints) -> None:
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


def test_a_part_can_be_restored_alone_and_without_arrays_to_fill(checkpoints: Checkpoints) -> None:
    save(checkpoints, 2)
    shapes = jax.eval_shape(lambda: make_state(0).weights["layers"])
    layers = checkpoints.restore(shapes, part="weights.layers").state
    np.testing.assert_array_equal(layers[0], np.full((3, 2), 2.0))
    np.testing.assert_array_equal(layers[1], np.full((2,), -2.0))
    with pytest.raises(UserError, match="another network: it also has 1"):
        checkpoints.restore(shapes[:1], part="weights.layers")
