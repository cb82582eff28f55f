"""Measurements of a rollout: by hand, equal to the learner's, and with a mask removed."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from builders import TIME, jit, make, make_spec, make_trajectory, small_config
from byol_explore.agent.learner import Learner
from byol_explore.agent.state import Batch, LearnerState
from byol_explore.doctor.evidence import Measurements, TargetMeasurement
from byol_explore.doctor.measurements import (
    _forward_learner,
    measure_rollout,
    measure_target,
    policy_entropy_and_std,
    spread_and_effective_rank,
    unique_indices,
)
from byol_explore.ops import rewards, world_model
from byol_explore.types import Policy, Trajectory


def setup(method: str = "byol-explore") -> tuple[Learner, LearnerState, Trajectory]:
    """Return a learner of two tasks and a batch with episode ends inside."""
    spec = make_spec("vector")
    learner = Learner(small_config(method), spec, 2)
    fresh, duals = learner.target_computer.initial_statistics(), learner.algorithm.initial_duals()
    state = make(learner.init)._replace(statistics=fresh, duals=duals)
    trajectory = make_trajectory(spec, state.target_actor)
    return learner, state, trajectory._replace(task_id=jnp.tile(jnp.asarray([0, 1, 1], jnp.int32), (TIME, 1)))


@functools.cache
def shared() -> tuple[Learner, LearnerState, Trajectory]:
    return setup()


def probe(learner: Learner, state: LearnerState, trajectory: Trajectory) -> Measurements:
    return measure_rollout(learner, state, trajectory, ["left", "right"], 100, None)


@functools.cache
def healthy() -> Measurements:
    return probe(*shared())


def test_spread_and_effective_rank_by_hand() -> None:
    axes = np.concatenate([np.eye(3), -np.eye(3)])
    assert spread_and_effective_rank(axes) == (pytest.approx(1.0), pytest.approx(3.0))
    assert spread_and_effective_rank(5.0 * axes) == (pytest.approx(1.0), pytest.approx(3.0)), "only directions count"
    assert spread_and_effective_rank(np.ones((4, 3))) == (pytest.approx(0.0), 0.0)
    assert spread_and_effective_rank(np.zeros((4, 3))) == (0.0, 0.0)
    assert spread_and_effective_rank(axes[[0, 3]]) == (pytest.approx(1.0), pytest.approx(1.0)), (
        "two points make one line"
    )


def test_unique_indices_by_hand() -> None:
    observation = {"a": np.asarray([1, 2, 1, 2, 1, 3]), "b": np.asarray([0, 0, 0, 1, 0, 0])}
    assert unique_indices(observation) == [0, 1, 3, 5]


def test_forward_pass_equals_the_learner() -> None:
    learner, state, trajectory = shared()
    forward = _forward_learner(learner, state, trajectory)
    agent = forward.agent
    assert agent is not None
    _, (_, output) = jit(lambda: learner.loss_function.loss(state.online, state.duals, state, Batch(trajectory)))()
    valid, metrics = np.asarray(trajectory.valid), output.metrics
    for name, values in (("uncertainty", forward.uncertainty), ("intrinsic_reward", forward.reward),
                         ("value", agent.value), ("value_target", agent.value_target)):  # fmt: skip
        assert np.mean(np.asarray(values)[valid]) == pytest.approx(float(metrics[name]), rel=1e-4, abs=1e-7), name
    assert healthy().intrinsic_nonzero_fraction == pytest.approx(float(metrics["intrinsic_nonzero_fraction"]))


def test_boundaries_of_a_healthy_batch_are_worth_nothing() -> None:
    boundary = healthy().boundary
    assert (boundary.episode_ends, boundary.transitions) == (3, 18)
    assert (boundary.max_reward, boundary.uncertainty_leak) == (0.0, 0.0)
    assert boundary.normalizer_error < 1e-5


def test_missing_masks_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    validity, reward = world_model.prediction_mask, rewards.update_and_normalize

    def across(is_first: Any, horizon: int) -> Any:
        return validity(jnp.zeros_like(is_first), horizon)

    def paid(normalizer: Any, uncertainty: Any, valid: Any, decay: float, prioritize: bool) -> Any:
        return reward(normalizer, uncertainty, jnp.ones_like(valid), decay, prioritize=False)

    monkeypatch.setattr(world_model, "prediction_mask", across)
    monkeypatch.setattr(rewards, "update_and_normalize", paid)
    boundary = probe(*setup()).boundary
    assert boundary.uncertainty_leak > 1e-3
    assert boundary.max_reward > 0.0
    assert boundary.normalizer_error > 1e-3


def test_tasks_are_measured_separately() -> None:
    tasks = healthy().tasks
    assert list(tasks) == ["left", "right"]
    assert (tasks["left"].distinct_observations, tasks["right"].distinct_observations) == (7, 14)
    assert tasks["left"].value_target_mean != tasks["right"].value_target_mean
    assert tasks["left"].extrinsic_magnitude != tasks["right"].extrinsic_magnitude


def test_policy_entropy_and_std_by_hand() -> None:
    certain, even = np.asarray([[0.0, -1e9]]), np.zeros((1, 4))
    nothing = np.zeros((1, 0))
    assert policy_entropy_and_std(Policy((even,), nothing, nothing)) == (pytest.approx(1.0), None)
    both = policy_entropy_and_std(Policy((even, certain), np.zeros((1, 2)), np.asarray([[0.5, 0.2]])))
    assert both == (pytest.approx(2 / 3), pytest.approx(0.2))
    assert policy_entropy_and_std(Policy((), np.zeros((1, 1)), np.ones((1, 1)))) == (None, 1.0)


def test_nan_in_the_state_is_named() -> None:
    learner, state, trajectory = shared()
    broken = state._replace(duals=state.duals._replace(log_temperature=jnp.asarray(jnp.nan)))
    assert healthy().first_nonfinite is None
    assert probe(learner, broken, trajectory).first_nonfinite == "duals.log_temperature"


def target_of(state: LearnerState, before: Any) -> TargetMeasurement:
    online = state.online
    return measure_target(online.curiosity, state.method_state, online.actor.curiosity_encoder, before)


def test_target_step_is_one_minus_alpha() -> None:
    learner, state, _ = shared()
    away = jax.tree.map(lambda x: 1.5 * x, state.online.actor.curiosity_encoder)
    probe = target_of(state._replace(method_state=away), None)
    decay = learner.config.curiosity.target_decay
    assert (probe.relative_distance, probe.step_fraction, probe.relative_change) == (
        pytest.approx(0.5),
        pytest.approx(1 - decay, rel=1e-3),
        None,
    )
    before = world_model.ema(away, state.online.actor.curiosity_encoder, 0.5)
    moved = target_of(state._replace(method_state=away), before).relative_change
    assert moved == pytest.approx(0.25 / 1.5)


def test_target_distance_leaves_out_the_fixed_mean_image() -> None:
    state = make(Learner(small_config(), make_spec("image"), 1).init)
    encoder = state.online.actor.curiosity_encoder
    bright = eqx.tree_at(lambda x: x.center.mean, encoder, jnp.full_like(encoder.center.mean, 100.0))
    state = eqx.tree_at(lambda x: x.online.actor.representation.encoder, state, bright)
    away = jax.tree.map(lambda x: 1.5 * x, encoder)
    away = eqx.tree_at(lambda x: x.center.mean, away, bright.center.mean)
    probe = target_of(state._replace(method_state=away), bright)
    assert (probe.relative_distance, probe.relative_change) == (pytest.approx(0.5), pytest.approx(0.5 / 1.5))


def test_target_of_rnd_does_not_move() -> None:
    _, state, _ = setup("rnd")
    assert target_of(state, state.method_state) == (None, 0.0, 0.0)
