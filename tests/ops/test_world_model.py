"""Distances in latent space and the target network's moving average (section 3.2 ii and iii)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from byol_explore.ops import world_model

distance_of = jax.jit(world_model.cosine_distance)
random_cases = settings(max_examples=30, deadline=None)
Pair = tuple[np.ndarray, np.ndarray]


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    """Predictions and targets of very different sizes, [*batch, N]."""
    shape = draw(st.sampled_from(((3,), (4, 2), (2, 3, 5))))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.tuples(*[st.sampled_from((1e-2, 1.0, 1e2))] * 2))
    prediction, target = rng.normal(size=(2, *shape)) * np.reshape(sizes, (2, *[1] * len(shape)))
    return prediction.astype(np.float32), target.astype(np.float32)


@random_cases
@given(pairs())
def test_cosine_distance_is_the_papers_loop(pair: Pair) -> None:
    np.testing.assert_allclose(distance_of(*pair), references.cosine_distance(*pair), rtol=1e-4, atol=1e-6)


@random_cases
@given(pairs())
def test_squared_distance_is_the_papers_loop(pair: Pair) -> None:
    np.testing.assert_allclose(world_model.squared_distance(*pair), references.squared_distance(*pair), rtol=1e-5)


def test_l2_normalize_by_hand() -> None:
    np.testing.assert_allclose(world_model.l2_normalize(jnp.array([3.0, -4.0])), [0.6, -0.8], rtol=1e-6)


@pytest.mark.parametrize(("target", "expected"), [([2.0, 0.0], 0.0), ([0.0, 3.0], 2.0), ([-5.0, 0.0], 4.0)])
def test_distance_is_squared(target: list[float], expected: float) -> None:
    """Same, orthogonal and opposite directions: 0, 2, 4. Unsquared they would be 0, 1.4, 2."""
    actual = world_model.cosine_distance(jnp.array([0.5, 0.0]), jnp.array(target))
    np.testing.assert_allclose(actual, expected, atol=1e-6)


@random_cases
@given(pairs(), st.sampled_from((0.1, 7.0)))
def test_latent_normalisation_is_not_missing(pair: Pair, factor: float) -> None:
    """The length of neither vector matters, and the distance stays in [0, 4]."""
    distance = distance_of(*pair)
    np.testing.assert_allclose(distance_of(factor * pair[0], pair[1]), distance, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(distance_of(pair[0], factor * pair[1]), distance, rtol=1e-4, atol=1e-5)
    assert np.all(np.abs(np.asarray(distance) - 2.0) <= 2.0 + 1e-5)


@pytest.mark.parametrize("distance", [world_model.cosine_distance, world_model.squared_distance])
def test_gradient_reaches_the_prediction_and_not_the_target(distance) -> None:
    prediction, target = jnp.array([1.0, 2.0]), jnp.array([-1.0, 0.5])
    towards_prediction, towards_target = jax.grad(distance, argnums=(0, 1))(prediction, target)
    assert np.all(np.asarray(towards_prediction) != 0.0)
    np.testing.assert_array_equal(towards_target, [0.0, 0.0])


def test_gradient_turns_the_prediction_without_stretching_it() -> None:
    prediction, target = jnp.array([1.0, 2.0, -1.0]), jnp.array([-1.0, 0.5, 2.0])
    gradient = jax.grad(world_model.cosine_distance)(prediction, target)
    np.testing.assert_allclose(gradient @ prediction, 0.0, atol=1e-6)
    assert world_model.cosine_distance(prediction - 0.1 * gradient, target) < world_model.cosine_distance(
        prediction, target
    )


def test_zero_vector_has_finite_value_and_gradient() -> None:
    zero, target = jnp.zeros(3), jnp.array([1.0, 2.0, 2.0])
    np.testing.assert_array_equal(world_model.l2_normalize(zero), np.zeros(3))
    assert np.all(np.isfinite(jax.jacobian(world_model.l2_normalize)(zero)))
    distance, gradient = jax.value_and_grad(world_model.cosine_distance)(zero, target)
    np.testing.assert_allclose(distance, 1.0, rtol=1e-6)
    assert np.all(np.isfinite(gradient))


def test_target_network_moves_by_one_minus_alpha() -> None:
    """Every array of the tree: phi <- alpha phi + (1 - alpha) theta."""
    target = {"weight": jnp.array([10.0, 0.0]), "bias": jnp.array(1.0)}
    online = {"weight": jnp.array([20.0, 4.0]), "bias": jnp.array(-1.0)}
    moved = world_model.ema(target, online, 0.75)
    np.testing.assert_allclose(moved["weight"], [12.5, 1.0])
    np.testing.assert_allclose(moved["bias"], 0.5)


def test_target_network_reaches_a_fixed_online_network() -> None:
    """After n steps the way left is alpha^n."""
    target = jnp.array(1.0)
    for _ in range(20):
        target = world_model.ema(target, jnp.array(3.0), 0.9)
    np.testing.assert_allclose(target, 3.0 - 2.0 * 0.9**20, rtol=1e-6)


def test_alpha_of_one_never_moves_the_target() -> None:
    np.testing.assert_array_equal(world_model.ema(jnp.array([1.0, 2.0]), jnp.array([5.0, 5.0]), 1.0), [1.0, 2.0])
