"""Evaluation during training: last and best scores, and their checkpoints."""

import dataclasses
import importlib
import json
from typing import Any

import jax
import numpy as np
import pytest

from builders import small_config
from byol_explore.config.config import Config
from byol_explore.config.sections import LogConfig
from byol_explore.evaluation.rollouts import EpisodeResults
from byol_explore.training.callbacks import EvaluationCallback
from byol_explore.types import UNKNOWN_SUCCESS
from hosts import Scripted, indifferent


def config_for(env: str, seed: int = 0) -> Config:
    return dataclasses.replace(small_config(), env=env, seed=seed, log=LogConfig(evaluate_episodes=6))


@pytest.fixture
def fake_play(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Replace run_episodes: return the mean returns of `means` in order, and record the calls."""
    script: dict[str, Any] = {"means": [], "calls": []}

    def fake_run_episodes(actor: Any, env: Any, episodes: int, key: Any, **options: Any) -> EpisodeResults:
        script["calls"].append((env.spec.name, episodes, jax.random.key_data(key).tolist()))
        mean = script["means"].pop(0)
        return EpisodeResults(mean + np.asarray([-1.0, 0.0, 1.0]), np.ones(3, int), np.full(3, UNKNOWN_SUCCESS))

    monkeypatch.setattr(importlib.import_module("byol_explore.training.callbacks"), "run_episodes", fake_run_episodes)
    return script


def test_the_best_mean_over_training_is_kept(fake_play: dict[str, Any]) -> None:
    env = Scripted(name="one", scores=(-100.0, 100.0))
    evaluations = EvaluationCallback(config_for("one"), [env])
    assert evaluations.metrics() == {}
    fake_play["means"] = [-40.0, 20.0, 5.0]
    texts = [evaluations.run(indifferent(env, 0.0, 0.0), steps) for steps in (100, 200, 300)]
    assert texts == ["one -40.0 (best -40.0)", "one 20.0 (best 20.0)", "one 5.0 (best 20.0)"]
    assert evaluations.metrics() == pytest.approx(
        {"evaluation_return": 5.0, "evaluation_return_max": 20.0, "human_normalized_best": 60.0}
    )
    assert [(name, episodes) for name, episodes, _ in fake_play["calls"]] == [("one", 6)] * 3


def test_each_task_has_its_own_best_score(fake_play: dict[str, Any]) -> None:
    """Environments may share a name. The human-normalised mean is over tasks with reference scores."""
    envs = [Scripted(name="x", scores=(0.0, 10.0)), Scripted(name="x"), Scripted(name="x", scores=(0.0, 20.0))]
    evaluations = EvaluationCallback(config_for("a,b,c"), envs)
    fake_play["means"] = [1.0, 2.0, 3.0, 4.0, 0.0, 2.0]
    for steps in (100, 200):
        evaluations.run(indifferent(envs[0], 0.0, 0.0), steps)
    assert evaluations.metrics() == {
        "evaluation_return": pytest.approx((4.0 + 0.0 + 2.0) / 3),
        "evaluation_return_max": pytest.approx((4.0 + 2.0 + 3.0) / 3),
        "human_normalized_best": pytest.approx((40.0 + 15.0) / 2),
        "evaluation": {
            "a": {"return": 4.0, "best": 4.0},
            "b": {"return": 0.0, "best": 2.0},
            "c": {"return": 2.0, "best": 3.0},
        },
    }


def test_evaluation_keys_depend_on_seed_task_and_step_alone(fake_play: dict[str, Any]) -> None:
    envs = [Scripted(name="a"), Scripted(name="b")]
    actor = indifferent(envs[0], 0.0, 0.0)
    fake_play["means"] = [0.0] * 10
    for seed, steps in ((0, 100), (0, 2**31 + 200), (1, 100), (1, 100)):
        EvaluationCallback(config_for("a,b", seed), envs).run(actor, steps)
    keys = [tuple(key) for *_, key in fake_play["calls"]]
    assert len(set(keys)) == 6
    assert keys[4:6] == keys[6:8], "equal runs evaluate alike"


def test_scores_survive_a_checkpoint(fake_play: dict[str, Any]) -> None:
    env = Scripted(name="one", scores=(0.0, 10.0))
    actor = indifferent(env, 0.0, 0.0)
    before, after = EvaluationCallback(config_for("one"), [env]), EvaluationCallback(config_for("one"), [env])
    fake_play["means"] = [7.0, 3.0, 5.0]
    before.run(actor, 100)
    before.run(actor, 200)
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    assert after.metrics() == before.metrics()
    after.run(actor, 300)
    assert (after.last, after.best) == ({"one": 5.0}, {"one": 7.0})
    assert (before.last, before.best) == ({"one": 3.0}, {"one": 7.0}), "loading must copy the scores"


def test_evaluation_samples_actions() -> None:
    """The policy prefers action 1 slightly; a greedy one would always take it."""
    env = Scripted(lambda i: 8)
    evaluations = EvaluationCallback(config_for("scripted"), [env])
    evaluations.run(indifferent(env, 0.0, 0.1), 100)
    (batch,) = env.batches
    assert batch.num_envs == 6
    assert set(np.stack(batch.actions).flat) == {0, 1}
    assert evaluations.last == {"scripted": pytest.approx(np.stack(batch.actions).sum() / 6)}
