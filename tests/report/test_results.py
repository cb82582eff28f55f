"""Tables of scores by task."""

from pathlib import Path

import pytest

from byol_explore.config.presets import make_config
from byol_explore.evaluation.scores import paper_scores
from byol_explore.report.load import load_runs
from byol_explore.report.model import Table
from byol_explore.report.results import tasks_section
from byol_explore.report.scores import compute_scores
from report.synthetic import blocks, make_rows, returns, undefined, words, write_run, write_study


def tables(*directories: Path) -> dict[str, Table]:
    runs = load_runs(directories)
    return {table.name: table for table in blocks(tasks_section(runs, compute_scores(runs)), Table)}


def test_score_table_has_tasks_as_rows_and_variants_as_columns(tmp_path: Path) -> None:
    write_study(tmp_path)
    write_run(tmp_path, "other/rnd-seed0", make_rows([0.5, 0.25]), method="rnd", env="rooms-4")
    found = tables(tmp_path)
    assert found["best"].columns == ["task", "score", "byol-explore", "rnd", "horizon-1"]
    assert found["best"].rows == [
        ["rooms-6", "success (%)", 95.0, 30.0, 30.0],
        ["rooms-4", "success (%)", None, 50.0, None],
    ]
    assert found["final"].rows[1] == ["rooms-4", "success (%)", None, 25.0, None]


def test_seed_table_has_a_row_per_seed(tmp_path: Path) -> None:
    write_run(tmp_path, "byol-explore-seed1", make_rows([1.0, 0.5]))
    write_run(tmp_path, "byol-explore-seed7", make_rows([0.0]))
    write_run(tmp_path, "byol-explore-seed8", [])
    table = tables(tmp_path)["by-seed"]
    assert table.columns[:6] == ["task", "variant", "seed", "steps", "final", "best"]
    assert [row[:6] for row in table.rows] == [
        ["rooms-6", "byol-explore", 1, 200, 50.0, 100.0],
        ["rooms-6", "byol-explore", 7, 100, 0.0, 0.0],
    ]


def test_paper_scores_match_method_and_regime(tmp_path: Path) -> None:
    game = {"preset": "atari-small", "env": "atari:alien"}
    write_run(tmp_path, "byol-explore-seed0", returns([7127.7]), **game)
    write_run(tmp_path, "fixed-targets-seed0", returns([0.0]), ablation="fixed-targets", **game)
    write_run(tmp_path, "rnd-intrinsic-seed0", returns([0.0]), method="rnd", regime="intrinsic", **game)
    write_run(tmp_path, "rnd-prioritized-seed0", returns([0.0]), method="rnd", ablation="prioritized", **game)
    write_run(tmp_path, "none-extrinsic-seed0", returns([0.0]), method="none", regime="extrinsic", **game)
    found = tables(tmp_path)
    paper = {row[1]: row[3] for row in found["paper"].rows}
    assert paper == {
        "byol-explore": paper_scores("atari-mixed-baselines")["byol-explore"]["atari:alien"],
        "fixed-targets": paper_scores("atari-mixed-ablations")["fixed-targets"]["atari:alien"],
        "rnd-intrinsic": paper_scores("atari-intrinsic-baselines")["rnd"]["atari:alien"],
        "none-extrinsic": paper_scores("atari-mixed-baselines")["none"]["atari:alien"],
    }
    assert found["paper"].rows[0][4] == 100.0
    assert found["best"].columns[-2:] == ["random", "human"]
    assert found["best"].rows[0][-2:] == [227.8, 7127.7]


def test_evaluation_table_has_human_percentages_and_rooms(tmp_path: Path) -> None:
    """Halfway between random and human is 50%; scores above a human are clipped."""
    alien, venture = (
        [low + share * (high - low) for share in (0.5, 3.0)] for low, high in ((227.8, 7127.7), (0, 1187.5))
    )
    write_run(
        tmp_path, "alien/rnd-seed0", returns([9e9], evaluation_return_max=alien[0]), method="rnd", env="atari:alien"
    )
    write_run(
        tmp_path, "alien/rnd-seed1", returns([9e9], evaluation_return_max=alien[0]), method="rnd", env="atari:alien"
    )
    rows = returns([9e9, 9e9], rooms_visited=3)
    rows[0]["evaluation_return_max"], rows[1]["evaluation_return_max"] = venture
    write_run(tmp_path, "venture/rnd-seed0", rows, method="rnd", env="atari:venture")
    write_run(tmp_path, "hero/rnd-seed0", undefined([9e9]), method="rnd", env="atari:hero")
    table = tables(tmp_path)["evaluations"]
    assert table.columns[2:] == ["seeds", "score", "normalised (%)", "clipped (%)", "rooms found"]
    assert {row[0]: row[2:] for row in table.rows} == {
        "atari:alien": [2, alien[0], pytest.approx(50.0), pytest.approx(50.0), None],
        "atari:venture": [1, venture[1], pytest.approx(300.0), 100.0, 3.0],
        "atari:hero": [0, None, None, None, None],
        "mean of 2 games": [None, None, pytest.approx(175.0), pytest.approx(75.0), None],
    }


def test_no_evaluation_table_without_games(tmp_path: Path) -> None:
    write_run(tmp_path, rows=make_rows([0.5], evaluation_return_max=0.7))
    assert "evaluations" not in tables(tmp_path)


def test_hard_eight_needs_an_evaluation_to_be_in_the_table(tmp_path: Path) -> None:
    write_run(tmp_path, "a/none-seed0", undefined([5.0]), env="hard-eight:baseball", method="none")
    assert "evaluations" not in tables(tmp_path)
    write_run(tmp_path, "b/none-seed0", returns([7.9]), env="hard-eight:throw-across", method="none")
    [row] = tables(tmp_path)["evaluations"].rows
    assert row[:3] == ["hard-eight:throw-across", "none", 1]


def test_returns_are_not_normalised_if_success_is_undefined(tmp_path: Path) -> None:
    write_run(tmp_path, "pendulum/byol-explore-seed0", undefined([-400.0, -500.0]), env="pendulum")
    write_run(tmp_path, "alien/byol-explore-seed0", returns([7127.7]), env="atari:alien")
    found = tables(tmp_path)
    assert [row[:3] for row in found["best"].rows] == [
        ["atari:alien", "evaluation", 7127.7],
        ["pendulum", "return", -400.0],
    ]
    assert "where no success is defined" in found["best"].note
    table = found["by-seed"]
    percents = [table.columns.index(name) for name in ("final (%)", "best (%)")]
    assert [[row[place] for place in percents] for row in table.rows] == [[100.0, 100.0], [None, None]]
    assert table.rows[1][4:6] == [-500.0, -400.0]


@pytest.mark.parametrize("preset", ["atari", "atari-big"])
def test_big_agent_is_recognised_by_its_settings(tmp_path: Path, preset: str) -> None:
    """By horizon and sequence length, with the preset of the study and with its own."""
    large = make_config("atari-big")
    settings = {"curiosity": large.curiosity, "runtime": large.runtime}
    write_run(tmp_path, "big-seed0", returns([0.0]), preset=preset, env="atari:alien", **settings)
    [row] = tables(tmp_path)["paper"].rows
    assert row[3] == paper_scores("atari-mixed-baselines")["big"]["atari:alien"]


def test_tasks_section_without_scores_says_so(tmp_path: Path) -> None:
    write_run(tmp_path, rows=[])
    runs = load_runs([tmp_path])
    assert "No score" in words(tasks_section(runs, compute_scores(runs)))
