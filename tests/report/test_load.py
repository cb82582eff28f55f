"""Loading runs."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from byol_explore.errors import UserError
from byol_explore.report.load import load_runs
from byol_explore.storage import metrics
from report.synthetic import make_rows, returns, write_run, write_study


def test_runs_are_found_at_any_depth_and_sorted(tmp_path: Path) -> None:
    write_run(tmp_path, "rooms-6/byol-explore-seed1")
    write_run(tmp_path, "rooms-6/byol-explore-seed0")
    write_run(tmp_path, "rooms-6/byol-explore-seed0/checkpoints/copy")  # a run's own folders are not searched
    write_run(tmp_path, "rooms-4/deep/none-seed0", method="none", env="rooms-4")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "above").symlink_to(tmp_path)
    runs = load_runs([tmp_path])
    assert [(run.variant, run.env, run.seed) for run in runs.runs] == [
        ("byol-explore", "rooms-6", 0), ("byol-explore", "rooms-6", 1), ("none", "rooms-4", 0),
    ]  # fmt: skip
    assert runs.variants == ["byol-explore", "none"]
    assert load_runs([tmp_path, tmp_path / "rooms-6"]).runs == runs.runs, "nothing counts twice"


def test_directory_without_seed_is_named_by_its_configuration(tmp_path: Path) -> None:
    write_run(tmp_path, "mine", method="rnd", ablation="prioritized", regime="intrinsic")
    assert load_runs([tmp_path]).variants == ["rnd-prioritized-intrinsic"]


def test_clashing_variants_are_named_by_their_folders(tmp_path: Path) -> None:
    for folder in ("old", "new"):
        write_run(tmp_path, f"{folder}/rooms-6/byol-explore-seed0")
        write_run(tmp_path, f"{folder}/rooms-6/byol-explore-seed1")
    write_run(tmp_path, "new/rooms-6/rnd-seed0", method="rnd")
    both = load_runs([tmp_path / "old", tmp_path / "new"])
    assert set(both.variants) == {"byol-explore in old", "byol-explore in new", "rnd"}
    assert len(both.select("byol-explore in old")) == 2
    above = load_runs([tmp_path])
    assert f"{tmp_path.name}/old/rooms-6/byol-explore" in above.variants


def test_agents_for_one_and_two_tasks_are_two_variants(tmp_path: Path) -> None:
    write_run(tmp_path, "rooms-6/byol-explore-seed0")
    write_run(tmp_path, "both/byol-explore-seed1", env="rooms-4,rooms-6")
    assert len(load_runs([tmp_path]).variants) == 2


def test_variants_have_the_order_of_the_paper(tmp_path: Path) -> None:
    for method in ("none", "rnd", "icm"):
        write_run(tmp_path, f"{method}-seed0", method=method)
    for ablation in ("no-sharing", "fixed-targets", "horizon-1"):
        write_run(tmp_path, f"{ablation}-seed0", ablation=ablation)
    for size in (16, 2):
        write_run(tmp_path, f"belief-{size}-seed0")
    write_run(tmp_path, "byol-explore-seed0")
    order = ["byol-explore", "belief-2", "belief-16", "rnd", "icm", "none", "fixed-targets", "horizon-1", "no-sharing"]
    runs = load_runs([tmp_path])
    assert runs.variants == order
    assert runs.groups() == [
        ("baselines", ["byol-explore", "rnd", "icm", "none"]),
        ("ablations", ["byol-explore", "belief-2", "belief-16", "fixed-targets", "horizon-1", "no-sharing"]),
    ]


def test_first_variant_of_a_study_is_the_main_one(tmp_path: Path) -> None:
    for method in ("byol-explore", "rnd", "icm"):
        write_run(tmp_path, f"{method}-seed0", method=method)
    for study in ('methods = ["not-run", "rnd", "byol-explore"]', 'ablations = ["rnd"]', '[[variants]]\nname = "rnd"'):
        (tmp_path / "study.toml").write_text(study)
        assert load_runs([tmp_path]).variants == ["rnd", "byol-explore", "icm"]


def test_given_main_variant_overrides_the_study(tmp_path: Path) -> None:
    for method in ("byol-explore", "rnd"):
        write_run(tmp_path, f"{method}-seed0", method=method)
    (tmp_path / "study.toml").write_text('methods = ["byol-explore"]')
    assert load_runs([tmp_path], main="rnd").main == "rnd"
    with pytest.raises(UserError, match="unknown variant 'icm'; choose from: byol-explore, rnd"):
        load_runs([tmp_path], main="icm")


def test_default_main_variant_has_the_method_of_most_runs(tmp_path: Path) -> None:
    for name, method in (("rnd-seed0", "rnd"), ("icm-seed0", "icm"), ("icm-seed1", "icm")):
        write_run(tmp_path, name, method=method)
    assert load_runs([tmp_path]).variants == ["icm", "rnd"]
    write_run(tmp_path, "mine-seed0", ablation="horizon-1")
    assert load_runs([tmp_path]).main == "mine", "byol-explore, though changed"


@pytest.mark.parametrize("study", ["methods = 5", "[[variants]]\nname = 5", "methods = [[]]", "variants = 5", "x = "])
def test_damaged_study_does_not_set_the_main_variant(tmp_path: Path, study: str) -> None:
    write_run(tmp_path, "rnd-seed0", method="rnd")
    write_run(tmp_path, "byol-explore-seed0")
    (tmp_path / "study.toml").write_text(study)
    assert load_runs([tmp_path]).main == "byol-explore"


def test_other_regimes_are_a_group(tmp_path: Path) -> None:
    """For every method; without curiosity all regimes are equal."""
    write_run(tmp_path, "byol-explore-seed0")
    write_run(tmp_path, "horizon-1-seed0", ablation="horizon-1")
    write_run(tmp_path, "byol-explore-intrinsic-seed0", regime="intrinsic")
    write_run(tmp_path, "rnd-intrinsic-seed0", method="rnd", regime="intrinsic")
    write_run(tmp_path, "none-seed0", method="none", regime="extrinsic")
    assert load_runs([tmp_path]).groups() == [
        ("baselines", ["byol-explore", "none"]),
        ("ablations", ["byol-explore", "horizon-1"]),
        ("regimes", ["byol-explore", "byol-explore-intrinsic", "rnd-intrinsic"]),
    ]


def test_one_kind_of_variants_is_one_group(tmp_path: Path) -> None:
    write_run(tmp_path, "byol-explore-seed0")
    write_run(tmp_path, "rnd-seed0", method="rnd")
    assert load_runs([tmp_path]).groups() == [("", ["byol-explore", "rnd"])]


def test_score_is_success_in_percent_or_nan(tmp_path: Path) -> None:
    write_run(tmp_path, rows=make_rows([None, 0.25], uncertainty=3.0, prediction_error=[1.0, 2.0]))
    run = load_runs([tmp_path]).runs[0]
    np.testing.assert_array_equal(run.steps, [100, 200])
    np.testing.assert_array_equal(run.log.scores["rooms-6"], [np.nan, 25.0])
    np.testing.assert_array_equal(run.log.columns["uncertainty"], [3.0, 3.0])
    np.testing.assert_array_equal(run.log.columns["rooms_visited"], [np.nan, np.nan])
    np.testing.assert_array_equal(run.log.prediction_error, [[1.0, 2.0], [1.0, 2.0]])


def test_games_are_scored_by_evaluation_alone(tmp_path: Path) -> None:
    rows = returns([10.0, 20.0])
    rows[0]["evaluation_return"], rows[1]["evaluation_return"] = None, 500.0
    write_run(tmp_path, rows=rows, preset="atari-small", env="atari:alien")
    log = load_runs([tmp_path]).runs[0].log
    np.testing.assert_array_equal(log.scores["atari:alien"], [np.nan, 500.0])
    np.testing.assert_array_equal(log.returns["atari:alien"], [10.0, 20.0])


def test_several_tasks_have_their_scores(tmp_path: Path) -> None:
    tasks = {
        "rooms-4": {"success_rate": 0.75, "return_mean": 0.5},
        "atari:alien": {"return_mean": 7.0},
        "rooms-5": None,
    }
    row = {**make_rows([0.4])[0], "tasks": tasks, "evaluation": {"atari:alien": {"return": 9.0, "best": 11.0}}}
    write_run(tmp_path, rows=[row], env="rooms-4,atari:alien,rooms-5")
    scores = load_runs([tmp_path]).runs[0].log.scores
    assert {task: values.tolist() for task, values in scores.items() if task != "rooms-5"} == {
        "rooms-4": [75.0], "atari:alien": [9.0],
    }  # fmt: skip
    assert np.isnan(scores["rooms-5"]).all()
    best = load_runs([tmp_path]).runs[0].log.best_evaluation
    assert best["atari:alien"].tolist() == [11.0]
    assert np.isnan(best["rooms-4"]).all()


def test_damaged_lines_and_configurations_are_skipped(tmp_path: Path) -> None:
    run = write_run(tmp_path, "byol-explore-seed0")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('[1]\n{"no": "steps"}\n{"steps": 400, "success_rate": "high"}\n{"steps": 500, "succ')
    (run / "summary.json").write_text('{"steps": "x"}')
    (write_run(tmp_path, "byol-explore-seed1") / "config.json").write_text('{"env": ')
    runs = load_runs([tmp_path])
    assert runs.runs[0].steps.tolist() == [100, 200, 300, 400]
    assert len(runs.runs) == 1
    assert not runs.runs[0].is_finished
    assert runs.unreadable[0].startswith(f"{tmp_path.name}/byol-explore-seed1: ")


def test_lines_are_sorted_by_step_and_the_last_of_each_counts(tmp_path: Path) -> None:
    rows = [{"steps": step, "success_rate": rate, "prediction_error": [rate]}
            for step, rate in ((200, 0.1), (100, 0.2), (300, 0.3), (100, 0.4))]  # fmt: skip
    write_run(tmp_path, rows=rows)
    run = load_runs([tmp_path]).runs[0]
    assert run.steps.tolist() == [100, 200, 300]
    assert run.log.scores["rooms-6"].tolist() == [40.0, 10.0, 30.0]
    assert run.log.prediction_error.tolist() == [[0.4], [0.1], [0.3]]


def test_unchanged_logs_are_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = write_study(tmp_path)
    read: list[str] = []
    loads = json.loads
    monkeypatch.setattr(metrics.json, "loads", lambda text: read.append(str(text)) or loads(text))
    path = runs.runs[0].directory / "metrics.jsonl"
    path.write_text(path.read_text() + '{"steps": 400, "success_rate": 1.0}\n')
    os.utime(path, ns=(1, 1))
    assert load_runs([tmp_path]).runs[0].last_step == 400
    assert sum('"steps": 200, "elapsed_seconds"' in text for text in read) == 1


def test_continued_run_is_not_finished(tmp_path: Path) -> None:
    """A run is continued with more steps or another success rate to stop at."""
    write_run(tmp_path, rows=make_rows([0.5, 1.0]), stop_at_success_rate=0.9)
    run = load_runs([tmp_path]).runs[0]
    assert (run.is_finished, run.stopped_at_success, run.state) == (True, True, "stopped at success")
    assert not run._replace(config={**run.config, "stop_at_success_rate": 0.0}).is_finished
    assert not run._replace(summary={**run.summary, "interrupted": True}).is_finished
    whole = run._replace(summary={**run.summary, "steps": 300})
    assert (whole.is_finished, whole.stopped_at_success, whole.state) == (True, False, "done")


def test_run_stopped_by_a_callback_is_not_finished(tmp_path: Path) -> None:
    """The state after `progress.stop()` in a callback."""
    write_run(tmp_path, rows=make_rows([0.5, 0.8]), stop_at_success_rate=0.9)
    run = load_runs([tmp_path]).runs[0]
    run = run._replace(summary={**run.summary, "steps": 200})
    assert (run.is_finished, run.stopped_at_success, run.state) == (False, False, "interrupted")


def test_missing_runs_are_user_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no run: no directory in it has config\.json and metrics\.jsonl"):
        load_runs([tmp_path])
    with pytest.raises(UserError, match="nowhere is not a directory"):
        load_runs([tmp_path / "nowhere"])
    with pytest.raises(UserError, match="no directory was given"):
        load_runs([])
    (write_run(tmp_path) / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"no run can be read: .*byol-explore-seed0"):
        load_runs([tmp_path])
