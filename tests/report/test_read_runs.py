"""Search for run directories."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from byol_explore.errors import UserError
from byol_explore.report import read_runs
from byol_explore.report.build import build_report
from byol_explore.report.load import load_runs
from byol_explore.report.read_runs import walk_folders
from report.synthetic import write_run


def found(root: Path) -> list[str]:
    return [folder.path.relative_to(root).as_posix() for folder in walk_folders(root) if folder.is_run]


def test_links_are_followed_and_folders_visited_once(tmp_path: Path) -> None:
    """Twelve folders that all link to each other have too many paths to walk."""
    write_run(tmp_path / "elsewhere", "rnd-seed0", method="rnd")
    for name in map(str, range(12)):
        (tmp_path / "runs" / name).mkdir(parents=True)
        for other in map(str, range(12)):
            (tmp_path / "runs" / name / f"to-{other}").symlink_to(tmp_path / "runs" / other)
    (tmp_path / "runs" / "last").symlink_to(tmp_path / "elsewhere")
    assert found(tmp_path / "runs") == ["last/rnd-seed0"]
    assert len(list(walk_folders(tmp_path / "runs"))) == 1 + 12 + 1 + 1


def test_broken_and_circular_links_are_ignored(tmp_path: Path) -> None:
    write_run(tmp_path, "rnd-seed0", method="rnd")
    for name, to in (("gone", "nowhere"), ("circle", "circle"), ("one", "two"), ("two", "one")):
        (tmp_path / name).symlink_to(to)
    assert found(tmp_path) == ["rnd-seed0"]
    assert not load_runs(tmp_path).unreadable


def test_folder_names_may_have_any_characters(tmp_path: Path) -> None:
    names = ["²", "a\nb", "[/red]", "'\" $(x)", os.fsdecode(b"\xff\xfe"), "x" * 200, "9" * 200]
    for name in names:
        write_run(tmp_path / name, "rnd-seed0", method="rnd")
    assert sorted(found(tmp_path)) == sorted(f"{name}/rnd-seed0" for name in names)


@pytest.fixture
def depths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make 1,100 nested folders."""
    monkeypatch.chdir(tmp_path)
    for _ in range(1100):
        os.mkdir("d")
        os.chdir("d")
    yield tmp_path
    for _ in range(1100):
        os.chdir("..")
        os.rmdir("d")


def test_folders_may_be_nested_deeply(depths: Path) -> None:
    write_run(depths, "rnd-seed0", method="rnd")
    assert found(depths) == ["rnd-seed0"]


def test_too_many_folders_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_runs, "MAX_FOLDERS", 20)
    for number in range(30):
        (tmp_path / str(number)).mkdir()
    with pytest.raises(UserError, match="has more than 20 folders below it: name those that hold the runs"):
        load_runs(tmp_path)


def test_unreadable_folders_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "runs", "rnd-seed0", method="rnd")
    (tmp_path / "runs" / "secret").mkdir()
    scan = os.scandir

    def deny(path: Path) -> object:
        if Path(path).name == "secret":
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", deny)
    assert load_runs(tmp_path / "runs").unreadable == ["runs/secret: Permission denied"]
    with pytest.raises(UserError, match=r"^no run can be read: secret: Permission denied$"):
        load_runs(tmp_path / "runs" / "secret")


def test_runs_with_unreadable_files_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that can be listed but not entered."""
    for name in ("rnd", "secret"):
        write_run(tmp_path / "runs", f"{name}-seed0", method="rnd")
    lstat = Path.lstat

    def deny(self: Path) -> os.stat_result:
        if self.parent.name == "secret-seed0":
            raise PermissionError(13, "Permission denied", str(self))
        return lstat(self)

    monkeypatch.setattr(Path, "lstat", deny)
    assert load_runs(tmp_path / "runs").unreadable == ["runs/secret-seed0: Permission denied"]


@pytest.mark.parametrize("kind", [str, Path])
def test_a_single_directory_may_be_a_string_or_a_path(tmp_path: Path, kind: type) -> None:
    """Not a sequence of characters, of which the first is the root directory."""
    write_run(tmp_path, "rnd-seed0", method="rnd")
    assert build_report(kind(tmp_path)).variants == ["rnd"]
    assert build_report([kind(tmp_path)]).variants == ["rnd"]
