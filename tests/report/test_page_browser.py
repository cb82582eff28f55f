"""The page in headless Chromium."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from byol_explore.report.build import build_report, csv_text
from byol_explore.report.model import Table, round_significant
from byol_explore.report.page import render_page
from report.browser import Browser, start_browser
from report.samples import VARIANTS, sample_map, sample_plot, sample_report
from report.synthetic import make_rows, write_run


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    started = start_browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.driver.quit()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write index.html as `write_report` does, without figures."""
    directory = tmp_path_factory.mktemp("report")
    (directory / "index.html").write_text(render_page(sample_report(), link_files=True))
    return directory


@pytest.fixture
def page(browser: Browser, report: Path) -> Browser:
    """Open the report on a desktop with a light theme."""
    browser.resize(1200)
    browser.set_theme("light")
    browser.open((report / "index.html").as_uri())
    browser.run("localStorage.clear()")
    return browser


def drawn(page: Browser, variant: str) -> int:
    return len(page.find_all(f'[data-curve="{variant}"], [data-bar="{variant}"]'))


def test_page_opens_from_a_file_without_errors_or_requests(page: Browser, report: Path) -> None:
    page.run("window.scrollTo(0, document.body.scrollHeight)")
    page.wait(lambda: page.run("return [...document.images].every((image) => image.naturalWidth === 96)"))
    assert page.console_messages() == []
    assert page.requested_urls() == {(report / "index.html").as_uri()}


def test_click_in_legend_hides_variant_everywhere(page: Browser) -> None:
    chip = page.find('#legend [data-variant="rnd"]')
    assert [drawn(page, variant) for variant in VARIANTS] == [3, 3, 3], "two plots and the bars"
    chip.click()
    assert [drawn(page, variant) for variant in VARIANTS] == [3, 0, 3]
    assert chip.get_attribute("aria-pressed") == "false"
    chip.send_keys(Keys.SPACE)
    assert drawn(page, "rnd") == 3


def test_double_click_isolates_variant_and_restores_all(page: Browser) -> None:
    chip = page.find('#legend [data-variant="rnd"]')
    page.double_click(chip)
    assert [drawn(page, variant) for variant in VARIANTS] == [0, 3, 0]
    page.double_click(chip)
    assert [drawn(page, variant) for variant in VARIANTS] == [3, 3, 3]


def test_other_curves_have_their_own_legend(page: Browser) -> None:
    [*chips] = page.find_all("#block-horizons .own-legend .chip")
    assert [chip.text for chip in chips] == ["k = 1", "k = 2", "k = 3", "k = 4"]
    chips[1].click()
    assert [drawn(page, f"k = {k}") for k in (1, 2, 3, 4)] == [1, 0, 1, 1]


def tooltip(page: Browser) -> dict[str, float]:
    """Return the steps and the value of each variant in the tooltip."""
    heading, *lines = page.find("#tooltip").text.replace("\n[", " [").split("\n")
    steps = float(heading.split()[0].removesuffix("M").removesuffix("k"))
    return {"steps": steps, **{lines[i]: float(lines[i + 1].split()[0]) for i in range(0, len(lines), 2)}}


def test_tooltip_shows_values_of_visible_variants(page: Browser) -> None:
    page.find('#legend [data-variant="none"]').click()
    page.hover(page.find("#block-rooms-6 .sensor"))
    values = tooltip(page)
    assert set(values) == {"steps", "byol-explore", "rnd"}
    for curve in sample_plot("rooms-6", "").curves[:2]:
        assert values[curve.variant] == round_significant(curve.mean[curve.x.index(values["steps"] * 1e6)])
    assert len(page.find_all("#block-rooms-6 .cursor")) == 1


def test_tooltip_follows_the_keyboard(page: Browser) -> None:
    plot = page.find("#block-rooms-4 svg.plotted")
    page.scroll_to(plot)
    plot.send_keys(Keys.END)
    assert tooltip(page)["steps"] == 1.95
    plot.send_keys(Keys.ARROW_LEFT)
    assert tooltip(page)["steps"] == 1.9
    assert "byol-explore ends at 0.9999" in (plot.get_attribute("aria-label") or "")


def test_tables_have_the_numbers_of_their_files(page: Browser) -> None:
    rows = page.run(
        "return [...document.querySelectorAll('#block-headline tbody tr')]"
        ".map((row) => [...row.cells].map((cell) => cell.dataset.value ?? cell.textContent))"
    )
    [table] = [block for section in sample_report().sections for block in section.blocks if isinstance(block, Table)]
    assert rows == list(csv.reader(csv_text(table).splitlines()))[1:]


def test_click_sorts_table_with_missing_values_last(page: Browser) -> None:
    names = "return [...document.querySelectorAll('#block-headline tbody th')].map((cell) => cell.textContent)"
    iqm = page.find_all("#block-headline thead button")[3]
    iqm.click()
    assert page.run(names) == ["byol-explore", "none", "rnd"]
    iqm.click()
    assert page.run(names) == ["none", "byol-explore", "rnd"]


def is_dark(page: Browser) -> bool:
    colour = page.run("return getComputedStyle(document.body).backgroundColor")
    return sum(map(int, re.findall(r"\d+", colour)[:3])) < 200


def test_theme_follows_system_until_chosen(page: Browser) -> None:
    assert not is_dark(page)
    page.set_theme("dark")
    assert is_dark(page)
    page.find("#theme").click()
    assert not is_dark(page)
    page.driver.refresh()
    assert not is_dark(page), "the choice is remembered"
    page.find("#theme").click()
    assert is_dark(page)


