"""What a success is, and whole runs in which it would mislead or is not defined."""

import json
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore.envs.base import EnvSpec
from byol_explore.envs.worlds.probes import PROBES, Outcome, Probe, ProbeState
from byol_explore.errors import UserError
from byol_explore.evaluation.success import SuccessRule, rate, success_rules
from byol_explore.playing.episodes import evaluate
from byol_explore.report.load import load_runs
from byol_explore.report.logs import read_metrics
from byol_explore.report.outcomes import outcomes
from byol_explore.settings.config import Config
from byol_explore.spaces import ActionSpec
from byol_explore.types import UNSAID, Action, Array, PyTree, TimeStep
from command_line import call
from runs import DISPATCH, arguments, assert_same_checkpoints, quickly, run, tiny, without_times

# Rules


def test_a_return_must_exceed_its_threshold() -> None:
    returns, nothing = np.asarray([0.5, 0.6, -3.0]), np.full(3, UNSAID)
    assert SuccessRule(0.5).judge(returns, nothing).tolist() == [0, 1, 0]
    assert SuccessRule(math.inf).judge(returns, nothing).tolist() == [UNSAID] * 3


def test_the_user_goes_before_the_environment_and_that_before_its_threshold() -> None:
    specs = [EnvSpec(name, None, ActionSpec((2,)), 5, above) for name, above in (("a", 0.5), ("b", math.inf))]
    returns, told = np.asarray([0.0, 1.0, 1.0]), np.asarray([1, 0, UNSAID])
    own = [rule.judge(returns, told).tolist() for rule in success_rules(specs, None)]
    assert own == [[1, 0, 1], [1, 0, UNSAID]]
    given = [rule.judge(returns, told).tolist() for rule in success_rules(specs, -0.5)]
    assert given == [[1, 1, 1]] * 2
    assert [rule.above for rule in success_rules(specs, -0.5)] == [-0.5, -0.5]


def test_a_rate_is_known_as_soon_as_one_episode_is_judged() -> None:
    assert rate([UNSAID, UNSAID]) is None
    assert rate([]) is None
    assert rate([0, 0]) == 0.0
    assert rate([1, UNSAID, 0, UNSAID]) == 0.25


# Whole runs


class Gamble(Probe):
    """Half of the episodes pay 1 after two steps and end; the others pay nothing and last for 29 steps."""

    def __init__(self, name: str = "gamble", success_above: float = 0.0) -> None:
        super().__init__(name, 30, ActionSpec(discrete=(2,)), 29, success_above)

    def _begin(self, key: Array) -> PyTree:
        return jax.random.bernoulli(key)

    def _act(self, state: ProbeState, action: Action) -> Outcome:
        pays = state.hidden & (state.time == 1)
        return Outcome(state.hidden, pays.astype(jnp.float32), pays)


class Contrary(Gamble):
    """Calls the episodes a success that pay nothing."""

    def __init__(self) -> None:
        super().__init__("contrary")

    def step(self, state: ProbeState, action: Action) -> tuple[ProbeState, TimeStep]:
        state, timestep = super().step(state, action)
        return state, timestep._replace(success=~state.hidden)


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROBES, "gamble", Gamble)
    monkeypatch.setitem(PROBES, "contrary", Contrary)


EARLY, LATE = 4, 12  # dispatches of six steps: before the first slow episode ends, and after the second


def gamble(dispatches: int, env: str = "gamble", **changes: Any) -> Config:
    return tiny("none", env=f"probe:{env}", dispatches=dispatches, stop_at_success=0.95, log={"window": 6}, **changes)


