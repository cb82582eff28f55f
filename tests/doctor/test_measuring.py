"""Numbers of a rollout: by hand, as the learner has them, and with a mask taken away."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from builders import TIME, jit, make, make_spec, make_trajectory, small_config
from byol_explore.doctor.evidence import Probe, TargetProbe
from byol_explore.doctor.measuring import _look, first_of_each, measure_target, probe_rollout, spread_and_rank, width
from byol_explore.learner import Learner
from byol_explore.learner_state import Batch, LearnerState
from byol_explore.ops import latent, moments, windows
from byol_explore.types import Policy, Trajectory


def setup(method: str = "byol-explore") -> tuple[Learner, LearnerState, Trajectory]:
    """A learner of two tasks, and a batch with ends of episodes inside."""
    spec = make_spec("vector")
    learner = Learner(small_config(method), spec, 2)
    fresh, duals = learner.judge.initial_statistics(), learner.algorithm.initial_duals()
    state = make(learner.init)._replace(statistics=fresh, duals=duals)
    trajectory = make_trajectory(spec, state.acting)
    return learner, state, trajectory._replace(task=jnp.tile(jnp.asarray([0, 1, 1], jnp.int32), (TIME, 1)))


@functools.cache
def shared() -> tuple[Learner, LearnerState, Trajectory]:
    return setup()


def probe(learner: Learner, state: LearnerState, trajectory: Trajectory) -> Probe:
    return probe_rollout(learner, state, trajectory, ["left", "right"], 100, None)


@functools.cache
def healthy() -> Probe:
    return probe(*shared())


def test_points_all_around_spread_and_those_in_one_place_do_not() -> None:
    axes = np.concatenate([np.eye(3), -np.eye(3)])
    assert spread_and_rank(axes) == (pytest.approx(1.0), pytest.approx(3.0))
    assert spread_and_rank(5.0 * axes) == (pytest.approx(1.0), pytest.approx(3.0)), "only directions count"
    assert spread_and_rank(np.ones((4, 3))) == (pytest.approx(0.0), 0.0)
    assert spread_and_rank(np.zeros((4, 3))) == (0.0, 0.0)
    assert spread_and_rank(axes[[0, 3]]) == (pytest.approx(1.0), pytest.approx(1.0)), "two points make one line"


def test_an_observation_counts_once() -> None:
    observation = {"a": np.asarray([1, 2, 1, 2, 1, 3]), "b": np.asarray([0, 0, 0, 1, 0, 0])}
    assert first_of_each(observation) == [0, 1, 3, 5]


def test_the_doctor_sees_what_the_learner_computes() -> None:
    learner, state, trajectory = shared()
    seen = _look(learner, state, trajectory)
    _, (_, output) = jit(lambda: learner.objective.loss(state.online, state.duals, state, Batch(trajectory)))()
    valid, metrics = np.asarray(trajectory.valid), output.metrics
    for name, values in (("uncertainty", seen.uncertainty), ("intrinsic_reward", seen.intrinsic),
                         ("value", seen.value), ("value_target", seen.value_target)):  # fmt: skip
        assert np.mean(np.asarray(values)[valid]) == pytest.approx(float(metrics[name]), rel=1e-4, abs=1e-7), name
    assert healthy().paid_share == pytest.approx(float(metrics["paid_share"]))


def test_a_healthy_batch_has_boundaries_that_are_worth_nothing() -> None:
    boundary = healthy().boundary
    assert (boundary.ends, boundary.transitions) == (3, 18)
    assert (boundary.reward, boundary.leak) == (0.0, 0.0)
    assert boundary.counted < 1e-5


def test_masks_that_are_missing_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    validity, reward = windows.window_validity, moments.intrinsic_reward

    def across(is_first: Any, horizon: int) -> Any:
        return validity(jnp.zeros_like(is_first), horizon)

    def paid(normalizer: Any, uncertainty: Any, valid: Any, decay: float, prioritize: bool) -> Any:
        return reward(normalizer, uncertainty, jnp.ones_like(valid), decay, prioritize=False)

    monkeypatch.setattr(windows, "window_validity", across)
    monkeypatch.setattr(moments, "intrinsic_reward", paid)
    boundary = probe(*setup()).boundary
    assert boundary.leak > 1e-3
    assert boundary.reward > 0.0
    assert boundary.counted > 1e-3


def test_every_task_has_its_own_numbers() -> None:
    tasks = healthy().tasks
    assert list(tasks) == ["left", "right"]
    assert (tasks["left"].distinct, tasks["right"].distinct) == (7, 14)
    assert tasks["left"].target_mean != tasks["right"].target_mean
    assert tasks["left"].extrinsic != tasks["right"].extrinsic


def test_the_width_of_a_policy_by_hand() -> None:
    certain, even = np.asarray([[0.0, -1e9]]), np.zeros((1, 4))
    nothing = np.zeros((1, 0))
    assert width(Policy((even,), nothing, nothing)) == (pytest.approx(1.0), None)
    both = width(Policy((even, certain), np.zeros((1, 2)), np.asarray([[0.5, 0.2]])))
    assert both == (pytest.approx(2 / 3), pytest.approx(0.2))
    assert width(Policy((), np.zeros((1, 1)), np.ones((1, 1)))) == (None, 1.0)


def test_nan_in_the_state_is_named() -> None:
    learner, state, trajectory = shared()
    broken = state._replace(duals=state.duals._replace(temperature=jnp.asarray(jnp.nan)))
    assert healthy().not_finite is None
    assert probe(learner, broken, trajectory).not_finite == "duals.temperature"


def target_of(state: LearnerState, before: Any) -> TargetProbe:
    online = state.online
    return measure_target(online.curiosity, state.curiosity, online.actor.curious_encoder, before)


def test_the_target_closes_its_share_of_the_distance() -> None:
    learner, state, _ = shared()
    away = jax.tree.map(lambda x: 1.5 * x, state.online.actor.curious_encoder)
    probe = target_of(state._replace(curiosity=away), None)
    decay = learner.config.curiosity.target_decay
    assert (probe.distance, probe.step, probe.moved) == (pytest.approx(0.5), pytest.approx(1 - decay, rel=1e-3), None)
    before = latent.ema(away, state.online.actor.curious_encoder, 0.5)
    moved = target_of(state._replace(curiosity=away), before).moved
    assert moved == pytest.approx(0.25 / 1.5)


def test_a_mean_image_that_nothing_trains_is_no_part_of_the_distance() -> None:
    state = make(Learner(small_config(), make_spec("image"), 1).init)
    encoder = state.online.actor.curious_encoder
    bright = eqx.tree_at(lambda x: x.center.mean, encoder, jnp.full_like(encoder.center.mean, 100.0))
    state = eqx.tree_at(lambda x: x.online.actor.representation.encoder, state, bright)
    away = jax.tree.map(lambda x: 1.5 * x, encoder)
    away = eqx.tree_at(lambda x: x.center.mean, away, bright.center.mean)
    probe = target_of(state._replace(curiosity=away), bright)
    assert (probe.distance, probe.moved) == (pytest.approx(0.5), pytest.approx(0.5 / 1.5))


def test_the_target_of_rnd_stays() -> None:
    _, state, _ = setup("rnd")
    assert target_of(state, state.curiosity) == (None, 0.0, 0.0)
