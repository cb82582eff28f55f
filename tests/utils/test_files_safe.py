"""Files are taken from inside the run directory only."""

import base64
import json
from pathlib import Path

import pytest

from byol_explore.report.build import build_report
from byol_explore.report.page import render_page
from byol_explore.report.publish import publish_runs
from byol_explore.utils.files import read_json_object, read_safe_file, safe_file
from report.samples import sample_gif
from report.synthetic import write_run


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A secret that must not get into a page or a copy."""
    (tmp_path / "outside" / "films").mkdir(parents=True)
    for name in ("secret", "films/rooms-6-after.gif", "films/atari-montezuma_revenge-after.gif"):
        (tmp_path / "outside" / name).write_bytes(sample_gif(200) + b"secret")
    return tmp_path / "outside"


def leaks(root: Path) -> bool:
    """Whether the page of some runs, or a copy of them, holds it."""
    page = render_page(build_report(root)).encode()
    publish_runs(root, root.parent / "thin")
    copied = [path.read_bytes() for path in (root.parent / "thin").rglob("*") if path.is_file()]
    short = [path.name for path in (root.parent / "thin").rglob("*.webp")]
    return base64.b64encode(sample_gif(200))[:-4] in page or any(b"secret" in data for data in copied) or bool(short)


@pytest.mark.parametrize(
    "name", ["films/rooms-6-after.gif", "films", "rooms.png", "room_coverage.json", "summary.json"]
)
def test_a_link_that_leads_out_carries_nothing_into_page_or_copy(tmp_path: Path, outside: Path, name: str) -> None:
    env = {"env": "atari:montezuma_revenge"} if name == "rooms.png" else {}
    run = write_run(tmp_path / "runs", **env)
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(outside / "films" if name == "films" else outside / "secret")
    assert not leaks(tmp_path / "runs")


def test_a_study_is_not_taken_from_elsewhere(tmp_path: Path, outside: Path) -> None:
    write_run(tmp_path / "runs")
    (outside / "study.toml").write_text('name = "secret"')
    (tmp_path / "runs" / "study.toml").symlink_to(outside / "study.toml")
    assert build_report(tmp_path / "runs").title == "rooms-6"
    assert not leaks(tmp_path / "runs")


def test_a_run_that_is_a_link_has_its_own_films(tmp_path: Path) -> None:
    run = write_run(tmp_path / "elsewhere")
    (run / "films").mkdir()
    (run / "films" / "first.gif").write_bytes(sample_gif(200))
    (run / "films" / "rooms-6-after.gif").symlink_to("first.gif")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / run.name).symlink_to(run)
    assert leaks(tmp_path / "runs"), "which are no secret"


def test_reads_have_a_limit_and_errors_have_reasons(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"a": 1}))
    assert read_json_object(tmp_path, "a.json") == {"a": 1}
    assert read_safe_file(tmp_path, "a.json", 8) == b'{"a": 1}'
    for name, most, reason in (("a.json", 7, "a.json has more than 7 bytes"), ("b.json", 7, "b.json is no file")):
        with pytest.raises(ValueError, match=reason):
            read_safe_file(tmp_path, name, most)
    for text, reason in (("[1", "is no JSON: Expecting"), ("[1]", "holds no object"), ("[" * 10**5, "too deeply")):
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(ValueError, match=rf"a\.json .*{reason}"):
            read_json_object(tmp_path, "a.json")


@pytest.mark.parametrize("name", ["", ".", "..", "nowhere", "a\0b", "x" * 5000, "../" * 50 + "etc/passwd"])
def test_safe_file_is_none_for_other_paths(tmp_path: Path, name: str) -> None:
    assert safe_file(tmp_path, name) is None
