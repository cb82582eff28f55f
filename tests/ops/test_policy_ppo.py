"""PPO's clipped surrogate and generalised advantages against loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byol_explore.ops import policy
from byol_explore.ops import value as value_ops

CLIP = 0.2


def slow_surrogate(log_ratio: float, advantage: float) -> float:
    """-min(r A, clip(r) A), by cases."""
    ratio = np.exp(log_ratio)
    if advantage >= 0:
        return -min(ratio, 1.0 + CLIP) * advantage
    return -max(ratio, 1.0 - CLIP) * advantage


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.floats(-1.0, 1.0), st.floats(-3.0, 3.0)), min_size=5, max_size=5))
def test_the_surrogate_is_the_smaller_of_two(samples: list[tuple[float, float]]) -> None:
    log_ratio, advantage = np.asarray(samples, np.float32).T
    loss, outside = policy.clipped_surrogate(jnp.asarray(log_ratio), jnp.asarray(advantage), CLIP)
    expected = [slow_surrogate(*sample) for sample in zip(log_ratio, advantage, strict=True)]
    np.testing.assert_allclose(loss, expected, rtol=1e-4, atol=1e-5)
    far = np.abs(np.abs(np.exp(log_ratio) - 1.0) - CLIP) > 1e-4  # from the border, where rounding decides
    np.testing.assert_array_equal(np.asarray(outside)[far], (np.abs(np.exp(log_ratio) - 1.0) > CLIP)[far])


@pytest.mark.parametrize(
    ("log_ratio", "advantage", "moves"),
    [(0.5, 1.0, False), (0.5, -1.0, True), (-0.5, 1.0, True), (-0.5, -1.0, False), (0.1, 1.0, True)],
)
def test_no_gradient_rewards_going_further_than_the_clip(log_ratio: float, advantage: float, moves: bool) -> None:
    gradient = jax.grad(lambda x: policy.clipped_surrogate(x, jnp.asarray([advantage]), CLIP)[0][0])
    slope = float(gradient(jnp.asarray([log_ratio]))[0])
    assert (slope != 0.0) is moves
    if moves:
        assert np.sign(slope) == -np.sign(advantage)


def test_advantages_of_valid_samples_have_mean_0_and_deviation_1() -> None:
    advantage, valid = jnp.asarray([1.0, 2.0, 6.0, 1e6]), jnp.asarray([True, True, True, False])
    standard = np.asarray(policy.standardize_advantage(advantage, valid))[:3]
    np.testing.assert_allclose([standard.mean(), standard.std()], [0.0, 1.0], atol=1e-5)
    np.testing.assert_allclose(policy.standardize_advantage(jnp.ones(3), jnp.ones(3, bool)), 0.0, atol=1e-5)


def slow_advantages(
    value: np.ndarray, reward: np.ndarray, discount: np.ndarray, valid: np.ndarray, decay: float
) -> np.ndarray:
    """A_t = sum over k of the discounted errors up to the next dummy transition or the end."""
    steps, advantages = len(reward), np.zeros(len(reward))
    for t in range(steps):
        weight = 1.0
        for k in range(t, steps):
            if not valid[k]:
                break
            advantages[t] += weight * (reward[k] + discount[k] * value[k + 1] - value[k])
            weight *= discount[k] * decay
    return advantages


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from((0.0, 0.5, 0.95, 1.0)))
def test_generalised_advantages_are_the_sum_of_errors(seed: int, decay: float) -> None:
    rng = np.random.default_rng(seed)
    value, reward = rng.normal(size=7), rng.normal(size=6)
    discount, valid = 0.9 * (rng.random(6) < 0.8), rng.random(6) < 0.75
    arrays = [jnp.asarray(x, jnp.float32) for x in (value, reward, discount)]
    actual = value_ops.generalized_advantage(*arrays, jnp.asarray(valid), decay)
    np.testing.assert_allclose(actual, slow_advantages(value, reward, discount, valid, decay), rtol=1e-4, atol=1e-5)


def test_with_lambda_1_the_targets_are_those_of_vtrace() -> None:
    rng = np.random.default_rng(0)
    value, reward = jnp.asarray(rng.normal(size=7)), jnp.asarray(rng.normal(size=6))
    discount, valid = jnp.asarray([0.9, 0.9, 0.0, 0.9, 0.9, 0.9]), jnp.asarray([True, True, True, False, True, True])
    targets = value[:-1] + value_ops.generalized_advantage(value, reward, discount, valid, 1.0)
    np.testing.assert_allclose(targets, value_ops.vtrace_targets(value, reward, discount, valid), rtol=1e-5)
