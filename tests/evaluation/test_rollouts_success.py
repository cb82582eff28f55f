"""Success rules, and complete runs in which success is biased by length or undefined."""

import json
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore.config.config import Config
from byol_explore.envs.interface import EnvSpec
from byol_explore.envs.probes.base import Probe, ProbeState, ProbeStep
from byol_explore.envs.probes.worlds import PROBES
from byol_explore.errors import UserError
from byol_explore.evaluation.rollouts import SuccessRule, success_rate, success_rules
from byol_explore.evaluation.trained_agent import evaluate
from byol_explore.report.load import load_runs
from byol_explore.report.scores import compute_scores
from byol_explore.spaces import ActionSpec
from byol_explore.storage.checkpoint import Checkpoints
from byol_explore.storage.metrics import read_metrics
from byol_explore.types import UNKNOWN_SUCCESS, Action, Array, PyTree, TimeStep
from command_line import call
from runs import DISPATCH, arguments, assert_same_checkpoints, quickly, run, tiny, without_times

# Rules


def test_return_must_exceed_the_threshold() -> None:
    returns, unknown = np.asarray([0.5, 0.6, -3.0]), np.full(3, UNKNOWN_SUCCESS)
    assert SuccessRule(0.5).classify(returns, unknown).tolist() == [0, 1, 0]
    assert SuccessRule(math.inf).classify(returns, unknown).tolist() == [UNKNOWN_SUCCESS] * 3


def test_user_threshold_precedes_env_flag_and_env_threshold() -> None:
    specs = [EnvSpec(name, None, ActionSpec((2,)), 5, above) for name, above in (("a", 0.5), ("b", math.inf))]
    returns, flags = np.asarray([0.0, 1.0, 1.0]), np.asarray([1, 0, UNKNOWN_SUCCESS])
    own = [rule.classify(returns, flags).tolist() for rule in success_rules(specs, None)]
    assert own == [[1, 0, 1], [1, 0, UNKNOWN_SUCCESS]]
    given = [rule.classify(returns, flags).tolist() for rule in success_rules(specs, -0.5)]
    assert given == [[1, 1, 1]] * 2
    assert [rule.threshold for rule in success_rules(specs, -0.5)] == [-0.5, -0.5]


def test_rate_is_known_if_success_of_one_episode_is() -> None:
    assert success_rate([UNKNOWN_SUCCESS, UNKNOWN_SUCCESS]) is None
    assert success_rate([]) is None
    assert success_rate([0, 0]) == 0.0
    assert success_rate([1, UNKNOWN_SUCCESS, 0, UNKNOWN_SUCCESS]) == 0.25


# Complete runs


class Gamble(Probe):
    """Half of the episodes pay 1 after two steps and end; the others pay nothing and last for 29 steps."""

    def __init__(self, name: str = "gamble", success_threshold: float = 0.0) -> None:
        super().__init__(name, 30, ActionSpec(discrete=(2,)), 29, success_threshold)

    def _begin(self, key: Array) -> PyTree:
        return jax.random.bernoulli(key)

    def _act(self, state: ProbeState, action: Action) -> ProbeStep:
        pays = state.inner & (state.time == 1)
        return ProbeStep(state.inner, pays.astype(jnp.float32), pays)


class Contrary(Gamble):
    """Flags the episodes without reward as successes."""

    def __init__(self) -> None:
        super().__init__("contrary")

    def step(self, state: ProbeState, action: Action) -> tuple[ProbeState, TimeStep]:
        state, timestep = super().step(state, action)
        return state, timestep._replace(success=(~state.inner).astype(jnp.int8))


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROBES, "gamble", Gamble)
    monkeypatch.setitem(PROBES, "contrary", Contrary)


EARLY, LATE = 4, 12  # dispatches of six steps: before the first slow episode ends, and after the second


def gamble(dispatches: int, env: str = "gamble", **changes: Any) -> Config:
    return tiny(
        "none",
        env=f"probe:{env}",
        dispatches=dispatches,
        stop_at_success_rate=0.95,
        log={"episode_window": 6},
        **changes,
    )


