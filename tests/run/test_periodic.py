"""Evaluation while training: the last score, the best one, and what a checkpoint keeps of them."""

import dataclasses
import importlib
import json
from typing import Any

import jax
import numpy as np
import pytest

from builders import small_config
from byol_explore.evaluation.play import Results
from byol_explore.run.evaluations import Evaluations
from byol_explore.settings.config import Config
from byol_explore.settings.parts import LogConfig
from byol_explore.types import UNSAID
from hosts import Scripted, indifferent


def configured(env: str, seed: int = 0) -> Config:
    return dataclasses.replace(small_config(), env=env, seed=seed, log=LogConfig(evaluate_episodes=6))


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Mean returns to hand out, task by task, instead of playing; and what was asked for."""
    script: dict[str, Any] = {"means": [], "calls": []}

    def pretend(actor: Any, env: Any, episodes: int, key: Any, **options: Any) -> Results:
        script["calls"].append((env.spec.name, episodes, jax.random.key_data(key).tolist()))
        mean = script["means"].pop(0)
        return Results(mean + np.asarray([-1.0, 0.0, 1.0]), np.ones(3, int), np.full(3, UNSAID))

    monkeypatch.setattr(importlib.import_module("byol_explore.run.evaluations"), "play", pretend)
    return script


def test_the_best_mean_over_training_is_kept(played: dict[str, Any]) -> None:
    env = Scripted(name="one", scores=(-100.0, 100.0))
    evaluations = Evaluations(configured("one"), [env])
    assert evaluations.summary() == {}
    played["means"] = [-40.0, 20.0, 5.0]
    said = [evaluations.run(indifferent(env, 0.0, 0.0), steps) for steps in (100, 200, 300)]
    assert said == ["one -40.0 (best -40.0)", "one 20.0 (best 20.0)", "one 5.0 (best 20.0)"]
    assert evaluations.summary() == pytest.approx(
        {"evaluation_return": 5.0, "evaluation_best": 20.0, "human_normalized_best": 60.0}
    )
    assert [(name, episodes) for name, episodes, _ in played["calls"]] == [("one", 6)] * 3


def test_several_tasks_have_their_own_best(played: dict[str, Any]) -> None:
    """Also where environments call themselves alike; the human-normalised mean is over those whose scores are known."""
    envs = [Scripted(name="x", scores=(0.0, 10.0)), Scripted(name="x"), Scripted(name="x", scores=(0.0, 20.0))]
    evaluations = Evaluations(configured("a,b,c"), envs)
    played["means"] = [1.0, 2.0, 3.0, 4.0, 0.0, 2.0]
    for steps in (100, 200):
        evaluations.run(indifferent(envs[0], 0.0, 0.0), steps)
    assert evaluations.summary() == {
        "evaluation_return": pytest.approx((4.0 + 0.0 + 2.0) / 3),
        "evaluation_best": pytest.approx((4.0 + 2.0 + 3.0) / 3),
        "human_normalized_best": pytest.approx((40.0 + 15.0) / 2),
        "evaluation": {
            "a": {"return": 4.0, "best": 4.0},
            "b": {"return": 0.0, "best": 2.0},
            "c": {"return": 2.0, "best": 3.0},
        },
    }


def test_tasks_and_times_have_keys_of_their_own(played: dict[str, Any]) -> None:
    envs = [Scripted(name="a"), Scripted(name="b")]
    actor = indifferent(envs[0], 0.0, 0.0)
    played["means"] = [0.0] * 10
    for seed, steps in ((0, 100), (0, 2**31 + 200), (1, 100), (1, 100)):
        Evaluations(configured("a,b", seed), envs).run(actor, steps)
    keys = [tuple(key) for *_, key in played["calls"]]
    assert len(set(keys)) == 6
    assert keys[4:6] == keys[6:8], "the same run evaluates in the same way again"


def test_scores_survive_a_checkpoint(played: dict[str, Any]) -> None:
    env = Scripted(name="one", scores=(0.0, 10.0))
    actor = indifferent(env, 0.0, 0.0)
    before, after = Evaluations(configured("one"), [env]), Evaluations(configured("one"), [env])
    played["means"] = [7.0, 3.0, 5.0]
    before.run(actor, 100)
    before.run(actor, 200)
    after.load_meta(json.loads(json.dumps(before.to_meta())))
    assert after.summary() == before.summary()
    after.run(actor, 300)
    assert (after.last, after.best) == ({"one": 5.0}, {"one": 7.0})
    assert (before.last, before.best) == ({"one": 3.0}, {"one": 7.0}), "it is a copy"


def test_episodes_are_really_played_with_sampled_actions() -> None:
    """A policy that prefers action 1 a little would always take it if it were greedy."""
    env = Scripted(lambda i: 8)
    evaluations = Evaluations(configured("scripted"), [env])
    evaluations.run(indifferent(env, 0.0, 0.1), 100)
    (batch,) = env.batches
    assert batch.num_envs == 6
    assert set(np.stack(batch.actions).flat) == {0, 1}
    assert evaluations.last == {"scripted": pytest.approx(np.stack(batch.actions).sum() / 6)}
