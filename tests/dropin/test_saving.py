"""A loaded curiosity equals an uninterrupted one; damaged and other files are refused in one line."""

import json
import os
import pickle
import resource
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from byol_explore import Curiosity, UserError
from byol_explore.dropin import saving
from byol_explore.dropin.saving import space_from_dict, space_to_dict
from byol_explore.spaces import ActionSpec, Grid, Image, Tokens, Vector
from dropins import OBSERVATIONS, SMALL, assert_same, experienced, rollout, small


def resume(curiosity: Curiosity) -> list[np.ndarray]:
    """Step in the middle of an episode, compute rewards of a rollout, and learn."""
    steps = [curiosity.step(*rollout(5, seed=4, ends=0.0).at(t)) for t in range(3, 5)]
    given = rollout(16, seed=5)
    return [*steps, curiosity.reward(*given), curiosity.learn(*given)[0]]


@pytest.mark.parametrize("method", ["byol-explore", "rnd", "e3b", "re3", "ngu"])
def test_a_loaded_curiosity_continues_exactly(tmp_path: Path, method: str) -> None:
    """In the middle of an episode, with pending predictions."""
    curiosity = experienced(method)
    for t in range(3):
        curiosity.step(*rollout(5, seed=4, ends=0.0).at(t))
    curiosity.save(tmp_path / "mine.npz")
    loaded = Curiosity.load(tmp_path / "mine.npz")
    assert_same(loaded, curiosity)
    assert loaded.progress.record == curiosity.progress.record
    for ours, theirs in zip(resume(loaded), resume(curiosity), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert_same(loaded, curiosity)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.npz"]


def test_a_new_curiosity_can_be_saved(tmp_path: Path) -> None:
    curiosity = small(seed=3)
    curiosity.step(*rollout(1).at(0))
    curiosity.save(tmp_path / "new")
    loaded = Curiosity.load(str(tmp_path / "new"))
    assert_same(loaded, curiosity)
    np.testing.assert_array_equal(loaded.learn(*rollout(16))[0], curiosity.learn(*rollout(16))[0])


def test_a_pickle_is_the_same_as_a_file() -> None:
    """Libraries that pickle a whole agent depend on it; in the middle of an episode, with pending predictions."""
    curiosity = experienced()
    for t in range(3):
        curiosity.step(*rollout(5, seed=4, ends=0.0).at(t))
    loaded = pickle.loads(pickle.dumps(curiosity))
    assert loaded.progress.record == curiosity.progress.record
    for ours, theirs in zip(resume(loaded), resume(curiosity), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert_same(loaded, curiosity)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "mine.npz"
    experienced(updates=1).save(path)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as error:
        Curiosity.load(path)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_a_truncated_file_is_refused(saved: Path, tmp_path: Path, share: float) -> None:
    whole, path = saved.read_bytes(), tmp_path / "half"
    path.write_bytes(whole[: int(share * len(whole))])
    assert refusal(path).startswith(f"{path} is damaged, or was not written by Curiosity.save: ")


@pytest.mark.parametrize("place", [0.0, 0.5, 0.999])
def test_a_changed_byte_is_refused(saved: Path, tmp_path: Path, place: float) -> None:
    content, path = bytearray(saved.read_bytes()), tmp_path / "flipped"
    with zipfile.ZipFile(saved) as file:
        entry = file.infolist()[int(place * len(file.infolist()))]
    lengths = np.frombuffer(content, "<u2", 2, entry.header_offset + 26)  # of the entry's name and extra field
    content[entry.header_offset + 30 + int(lengths.sum()) + entry.file_size // 2] ^= 255
    path.write_bytes(content)
    assert f"{path} is " in refusal(path)


def rewritten(saved: Path, path: Path, change: Any) -> Path:
    """Write a valid file with changed content."""
    with np.load(saved) as file:
        arrays = {name: file[name] for name in file.files}
    about = json.loads(arrays.pop("about").tobytes())
    change(about, arrays)
    np.savez(path, about=np.frombuffer(json.dumps(about).encode(), np.uint8), **arrays)
    return path


def test_other_files_are_refused(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = tmp_path / "nothing"
    assert refusal(missing) == f"there is no file {missing}: it must be one that Curiosity.save has written"
    text = tmp_path / "text"
    text.write_text("my curiosity\n")
    assert refusal(text) == f"{text} is damaged, or was not written by Curiosity.save: it is no archive of arrays"
    assert refusal(None) == "Curiosity.load takes the path of a file, not None"  # pyright: ignore[reportArgumentType]
    later = rewritten(saved, tmp_path / "later.npz", lambda about, _: about.update(format=9))
    reads = f"this one reads format {saving.FORMAT}"
    assert refusal(later) == f"{later} is of format 9, written by byol-explore 0.1.0: {reads}"
    other = rewritten(
        saved, tmp_path / "other.npz", lambda about, _: about["curiosity"]["settings"]["network"].update(belief_size=7)
    )
    assert f"{other} is of another network: " in refusal(other)
    more = rewritten(saved, tmp_path / "more.npz", lambda _, arrays: arrays.update(extra=np.ones(2)))
    assert refusal(more) == f"{more} is of another network: it also has extra"
    foreign = rewritten(saved, tmp_path / "foreign.npz", lambda about, _: about["curiosity"].update(method="my:Bonus"))
    monkeypatch.delenv("BYOL_EXPLORE_TRUST", raising=False)
    monkeypatch.setattr("sys.stdin", None)
    assert refusal(foreign).startswith(f"{foreign} names code outside this package: my:Bonus; ")


def test_a_file_with_nan_is_refused(saved: Path, tmp_path: Path) -> None:
    name = "state.reward_normalizer.uncertainty.mean"

    def spoil(_: Any, arrays: dict[str, np.ndarray]) -> None:
        arrays[name] = np.full_like(arrays[name], np.nan)

    path = rewritten(saved, tmp_path / "spoilt.npz", spoil)
    assert refusal(path) == f"{path} cannot be continued: {name} holds NaN"


@pytest.mark.parametrize(
    "change",
    [
        lambda about: about.pop("curiosity"),
        lambda about: about.pop("record"),
        lambda about: about["record"].update(more=1),
        lambda about: about["curiosity"].pop("seed"),
        lambda about: about["curiosity"]["observation_space"].update({"is": "Blob"}),
        lambda about: about["curiosity"]["observation_space"].pop("low"),
        lambda about: about.update(format=9, versions=None),
    ],
)
def test_a_file_with_wrong_metadata_is_refused(saved: Path, tmp_path: Path, change: Any) -> None:
    path = rewritten(saved, tmp_path / "other.npz", lambda about, _: change(about))
    assert refusal(path).startswith(f"{path} is damaged, or was not written by Curiosity.save: ")


HOSTILE: dict[str, Any] = {
    "deep": lambda about: about.update(curiosity=nested(100_000)),
    "many environments": lambda about: about["curiosity"].update(num_envs=2**31),
    "no environments": lambda about: about["curiosity"].update(num_envs=-1),
    "environments are text": lambda about: about["curiosity"].update(num_envs="many"),
    "a large box": lambda about: about["curiosity"]["observation_space"].update(shape=[10**5, 10**5]),
    "a box beyond all integers": lambda about: about["curiosity"]["observation_space"].update(shape=[10**15] * 9),
    "a negative box": lambda about: about["curiosity"]["observation_space"].update(shape=[-3]),
    "a box of objects": lambda about: about["curiosity"]["observation_space"].update(dtype="O"),
    "a large discrete space": lambda about: about["curiosity"].update(action_space={"is": "Discrete", "n": 10**11}),
    "no discrete space": lambda about: about["curiosity"].update(action_space={"is": "Discrete", "n": -1}),
    "many bits": lambda about: about["curiosity"].update(action_space={"is": "MultiBinary", "n": [10**6, 10**6]}),
    "many categories": lambda about: about["curiosity"].update(observation_space=categories(10**12)),
    "a long text": lambda about: about["curiosity"].update(
        observation_space={"is": "Text", "min_length": 1, "max_length": 10**12, "charset": "ab"}
    ),
    "a large image": lambda about: about["curiosity"].update(
        observation_space={"is": "Image", "height": 10**6, "width": 10**6, "channels": 3}
    ),
    "large networks": lambda about: about["curiosity"]["settings"]["network"].update(embedding_size=10**9),
    "networks beyond all integers": lambda about: about["curiosity"]["settings"]["network"].update(belief_size=10**15),
    "a long horizon": lambda about: about["curiosity"]["settings"]["curiosity"].update(horizon=10**9),
    "a space is a number": lambda about: about["curiosity"].update(observation_space=7),
    "a record of text": lambda about: about["record"].update(rows="many"),
    "a record of null": lambda about: about["record"].update(calls=None),
    "symbols are a number": lambda about: about["curiosity"].update(symbol_counts=7),
    "everything is null": lambda about: about["curiosity"].update(dict.fromkeys(about["curiosity"])),
}


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def categories(count: int) -> dict[str, Any]:
    return {"is": "MultiDiscrete", "nvec": [count, 2], "start": [0, 0]}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_in_little_memory(saved: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "hostile.npz"
    with np.load(saved) as file:
        arrays = {entry: file[entry] for entry in file.files}
    about = json.loads(arrays.pop("about").tobytes())
    if name == "deep":
        text = json.dumps(about)[:-1] + ', "deep": ' + "[" * 100_000 + "]" * 100_000 + "}"
    else:
        HOSTILE[name](about)
        text = json.dumps(about)
    np.savez(path, about=np.frombuffer(text.encode(), np.uint8), **arrays)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert str(path) in refusal(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000, "kilobytes"


def header(shape: str, dtype: str = "<f4", version: int = 1) -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    "data",
    [
        header("(100000000000,)"), header("(3,)") + bytes(8), header("(-1,)"), header("(2, -2)") + bytes(16),
        header("(1,)", "O") + bytes(8), header("(1,)", "|S0"), header("(1,)", version=9) + bytes(4), b"", b"\x93NUMPY",
        header("((((((1,),),),),),)"), header("__import__('os')"), header("(" * 3000 + ")" * 3000), header("(1e9,)"),
        header(f"({'9' * 5000},)"),
    ],
    ids=range(14),
)  # fmt: skip
def test_arrays_that_claim_another_size_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "hostile.npz"
    for name in ("about", "other"):
        with zipfile.ZipFile(path, "w") as file:
            file.writestr(f"{name}.npy", data)
        assert refusal(path).startswith(f"{path} is damaged, or was not written by Curiosity.save: ")


def test_a_compressed_archive_is_refused(saved: Path, tmp_path: Path) -> None:
    """A small one could unpack into any amount of memory."""
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(saved) as before, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name in before.namelist():
            file.writestr(name, before.read(name))
        file.writestr("zeros.npy", bytes(50_000_000))
    assert refusal(path).endswith("it is compressed or encrypted")


def test_a_save_that_fails_leaves_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=f"^{saved} cannot be written: No space left on device$"):
        experienced(updates=1).save(saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


@pytest.mark.parametrize(
    "space",
    [
        OBSERVATIONS,
        spaces.Box(np.asarray([0, -3]), np.asarray([1, 7]), dtype=np.int32),
        spaces.Box(0, 255, (84, 84, 4), np.uint8),
        spaces.Discrete(4, start=-2),
        spaces.MultiDiscrete([2, 5], start=[1, 0]),
        spaces.MultiBinary((2, 3)),
        spaces.Text(9, min_length=2, charset="abc"),
        spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Tuple([spaces.Discrete(3), OBSERVATIONS])}),
        {"eye": Image(2, 3, 1), "cells": Grid(2, 2, (3, 4)), "words": Tokens(2, 9), "arm": Vector(4)},
        ActionSpec((2, 3), 1),
    ],
    ids=lambda space: str(space)[:20],
)
def test_spaces_survive_json(space: Any) -> None:
    again = space_from_dict(json.loads(json.dumps(space_to_dict(space))))
    assert again == space
    assert type(again) is type(space)


def test_equal_bounds_are_saved_as_one_number() -> None:
    """A space of an image is not saved as arrays of bounds."""
    assert len(json.dumps(space_to_dict(spaces.Box(0, 255, (84, 84, 4), np.uint8)))) < 200


def test_pickled_objects_in_a_file_are_refused(tmp_path: Path) -> None:
    """A pickled object could run code."""
    path = tmp_path / "objects.npz"
    np.savez(path, about=np.asarray([{"format": saving.FORMAT}], object))
    assert "is damaged, or was not written by Curiosity.save" in refusal(path)


def test_settings_are_restored(saved: Path) -> None:
    loaded = Curiosity.load(saved)
    assert loaded.settings.sequence_length == SMALL["sequence_length"]
    assert loaded.settings.network.encoder_hidden == (10,)
