"""Which prediction lands where, and which one counts (section 3.2 iii and iv)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from byol_explore.ops import world_model
from byol_explore.ops.arrays import masked_mean

random_cases = settings(max_examples=40, deadline=None)
Sequence = tuple[np.ndarray, np.ndarray]


@st.composite
def sequences(draw: st.DrawFn) -> Sequence:
    """Losses [S, K] and is_first [T]; the horizon is below, equal to or above the number of starts."""
    length, horizon = draw(st.sampled_from(((8, 1), (8, 3), (5, 4), (3, 4))))
    is_first = draw(st.lists(st.booleans(), min_size=length, max_size=length))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.uniform(0.0, 4.0, (length - 1, horizon)).astype(np.float32), np.array(is_first)


def one_episode(length: int) -> np.ndarray:
    return np.arange(length) == 0


def losses_named_by_place(starts: int, horizon: int) -> np.ndarray:
    """loss(t, k) = 10 (t + 1) + k, so that a sum shows what went into it."""
    return np.array([[10.0 * (t + 1) + k for k in range(1, horizon + 1)] for t in range(starts)], np.float32)


validity_of = jax.jit(world_model.prediction_mask, static_argnums=1)
mean_of = jax.jit(world_model.mean_over_horizon)
uncertainty_of = jax.jit(world_model.transition_uncertainty)


@jax.jit
def training_loss(losses: jax.Array, valid: jax.Array) -> jax.Array:
    return masked_mean(*world_model.mean_over_horizon(losses, valid))


loss_gradient = jax.jit(jax.grad(training_loss))


@random_cases
@given(sequences())
def test_prediction_mask_is_the_papers_loop(sequence: Sequence) -> None:
    losses, is_first = sequence
    horizon = losses.shape[1]
    actual = validity_of(is_first, horizon)
    np.testing.assert_array_equal(actual, references.prediction_validity(is_first, horizon))


@random_cases
@given(sequences())
def test_loss_is_the_papers_loop(sequence: Sequence) -> None:
    losses, is_first = sequence
    valid = validity_of(is_first, losses.shape[1])
    mean, any_valid = mean_of(losses, valid)
    expected = references.mean_over_horizon(losses, is_first)
    np.testing.assert_array_equal(np.flatnonzero(any_valid), sorted(expected))
    np.testing.assert_allclose(np.asarray(mean)[sorted(expected)], [expected[t] for t in sorted(expected)], rtol=1e-5)
    if expected:
        overall = sum(expected.values()) / len(expected)
        np.testing.assert_allclose(masked_mean(mean, any_valid), overall, rtol=1e-5)


@random_cases
@given(sequences())
def test_uncertainty_is_the_papers_loop(sequence: Sequence) -> None:
    losses, is_first = sequence
    valid = validity_of(is_first, losses.shape[1])
    actual = uncertainty_of(losses, valid)
    np.testing.assert_allclose(actual, references.uncertainty(losses, is_first), rtol=1e-5)


def test_valid_horizon_shrinks_at_the_end_of_the_sequence() -> None:
    """K(t) = min(K, T - 1 - t) with T = 6 and K = 3."""
    valid = validity_of(one_episode(6), 3)
    np.testing.assert_array_equal(jnp.sum(valid, axis=1), [3, 3, 3, 2, 1])


def test_episode_boundary_in_the_middle() -> None:
    """o_0 o_1 o_2 | o_3 o_4 with K = 2: only o_0 sees two steps ahead, and o_2 sees nothing."""
    is_first = jnp.array([True, False, False, True, False])
    valid = validity_of(is_first, 2)
    np.testing.assert_array_equal(valid, [[True, True], [True, False], [False, False], [True, False]])
    losses = losses_named_by_place(4, 2)
    mean, any_valid = mean_of(losses, valid)
    np.testing.assert_array_equal(np.asarray(mean)[any_valid], [11.5, 21.0, 41.0])
    np.testing.assert_array_equal(uncertainty_of(losses, valid), [11.0, 21.0 + 12.0, 0.0, 41.0])


def test_sequence_that_begins_inside_an_episode_masks_nothing() -> None:
    starts_fresh = validity_of(jnp.array([True, False, False]), 2)
    goes_on = validity_of(jnp.array([False, False, False]), 2)
    np.testing.assert_array_equal(goes_on, starts_fresh)
    np.testing.assert_array_equal(goes_on, [[True, True], [True, False]])


def test_uncertainty_sums_over_landings_and_not_over_k_from_one_start() -> None:
    losses = losses_named_by_place(3, 2)
    valid = validity_of(one_episode(4), 2)
    actual = uncertainty_of(losses, valid)
    np.testing.assert_array_equal(actual, [11.0, 21.0 + 12.0, 31.0 + 22.0])  # from one start: 23, 43, 31


@pytest.mark.parametrize("horizon", [2, 5])
def test_last_starts_are_not_dropped(horizon: int) -> None:
    """Every start has a share of the loss, also those with fewer than K observations ahead."""
    losses = losses_named_by_place(5, horizon)
    valid = validity_of(one_episode(6), horizon)
    share = jnp.sum(loss_gradient(losses, valid), axis=1)
    np.testing.assert_allclose(share, np.full(5, 1 / 5), rtol=1e-6)
    assert float(mean_of(losses, valid)[0][-1]) == 51.0


def test_horizon_equal_to_the_number_of_starts() -> None:
    losses = losses_named_by_place(3, 3)
    valid = validity_of(one_episode(4), 3)
    mean, any_valid = mean_of(losses, valid)
    assert bool(jnp.all(any_valid))
    np.testing.assert_array_equal(mean, [12.0, 21.5, 31.0])
    uncertainty = uncertainty_of(losses, valid)
    np.testing.assert_array_equal(uncertainty, [11.0, 21.0 + 12.0, 31.0 + 22.0 + 13.0])


@random_cases
@given(sequences(), st.sampled_from((1e6, np.inf, np.nan)))
def test_predictions_across_episode_boundaries_do_not_count(sequence: Sequence, garbage: float) -> None:
    losses, is_first = sequence
    valid = np.asarray(validity_of(is_first, losses.shape[1]))
    spoiled = np.where(valid, losses, garbage).astype(np.float32)
    np.testing.assert_array_equal(training_loss(spoiled, valid), training_loss(losses, valid))
    np.testing.assert_array_equal(uncertainty_of(spoiled, valid), uncertainty_of(losses, valid))
    gradient = np.asarray(loss_gradient(spoiled, valid))
    np.testing.assert_array_equal(gradient[~valid], 0.0)


@random_cases
@given(sequences())
def test_no_uncertainty_across_episode_boundaries(sequence: Sequence) -> None:
    """The dummy transition into a first observation has none; each other one has at least its one-step loss."""
    losses, is_first = sequence
    valid = validity_of(is_first, losses.shape[1])
    uncertainty = np.asarray(uncertainty_of(losses, valid))
    np.testing.assert_array_equal(uncertainty[is_first[1:]], 0.0)
    assert np.all((uncertainty >= losses[:, 0])[~is_first[1:]])


@random_cases
@given(sequences())
def test_mean_divides_by_the_valid_horizon_and_not_by_k(sequence: Sequence) -> None:
    """A loss of 2 everywhere has mean 2, wherever the boundaries are; without a valid pair the mean is 0."""
    losses, is_first = sequence
    valid = validity_of(is_first, losses.shape[1])
    expected = 2.0 if np.any(valid) else 0.0
    np.testing.assert_allclose(training_loss(np.full_like(losses, 2.0), valid), expected, rtol=1e-6)


def test_no_valid_transition_has_finite_values_and_gradients() -> None:
    losses = losses_named_by_place(3, 2)
    valid = validity_of(jnp.ones(4, bool), 2)
    loss, gradient = jax.value_and_grad(training_loss)(losses, valid)
    assert float(loss) == 0.0
    np.testing.assert_array_equal(gradient, np.zeros((3, 2)))
    np.testing.assert_array_equal(mean_of(losses, valid)[0], np.zeros(3))
    np.testing.assert_array_equal(uncertainty_of(losses, valid), np.zeros(3))
