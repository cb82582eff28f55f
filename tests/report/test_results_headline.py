"""The headline section."""

from pathlib import Path

import pytest

from byol_explore.evaluation.scores import paper_scores, paper_statistics
from byol_explore.report.load import load_runs
from byol_explore.report.model import Bars, Section, Table
from byol_explore.report.results import headline_section
from byol_explore.report.scores import compute_scores
from report.synthetic import blocks, make_rows, returns, undefined, words, write_run, write_study


def section_of(*directories: Path) -> Section:
    runs = load_runs(directories)
    return headline_section(runs, compute_scores(runs))


def test_paper_scores_give_paper_statistics(tmp_path: Path) -> None:
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


def test_intervals_and_improvement_use_final_scores(tmp_path: Path) -> None:
    write_run(tmp_path, "byol-explore-seed0", make_rows([0.9, 0.6]))
    write_run(tmp_path, "byol-explore-seed1", make_rows([0.0, 0.4]))
    write_run(tmp_path, "rnd-seed0", make_rows([1.0, 0.5]), method="rnd")
    write_run(tmp_path, "rnd-seed1", make_rows([1.0, 0.4]), method="rnd")
    section = section_of(tmp_path)
    [table], [bars] = blocks(section, Table), blocks(section, Bars)
    assert table.columns[6:10] == ["IQM", "IQM low", "IQM high", "P(better)"]
    assert table.rows[0][6:10] == pytest.approx([50.0, 40.0, 60.0, None])
    assert table.rows[1][9] == pytest.approx((0 + 1 + 0 + 0.5) / 4)
    assert [bar[:3] for bar in bars.bars] == [("byol-explore", 50.0, 40.0), ("rnd", 45.0, 40.0)]


def test_success_in_95_of_100_episodes_is_solved(tmp_path: Path) -> None:
    write_run(tmp_path, rows=make_rows([0.95, 0.1]))
    [table] = blocks(section_of(tmp_path), Table)
    assert dict(zip(table.columns, table.rows[0], strict=True)) == {
        "variant": "byol-explore", "tasks": 1, "seeds": 1, "CHNS": 95.0, "solved": 1, "IQM": 10.0,
        "IQM low": None, "IQM high": None, "mean": 95.0,
    }  # fmt: skip


def status(section: Section) -> dict[str, str]:
    [table] = blocks(section, Table)
    place = table.columns.index("status")
    return {str(row[0]): str(row[place]) for row in table.rows}


def test_text_states_the_extent_and_status_the_winner(tmp_path: Path) -> None:
    write_study(tmp_path)
    section = section_of(tmp_path)
    assert "3 variants on 1 task (rooms-6): 5 runs of up to 300 environment steps, 9 minutes of training" in words(
        section
    )
    assert status(section) == {"byol-explore": "highest CHNS", "rnd": "", "horizon-1": ""}


def test_equal_scores_share_the_highest_status(tmp_path: Path) -> None:
    for method, success in (("byol-explore", 0.5), ("rnd", 0.50001), ("icm", 0.25)):
        write_run(tmp_path, f"{method}-seed0", make_rows([success]), method=method)
    assert status(section_of(tmp_path)) == {"byol-explore": "highest CHNS", "rnd": "highest CHNS", "icm": ""}


def test_returns_are_compared_but_not_averaged_with_scores(tmp_path: Path) -> None:
    """A return of 400 is above 100, but is not 400 percent."""
    for method, value in (("byol-explore", 100.0), ("rnd", 400.0)):
        write_run(tmp_path, f"pendulum/{method}-seed0", undefined([value]), method=method, env="pendulum")
    alone = section_of(tmp_path)
    [table] = blocks(alone, Table)
    assert table.columns == ["variant", "tasks", "seeds", "P(better)"]
    assert table.rows == [["byol-explore", 1, 1, None], ["rnd", 1, 1, 1.0]]
    assert table.note.startswith("Return is the mean return of training episodes, where no success is defined")
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
    assert [bar.value for bar in bars.bars] == [50.0, 50.0]


def test_status_lists_unfinished_runs_and_missing_tasks(tmp_path: Path) -> None:
    write_run(tmp_path, "byol-explore-seed0", [], finished=False)
    write_run(tmp_path, "byol-explore-seed1", make_rows([0.5]), finished=False)
    write_run(tmp_path, "byol-explore-seed2", make_rows([0.9]), stop_at_success_rate=0.9)
    write_run(tmp_path, "more/rnd-seed0", method="rnd", env="rooms-4")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "config.json").write_text("[")
    (tmp_path / "damaged" / "metrics.jsonl").touch()
    section = section_of(tmp_path)
    assert status(section) == {"byol-explore": "1 of 3 runs finished, 1 of 2 tasks", "rnd": "1 of 2 tasks"}
    assert "Left out, because it cannot be read: " in words(section)


def test_variant_without_all_tasks_is_never_highest(tmp_path: Path) -> None:
    for task, success in (("rooms-4", 0.1), ("rooms-6", 0.1)):
        write_run(tmp_path, f"{task}/byol-explore-seed0", make_rows([success]), env=task)
    write_run(tmp_path, "rooms-4/rnd-seed0", make_rows([1.0]), method="rnd", env="rooms-4")
    assert status(section_of(tmp_path)) == {"byol-explore": "highest CHNS", "rnd": "1 of 2 tasks"}


def test_headline_without_scores_is_text_only(tmp_path: Path) -> None:
    write_run(tmp_path, rows=[], finished=False)
    (tmp_path / "study.toml").write_text('name = "six"\ndescription = "Six rooms."')
    section = section_of(tmp_path)
    assert len(section.blocks) == 1
    assert words(section).startswith("Six rooms.")
    assert "No score has been logged yet." in words(section)