def test_short_successes_do_not_solve_a_run_while_failures_are_running(tmp_path: Path) -> None:
    """All episodes that end in the first 24 steps succeed, and they fill the window."""
    summary = run(gamble(EARLY, seed=1), tmp_path / "run")
    assert summary["steps"] == EARLY * DISPATCH
    assert summary["num_episodes"] >= 6
    assert summary["episode_return_max"] == 1.0
    assert summary["success_rate"] is summary["return_mean"] is summary["solved_at"] is None
    assert [row["success_rate"] for row in read_metrics(tmp_path / "run" / "metrics.jsonl")] == [None] * EARLY
    assert compute_scores(load_runs([tmp_path])) == {}
    assert set(Checkpoints(tmp_path / "run" / "checkpoints").scores().values()) == {None}

    resumed = run(gamble(LATE, seed=1), tmp_path / "run", resume=True)
    whole = run(gamble(LATE, seed=1), tmp_path / "whole")
    assert 0.0 < whole["success_rate"] < 0.95
    assert whole["steps"] == LATE * DISPATCH
    rows, whole_rows = (without_times(read_metrics(tmp_path / name / "metrics.jsonl")) for name in ("run", "whole"))
    assert rows == whole_rows
    assert resumed["success_rate"] == whole["success_rate"]
    assert_same_checkpoints(tmp_path / "run", tmp_path / "whole", gamble(LATE, seed=1))


def test_undefined_success_is_reported_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In training, its files, evaluation and the report; a threshold defines it in all of them."""
    monkeypatch.setitem(PROBES, "gamble", lambda: Gamble(success_threshold=math.inf))
    directory = tmp_path / "run"
    with quickly():
        _, out, _ = call(capsys, "train", *arguments(gamble(LATE)), "--run-dir", directory)
        _, table, _ = call(capsys, "evaluate", directory, "--episodes", "8")
        report = evaluate(directory, episodes=8, success_threshold=0.5)
    assert "no return counts as a success in probe:gamble" in out
    assert "success -" in out
    assert "no success defined, return 0." in out
    summary = json.loads((directory / "summary.json").read_text())
    assert (summary["success_rate"], summary["solved_at"], summary["steps"]) == (None, None, LATE * DISPATCH)
    assert summary["return_mean"] > 0.0
    assert table.count("no-data") == 2
    result = report["tasks"]["probe:gamble"]["sampled"]
    assert result["success_rate"]["mean"] == result["return"]["mean"] > 0.0
    runs = load_runs([tmp_path])
    assert runs.scored_by_return == {"probe:gamble"}
    assert compute_scores(runs)["none", "probe:gamble"].final == {0: summary["return_mean"]}


def test_success_threshold_of_the_config_is_used(tmp_path: Path) -> None:
    own, low, high = (run(gamble(LATE, success_threshold=above), tmp_path / str(above)) for above in (None, -1.0, 1.5))
    assert low["success_rate"] == 1.0
    assert low["solved_at"] is not None
    assert low["steps"] < LATE * DISPATCH, "stops as soon as the window is full"
    assert (high["success_rate"], high["return_mean"]) == (0.0, own["return_mean"])


def test_success_flag_of_the_environment_is_used(tmp_path: Path) -> None:
    """It marks episodes without reward; a threshold replaces it."""
    by_flag, by_return = (
        run(gamble(LATE, "contrary", success_threshold=above), tmp_path / str(above)) for above in (None, 0.5)
    )
    assert by_flag["return_mean"] == by_return["return_mean"] == by_return["success_rate"]
    assert by_flag["success_rate"] == pytest.approx(1.0 - by_return["success_rate"])
    with quickly():
        report, other = (evaluate(tmp_path / "None", episodes=30, success_threshold=above) for above in (None, 0.5))
    means = [each["tasks"]["probe:contrary"]["greedy"]["success_rate"]["mean"] for each in (report, other)]
    assert 0.0 < means[0] < 1.0
    assert sum(means) == pytest.approx(1.0)


@pytest.mark.parametrize("above", [math.inf, -math.inf, math.nan])
def test_success_threshold_must_be_finite(above: float, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"success_threshold is {above}: it must be finite"):
        tiny(success_threshold=above).validate()
    with pytest.raises(UserError, match=f"success_threshold is {above}: it must be finite"):
        evaluate(tmp_path, success_threshold=above)
    assert tiny(success_threshold=-200.0).validate().success_threshold == -200.0
