"""The intrinsic reward's normalizer (section 3.3, appendix A.3)."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from byol_explore.ops import arrays as arrays_ops
from byol_explore.ops import rewards as rewards_ops

random_cases = settings(max_examples=40, deadline=None)
Stream = tuple[list[np.ndarray], list[np.ndarray]]
update = jax.jit(rewards_ops.update_moments)
corrected = jax.jit(rewards_ops.bias_corrected)
standard_deviation = jax.jit(rewards_ops.bias_corrected_std)
reward_of = jax.jit(rewards_ops.update_and_normalize, static_argnames="prioritize")


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """Batches of uncertainties [S, B] of varying size, and which entries are valid; the first has one."""
    shape = draw(st.sampled_from(((6,), (3, 4))))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = draw(st.integers(1, 5))
    share = draw(st.sampled_from((0.1, 0.7, 1.0)))
    batches = [rng.uniform(0.0, rng.choice([0.5, 4.0]), shape).astype(np.float32) for _ in range(count)]
    valids = [rng.random(shape) < share for _ in range(count)]
    valids[0].flat[0] = True
    return batches, valids


decays = st.sampled_from((0.0, 0.5, 0.99))


def moments_of(batches: list[np.ndarray], valids: list[np.ndarray], decay: float) -> rewards_ops.RunningMoments:
    state = rewards_ops.init_moments()
    for batch, valid in zip(batches, valids, strict=True):
        state = update(state, batch, valid, decay)
    return state


def rewards_of(batches: list[np.ndarray], valids: list[np.ndarray], decay: float, prioritize: bool) -> list[np.ndarray]:
    normalizer, rewards = rewards_ops.init_normalizer(), []
    for batch, valid in zip(batches, valids, strict=True):
        normalizer, reward = reward_of(normalizer, batch, valid, decay, prioritize=prioritize)
        rewards.append(np.asarray(reward))
    return rewards


def all_valid(*batches: list[float]) -> Stream:
    arrays = [np.array(batch, np.float32) for batch in batches]
    return arrays, [np.ones(len(batch), bool) for batch in batches]


@random_cases
@given(streams(), decays)
def test_corrected_moments_are_the_papers_averages(stream: Stream, decay: float) -> None:
    mean, mean_square = corrected(moments_of(*stream, decay), decay)
    means, squares = references.batch_means(*stream)
    np.testing.assert_allclose(mean, references.corrected_average(means, decay), rtol=1e-5)
    np.testing.assert_allclose(mean_square, references.corrected_average(squares, decay), rtol=1e-5)


@random_cases
@given(streams(), decays)
def test_standard_deviation_is_the_papers(stream: Stream, decay: float) -> None:
    actual = standard_deviation(moments_of(*stream, decay), decay)
    # the difference of two float32 averages: absolute accuracy of the variance, not relative
    np.testing.assert_allclose(actual**2, references.standard_deviation(*stream, decay) ** 2, rtol=1e-4, atol=2e-5)


@random_cases
@given(streams(), st.booleans())
def test_intrinsic_reward_is_the_papers(stream: Stream, prioritize: bool) -> None:
    batches, valids = stream
    valids[0][...] = True  # a first batch with a spread, so that sigma is not rounding noise
    rewards = rewards_of(batches, valids, 0.9, prioritize)
    for actual, expected in zip(rewards, references.intrinsic_rewards(batches, valids, 0.9, prioritize), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-3)


def test_masked_mean_by_hand() -> None:
    x = jnp.array([1.0, 5.0, jnp.nan, 3.0])
    assert float(arrays_ops.masked_mean(x, jnp.array([True, False, False, True]))) == 2.0
    assert float(arrays_ops.masked_mean(x, jnp.zeros(4, bool))) == 0.0


def test_first_batch_by_hand() -> None:
    """Uncertainties 0 and 2: mean 1, mean of squares 2, sigma 1, threshold 1, so rewards 0 and 1."""
    batches, valids = all_valid([0.0, 2.0])
    np.testing.assert_allclose(rewards_of(batches, valids, 0.99, prioritize=True)[0], [0.0, 1.0], atol=1e-5)
    np.testing.assert_allclose(rewards_of(batches, valids, 0.99, prioritize=False)[0], [0.0, 2.0], atol=1e-5)


def test_sigma_is_not_mean_minus_mean_of_squares() -> None:
    """0, 0, 0, 2 have mean 1/2 and mean of squares 1: sigma^2 = 3/4, where the mistake has -1/2."""
    batches, valids = all_valid([0.0, 0.0, 0.0, 2.0])
    sigma = standard_deviation(moments_of(batches, valids, 0.99), 0.99)
    np.testing.assert_allclose(sigma, math.sqrt(3 / 4), rtol=1e-5)


@pytest.mark.parametrize("decay", [0.5, 0.99])
def test_mean_is_bias_corrected_like_sigma(decay: float) -> None:
    """The first batch's statistics are the batch's own, whatever the decay: mean 3, sigma 1, threshold 3."""
    batches, valids = all_valid([2.0, 4.0])
    state = moments_of(batches, valids, decay)
    mean, mean_square = corrected(state, decay)
    np.testing.assert_allclose([mean, mean_square], [3.0, 10.0], rtol=1e-5)
    np.testing.assert_allclose(rewards_ops.bias_corrected_std(state, decay), 1.0, rtol=1e-4)
    np.testing.assert_allclose(rewards_of(batches, valids, decay, True)[0], [0.0, 1.0], atol=1e-3)


def test_sigma_is_not_an_average_of_within_batch_deviations() -> None:
    """Two constant batches, 0 then 3, decay 1/2: weights 1/3 and 2/3, mean 2, mean of squares 6, sigma sqrt 2."""
    batches, valids = all_valid([0.0, 0.0], [3.0, 3.0])
    sigma = standard_deviation(moments_of(batches, valids, 0.5), 0.5)
    np.testing.assert_allclose(sigma, math.sqrt(2.0), rtol=1e-5)


@pytest.mark.parametrize("size", [1.0, 1000.0])
def test_equal_uncertainties_are_worth_at_most_a_hundred(size: float) -> None:
    """Their deviation is rounding error: a hundredth of the mean takes its place, and prioritised nothing is paid."""
    batches, valids = all_valid([size, size])
    np.testing.assert_allclose(rewards_of(batches, valids, 0.99, prioritize=False)[0], [100.0, 100.0], rtol=1e-3)
    np.testing.assert_allclose(rewards_of(batches, valids, 0.99, prioritize=True)[0], [0.0, 0.0], atol=1e-3)


def test_threshold_remembers_earlier_batches() -> None:
    """A batch after an easier one gives no reward below the average of both, decay 1/2.

    Batch 1 (0, 2): sigma 1, normalised mean 1. Batch 2 (4, 4): mean (1 + 2 * 4) / 3 = 3, mean of squares
    (2 + 2 * 16) / 3, sigma sqrt(7/3), normalised 4 / sigma; the threshold is (1 + 2 * 4 / sigma) / 3.
    """
    batches, valids = all_valid([0.0, 2.0], [4.0, 4.0])
    normalized = 4.0 / math.sqrt(34 / 3 - 9)
    expected = normalized - (1 + 2 * normalized) / 3
    np.testing.assert_allclose(rewards_of(batches, valids, 0.5, True)[1], [expected, expected], rtol=1e-4)


def test_statistics_are_updated_before_the_batch_is_normalised() -> None:
    """A batch ten times larger than the one before is divided by a sigma that has seen it."""
    batches, valids = all_valid([0.0, 2.0], [0.0, 20.0])
    sigma = references.standard_deviation(batches, valids, 0.5)
    np.testing.assert_allclose(rewards_of(batches, valids, 0.5, False)[1], [0.0, 20.0 / sigma], rtol=1e-4)


def test_no_clipping_ablation_keeps_the_small_rewards() -> None:
    batches, valids = all_valid([1.0, 2.0, 6.0])
    clipped, kept = (rewards_of(batches, valids, 0.99, prioritize)[0] for prioritize in (True, False))
    np.testing.assert_array_equal(clipped > 0, [False, False, True])
    np.testing.assert_allclose(kept / kept[0], [1.0, 2.0, 6.0], rtol=1e-5)


@random_cases
@given(streams(), st.sampled_from((1e6, np.nan)), st.booleans())
def test_invalid_transitions_neither_pay_nor_enter_the_statistics(
    stream: Stream, garbage: float, prioritize: bool
) -> None:
    batches, valids = stream
    spoiled = [np.where(valid, batch, garbage).astype(np.float32) for batch, valid in zip(batches, valids, strict=True)]
    clean_rewards, rewards = (rewards_of(x, valids, 0.9, prioritize) for x in (batches, spoiled))
    for actual, expected, valid in zip(rewards, clean_rewards, valids, strict=True):
        np.testing.assert_array_equal(actual, expected)
        np.testing.assert_array_equal(actual[~valid], 0.0)


def test_batch_without_a_valid_transition_changes_nothing() -> None:
    batches, valids = all_valid([0.0, 2.0])
    normalizer, _ = reward_of(rewards_ops.init_normalizer(), batches[0], valids[0], 0.9, prioritize=True)
    nothing = np.zeros(2, bool)
    after, reward = reward_of(normalizer, np.array([7.0, 9.0], np.float32), nothing, 0.9, prioritize=True)
    jax.tree.map(np.testing.assert_array_equal, after, normalizer)
    np.testing.assert_array_equal(reward, [0.0, 0.0])


@pytest.mark.parametrize("prioritize", [True, False])
def test_no_valid_transition_at_all_has_finite_values_and_gradients(prioritize: bool) -> None:
    def paid(uncertainty: jax.Array) -> jax.Array:
        normalizer = rewards_ops.init_normalizer()
        return jnp.sum(
            rewards_ops.update_and_normalize(normalizer, uncertainty, jnp.zeros(3, bool), 0.99, prioritize)[1]
        )

    total, gradient = jax.jit(jax.value_and_grad(paid))(jnp.array([0.0, 1.0, 2.0]))
    assert float(total) == 0.0
    np.testing.assert_array_equal(gradient, np.zeros(3))
    np.testing.assert_array_equal(rewards_ops.bias_corrected(rewards_ops.init_moments(), 0.99), (0.0, 0.0))
