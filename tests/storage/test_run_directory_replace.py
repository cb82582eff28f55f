"""train --force: move the old run aside, or refuse."""

import dataclasses
import os
from pathlib import Path

import pytest

from byol_explore.errors import UserError
from byol_explore.report.load import load_runs
from byol_explore.storage.checkpoint import Checkpoints
from byol_explore.storage.run_directory import load_config, move_aside, write_config
from byol_explore.training.train import train
from byol_explore.utils.files import DirectoryLock
from runs import DISPATCH, RecordingDisplay, config_for, files, half, quickly, tiny


def test_force_moves_the_old_run_aside_and_prints_its_path(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, display = half(root, tmp_path / "runs" / "run-seed0"), RecordingDisplay()
    (directory / "notes.txt").write_text("mine")
    before = files(directory)
    monkeypatch.setattr("byol_explore.training.train.make_display", lambda *_, **__: display)
    with quickly():
        train(dataclasses.replace(config_for(dispatches=1), seed=7), directory, force=True)
    assert load_config(directory).seed == 7
    assert Checkpoints(directory / "checkpoints").steps() == [DISPATCH]
    assert not (directory / "notes.txt").exists()
    [aside] = (tmp_path / "runs").glob("run-seed0.old-*")
    assert files(aside) == before
    assert any(str(aside) in text for text in display.messages)
    assert [run.directory for run in load_runs(tmp_path / "runs").runs] == [directory]


def test_runs_moved_aside_in_the_same_second_get_different_names(tmp_path: Path) -> None:
    places = []
    for seed in range(3):
        write_config(tmp_path / "run", dataclasses.replace(tiny(), seed=seed))
        places.append(move_aside(tmp_path / "run"))
    assert [load_config(place).seed for place in places] == [0, 1, 2]
    with pytest.raises(UserError, match="holds no run"):
        load_runs(tmp_path)


def test_the_working_directory_stays_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_config(tmp_path / "run", tiny())
    monkeypatch.chdir(tmp_path / "run")
    aside = move_aside(Path())
    assert aside.parent == tmp_path
    assert (os.listdir(), os.listdir(aside)) == ([], ["config.json"])


def test_a_run_behind_a_link_is_moved_beside_its_real_path(tmp_path: Path) -> None:
    write_config(tmp_path / "disk" / "run", tiny())
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "run")
    assert move_aside(tmp_path / "link").parent == tmp_path / "disk"
    assert (tmp_path / "link").is_dir()


def test_force_in_a_new_directory_trains(tmp_path: Path) -> None:
    with quickly():
        train(config_for(dispatches=1), tmp_path / "run", force=True, quiet=True)
    assert (tmp_path / "run" / "summary.json").exists()


def test_a_run_is_moved_only_if_the_new_one_can_begin(tmp_path: Path) -> None:
    write_config(tmp_path / "run", tiny())
    before = files(tmp_path)
    for config in (tiny(env="probe:nothing"), dataclasses.replace(tiny(), init_from=str(tmp_path / "run"))):
        with pytest.raises(UserError, match=r"unknown environment|init_from is .*run, which --force would move"):
            train(config, tmp_path / "run", force=True, quiet=True)
    with quickly(), pytest.raises(UserError, match="nowhere holds no run"):
        train(
            dataclasses.replace(tiny(), init_from=str(tmp_path / "nowhere")), tmp_path / "run", force=True, quiet=True
        )
    with pytest.raises(UserError, match="choose one of them"):
        train(tiny(), tmp_path / "run", force=True, resume=True, quiet=True)
    with DirectoryLock(tmp_path / "run"), pytest.raises(UserError, match="another process is training in"):
        train(tiny(), tmp_path / "run", force=True, quiet=True)
    assert files(tmp_path) == before


@pytest.mark.parametrize(("name", "text"), [("config.json", '{"name": "another project"}'), ("thesis.tex", "mine")])
def test_a_directory_without_a_run_is_unchanged(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    before = files(tmp_path)
    with pytest.raises(UserError, match="is missing or no run's"):
        train(tiny(), tmp_path, force=True, quiet=True)
    assert files(tmp_path) == before
