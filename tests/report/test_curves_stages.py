"""Stages: plots by task and variant, and a table."""

from pathlib import Path
from typing import Any

import pytest

from byol_explore.report import curves
from byol_explore.report.build import build_report
from byol_explore.report.curves import stages
from byol_explore.report.figures import run_plots
from byol_explore.report.load import load_runs
from byol_explore.report.model import Plot, Section, Table
from byol_explore.report.publish import publish_runs
from byol_explore.report.read_runs import MAX_STAGES
from report.synthetic import blocks, make_rows, words, write_run, write_study

WORLD = "hard-eight:all"


def two_task_rows(lifted: list[float], opened: list[float]) -> list[dict[str, Any]]:
    """Make log rows of two tasks, of which only one has a door."""
    lines = []
    for row, up, through in zip(make_rows([0.0] * len(lifted)), lifted, opened, strict=True):
        episodes = {"success_rate": 0.0, "return_mean": 0.0, "episode_length": 9.0}
        tasks = {"wall": {**episodes, "stages": {"lifted": up, "opened": through}},
                 "cubes": {**episodes, "stages": {"lifted": up / 2}}}  # fmt: skip
        lines.append({**row, "tasks": tasks, "stages": {"lifted": 0.75 * up, "opened": through}})
    return lines


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Write a variant with two seeds and one with a single seed."""
    write_run(tmp_path, "byol-explore-seed0", two_task_rows([0.2, 0.4, 0.8], [0.0, 0.0, 0.2]), env=WORLD)
    write_run(tmp_path, "byol-explore-seed1", two_task_rows([0.0, 0.2, 0.4], [0.0, 0.0, 0.0]), env=WORLD)
    write_run(tmp_path, "rnd-seed0", two_task_rows([0.0, 0.0, 0.1], [0.0, 0.0, 0.0]), env=WORLD, method="rnd")
    return tmp_path


def section_of(root: Path) -> Section:
    [section] = stages(load_runs(root))
    return section


def test_tasks_are_named_by_the_log(root: Path) -> None:
    """The configuration names only the world; a run without log lines gets the tasks of the other runs."""
    write_run(root, "none-seed0", [], env=WORLD, method="none", finished=False)
    runs = load_runs(root)
    assert runs.tasks == ["wall", "cubes"]
    assert [run.tasks for run in runs.runs] == [["wall", "cubes"]] * 4
    assert runs.runs[0].env == WORLD


def test_stage_plots_are_by_task_and_variant(root: Path) -> None:
    plots = blocks(section_of(root), Plot)
    assert [plot.title for plot in plots] == [
        "byol-explore on wall", "byol-explore on cubes", "rnd on wall", "rnd on cubes",
    ]  # fmt: skip
    assert [[curve.variant for curve in plot.curves] for plot in plots[:2]] == [["lifted", "opened"], ["lifted"]]
    lifted, opened = plots[0].curves
    assert lifted.x == [100.0, 200.0, 300.0]
    assert lifted.mean == pytest.approx([0.1, 0.3, 0.6])
    assert (lifted.low, lifted.high) == ([0.0, 0.2, 0.4], [0.2, 0.4, 0.8])
    assert opened.mean == pytest.approx([0.0, 0.0, 0.1])
    assert (plots[0].y_range, plots[0].y_label) == ((0.0, 1.0), "share of episodes")


def shares(**stages: list[float]) -> list[dict[str, Any]]:
    rows = make_rows([0.0] * len(next(iter(stages.values()))))
    return [{**row, "stages": {name: each[i] for name, each in stages.items()}} for i, row in enumerate(rows)]


def test_equal_stages_share_a_curve_and_unreached_have_none(tmp_path: Path) -> None:
    """All variants of a task have the same curves, so a stage has one colour."""
    write_run(tmp_path, "byol-explore-seed0", shares(
        climbed=[0.0, 0.0], touched=[0.1, 0.5], opened=[0.1, 0.5], apple=[0.0, 0.2],
    ))  # fmt: skip
    write_run(tmp_path, "none-seed0", shares(
        climbed=[0.0, 0.0], touched=[0.0, 0.1], opened=[0.0, 0.1], apple=[0.0, 0.0],
    ), method="none")  # fmt: skip
    plots = blocks(section_of(tmp_path), Plot)
    assert [[curve.variant for curve in plot.curves] for plot in plots] == [["touched, opened", "apple"]] * 2
    assert plots[0].curves[0].mean == pytest.approx([0.1, 0.5])
    assert plots[1].curves[1].mean == [0.0, 0.0]
    assert plots[0].note.endswith("Never reached: climbed.")
    [table] = blocks(section_of(tmp_path), Table)
    assert table.columns == ["task", "variant", "climbed", "touched", "opened", "apple"]


def test_curve_is_zero_if_no_stage_was_reached(tmp_path: Path) -> None:
    write_run(tmp_path, "byol-explore-seed0", shares(lifted=[0.0, 0.0], opened=[0.0, 0.0]))
    [plot] = blocks(section_of(tmp_path), Plot)
    assert [(curve.variant, curve.mean) for curve in plot.curves] == [("lifted, opened", [0.0, 0.0])]
    assert "Never" not in plot.note


def test_stages_that_differ_in_one_run_are_two_curves(tmp_path: Path) -> None:
    write_run(tmp_path, "byol-explore-seed0", shares(touched=[0.1, 0.5], opened=[0.1, 0.5]))
    write_run(tmp_path, "byol-explore-seed1", shares(touched=[0.1, 0.5], opened=[0.1, 0.4]))
    [plot] = blocks(section_of(tmp_path), Plot)
    assert [curve.variant for curve in plot.curves] == ["touched", "opened"]


def test_stage_table_has_the_last_shares(root: Path) -> None:
    [table] = blocks(section_of(root), Table)
    assert table.columns == ["task", "variant", "lifted", "opened"]
    expected = [["wall", "byol-explore", 0.6, 0.1], ["wall", "rnd", 0.1, 0.0],
                ["cubes", "byol-explore", 0.3, None], ["cubes", "rnd", 0.05, None]]  # fmt: skip
    assert [row[:2] for row in table.rows] == [row[:2] for row in expected]
    for row, other in zip(table.rows, expected, strict=True):
        assert row[2:] == pytest.approx(other[2:])


def test_stages_beyond_the_limit_are_in_the_table_only(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "MAX_STAGE_PLOTS", 3)
    section = section_of(root)
    assert [plot.title for plot in blocks(section, Plot)][-1] == "rnd on wall"
    assert "Only in the table: rnd on cubes." in words(section)
    assert len(blocks(section, Table)[0].rows) == 4


def test_no_section_without_stages(tmp_path: Path) -> None:
    assert stages(write_study(tmp_path)) == []


def test_published_copy_has_stages(root: Path, tmp_path: Path) -> None:
    publish_runs(root, tmp_path.parent / f"{tmp_path.name}-copy")
    for place in (root, tmp_path.parent / f"{tmp_path.name}-copy"):
        names = [section.name for section in build_report(place).sections]
        assert names.index("stages") == names.index("tasks") + 1


def test_single_task_has_stages_at_top_level(tmp_path: Path) -> None:
    rows = [{**row, "stages": {"lifted": 0.5}} for row in make_rows([0.0, 0.0])]
    write_run(tmp_path, rows=[{**rows[0], "stages": None}, rows[1]])
    [plot] = blocks(section_of(tmp_path), Plot)
    assert [curve.mean for curve in plot.curves] == [[0.5]]


@pytest.mark.parametrize(
    "value",
    [{"lifted": "much"}, ["lifted"], 0.5, {"a\nb": 0.5}, {"x" * 999: 0.5}, {str(i): 0.5 for i in range(999)}, {"": 1}],
)
def test_invalid_stages_make_a_report(tmp_path: Path, value: Any) -> None:
    write_run(tmp_path, rows=[{**row, "stages": value} for row in make_rows([0.0, 0.0])])
    [run] = load_runs(tmp_path).runs
    assert len(run.log.stages["rooms-6"]) <= MAX_STAGES
    assert all(stage.isprintable() and len(stage) <= 200 for stage in run.log.stages["rooms-6"])
    build_report(tmp_path)


@pytest.mark.parametrize("tasks", [["wall"], {}, {"x" * 999: {}}, {"a\nb": {}}, {str(i): {} for i in range(999)}])
def test_invalid_task_names_are_ignored(tmp_path: Path, tasks: Any) -> None:
    write_run(tmp_path, rows=[{**row, "tasks": tasks} for row in make_rows([0.0, 0.0])])
    assert load_runs(tmp_path).tasks == ["rooms-6"]


def test_curves_png_has_a_panel_of_stages() -> None:
    panels = {plot.title: plot for plot in run_plots(two_task_rows([0.2, 0.4], [0.0, 0.1]))}
    names = [curve.variant for curve in panels["Stages: share of episodes"].curves]
    assert names == ["stages/lifted", "stages/opened"]
