"""Learning curves."""

from pathlib import Path

import numpy as np
import pytest

from byol_explore.report.curves import learning
from byol_explore.report.load import load_runs
from byol_explore.report.model import Plot
from report.synthetic import Row, blocks, make_rows, returns, undefined, write_run, write_study


def test_baselines_and_ablations_have_separate_plots(tmp_path: Path) -> None:
    plots = {plot.name: plot for plot in blocks(learning(write_study(tmp_path)), Plot)}
    assert {name: [curve.variant for curve in plot.curves] for name, plot in plots.items()} == {
        "score-rooms-6-baselines": ["byol-explore", "rnd"],
        "score-rooms-6-ablations": ["byol-explore", "horizon-1"],
    }
    ours = plots["score-rooms-6-baselines"].curves[0]
    assert ours.mean == pytest.approx([10.0, 60.0, 95.0])
    assert ours.low == pytest.approx([0.0, 50.0, 90.0])
    assert plots["score-rooms-6-baselines"].y_range == (0.0, 100.0)


def two_tasks(first: float, second: float | None) -> list[Row]:
    tasks = {"rooms-4": {"success_rate": first}, "rooms-5": None if second is None else {"success_rate": second}}
    return [{"steps": 100, "tasks": tasks}, {"steps": 200, "tasks": {**tasks, "rooms-5": {"success_rate": 1.0}}}]


def test_mean_over_tasks_needs_scores_of_all_tasks(tmp_path: Path) -> None:
    write_run(tmp_path, "byol-explore-seed0", two_tasks(0.4, 0.2), env="rooms-4,rooms-5")
    write_run(tmp_path, "byol-explore-seed1", two_tasks(0.6, None), env="rooms-4,rooms-5")
    overall = blocks(learning(load_runs([tmp_path])), Plot)[0]
    assert overall.name == "overall"
    np.testing.assert_allclose(np.asarray(overall.curves[0].mean, float), [30.0, 75.0])


def test_variant_without_a_task_has_no_mean_over_tasks(tmp_path: Path) -> None:
    write_run(tmp_path, "byol-explore-seed0", two_tasks(0.4, 0.2), env="rooms-4,rooms-5")
    write_run(tmp_path, "rnd-seed0", make_rows([0.9]), method="rnd", env="rooms-4")
    for step, env in enumerate(("rooms-4", "rooms-5")):
        rows = [{"steps": step, "success_rate": 1.0}]
        write_run(tmp_path, f"{env}/icm-seed0", rows, finished=False, method="icm", env=env)
    overall = blocks(learning(load_runs([tmp_path])), Plot)[0]
    assert [curve.variant for curve in overall.curves] == ["byol-explore"], "icm never had both at the same step"


def test_mean_over_tasks_is_summed_in_the_order_of_tasks(tmp_path: Path) -> None:
    """The order of a set of names differs between processes, and with it the last bits of a sum."""
    rates = {f"rooms-{size}": size**0.5 % 1 for size in range(3, 23)}
    row = {"steps": 100, "tasks": {task: {"success_rate": rate} for task, rate in rates.items()}}
    write_run(tmp_path, rows=[row], env=",".join(rates))
    [curve] = blocks(learning(load_runs([tmp_path])), Plot)[0].curves
    assert curve.mean == np.mean([[100.0 * (100.0 * rate) / 100.0] for rate in rates.values()], axis=0).tolist()


def test_tasks_of_separate_runs_are_averaged_by_seed(tmp_path: Path) -> None:
    for seed, score in ((0, 7127.7), (1, 1e6)):
        write_run(tmp_path, f"alien/rnd-seed{seed}", returns([score]), method="rnd", env="atari:alien")
        write_run(tmp_path, f"rooms/rnd-seed{seed}", make_rows([0.5 + seed / 2]), method="rnd", env="rooms-4")
    write_run(tmp_path, "rooms/rnd-seed2", make_rows([0.0]), method="rnd", env="rooms-4")
    [curve] = blocks(learning(load_runs([tmp_path])), Plot)[0].curves
    assert (curve.low, curve.mean, curve.high) == ([75.0], [87.5], [100.0]), "seed 2 lacks a task: it has no mean yet"


def test_returns_are_plotted_without_success(tmp_path: Path) -> None:
    write_run(tmp_path, "a/byol-explore-seed0", returns([1.0, 2.0]), env="gymnasium:Acrobot-v1")
    write_run(tmp_path, "b/byol-explore-seed0", make_rows([0.0, 0.0]))
    plots = {plot.name: plot for plot in blocks(learning(load_runs([tmp_path])), Plot)}
    assert plots["return-gymnasium-acrobot-v1"].curves[0].mean == [1.0, 2.0]
    assert "return-rooms-6" not in plots


def test_score_is_return_if_success_is_undefined(tmp_path: Path) -> None:
    """Plotted once, and not in the mean over tasks with a success."""
    for env, rows in (("pendulum", undefined([1.0, 2.0])), ("rooms-6", make_rows([0.0, 0.5]))):
        write_run(tmp_path, f"{env}/byol-explore-seed0", rows, env=env)
    plots = {plot.name: plot for plot in blocks(learning(load_runs([tmp_path])), Plot)}
    assert list(plots) == ["score-pendulum", "score-rooms-6"]
    assert (plots["score-pendulum"].y_label, plots["score-pendulum"].y_range) == ("return", None)
    assert plots["score-pendulum"].curves[0].mean == [1.0, 2.0]
    write_run(tmp_path, "rooms-4/byol-explore-seed0", make_rows([0.0, 1.0]), env="rooms-4")
    overall = blocks(learning(load_runs([tmp_path])), Plot)[0]
    assert overall.title.startswith("Mean over 2 tasks")
    assert overall.curves[0].mean == [0.0, 75.0]


def test_run_without_log_lines_has_no_curve(tmp_path: Path) -> None:
    write_run(tmp_path, rows=[])
    assert blocks(learning(load_runs([tmp_path])), Plot) == []


def test_hard_eight_returns_are_plotted_once_as_scores(tmp_path: Path) -> None:
    write_run(tmp_path, "byol-explore-seed0", returns([5.0, 6.0]), env="hard-eight:wall-sensor")
    [plot] = blocks(learning(load_runs([tmp_path])), Plot)
    assert (plot.name, plot.y_label, plot.curves[0].mean) == ("score-hard-eight-wall-sensor", "return", [5.0, 6.0])


def test_games_have_plots_of_evaluations_and_of_training_returns(tmp_path: Path) -> None:
    rows = returns([5.0, 6.0])
    rows[0] |= {"evaluation_return": None, "return_mean": 4.0}
    write_run(tmp_path, "byol-explore-seed0", rows, env="atari:alien")
    plots = {plot.name: plot.curves[0] for plot in blocks(learning(load_runs([tmp_path])), Plot)}
    assert (plots["score-atari-alien"].x, plots["score-atari-alien"].mean) == ([200.0], [6.0])
    assert plots["return-atari-alien"].mean == [4.0, 6.0]
