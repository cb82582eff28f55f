"""A report as a directory."""

import csv
import errno
import os
from pathlib import Path

import pytest

from byol_explore.errors import UserError
from byol_explore.report import build
from byol_explore.report.build import check_target, write_report
from byol_explore.report.model import Bar, Bars, Curve, Plot, Report, Section, Table
from report.samples import sample_report

SMALL = Report("small", [], [Section("s", "", [Table("t", "", ["a"], [[1]])])])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(sample_report(), tmp_path_factory.mktemp("runs") / "report").parent


def test_all_blocks_are_written_as_files(written: Path) -> None:
    found = {str(path.relative_to(written)) for path in written.rglob("*") if path.is_file()}
    figures = {
        f"figures/{name}.{kind}" for name in ("iqm", "rooms-4", "rooms-6", "horizons") for kind in ("png", "svg", "csv")
    }
    maps = {f"figures/{name}.{kind}" for name in ("visits", "reward") for kind in ("png", "svg")}
    films = {"figures/before.gif", "figures/after.gif"}
    assert found == {
        "index.html",
        *figures,
        *maps,
        *films,
        *(f"tables/headline.{kind}" for kind in ("csv", "md", "tex")),
    }
    assert all((written / path).stat().st_size > 20 for path in found)


def test_page_links_to_all_files(written: Path) -> None:
    page = (written / "index.html").read_text()
    for path in written.glob("*/*"):
        assert f'href="{path.relative_to(written)}"' in page


def test_curve_files_have_all_digits(written: Path) -> None:
    rows = list(csv.DictReader((written / "figures/rooms-4.csv").open()))
    assert len(rows) == 3 * 40
    assert rows[0] == {"curve": "byol-explore", "x": "0.0", "mean": "", "low": "", "high": ""}
    assert len(rows[10]["mean"]) > 10


def test_page_only_links_to_no_files(tmp_path: Path) -> None:
    page = write_report(sample_report(), tmp_path / "report", page_only=True)
    assert list(page.parent.iterdir()) == [page]
    assert 'href="figures/' not in page.read_text()
    assert 'href="tables/' not in page.read_text()


def test_progress_is_reported(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    write_report(SMALL, tmp_path / "report", lambda done, total: told.append((done, total)))
    assert told == [(1, 1)]


def test_older_report_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "report"
    write_report(SMALL, target)
    (target / "figures" / "old.png").touch()
    write_report(SMALL, target)
    assert not (target / "figures" / "old.png").exists()
    assert list(tmp_path.iterdir()) == [target], "nothing is left behind"


def test_report_can_be_written_to_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert write_report(SMALL, Path()) == Path("index.html")
    assert (tmp_path / "tables" / "t.csv").exists()


def test_other_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<title>mine</title>")
    with pytest.raises(UserError, match="is no report"):
        write_report(SMALL, tmp_path)
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(UserError, match="is no report"):
        check_target(file)


def test_failure_keeps_the_older_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "report"
    before = write_report(SMALL, target).read_text()
    monkeypatch.setattr(build, "csv_text", lambda table: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_report(SMALL._replace(title="new"), target)
    assert (target / "index.html").read_text() == before
    assert list(tmp_path.iterdir()) == [target]


def test_variant_names_are_never_formulas_in_figure_files(tmp_path: Path) -> None:
    curve = Curve("=1+1", [1.0], [-2.0], [None], [None])
    bars = Bars("bars", "", "", [Bar("@a", -0.5, None, None)])
    report = Report("r", ["=1+1", "@a"], [Section("s", "", [Plot("plot", "", "", "", [curve]), bars])])
    figures = write_report(report, tmp_path / "report").parent / "figures"
    assert (figures / "plot.csv").read_text().splitlines()[1] == "'=1+1,1.0,-2.0,,"
    assert (figures / "bars.csv").read_text().splitlines()[1] == "'@a,-0.5,,"


def test_full_disk_is_a_user_error_and_keeps_the_older_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = write_report(SMALL, tmp_path / "report").read_text()

    def full(*_: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(build, "csv_text", full)
    with pytest.raises(UserError, match="report cannot be written: No space left on device; nothing was changed"):
        write_report(SMALL._replace(title="new"), tmp_path / "report")
    assert (tmp_path / "report" / "index.html").read_text() == before
    assert list(tmp_path.iterdir()) == [tmp_path / "report"]


def test_failed_rename_keeps_the_older_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, rename = write_report(SMALL, tmp_path / "report").read_text(), Path.rename

    def fails_for_the_new(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails_for_the_new)
    with pytest.raises(UserError, match="Input/output error"):
        write_report(SMALL._replace(title="new"), tmp_path / "report")
    assert (tmp_path / "report" / "index.html").read_text() == before
