"""Whole reports."""

import subprocess
import sys
from pathlib import Path

import pytest

from byol_explore.errors import UserError
from byol_explore.report.build import build_report
from byol_explore.report.model import Bars, HeatMap, Picture, Plot, Table
from report.synthetic import write_run, write_study

SECTIONS = ["headline", "learning", "tasks", "curiosity", "places", "films", "differences", "reproduce"]


def test_report_has_all_sections_with_unique_names(tmp_path: Path) -> None:
    write_study(tmp_path)
    report = build_report([str(tmp_path)])
    assert [section.name for section in report.sections] == SECTIONS
    assert report.variants == ["byol-explore", "rnd", "horizon-1"]
    assert report.title == "rooms-6"
    assert all(section.blocks for section in report.sections)
    kinds = Table | Plot | Bars | HeatMap | Picture
    names = [block.name for section in report.sections for block in section.blocks if isinstance(block, kinds)]
    assert len(set(names)) == len(names) > 5


def test_run_without_log_lines_makes_a_report(tmp_path: Path) -> None:
    write_run(tmp_path, rows=[], finished=False)
    assert [section.name for section in build_report([tmp_path]).sections] == SECTIONS


def test_report_is_named_after_the_study(tmp_path: Path) -> None:
    write_run(tmp_path)
    (tmp_path / "study.toml").write_text('name = "two rooms"')
    assert build_report([tmp_path]).title == "two rooms"


def test_directory_without_runs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no run"):
        build_report([tmp_path])


def test_build_imports_neither_jax_nor_matplotlib() -> None:
    """Reports and the live page start quickly."""
    code = "import sys, byol_explore.report.build; print({'jax', 'matplotlib'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