def test_phone_scrolls_tables_but_not_the_page(page: Browser) -> None:
    page.resize(360)
    page.wait(lambda: page.run("return document.querySelector('#block-rooms-4 svg').viewBox.baseVal.width < 360"))
    assert page.run("return document.documentElement.scrollWidth") <= 360
    assert page.run("const box = document.querySelector('.scroll'); return box.scrollWidth > box.clientWidth")


def test_sliders_of_maps_move_together(page: Browser) -> None:
    fills = "return [...document.querySelectorAll('#block-visits .open')].map((cell) => cell.style.fill)"
    last = page.run(fills)
    slider = page.find("#block-visits input")
    slider.send_keys(Keys.HOME)
    first = page.run(fills)
    assert [box.text for box in page.find_all(".slices output")] == ["0k to 512k"] * 2
    assert (first.count(""), last.count("")) == (16, 0), "cells that were not visited have no colour"
    assert page.find("#block-reward input").get_attribute("value") == "0"


def test_tooltip_of_map_shows_cell_value(page: Browser) -> None:
    page.hover(page.find("#block-visits .open"))
    value = sample_map("visits", "", "", logarithmic=True).slices[-1][1][1][1]
    assert value is not None
    assert page.find("#tooltip").text == f"{round_significant(value)} visits"


def test_print_is_light_with_a_legend_per_figure(page: Browser) -> None:
    legends = "return getComputedStyle(document.querySelector('#block-rooms-4 .own-legend')).display"
    page.set_theme("dark")
    assert (is_dark(page), page.run(legends)) == (True, "none")
    page.set_theme("dark", media="print")
    assert (is_dark(page), page.run(legends)) == (False, "flex")


ODD = ("__proto__", "constructor", "'\"><img src=x onerror=alert(1)>", "<!--<script>", "${1}\\", "\u2028", "toString")


def test_odd_names_and_extreme_numbers_are_shown(browser: Browser, tmp_path: Path) -> None:
    """Adding one does not change the largest steps: ticks of an axis must not be a running sum."""
    for place, name in enumerate(ODD):
        rows = [{"steps": 5e15, "success_rate": 0.5, "return_mean": 9e99, "uncertainty": 10.0 ** (30 * place - 90),
                 "intrinsic_reward": (-1) ** place * 9e99, "prediction_error": [1e-99, 9e99]}]  # fmt: skip
        write_run(tmp_path, f"{name}-seed0", rows, env="rooms-6", finished=False)
    (tmp_path / "study.toml").write_text("name = '</script><script>alert(2)</script>'")
    page = tmp_path / 'it\'s "a" page #1 100%.html'
    page.write_text(render_page(build_report(tmp_path)))
    browser.resize(1200)
    browser.open(page.as_uri())
    assert browser.console_messages() == []
    assert browser.requested_urls() == {page.as_uri()}
    names = [*ODD[:5], r"\u2028", ODD[6]]
    assert sorted(chip.get_attribute("data-variant") or "" for chip in browser.find_all("#legend .chip")) == sorted(
        names
    )
    assert browser.find("h1").text == "</script><script>alert(2)</script>"
    assert len(browser.find_all("#block-intrinsic-reward [data-curve]")) == len(ODD)
    browser.find('#legend [data-variant="__proto__"]').click()
    assert len(browser.find_all("#block-intrinsic-reward [data-curve]")) == len(ODD) - 1


class Watched:
    """A study of two variants, shown by `byol-explore watch`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for variant in ("rnd", "none"):
            write_run(root, f"{variant}-seed0", make_rows([0.1, 0.2, 0.3]), method=variant)
        command = [
            sys.executable,
            "-m",
            "byol_explore.cli.main",
            "watch",
            str(root),
            "--port",
            "0",
            "--interval",
            "0.1",
        ]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdout
        found = re.search(r"http://127\.0\.0\.1:\d+", self.process.stdout.readline())
        assert found
        self.url = f"{found[0]}/"

    def log(self, steps: int, success: float) -> None:
        for path in self.root.rglob("metrics.jsonl"):
            row = {"steps": steps, "elapsed_seconds": 1.0, "success_rate": success, "return_mean": success}
            with path.open("a") as file:
                file.write(json.dumps(row) + "\n" + '{"steps": 9')  # the next line is half written


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    started = Watched(tmp_path / "study")
    yield started
    started.process.kill()
    started.process.communicate()


def test_live_page_updates_and_keeps_choices(browser: Browser, watched: Watched) -> None:
    browser.resize(1200)
    browser.set_theme("light")
    browser.open(watched.url)
    browser.wait(lambda: browser.find_all('[data-curve="rnd"]'))
    browser.find('#legend [data-variant="none"]').click()
    browser.find("#theme").click()
    browser.run("window.scrollTo(0, 300)")
    version = browser.run("return document.documentElement.dataset.version")
    watched.log(400, 0.875)
    browser.wait(lambda: browser.run("return document.documentElement.dataset.version") != version)
    browser.wait(lambda: "87.5" in browser.find("main").text)
    assert browser.run("return scrollY") == 300
    assert (drawn(browser, "none"), drawn(browser, "rnd") > 0, is_dark(browser)) == (0, True, True)
    assert browser.console_messages() == []
    assert browser.requested_urls() <= {watched.url, f"{watched.url}version"}
    watched.process.send_signal(signal.SIGINT)
    assert watched.process.wait(30) == 130
    browser.wait(lambda: browser.find("#live").text == "the server has stopped")
    assert watched.process.stderr
    assert watched.process.stderr.read() == "interrupted\n"