def test_quick_successes_neither_solve_nor_stop_a_run_while_failures_run(tmp_path: Path) -> None:
    """All episodes that end in the first 24 steps are successes, and more than a window of them."""
    summary = run(gamble(EARLY), tmp_path / "run")
    assert summary["steps"] == EARLY * DISPATCH
    assert summary["episodes"] >= 6
    assert summary["best_return"] == 1.0
    assert summary["success_rate"] is summary["return_mean"] is summary["solved_at"] is None
    assert [row["success_rate"] for row in read_metrics(tmp_path / "run" / "metrics.jsonl")] == [None] * EARLY
    assert outcomes(load_runs([tmp_path])) == {}
    scores = json.loads((tmp_path / "run" / "checkpoints" / "scores.json").read_text())
    assert set(scores.values()) == {None}

    resumed = run(gamble(LATE), tmp_path / "run", resume=True)
    whole = run(gamble(LATE), tmp_path / "whole")
    assert 0.0 < whole["success_rate"] < 0.95
    assert whole["steps"] == LATE * DISPATCH
    rows, whole_rows = (without_times(read_metrics(tmp_path / name / "metrics.jsonl")) for name in ("run", "whole"))
    assert rows == whole_rows
    assert resumed["success_rate"] == whole["success_rate"]
    assert_same_checkpoints(tmp_path / "run", tmp_path / "whole", gamble(LATE))


def test_where_no_success_is_defined_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By training, its files, evaluation and the report; a threshold can be given to all of them."""
    monkeypatch.setitem(PROBES, "gamble", lambda: Gamble(success_above=math.inf))
    directory = tmp_path / "run"
    with quickly():
        _, out, _ = call(capsys, "train", *arguments(gamble(LATE)), "--run-dir", directory)
        _, table, _ = call(capsys, "evaluate", directory, "--episodes", "8")
        report = evaluate(directory, episodes=8, success_above=0.5)
    assert "no return counts as a success in probe:gamble" in out
    assert "success -  return" in out
    assert "no success defined, return 0." in out
    summary = json.loads((directory / "summary.json").read_text())
    assert (summary["success_rate"], summary["solved_at"], summary["steps"]) == (None, None, LATE * DISPATCH)
    assert summary["return_mean"] > 0.0
    assert table.count("unknown") == 2
    result = report["tasks"]["probe:gamble"]["sampled"]
    assert result["success_rate"]["mean"] == result["return"]["mean"] > 0.0
    runs = load_runs([tmp_path])
    assert runs.by_return == {"probe:gamble"}
    assert outcomes(runs)["none", "probe:gamble"].final == {0: summary["return_mean"]}


def test_a_threshold_can_be_given(tmp_path: Path) -> None:
    own, low, high = (run(gamble(LATE, success_above=above), tmp_path / str(above)) for above in (None, -1.0, 1.5))
    assert low["success_rate"] == 1.0
    assert low["solved_at"] is not None
    assert low["steps"] < LATE * DISPATCH, "enough succeed as soon as a window is full"
    assert (high["success_rate"], high["return_mean"]) == (0.0, own["return_mean"])


def test_what_an_environment_says_of_its_episodes_counts(tmp_path: Path) -> None:
    """Of those that pay nothing; unless a threshold is given."""
    said, given = (run(gamble(LATE, "contrary", success_above=above), tmp_path / str(above)) for above in (None, 0.5))
    assert said["return_mean"] == given["return_mean"] == given["success_rate"]
    assert said["success_rate"] == pytest.approx(1.0 - given["success_rate"])
    with quickly():
        report, other = (evaluate(tmp_path / "None", episodes=30, success_above=above) for above in (None, 0.5))
    means = [each["tasks"]["probe:contrary"]["greedy"]["success_rate"]["mean"] for each in (report, other)]
    assert 0.0 < means[0] < 1.0
    assert sum(means) == pytest.approx(1.0)


@pytest.mark.parametrize("above", [math.inf, -math.inf, math.nan])
def test_a_threshold_is_a_finite_number(above: float, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"success_above is {above}: it must be finite"):
        tiny(success_above=above).validate()
    with pytest.raises(UserError, match=f"success_above is {above}: it must be finite"):
        evaluate(tmp_path, success_above=above)
    assert tiny(success_above=-200.0).validate().success_above == -200.0
