"""Reward scales and the mix of extrinsic and intrinsic rewards (section 4, appendix C)."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from byol_explore.ops import rewards
from byol_explore.ops.rewards import RunningRMS

random_cases = settings(max_examples=30, deadline=None)
Batch = tuple[np.ndarray, np.ndarray, np.ndarray]
TASKS, MINIMUM = 3, 0.01
intrinsic_reward = jax.jit(rewards.normalize_per_task, static_argnums=(4, 5))
rescale = jax.jit(rewards.divide_by_rms, static_argnames=("step_size", "minimum"))


@st.composite
def streams(draw: st.DrawFn) -> list[Batch]:
    """Batches of sparse rewards, tasks (some may be absent) and validity."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = draw(st.sampled_from((4, 9)))
    density = draw(st.sampled_from((0.2, 1.0)))

    def batch() -> Batch:
        reward = rng.normal(size=size) * 10.0 * (rng.random(size) < density)
        return reward.astype(np.float32), rng.integers(0, TASKS, size), rng.random(size) < 0.7

    return [batch() for _ in range(draw(st.integers(1, 4)))]


def run(stream: list[Batch], step_size: float, minimum: float = MINIMUM) -> tuple[RunningRMS, list[np.ndarray]]:
    stats, scaled = rewards.init_rms(TASKS), []
    for batch in stream:
        stats, reward = rescale(stats, *batch, step_size=step_size, minimum=minimum)
        scaled.append(np.asarray(reward))
    return stats, scaled


def one_task(reward: list[float]) -> Batch:
    return np.array(reward, np.float32), np.zeros(len(reward), int), np.ones(len(reward), bool)


@random_cases
@given(streams(), st.sampled_from((0.01, 0.5)), st.sampled_from((MINIMUM, 0.8)))
def test_rescale_is_the_loop_over_batches_and_tasks(stream: list[Batch], step_size: float, minimum: float) -> None:
    _, scaled = run(stream, step_size, minimum)
    for n, (reward, task, valid) in enumerate(stream):
        history = [list(part) for part in zip(*stream[: n + 1], strict=True)]
        for i in np.flatnonzero(valid):
            scale = references.reward_scale(*history, task[i], step_size, minimum)
            np.testing.assert_allclose(scaled[n][i], reward[i] / scale, rtol=1e-4)


def test_rescale_by_hand() -> None:
    """Batches (0, 2) then (4, 4), step 1/2: mean square 2, then (2 + 2 * 16) / 3."""
    _, scaled = run([one_task([0.0, 2.0]), one_task([4.0, 4.0])], 0.5)
    np.testing.assert_allclose(scaled[0], [0.0, 2.0 / np.sqrt(2.0)], rtol=1e-5)
    np.testing.assert_allclose(scaled[1], np.full(2, 4.0 / np.sqrt(34 / 3)), rtol=1e-5)


@pytest.mark.parametrize("step_size", [1e-5, 0.01])
def test_scale_is_bias_corrected_from_the_first_batch(step_size: float) -> None:
    """Constant rewards become 1 at once, also at the paper's smallest step."""
    _, scaled = run([one_task([50.0, 50.0])] * 3, step_size)
    np.testing.assert_allclose(scaled, np.ones((3, 2)), rtol=1e-5)


def test_no_mean_is_subtracted_so_zeros_stay_zeros() -> None:
    _, scaled = run([one_task([0.0, 0.0, 9.0])] * 2, 0.1)
    for reward in scaled:
        np.testing.assert_array_equal(reward[:2], [0.0, 0.0])
        assert float(reward[2]) > 0.0


def test_rare_rewards_are_divided_by_a_share_of_their_own_size() -> None:
    """One reward of 4 in 16 has a root mean square of 1: at least half of 4 is divided by instead."""
    batch = one_task([4.0] + 15 * [0.0])
    assert run([batch], 0.01, 0.1)[1][0][0] == 4.0
    assert run([batch], 0.01, 0.5)[1][0][0] == 2.0
    zeros = one_task(16 * [0.0])
    assert run([zeros] * 9 + [batch], 0.5, 0.5)[1][-1][0] == 2.0, "batches without a reward do not lower the bound"


@pytest.mark.parametrize("factor", [2.0**-20, 2.0**20])
def test_factor_of_all_rewards_is_divided_out_exactly(factor: float) -> None:
    stream = [one_task([0.0, 0.0]), one_task([0.0, 3.0]), one_task([0.5, -0.25]), one_task([0.0, 0.0])]
    scaled = run([(np.float32(factor) * reward, task, valid) for reward, task, valid in stream], 0.1)[1]
    np.testing.assert_array_equal(scaled, run(stream, 0.1)[1])


def test_rewards_of_zero_only_stay_finite() -> None:
    np.testing.assert_array_equal(run([one_task([0.0, 0.0])], 0.1)[1][0], [0.0, 0.0])


def test_step_of_zero_leaves_rewards_and_statistics_alone() -> None:
    stats, scaled = run([one_task([3.0, -5.0])], 0.0)
    np.testing.assert_array_equal(scaled[0], [3.0, -5.0])
    jax.tree.map(np.testing.assert_array_equal, stats, rewards.init_rms(TASKS))


