"""Screenshots of the page."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from byol_explore.report.page import render_page
from report.browser import find_browser
from report.samples import VARIANTS, sample_report

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def screenshot() -> Any:
    spec = importlib.util.spec_from_file_location("screenshot", DOCS / "screenshot.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_screenshot_in_readme_has_all_colours(screenshot: Any) -> None:
    with Image.open(DOCS / "laptop.png") as picture:
        assert screenshot.lost_colours(picture, (DOCS / "laptop/report/index.html").read_text()) == []


def test_screenshot_with_few_colours_is_detected(screenshot: Any) -> None:
    with Image.open(DOCS / "laptop.png") as picture:
        few = picture.quantize(16)
    lost = screenshot.lost_colours(few, (DOCS / "laptop/report/index.html").read_text())
    assert {"icm", "no-sharing"} <= set(lost)


def test_screenshot_has_all_colours(screenshot: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    find_browser()
    page, picture = tmp_path / "it's a page.html", tmp_path / "a picture.png"
    page.write_text(render_page(sample_report()))
    screenshot.main(screenshot.Screenshot(page, picture, 1000, 700))
    assert capsys.readouterr().out.startswith(f"{picture}: 1000 x 700, ")
    with Image.open(picture) as taken:
        assert screenshot.lost_colours(taken, page.read_text()) == []
        assert screenshot.lost_colours(Image.new("RGB", (9, 9)), page.read_text()) == VARIANTS


def test_missing_browser_or_page_is_a_short_error(
    screenshot: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match=r"nowhere is no file: give the index\.html of a report"):
        screenshot.main(screenshot.Screenshot(tmp_path / "nowhere", tmp_path / "x.png"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="chromium is not installed"):
        screenshot.main(screenshot.Screenshot(DOCS / "laptop/report/index.html", tmp_path / "x.png"))
