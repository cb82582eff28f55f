"""Files are there as a whole or not at all."""

import os
from pathlib import Path

import pytest

from byol_explore.utils.files import atomic_write


def test_texts_are_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.json"
    atomic_write(path, "one")
    assert [entry.name for entry in tmp_path.iterdir()] == ["summary.json"]

    def killed(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        atomic_write(path, "two")
    assert path.read_text() == "one"


def test_a_text_is_on_the_disk_before_it_takes_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a power cut leaves an empty file where a whole one was."""
    events: list[tuple[str, str]] = []
    fsync, replace = os.fsync, Path.replace

    def spy_fsync(descriptor: int) -> None:
        events.append(("fsync", Path(f"/proc/self/fd/{descriptor}").resolve().read_text()))
        fsync(descriptor)

    def spy_replace(self: Path, target: Path) -> Path:
        events.append(("replace", target.name))
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", spy_fsync)
    monkeypatch.setattr(Path, "replace", spy_replace)
    atomic_write(tmp_path / "config.json", "all of it")
    assert events == [("fsync", "all of it"), ("replace", "config.json")]


def test_a_full_disk_leaves_no_half_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.json"
    path.write_text("one")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        atomic_write(path, "two")
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("config.json", "one")]