@random_cases
@given(streams(), st.sampled_from((1e6, np.nan)))
def test_invalid_rewards_do_not_enter_the_scale(stream: list[Batch], garbage: float) -> None:
    spoiled = [(np.where(valid, reward, garbage).astype(np.float32), task, valid) for reward, task, valid in stream]
    jax.tree.map(np.testing.assert_array_equal, run(spoiled, 0.1)[0], run(stream, 0.1)[0])


def test_tasks_do_not_share_their_scale() -> None:
    """A task paid in thousands does not drown one paid in units, and an absent one waits."""
    reward, task = np.array([1000.0, 2.0], np.float32), np.array([0, 1])
    stats, scaled = run([(reward, task, np.ones(2, bool))], 0.01)
    np.testing.assert_allclose(scaled[0], [1.0, 1.0], rtol=1e-5)
    assert float(stats.mean_square[2]) == float(stats.weight[2]) == 0.0


def test_no_valid_transition_has_finite_values_and_gradients() -> None:
    stats, nothing, task = rewards.init_rms(TASKS), jnp.zeros(2, bool), jnp.zeros(2, int)

    def total(reward: jax.Array) -> jax.Array:
        return jnp.sum(jnp.where(nothing, rewards.divide_by_rms(stats, reward, task, nothing, 0.1, MINIMUM)[1], 0.0))

    value, gradient = jax.jit(jax.value_and_grad(total))(jnp.array([1.0, 0.0]))
    assert float(value) == 0.0
    np.testing.assert_array_equal(gradient, [0.0, 0.0])
    after, scaled = rewards.divide_by_rms(stats, jnp.array([1.0, 0.0]), task, nothing, 0.1, MINIMUM)
    jax.tree.map(np.testing.assert_array_equal, after, stats)
    assert np.all(np.isfinite(scaled))


def sum_of_parts(*arguments: Any) -> jax.Array:
    extrinsic, intrinsic = rewards.mix_rewards(*arguments)
    return extrinsic + intrinsic


@pytest.mark.parametrize(
    ("regime", "expected"), [("mixed", [1.5, 1.0]), ("intrinsic", [5.0, 10.0]), ("extrinsic", [1.0, 0.0])]
)
def test_regimes(regime: str, expected: list[float]) -> None:
    actual = sum_of_parts(jnp.array([1.0, 0.0]), jnp.array([5.0, 10.0]), regime, 0.1)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_intrinsic_regime_is_not_the_papers_lambda_of_zero() -> None:
    actual = sum_of_parts(jnp.array([7.0]), jnp.array([5.0]), "intrinsic", 0.0)
    np.testing.assert_array_equal(actual, [5.0])


def test_unknown_regime_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown regime 'both'"):
        rewards.mix_rewards(jnp.zeros(1), jnp.zeros(1), "both", 0.1)


def rewards_over_time(per_task: bool) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    """Two tasks, one with errors a hundred times smaller: rewards of three batches, the uncertainties, the tasks."""
    rng = np.random.default_rng(0)
    task = np.broadcast_to(np.array([0, 1, 1, 0]), (6, 4))
    size = np.where(task == 0, 1.0, 0.01)
    batches = [(size * rng.uniform(0.5, 1.5, task.shape)).astype(np.float32) for _ in range(3)]
    normalizers, paid = rewards.init_normalizer((2 if per_task else 1,)), []
    for batch in batches:
        normalizers, reward = intrinsic_reward(normalizers, batch, task, np.ones(task.shape, bool), 0.9, True)
        paid.append(np.asarray(reward))
    return paid, batches, task


def test_a_normalizer_per_task_equals_each_task_alone() -> None:
    paid, batches, task = rewards_over_time(per_task=True)
    for index in range(2):
        mine = task == index
        alone = references.intrinsic_rewards([b[mine] for b in batches], [np.ones(mine.sum(), bool)] * 3, 0.9, True)
        for reward, expected in zip(paid, alone, strict=True):
            np.testing.assert_allclose(reward[mine], expected, rtol=1e-3, atol=1e-3)


def test_with_one_normalizer_a_task_with_small_errors_gets_nothing() -> None:
    shared, _, task = rewards_over_time(per_task=False)
    own, _, _ = rewards_over_time(per_task=True)
    assert all(not np.any(reward[task == 1]) for reward in shared)
    assert all(np.any(reward[task == 1]) for reward in own)


def test_an_invalid_transition_gets_nothing_and_counts_for_no_task() -> None:
    task, valid = np.zeros((1, 3), np.int32), np.array([[True, True, False]])
    normalizers, reward = intrinsic_reward(
        rewards.init_normalizer((2,)), np.array([[0.0, 2.0, 9.0]], np.float32), task, valid, 0.9, True
    )
    np.testing.assert_allclose(reward, [[0.0, 1.0, 0.0]], atol=1e-5)
    np.testing.assert_array_equal(normalizers.uncertainty.num_updates, [1, 0])
