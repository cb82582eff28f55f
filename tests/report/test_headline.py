"""The first section: what was compared and how it ended."""

from pathlib import Path

import pytest

from byol_explore.evaluation.paper import paper_scores, paper_statistics
from byol_explore.report.headline import headline
from byol_explore.report.load import load_runs
from byol_explore.report.model import Bars, Section, Table
from byol_explore.report.outcomes import outcomes
from report.synthetic import blocks, make_rows, returns, undefined, words, write_run, write_study


def section_of(*directories: Path) -> Section:
    runs = load_runs(directories)
    return headline(runs, outcomes(runs))


def test_the_papers_scores_give_the_papers_statistics(tmp_path: Path) -> None:
    for variant, method in (("byol-explore", "byol-explore"), ("rnd", "rnd")):
        for task, score in paper_scores("atari-mixed-baselines")[variant].items():
            name = f"{task.removeprefix('atari:')}/{variant}-seed0"
            write_run(tmp_path, name, returns([score, 0.0]), preset="atari-small", method=method, env=task)
    [table] = blocks(section_of(tmp_path), Table)
    printed = paper_statistics("atari-mixed-baselines")
    names = ("CHNS", "superhuman", "mean", "median", "40%", "30%", "20%", "10%", "5%")
    places = [table.columns.index(name) for name in names]
    for row in table.rows:
        assert row[1:3] == [10, 1]
        assert [row[place] for place in places] == pytest.approx([*printed[str(row[0])].values()], abs=0.02)


def test_intervals_and_the_probability_to_be_better_are_of_final_scores(tmp_path: Path) -> None:
    write_run(tmp_path, "byol-explore-seed0", make_rows([0.9, 0.6]))
    write_run(tmp_path, "byol-explore-seed1", make_rows([0.0, 0.4]))
    write_run(tmp_path, "rnd-seed0", make_rows([1.0, 0.5]), method="rnd")
    write_run(tmp_path, "rnd-seed1", make_rows([1.0, 0.4]), method="rnd")
    section = section_of(tmp_path)
    [table], [bars] = blocks(section, Table), blocks(section, Bars)
    assert table.columns[5:9] == ["IQM", "IQM low", "IQM high", "P(better)"]
    assert table.rows[0][5:9] == pytest.approx([50.0, 40.0, 60.0, None])
    assert table.rows[1][8] == pytest.approx((0 + 1 + 0 + 0.5) / 4)
    assert (bars.variants, bars.values, bars.low) == (["byol-explore", "rnd"], [50.0, 45.0], [40.0, 40.0])


def test_success_in_95_of_100_episodes_is_solved(tmp_path: Path) -> None:
    write_run(tmp_path, rows=make_rows([0.95, 0.1]))
    [table] = blocks(section_of(tmp_path), Table)
    assert dict(zip(table.columns, table.rows[0], strict=True)) == {
        "variant": "byol-explore", "tasks": 1, "seeds": 1, "CHNS": 95.0, "solved": 1, "IQM": 10.0,
        "IQM low": None, "IQM high": None, "mean": 95.0,
    }  # fmt: skip


def test_the_comparison_and_its_winner_are_said_in_words(tmp_path: Path) -> None:
    write_study(tmp_path)
    said = words(section_of(tmp_path))
    assert "byol-explore has the highest clipped mean score (CHNS), 95.0 of 100, before rnd with 30.0;" in said
    assert "3 variants (byol-explore, rnd, horizon-1) on rooms-6, 1 to 2 seeds each; up to 300 environment" in said
    assert "5 runs and 9 minutes of training" in said


def test_equal_scores_have_no_winner(tmp_path: Path) -> None:
    for method in ("byol-explore", "rnd"):
        write_run(tmp_path, f"{method}-seed0", make_rows([0.5]), method=method)
    said = words(section_of(tmp_path))
    assert "All have the same clipped mean score (CHNS), 50.0 of 100: byol-explore, rnd." in said
    write_run(tmp_path, "icm-seed0", make_rows([0.25]), method="icm")
    said = words(section_of(tmp_path))
    assert "byol-explore, rnd have the highest clipped mean score (CHNS), 50.0 of 100, before icm with 25.0." in said


def test_returns_are_compared_but_not_averaged_with_other_scores(tmp_path: Path) -> None:
    """A return of 400 is not 400 percent of anything; that it is more than 100 is known all the same."""
    for method, value in (("byol-explore", 100.0), ("rnd", 400.0)):
        write_run(tmp_path, f"pendulum/{method}-seed0", undefined([value]), method=method, env="pendulum")
    alone = section_of(tmp_path)
    [table] = blocks(alone, Table)
    assert table.columns == ["variant", "tasks", "seeds", "P(better)"]
    assert table.rows == [["byol-explore", 1, 1, None], ["rnd", 1, 1, 1.0]]
    assert table.note.startswith("No success is defined in pendulum: scored by return")
    assert blocks(alone, Bars) == []
    assert "CHNS" not in words(alone) + table.note
    for method in ("byol-explore", "rnd"):
        write_run(tmp_path, f"rooms/{method}-seed0", make_rows([0.5]), method=method)
    both = section_of(tmp_path)
    [table], [bars] = blocks(both, Table), blocks(both, Bars)
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert [(row["tasks"], row["CHNS"], row["mean"], row["solved"], row["P(better)"]) for row in rows] == [
        (2, 50.0, 50.0, 0, None), (2, 50.0, 50.0, 0, 0.75),
    ]  # fmt: skip
    assert bars.values == [50.0, 50.0]


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    write_run(tmp_path, "byol-explore-seed0", [], finished=False)
    write_run(tmp_path, "byol-explore-seed1", make_rows([0.5]), finished=False)
    write_run(tmp_path, "byol-explore-seed2", make_rows([0.9]), stop_at_success=0.9)
    write_run(tmp_path, "more/rnd-seed0", method="rnd", env="rooms-4")
    said = words(section_of(tmp_path))
    assert "Without a log line yet: byol-explore on rooms-6, seed 0." in said
    assert "Not finished: byol-explore on rooms-6, seed 1 (100 of 300 steps)." in said
    assert "1 run stopped early at success" in said
    assert "one seed only, so without bands and intervals: rnd." in said
    assert "not to be compared as a whole: byol-explore (1 of 2), rnd (1 of 2)" in said
    assert "highest" not in said


def test_before_the_first_line_there_are_only_words(tmp_path: Path) -> None:
    write_run(tmp_path, rows=[], finished=False)
    (tmp_path / "study.toml").write_text('name = "six"\ndescription = "Six rooms."')
    section = section_of(tmp_path)
    assert len(section.blocks) == 1
    assert words(section).startswith("Six rooms.")
    assert "No score has been logged yet." in words(section)
