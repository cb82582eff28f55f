"""A search whose trials train, whole and in two parts."""

import json
from pathlib import Path

import pytest

from byol_explore.study.file import read_study
from byol_explore.study.plan import plan_runs
from byol_explore.study.runner import run_study

TINY = Path(__file__).with_name("tiny_search.toml")


def test_the_tiny_search_can_be_planned() -> None:
    assert [run.name for run in plan_runs(read_study(TINY), chosen={"none": 1})] == [
        "trials/probe-memory/none-trial00-seed0", "trials/probe-memory/none-trial01-seed0",
        "probe-memory/none-seed5", "probe-memory/none-seed6",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_search_in_two_parts_equals_a_whole_one(tmp_path: Path) -> None:
    study = read_study(TINY)
    run_study(study, tmp_path / "whole", parallel=2)
    run_study(study, tmp_path / "parts", only="trial00")
    states = run_study(study, tmp_path / "parts", parallel=2)
    assert [state.state for state in states.values()] == ["done"] * 4
    whole, parts = (json.loads((tmp_path / name / "search.json").read_text()) for name in ("whole", "parts"))
    assert whole == parts
    assert whole["variants"]["none"]["reported"]["runs"] == 2
