"""Best and final scores."""

from pathlib import Path

import numpy as np
import pytest

from byol_explore.report.load import Runs, load_runs
from byol_explore.report.outcomes import final_matrix, is_solved, meaning_of_scores, outcomes, unit_of_scores
from report.synthetic import make_rows, returns, undefined, write_run, write_study


def runs_of(*tasks: str) -> Runs:
    return Runs([], [], list(tasks), [], [], frozenset())


def test_the_best_is_the_highest_point_of_the_mean_not_the_mean_of_highest_points(tmp_path: Path) -> None:
    write_run(tmp_path, "byol-explore-seed0", make_rows([0.0, 1.0, 0.2]))
    write_run(tmp_path, "byol-explore-seed1", make_rows([0.8, 0.0, 0.0]))
    outcome = outcomes(load_runs([tmp_path]))["byol-explore", "rooms-6"]
    assert outcome.best_mean == pytest.approx(50.0)
    assert outcome.final_mean == pytest.approx(10.0)
    assert outcome.best == {0: 100.0, 1: 80.0}
    assert outcome.final == {0: 20.0, 1: 0.0}


def test_final_scores_are_normalised_and_of_seeds_that_have_all_tasks(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path, f"alien/rnd-seed{seed}", returns([0, 7127.7]), method="rnd", env="atari:alien")
    write_run(tmp_path, "rooms/rnd-seed1", make_rows([0.5]), method="rnd", env="rooms-4")
    found = outcomes(load_runs([tmp_path]))
    np.testing.assert_allclose(final_matrix(found, "rnd", ["atari:alien", "rooms-4"]), [[100.0, 50.0]])
    np.testing.assert_allclose(final_matrix(found, "rnd", ["atari:alien"]), [[100.0], [100.0]])
    assert final_matrix(found, "rnd", ["rooms-5"]) is None
    assert final_matrix(found, "rnd", []) is None


def test_a_run_without_a_line_has_no_outcome(tmp_path: Path) -> None:
    write_run(tmp_path, rows=[])
    write_run(tmp_path, "rnd-seed0", make_rows([None]), method="rnd")
    assert outcomes(load_runs([tmp_path])) == {}
    assert len(outcomes(write_study(tmp_path / "more"))) == 3


def test_what_solved_and_the_scores_mean_depends_on_the_task() -> None:
    assert is_solved("rooms-6", 95.0)
    assert not is_solved("rooms-6", 94.9)
    assert is_solved("atari:freeway", 29.7)
    assert not is_solved("atari:freeway", 29.6), "as good as a human is not better"
    assert "human" not in meaning_of_scores(runs_of("rooms-6"))
    assert "success" not in meaning_of_scores(runs_of("atari:alien"))
    assert meaning_of_scores(runs_of("rooms-6", "atari:alien")).count("100") == 2
    assert "another world" in meaning_of_scores(runs_of("hard-eight:baseball"))
    assert "another world" not in meaning_of_scores(runs_of("dm-hard-eight:baseball"))
    assert unit_of_scores(runs_of("rooms-6")) == "Success in percent."
    assert unit_of_scores(runs_of("atari:alien")) == "Scores as the game counts them."
    assert "where humans have no score" in unit_of_scores(runs_of("rooms-6", "atari:alien"))


def test_training_episodes_of_a_game_are_no_score(tmp_path: Path) -> None:
    """Not before the first evaluation, not between two, and not of a run that has none."""
    first, *others = returns([100.0, 50.0])
    rows = [{**first, "steps": 10, "evaluation_return": None, "return_mean": 9e9}, first]
    rows += [{**first, "steps": 150, "evaluation_return": None, "return_mean": 9e9}, *others]
    write_run(tmp_path, "byol-explore-seed0", rows, env="atari:alien")
    write_run(tmp_path, "none-seed0", undefined([9e9]), env="atari:alien", method="none")
    runs = load_runs([tmp_path])
    assert runs.by_return == frozenset()
    assert outcomes(runs) == {("byol-explore", "atari:alien"): ({0: 50.0}, {0: 100.0}, 50.0, 100.0)}


def test_games_that_nobody_evaluated_are_scored_by_return_beside_no_human(tmp_path: Path) -> None:
    write_run(tmp_path, "byol-explore-seed0", undefined([7.0]), env="atari:alien")
    runs = load_runs([tmp_path])
    assert (runs.by_return, runs.normalized) == ({"atari:alien"}, [])
    assert outcomes(runs)["byol-explore", "atari:alien"].final == {0: 7.0}
    assert "Nothing was evaluated in atari:alien" in meaning_of_scores(runs)
    assert unit_of_scores(runs) == "Returns of training episodes where nothing was evaluated."


def test_training_episodes_of_hard_eight_are_scores(tmp_path: Path) -> None:
    """Their best mean over seeds in training, beside humans; evaluations change nothing."""
    write_run(tmp_path, "byol-explore-seed0", undefined([2.0, 6.0, 4.0]), env="hard-eight:wall-sensor")
    rows = [{**row, "evaluation_return": 9e9} for row in undefined([0.0, 2.0, 4.0])]
    write_run(tmp_path, "byol-explore-seed1", rows, env="hard-eight:wall-sensor", seed=1)
    runs = load_runs([tmp_path])
    assert (runs.by_return, runs.normalized) == (frozenset(), ["hard-eight:wall-sensor"])
    assert outcomes(runs) == {
        ("byol-explore", "hard-eight:wall-sensor"): ({0: 4.0, 1: 4.0}, {0: 6.0, 1: 4.0}, 4.0, 4.0)
    }
    for note in (meaning_of_scores(runs), unit_of_scores(runs)):
        assert "returns of training episodes, which evaluations play by the same rules" in note
        assert "random actions were its nine" in note
        assert "Doing nothing" not in note
    assert "Doing nothing is 25% in hard-eight:remember-sensor" in unit_of_scores(runs_of("hard-eight:remember-sensor"))


def test_where_no_success_is_defined_returns_are_scores(tmp_path: Path) -> None:
    """Also of the run that knows none yet; a task that some run has a success in is scored by it."""
    names = ("byol-explore-seed0", "byol-explore-seed1")
    for name, rows in zip(names, ([-9.0, -4.0], [-7.0, -8.0]), strict=True):
        write_run(tmp_path, f"a/{name}", undefined(rows), env="gymnasium:Pendulum-v1")
    for name, rows in zip(names, (undefined([3.0]), make_rows([0.5])), strict=True):
        write_run(tmp_path, f"b/{name}", rows, env="rooms-4")
    runs = load_runs([tmp_path])
    assert runs.by_return == {"gymnasium:Pendulum-v1"}
    assert runs.normalized == ["rooms-4"]
    found = outcomes(runs)
    assert found["byol-explore", "gymnasium:Pendulum-v1"] == ({0: -4.0, 1: -8.0}, {0: -4.0, 1: -7.0}, -6.0, -6.0)
    assert found["byol-explore", "rooms-4"].final == {1: 50.0}
    assert "No success is defined in gymnasium:Pendulum-v1" in meaning_of_scores(runs)
    assert unit_of_scores(runs) == "Success in percent. Returns where no success is defined."
