"""`byol-explore report`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from byol_explore.cli.main import main
from byol_explore.cli.report import console_table
from byol_explore.report import build
from byol_explore.report.model import Report, Section, Table
from report.synthetic import make_rows, write_run

STRICT = {"PYTHONIOENCODING": "utf-8:strict", "PYTHONUTF8": "1"}
TABLE = Table("t", "Scores", ["variant", "score", "seeds"], [["byol-explore", 0.25, 3], ["rnd", None, 3]])


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory with a stand-in for its report."""
    monkeypatch.setattr(
        build, "build_report", lambda directories, main: Report("mine", [], [Section("s", "", [TABLE])])
    )
    (tmp_path / "study").mkdir()
    return tmp_path / "study"


def test_report_is_written_beside_the_runs_and_summarised(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(study)]) == 0
    told = capsys.readouterr().out
    assert "byol-explore" in told
    assert "0.250" in told
    assert told.replace("\n", "").endswith(f"report: {study}/report/index.html")
    assert "<title>mine</title>" in (study / "report" / "index.html").read_text()


def test_report_is_written_to_out(study: Path, tmp_path: Path) -> None:
    assert main(["report", str(study), "--out", str(tmp_path / "a" / "b")]) == 0
    assert (tmp_path / "a" / "b" / "tables" / "t.csv").exists()
    assert not (study / "report").exists()


def test_only_reports_are_overwritten(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [main(["report", str(study)]), main(["report", str(study)])] == [0, 0]
    (study / "notes").mkdir()
    (study / "notes" / "thoughts.md").touch()
    assert main(["report", str(study), "--out", str(study / "notes")]) == 2
    assert capsys.readouterr().err == f"error: {study}/notes exists and is no report: choose another --out\n"


def test_missing_directory_argument_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report"]) == 2
    assert capsys.readouterr().err == "error: which runs? give one or more run or study directories\n"


def test_directory_without_runs_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_report_of_a_run_end_to_end(tmp_path: Path) -> None:
    write_run(tmp_path, "rnd-seed0", make_rows([0.1, 0.2]), method="rnd")
    assert main(["report", str(tmp_path / "rnd-seed0")]) == 0
    found = {path.suffix for path in (tmp_path / "rnd-seed0" / "report").rglob("*") if path.is_file()}
    assert found == {".html", ".png", ".svg", ".csv", ".md", ".tex"}


def test_narrow_terminal_shows_the_first_columns() -> None:
    assert [len(console_table(TABLE, width).columns) for width in (10, 28, 80)] == [1, 2, 3]


def test_brackets_in_names_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    Console(width=80).print(console_table(TABLE._replace(rows=[["[/red][bold]x", 0.25, 3]], title="[/b]"), 80))
    said = capsys.readouterr().out
    assert "[/red][bold]x" in said
    assert "[/b]" in said


def test_unreadable_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "runs", "rnd-seed0", method="rnd")
    (write_run(tmp_path / "runs", "mine\n-seed0") / "config.json").write_text("[]")
    assert main(["report", str(tmp_path / "runs"), "--page-only"]) == 0
    told = "left out, because it cannot be read: runs/mine\\n-seed0: config.json holds no object\n"
    assert capsys.readouterr().err == told
    assert main(["publish", str(tmp_path / "runs"), "--out", str(tmp_path / "thin")]) == 0
    assert capsys.readouterr() == (f"1 run, 0.0 MB: {tmp_path}/thin\n", told)


@pytest.mark.parametrize(
    "words", ["report a\nb", "report a\nb/c", "publish a\nb --out out", "publish a\nb/r --out a\nb/r/x"]
)
def test_unprintable_names_in_errors_are_one_line(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(Path("a\nb"), "r") if words.startswith("publish a\nb/r") else Path("a\nb").mkdir()
    assert main(words.split(" ")) == 2
    assert capsys.readouterr().err.startswith(r"error: a\nb")


def test_directories_may_have_any_name(tmp_path: Path) -> None:
    """Report and publish in a process whose output accepts only UTF-8."""
    names = [
        b"\xff\xfe",
        b"a\nb",
        b"[/red]",
        b'it\'s "two" $(x) $',
        b"<script>{{title}}",
        b"\xe2\x80\xae",
        b"%s {0} \\",
    ]
    root = tmp_path / os.fsdecode(b" ".join(names).replace(b"/", b""))
    for name in names:
        write_run(root, f"{os.fsdecode(name).replace('/', '')}-seed0", make_rows([0.1, 0.2]))
    (root / "study.toml").write_text("name = '[/x]'\ndescription = \"\\u0007{{style}}\"")
    command = "import sys; from byol_explore.cli.main import main; sys.exit(main(sys.argv[1:3]) or main(sys.argv[3:]))"
    words = ["report", root, "publish", root, "--out", tmp_path / "thin"]
    done = subprocess.run([sys.executable, "-c", command, *words], capture_output=True, env={**os.environ, **STRICT})
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().splitlines()[-1].startswith("7 runs, ")
    assert (root / "report" / "index.html").read_text().count("<script") == 2, "the page's own"
