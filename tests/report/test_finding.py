"""Where runs are."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from byol_explore.errors import UserError
from byol_explore.report import finding
from byol_explore.report.build import build_report
from byol_explore.report.finding import folders
from byol_explore.report.load import load_runs
from report.synthetic import write_run


def found(root: Path) -> list[str]:
    return [folder.path.relative_to(root).as_posix() for folder in folders(root) if folder.is_run]


def test_links_are_followed_and_every_folder_is_looked_at_once(tmp_path: Path) -> None:
    """A dozen folders that all link to each other have more ways through them than anybody could walk."""
    write_run(tmp_path / "elsewhere", "rnd-seed0", method="rnd")
    for name in map(str, range(12)):
        (tmp_path / "runs" / name).mkdir(parents=True)
        for other in map(str, range(12)):
            (tmp_path / "runs" / name / f"to-{other}").symlink_to(tmp_path / "runs" / other)
    (tmp_path / "runs" / "last").symlink_to(tmp_path / "elsewhere")
    assert found(tmp_path / "runs") == ["last/rnd-seed0"]
    assert len(list(folders(tmp_path / "runs"))) == 1 + 12 + 1 + 1


def test_links_that_lead_nowhere_or_to_themselves_do_not_matter(tmp_path: Path) -> None:
    write_run(tmp_path, "rnd-seed0", method="rnd")
    for name, to in (("gone", "nowhere"), ("circle", "circle"), ("one", "two"), ("two", "one")):
        (tmp_path / name).symlink_to(to)
    assert found(tmp_path) == ["rnd-seed0"]
    assert not load_runs(tmp_path).unreadable


def test_names_may_be_anything(tmp_path: Path) -> None:
    names = ["²", "a\nb", "[/red]", "'\" $(x)", os.fsdecode(b"\xff\xfe"), "x" * 200, "9" * 200]
    for name in names:
        write_run(tmp_path / name, "rnd-seed0", method="rnd")
    assert sorted(found(tmp_path)) == sorted(f"{name}/rnd-seed0" for name in names)


@pytest.fixture
def depths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with 1,100 folders in it, each in the one before."""
    monkeypatch.chdir(tmp_path)
    for _ in range(1100):
        os.mkdir("d")
        os.chdir("d")
    yield tmp_path
    for _ in range(1100):
        os.chdir("..")
        os.rmdir("d")


def test_no_depth_is_too_much(depths: Path) -> None:
    write_run(depths, "rnd-seed0", method="rnd")
    assert found(depths) == ["rnd-seed0"]


def test_a_disk_is_no_place_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "MOST_FOLDERS", 20)
    for number in range(30):
        (tmp_path / str(number)).mkdir()
    with pytest.raises(UserError, match="has more than 20 folders below it: name those that hold the runs"):
        load_runs(tmp_path)


def test_a_folder_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "runs", "rnd-seed0", method="rnd")
    (tmp_path / "runs" / "secret").mkdir()
    scan = os.scandir

    def may_not(path: Path) -> object:
        if Path(path).name == "secret":
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", may_not)
    assert load_runs(tmp_path / "runs").unreadable == ["runs/secret: Permission denied"]
    with pytest.raises(UserError, match=r"^no run can be read: secret: Permission denied$"):
        load_runs(tmp_path / "runs" / "secret")


def test_a_run_whose_files_may_not_be_known_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a folder that one may list but not enter."""
    for name in ("rnd", "secret"):
        write_run(tmp_path / "runs", f"{name}-seed0", method="rnd")
    lstat = Path.lstat

    def may_not(self: Path) -> os.stat_result:
        if self.parent.name == "secret-seed0":
            raise PermissionError(13, "Permission denied", str(self))
        return lstat(self)

    monkeypatch.setattr(Path, "lstat", may_not)
    assert load_runs(tmp_path / "runs").unreadable == ["runs/secret-seed0: Permission denied"]


@pytest.mark.parametrize("kind", [str, Path])
def test_one_directory_is_one_directory(tmp_path: Path, kind: type) -> None:
    """And no list of the letters of its name, the first of which is the whole disk."""
    write_run(tmp_path, "rnd-seed0", method="rnd")
    assert build_report(kind(tmp_path)).variants == ["rnd"]
    assert build_report([kind(tmp_path)]).variants == ["rnd"]
