"""Scores of trials, their order, the choice, and the files of a search."""

import csv
import io
import itertools
import json
import math
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from byol_explore.config.config import Config
from byol_explore.evaluation.scores import mean_score, stratified_interval
from byol_explore.study.choice import RunScore, Selection, TrialScore, choose, read_score, score_trial, variant_toml
from byol_explore.study.file import Variant, parse_study
from byol_explore.study.plan import PlannedRun, plan_runs, plan_trials
from study.helpers import write_json

STUDY = parse_study(
    "name = 'mine'\ntasks = ['probe:memory']\nsteps = 96\nsettings.stop_at_success_rate = 0\nmethods = ['rnd', 'icm']\n"
    "[search]\ntrials = 3\nseeds = [0, 1]\nreport_seeds = [5, 6, 7]\n"
    "[search.ranges]\ncuriosity.mixing.log-uniform = [0.003, 1.0]\n",
    "mine.toml",
)
NONE = -math.inf


def write_run(
    run: PlannedRun, directory: Path, solved_at: int | None = None, success: float | None = 0.5, **summary: Any
) -> None:
    """Write the log and the summary of a run that is solved at a step, or not at all."""
    place = run.directory(directory)
    end = {"steps": run.config.total_steps, "success_rate": success, "return_mean": 1.0, "num_episodes": 500}
    write_json(place / "summary.json", {**end, "seconds": 3.0, "interrupted": False, **summary})
    rows = [{**end, "steps": 1, "success_rate": 0.1}, end]
    if solved_at is not None:
        rows[1:1] = [{**end, "steps": solved_at, "success_rate": 0.96}]
    (place / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def first_run() -> PlannedRun:
    return plan_trials(STUDY)["rnd"][0][0]


# One run


def test_score_of_a_solved_run_has_its_first_step_with_enough_success(tmp_path: Path) -> None:
    write_run(first_run(), tmp_path, solved_at=40, success=0.25)
    assert read_score(first_run(), tmp_path, 0.95, ()) == RunScore(40, 40, 0.25, 1.0)
    total = first_run().config.total_steps
    assert read_score(first_run(), tmp_path, 0.97, ()) == RunScore(None, total, 0.25, 1.0)


def test_success_of_too_few_episodes_does_not_count(tmp_path: Path) -> None:
    run, window = first_run(), Config().log.episode_window
    write_run(run, tmp_path)
    for episodes, solved_at in ((window - 1, None), (window, 7)):
        row = {"steps": 7, "success_rate": 1.0, "num_episodes": episodes}
        (run.directory(tmp_path) / "metrics.jsonl").write_text(json.dumps(row) + "\n")
        score = read_score(run, tmp_path, 0.95, ())
        assert score is not None
        assert score.solved_at == solved_at


def test_several_tasks_must_all_succeed(tmp_path: Path) -> None:
    run = first_run()
    write_run(run, tmp_path)
    for worst, episodes, solved_at in ((0.5, 400, None), (0.95, 399, None), (0.95, 400, 7)):
        tasks = {"a": {"success_rate": 1.0}, "b": {"success_rate": worst}}
        row = {"steps": 7, "success_rate": 0.99, "num_episodes": episodes, "tasks": tasks}
        (run.directory(tmp_path) / "metrics.jsonl").write_text(json.dumps(row) + "\n")
        score = read_score(run, tmp_path, 0.95, ())
        assert score is not None
        assert score.solved_at == solved_at


@pytest.mark.parametrize("changes", [{"steps": 3}, {"interrupted": True}, {"seconds": None}])
def test_run_that_has_not_ended_has_no_score(changes: dict[str, Any], tmp_path: Path) -> None:
    assert read_score(first_run(), tmp_path, 0.95, ()) is None
    write_run(first_run(), tmp_path, **changes)
    assert read_score(first_run(), tmp_path, 0.95, ()) is None


def test_run_without_a_log_has_no_score(tmp_path: Path) -> None:
    write_run(first_run(), tmp_path, solved_at=40)
    (first_run().directory(tmp_path) / "metrics.jsonl").unlink()
    assert read_score(first_run(), tmp_path, 0.95, ()) is None


def test_diverged_run_is_below_all_others(tmp_path: Path) -> None:
    name, total = first_run().name, first_run().config.total_steps
    assert read_score(first_run(), tmp_path, 0.95, {name}) == RunScore(None, total, NONE, NONE)
    write_run(first_run(), tmp_path, solved_at=40)  # tried again by hand
    assert read_score(first_run(), tmp_path, 0.95, {name}) == RunScore(40, 40, 0.5, 1.0)


def test_unknown_success_is_below_a_success_of_zero(tmp_path: Path) -> None:
    write_run(first_run(), tmp_path, success=None)
    score = read_score(first_run(), tmp_path, 0.95, ())
    assert score is not None
    assert score.success == NONE


# The order of trials


def test_score_of_a_trial_by_hand() -> None:
    scores = [RunScore(40, 40, 1.0, 3.0), RunScore(None, 100, 0.5, 1.0)]
    assert score_trial(scores) == TrialScore(2, 1, 70.0, 0.75, 2.0)
    assert score_trial([*scores, RunScore(None, 100, NONE, NONE)]) == TrialScore(3, 1, 80.0, NONE, NONE)


ORDER = [  # best first; each line differs in what decides
    TrialScore(2, 2, 90.0, 0.2, 0.0),
    TrialScore(2, 1, 20.0, 0.9, 9.0),
    TrialScore(2, 1, 30.0, 0.9, 9.0),
    TrialScore(2, 1, 30.0, 0.8, 9.0),
    TrialScore(2, 1, 30.0, 0.8, 3.0),
    TrialScore(2, 0, 100.0, 0.5, 0.0),
    TrialScore(2, 0, 100.0, NONE, 7.0),
    TrialScore(2, 0, 100.0, NONE, NONE),
]


def test_better_trials_are_chosen_in_any_order() -> None:
    for better, worse in itertools.combinations(ORDER, 2):
        assert choose([better, worse]) == 0
        assert choose([worse, better]) == 1


def test_of_equal_trials_the_first_is_chosen() -> None:
    assert choose([ORDER[3], ORDER[1], ORDER[1]]) == 1


def test_nothing_is_chosen_before_all_trials_have_ended() -> None:
    assert choose([ORDER[0], None]) is None


# The files


def write_trials(directory: Path, steps: dict[str, list[int | None]]) -> None:
    """Write all trials, solved at these steps plus their seed, by variant and trial."""
    for variant, trials in plan_trials(STUDY).items():
        for runs, solved_at in zip(trials, steps[variant], strict=True):
            for run in runs:
                write_run(run, directory, None if solved_at is None else solved_at + run.config.seed)


STEPS: dict[str, list[int | None]] = {"rnd": [50, 30, None], "icm": [None, None, None]}


def test_choice_is_by_variant_and_does_not_depend_on_its_own_files(tmp_path: Path) -> None:
    write_trials(tmp_path, STEPS)
    assert Selection(STUDY, tmp_path).chosen(()) == {"rnd": 1, "icm": 0}
    Selection(STUDY, tmp_path).write(())
    text = (tmp_path / "search.json").read_text()
    (tmp_path / "search.json").write_text(text.replace('"chosen": 1', '"chosen": 2'))
    assert Selection(STUDY, tmp_path).chosen(()) == {"rnd": 1, "icm": 0}
    (plan_trials(STUDY)["rnd"][2][1].directory(tmp_path) / "summary.json").unlink()
    assert Selection(STUDY, tmp_path).chosen(()) == {"icm": 0}


def test_search_json_has_trials_choice_and_reported_score(tmp_path: Path) -> None:
    write_trials(tmp_path, STEPS)
    for run in plan_runs(STUDY, chosen={"rnd": 1}, trials=False):
        write_run(run, tmp_path, {5: 10, 6: 20, 7: None}[run.config.seed])
    Selection(STUDY, tmp_path).write(())
    data = json.loads((tmp_path / "search.json").read_text())
    assert (data["trials"], data["seeds"], data["report_seeds"], data["tasks"]) == (
        3,
        [0, 1],
        [5, 6, 7],
        ["probe:memory"],
    )
    rnd, icm = data["variants"]["rnd"], data["variants"]["icm"]
    total = first_run().config.total_steps
    assert (rnd["chosen"], rnd["steps"]) == (1, total)
    assert [trial["chosen"] for trial in rnd["trials"]] == [False, True, False]
    assert rnd["trials"][0]["settings"] == {}
    assert rnd["trials"][1]["score"] == {"runs": 2, "solved": 2, "steps": 30.5, "success": 0.5, "episode_return": 1.0}
    expected = stratified_interval(mean_score, np.asarray([[10.0], [20.0], [float(total)]]))
    assert (rnd["reported"]["runs"], rnd["reported"]["solved"]) == (3, 2)
    assert rnd["reported"]["steps"] == expected._asdict()
    assert rnd["reported"]["success"] == {"mean": 0.5, "low": 0.5, "high": 0.5}
    assert icm["reported"] is None


def test_search_csv_has_a_row_per_trial(tmp_path: Path) -> None:
    write_trials(tmp_path, {**STEPS, "rnd": [50, None, 20]})
    for run in plan_runs(STUDY, chosen={"rnd": 2}, trials=False):
        write_run(run, tmp_path, 10)
    Selection(STUDY, tmp_path).write(())
    rows = list(csv.DictReader(io.StringIO((tmp_path / "search.csv").read_text())))
    assert [(row["variant"], row["trial"], row["chosen"], row["solved"]) for row in rows] == [
        ("rnd", "0", "0", "2"), ("rnd", "1", "0", "0"), ("rnd", "2", "1", "2"),
        ("icm", "0", "1", "0"), ("icm", "1", "0", "0"), ("icm", "2", "0", "0"),
    ]  # fmt: skip
    assert [row["curiosity.mixing"] != "" for row in rows] == [False, True, True] * 2
    assert [row["reported_steps_mean"] for row in rows] == ["", "", "10.0", "", "", ""]
    assert {row["trials"] for row in rows} == {"3"}


def test_unfinished_search_has_files_without_scores(tmp_path: Path) -> None:
    Selection(STUDY, tmp_path).write(())
    data = json.loads((tmp_path / "search.json").read_text())
    assert data["variants"]["rnd"]["chosen"] is None
    assert {trial["score"] for trial in data["variants"]["rnd"]["trials"]} == {None}
    assert (tmp_path / "chosen.toml").read_text() == ""


def test_chosen_settings_can_be_pasted_into_a_study(tmp_path: Path) -> None:
    write_trials(tmp_path, STEPS)
    selection = Selection(STUDY, tmp_path)
    selection.write(())
    head = "name = 'next'\ntasks = ['probe:memory']\nsteps = 96\nseeds = [5, 6, 7]\nsettings.stop_at_success_rate = 0\n"
    pasted = plan_runs(parse_study(head + (tmp_path / "chosen.toml").read_text(), "next.toml"))
    assert pasted == plan_runs(STUDY, chosen=selection.chosen(()), trials=False)


def test_toml_of_values_of_all_types() -> None:
    variant = Variant("a", "rnd", "prioritized", "intrinsic", {"agent.gamma": 0.5, "network.encoder_hidden": (3, 4)})
    values = {"agent.gamma": 1e-5, "curiosity.prioritize": True, "network.core": "lstm", "curiosity.horizon": 2}
    [table] = tomllib.loads(variant_toml(variant, values))["variants"]
    assert table == {
        "name": "a", "method": "rnd", "ablation": "prioritized", "regime": "intrinsic",
        "settings": {"agent": {"gamma": 1e-5}, "network": {"encoder_hidden": [3, 4], "core": "lstm"},
                     "curiosity": {"prioritize": True, "horizon": 2}},
    }  # fmt: skip
