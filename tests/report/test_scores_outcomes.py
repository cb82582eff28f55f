"""Best and final scores."""

from pathlib import Path

import numpy as np
import pytest

from byol_explore.report.load import Runs, load_runs
from byol_explore.report.scores import compute_scores, final_matrix, is_solved, score_kind, score_notes
from report.synthetic import make_rows, returns, undefined, write_run, write_study


def runs_of(*tasks: str) -> Runs:
    return Runs([], [], list(tasks), [], [], [], frozenset())


def test_best_is_maximum_of_mean_not_mean_of_maxima(tmp_path: Path) -> None:
    write_run(tmp_path, "byol-explore-seed0", make_rows([0.0, 1.0, 0.2]))
    write_run(tmp_path, "byol-explore-seed1", make_rows([0.8, 0.0, 0.0]))
    outcome = compute_scores(load_runs([tmp_path]))["byol-explore", "rooms-6"]
    assert outcome.best_mean == pytest.approx(50.0)
    assert outcome.final_mean == pytest.approx(10.0)
    assert outcome.best == {0: 100.0, 1: 80.0}
    assert outcome.final == {0: 20.0, 1: 0.0}


def test_final_matrix_has_normalised_scores_of_complete_seeds(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path, f"alien/rnd-seed{seed}", returns([0, 7127.7]), method="rnd", env="atari:alien")
    write_run(tmp_path, "rooms/rnd-seed1", make_rows([0.5]), method="rnd", env="rooms-4")
    found = compute_scores(load_runs([tmp_path]))
    np.testing.assert_allclose(final_matrix(found, "rnd", ["atari:alien", "rooms-4"]), [[100.0, 50.0]])
    np.testing.assert_allclose(final_matrix(found, "rnd", ["atari:alien"]), [[100.0], [100.0]])
    assert final_matrix(found, "rnd", ["rooms-5"]) is None
    assert final_matrix(found, "rnd", []) is None


def test_run_without_log_lines_has_no_scores(tmp_path: Path) -> None:
    write_run(tmp_path, rows=[])
    write_run(tmp_path, "rnd-seed0", make_rows([None]), method="rnd")
    assert compute_scores(load_runs([tmp_path])) == {}
    assert len(compute_scores(write_study(tmp_path / "more"))) == 3


def test_solved_depends_on_the_task() -> None:
    assert is_solved("rooms-6", 95.0)
    assert not is_solved("rooms-6", 94.9)
    assert is_solved("atari:freeway", 29.7)
    assert not is_solved("atari:freeway", 29.6), "as good as a human is not better"


def test_score_kinds_and_notes_depend_on_the_task() -> None:
    tasks = ("rooms-6", "atari:alien", "dm-hard-eight:baseball", "hard-eight:baseball")
    kinds = [score_kind(runs_of(*tasks), task) for task in tasks]
    assert [kind.name for kind in kinds] == ["success (%)", "evaluation", "training return", "Hard-Eight return"]
    assert [kind.metric.name for kind in kinds[:2]] == ["success_rate", "evaluation_return"]
    assert "human" not in score_notes(runs_of("rooms-6"))
    assert "success" not in score_notes(runs_of("atari:alien", "atari:freeway"))
    assert score_notes(runs_of("atari:alien", "atari:freeway")).count("100%") == 1
    assert "another world" in score_notes(runs_of("hard-eight:baseball"))
    assert "another world" not in score_notes(runs_of("dm-hard-eight:baseball"))


def test_training_episodes_of_games_are_not_scores(tmp_path: Path) -> None:
    """Before the first evaluation, between two, and in a run without any."""
    first, *others = returns([100.0, 50.0])
    rows = [{**first, "steps": 10, "evaluation_return": None, "return_mean": 9e9}, first]
    rows += [{**first, "steps": 150, "evaluation_return": None, "return_mean": 9e9}, *others]
    write_run(tmp_path, "byol-explore-seed0", rows, env="atari:alien")
    write_run(tmp_path, "none-seed0", undefined([9e9]), env="atari:alien", method="none")
    runs = load_runs([tmp_path])
    assert runs.scored_by_return == frozenset()
    assert compute_scores(runs) == {("byol-explore", "atari:alien"): ({0: 50.0}, {0: 100.0}, 50.0, 100.0)}


def test_games_without_evaluation_are_scored_by_return(tmp_path: Path) -> None:
    write_run(tmp_path, "byol-explore-seed0", undefined([7.0]), env="atari:alien")
    runs = load_runs([tmp_path])
    assert (runs.scored_by_return, runs.normalized) == ({"atari:alien"}, [])
    assert compute_scores(runs)["byol-explore", "atari:alien"].final == {0: 7.0}
    assert score_kind(runs, "atari:alien").name == "return"
    assert "nothing was evaluated" in score_notes(runs)


def test_training_episodes_of_hard_eight_are_scores(tmp_path: Path) -> None:
    """Evaluations do not change them."""
    write_run(tmp_path, "byol-explore-seed0", undefined([2.0, 6.0, 4.0]), env="hard-eight:wall-sensor")
    rows = [{**row, "evaluation_return": 9e9} for row in undefined([0.0, 2.0, 4.0])]
    write_run(tmp_path, "byol-explore-seed1", rows, env="hard-eight:wall-sensor", seed=1)
    runs = load_runs([tmp_path])
    assert (runs.scored_by_return, runs.normalized) == (frozenset(), ["hard-eight:wall-sensor"])
    assert compute_scores(runs) == {
        ("byol-explore", "hard-eight:wall-sensor"): ({0: 4.0, 1: 4.0}, {0: 6.0, 1: 4.0}, 4.0, 4.0)
    }
    assert "mean return of training episodes" in score_notes(runs)
    assert "nine actions" in score_notes(runs)


def test_returns_are_scores_if_success_is_undefined(tmp_path: Path) -> None:
    """A task with a success in any run is scored by success."""
    names = ("byol-explore-seed0", "byol-explore-seed1")
    for name, rows in zip(names, ([-9.0, -4.0], [-7.0, -8.0]), strict=True):
        write_run(tmp_path, f"a/{name}", undefined(rows), env="gymnasium:Pendulum-v1")
    for name, rows in zip(names, (undefined([3.0]), make_rows([0.5])), strict=True):
        write_run(tmp_path, f"b/{name}", rows, env="rooms-4")
    runs = load_runs([tmp_path])
    assert runs.scored_by_return == {"gymnasium:Pendulum-v1"}
    assert runs.normalized == ["rooms-4"]
    found = compute_scores(runs)
    assert found["byol-explore", "gymnasium:Pendulum-v1"] == ({0: -4.0, 1: -8.0}, {0: -4.0, 1: -7.0}, -6.0, -6.0)
    assert found["byol-explore", "rooms-4"].final == {1: 50.0}
    assert [score_kind(runs, task).name for task in runs.tasks] == ["return", "success (%)"]
