"""A run that makes room for a new one, and everything that does not."""

import dataclasses
from pathlib import Path

import pytest

from byol_explore.errors import UserError
from byol_explore.run.checkpoint import Checkpoints
from byol_explore.run.directory import load_config, write_config
from byol_explore.run.locking import DirectoryLock
from byol_explore.run.replacing import check_replaceable, remove_run
from byol_explore.run.training import train
from runs import DISPATCH, config_for, files, half, quickly, tiny


def test_a_new_run_takes_the_place_of_an_old_one(root: Path, tmp_path: Path) -> None:
    directory = half(root, tmp_path / "run")
    (directory / "films").mkdir()
    (directory / "films" / "old.gif").write_bytes(b"GIF")
    config = dataclasses.replace(config_for(dispatches=1), seed=7)
    with quickly():
        train(config, directory, force=True, quiet=True)
    assert load_config(directory).seed == 7
    assert Checkpoints(directory / "checkpoints").steps() == [DISPATCH]
    assert not (directory / "films").exists()


def test_nothing_need_be_there(tmp_path: Path) -> None:
    with quickly():
        train(config_for(dispatches=1), tmp_path / "run", force=True, quiet=True)
    assert (tmp_path / "run" / "summary.json").exists()


def test_a_run_is_removed_only_if_the_new_one_can_begin(tmp_path: Path) -> None:
    write_config(tmp_path / "run", tiny())
    before = files(tmp_path)
    for config in (tiny(env="probe:nothing"), dataclasses.replace(tiny(), init_from=str(tmp_path / "run"))):
        with pytest.raises(UserError, match=r"unknown environment|init_from is .*run, which --force would remove"):
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


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("thesis.tex", "do not lose me", "thesis.tex is nothing that a run writes"),
        ("config.json", '{"name": "another project"}', "config.json is missing or no run's"),
        ("config.json", "[", "config.json is missing or no run's"),
        ("checkpoints", "a file", "checkpoints is nothing that a run writes"),
        ("report/notes.txt", "mine", "notes.txt is nothing that a run writes"),
    ],
)
def test_what_is_not_only_a_run_is_not_touched(tmp_path: Path, name: str, text: str, message: str) -> None:
    write_config(tmp_path, tiny())
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    before = files(tmp_path)
    with pytest.raises(UserError, match=message):
        train(tiny(), tmp_path, force=True, quiet=True)
    assert files(tmp_path) == before


def test_nothing_behind_a_link_is_removed(tmp_path: Path) -> None:
    write_config(tmp_path / "run", tiny())
    (tmp_path / "link").symlink_to(tmp_path / "run")
    with pytest.raises(UserError, match="link is a symbolic link"):
        train(tiny(), tmp_path / "link", force=True, quiet=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "step_1").write_text("of another run")
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "elsewhere")
    check_replaceable(tmp_path / "run", tiny())
    remove_run(tmp_path / "run")
    assert files(tmp_path) == {"elsewhere/step_1": b"of another run"}
