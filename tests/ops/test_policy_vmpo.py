"""V-MPO's losses and multipliers (section 4.1, appendix C)."""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax
from hypothesis import given, settings
from hypothesis import strategies as st
from rlax._src import mpo_ops

import references
from byol_explore.ops import policy as policy_ops

random_cases = settings(max_examples=30, deadline=None)
Batch = tuple[np.ndarray, np.ndarray, np.ndarray]
Duals = policy_ops.Duals
EPSILON = 0.1
top_samples = jax.jit(policy_ops.top_advantage_mask)
rlax_top_samples = jax.jit(mpo_ops.get_top_k_weights, static_argnums=0)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Log-probabilities, advantages (no two alike) and validity of n samples, at least one of them valid."""
    size = draw(st.sampled_from((4, 11)))
    valid = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    valid[draw(st.integers(0, size - 1))] = True
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    advantage = rng.permutation(size) + rng.uniform(-0.4, 0.4, size) - size / 2
    return -rng.exponential(size=size).astype(np.float32), advantage.astype(np.float32), valid


temperatures = st.sampled_from((0.3, 1.0, 5.0))
fractions = st.sampled_from((0.25, 0.5, 1.0))


@jax.jit
def loss_and_gradients(
    log_prob: jax.Array, advantage: jax.Array, valid: jax.Array, temperature: float, top_fraction: float
) -> tuple[policy_ops.VMPOLoss, jax.Array, jax.Array]:
    """The losses, the policy's gradient by log-probability and the temperature's by temperature."""

    def losses(log_prob: jax.Array, temperature: jax.Array) -> policy_ops.VMPOLoss:
        return policy_ops.policy_loss(log_prob, advantage, valid, temperature, EPSILON, top_fraction)

    to_log_prob = jax.grad(lambda x: losses(x, temperature).policy)(log_prob)
    to_temperature = jax.grad(lambda eta: losses(log_prob, eta).temperature)(temperature)
    return losses(log_prob, temperature), to_log_prob, to_temperature


def temperature_gradient(temperature: float, advantage: jax.Array, top_fraction: float = 0.5) -> float:
    valid = jnp.ones(advantage.shape, bool)
    return float(loss_and_gradients(jnp.zeros_like(advantage), advantage, valid, temperature, top_fraction)[2])


@random_cases
@given(batches(), temperatures, fractions)
def test_losses_are_the_papers_loop(batch: Batch, temperature: float, top_fraction: float) -> None:
    log_prob, advantage, valid = batch
    loss, to_log_prob, to_temperature = loss_and_gradients(*batch, temperature, top_fraction)
    top = references.top_samples(advantage, valid, top_fraction)
    weights = references.vmpo_weights(advantage, top, temperature)
    np.testing.assert_array_equal(np.flatnonzero(loss.top_mask), top)
    np.testing.assert_allclose(loss.policy, references.policy_loss(log_prob, weights), rtol=1e-4)
    expected = references.temperature_loss(advantage, top, temperature, EPSILON)
    np.testing.assert_allclose(loss.temperature, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(to_log_prob, [-weights.get(i, 0.0) for i in range(len(advantage))], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(to_temperature, references.temperature_gradient(weights, EPSILON), rtol=1e-3, atol=1e-4)


@functools.partial(jax.jit, static_argnames="top_fraction")
def rlax_loss_and_gradient(
    log_prob: jax.Array, advantage: jax.Array, valid: jax.Array, temperature: float, top_fraction: float
) -> tuple[mpo_ops.MpoOutputs, jax.Array]:
    no_kl = [(jnp.zeros_like(advantage), rlax.LagrangePenalty(jnp.array(1.0), jnp.array(0.0)))]

    def loss(temperature: jax.Array) -> tuple[jax.Array, mpo_ops.MpoOutputs]:
        _, outputs = rlax.vmpo_loss(
            log_prob, advantage, rlax.LagrangePenalty(temperature, jnp.array(EPSILON)), no_kl,
            restarting_weights=jnp.asarray(valid, jnp.float32), top_k_fraction=top_fraction,
        )  # fmt: skip
        return outputs.temperature_loss, outputs

    gradient, outputs = jax.grad(loss, has_aux=True)(temperature)
    return outputs, gradient


@random_cases
@given(batches(), temperatures, fractions)
def test_losses_are_rlax_vmpo(batch: Batch, temperature: float, top_fraction: float) -> None:
    """With invalid samples only where all are used: rlax counts the invalid ones into its top half."""
    log_prob, advantage, valid = batch
    batch = (log_prob, advantage, valid if top_fraction == 1.0 else np.ones_like(valid))
    loss, to_log_prob, to_temperature = loss_and_gradients(*batch, temperature, top_fraction)
    theirs, gradient = rlax_loss_and_gradient(*batch, temperature, top_fraction)
    np.testing.assert_allclose(loss.policy, jnp.mean(theirs.policy_loss), rtol=1e-4)
    np.testing.assert_allclose(loss.temperature, theirs.temperature_loss, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(to_log_prob, -theirs.normalized_weights, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(to_temperature, gradient, rtol=1e-3, atol=1e-4)


@random_cases
@given(batches(), fractions)
def test_top_samples_are_rlax_top_k(batch: Batch, top_fraction: float) -> None:
    _, advantage, _ = batch
    ones = np.ones_like(advantage)
    theirs = rlax_top_samples(top_fraction, ones, advantage)
    np.testing.assert_array_equal(top_samples(advantage, ones > 0, top_fraction), theirs > 0)


def test_losses_by_hand() -> None:
    """The top half are advantages log 3 and 0: weights 3/4 and 1/4, mean of exponentials 2."""
    log_prob = jnp.array([-1.0, -2.0, -4.0, -8.0])
    advantage = jnp.array([-5.0, math.log(3.0), 0.0, -6.0])
    loss, _, _ = loss_and_gradients(log_prob, advantage, jnp.ones(4, bool), 1.0, 0.5)
    np.testing.assert_array_equal(loss.top_mask, [False, True, True, False])
    np.testing.assert_allclose(loss.policy, 0.75 * 2.0 + 0.25 * 4.0, rtol=1e-6)
    np.testing.assert_allclose(loss.temperature, EPSILON + math.log(2.0), rtol=1e-6)


def test_top_half_counts_valid_samples_only() -> None:
    """Four of eight samples are valid: the top half is two, without the invalid best of the batch."""
    advantage = jnp.array([99.0, 1.0, -99.0, 2.0, 98.0, 3.0, -98.0, 4.0])
    valid = jnp.array([False, True] * 4)
    np.testing.assert_array_equal(np.flatnonzero(top_samples(advantage, valid, 0.5)), [5, 7])


def test_equal_advantages_are_all_used_and_a_single_sample_is_enough() -> None:
    ones = jnp.ones(4, bool)
    assert bool(jnp.all(top_samples(jnp.zeros(4), ones, 0.5)))
    lonely = jnp.array([False, False, True, False])
    np.testing.assert_array_equal(top_samples(jnp.arange(4.0), lonely, 0.5), lonely)


@random_cases
@given(batches(), temperatures)
def test_invalid_samples_have_no_say(batch: Batch, temperature: float) -> None:
    log_prob, advantage, valid = batch
    spoiled = np.where(valid, log_prob, -1e6), np.where(valid, advantage, 1e6), valid
    expected = loss_and_gradients(*batch, temperature, 0.5)
    actual = loss_and_gradients(*spoiled, temperature, 0.5)
    jax.tree.map(np.testing.assert_array_equal, actual, expected)
    np.testing.assert_array_equal(np.asarray(actual[1])[~valid], 0.0)


def test_each_loss_trains_only_its_own() -> None:
    """No gradient reaches the advantage, nor the temperature from the policy loss, nor the policy from the dual."""
    log_prob, advantage, valid = jnp.array([-1.0, -2.0]), jnp.array([0.5, 1.5]), jnp.ones(2, bool)

    def gradients(part: Callable[[policy_ops.VMPOLoss], jax.Array]) -> tuple[jax.Array, ...]:
        def loss(log_prob: jax.Array, advantage: jax.Array, temperature: jax.Array) -> jax.Array:
            return part(policy_ops.policy_loss(log_prob, advantage, valid, temperature, EPSILON, 1.0))

        return jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(log_prob, advantage, jnp.array(1.0))

    policy, dual = gradients(lambda loss: loss.policy), gradients(lambda loss: loss.temperature)
    np.testing.assert_array_equal(policy[1], [0.0, 0.0])
    assert float(policy[2]) == 0.0
    np.testing.assert_array_equal(dual[0], [0.0, 0.0])
    np.testing.assert_array_equal(dual[1], [0.0, 0.0])


def test_temperature_falls_with_flat_weights_and_rises_with_peaked_ones() -> None:
    assert temperature_gradient(100.0, jnp.arange(8.0)) > 0.0
    assert temperature_gradient(0.01, jnp.arange(8.0)) < 0.0


@jax.jit
@functools.partial(jax.value_and_grad, argnums=(0, 1))
def penalty_per_dimension(kl: jax.Array, alpha: jax.Array, valid: jax.Array) -> jax.Array:
    return jnp.sum(jax.vmap(policy_ops.kl_penalty, (1, None, 0, None))(kl, valid, alpha, EPSILON))


@jax.jit
@functools.partial(jax.value_and_grad, argnums=(0, 1))
def rlax_penalty_per_dimension(kl: jax.Array, alpha: jax.Array, valid: jax.Array) -> jax.Array:
    penalty = rlax.LagrangePenalty(alpha, jnp.array(EPSILON), per_dimension=True)
    return sum(mpo_ops.kl_alpha_loss(valid.astype(jnp.float32), [(kl, penalty)]))


@random_cases
@given(batches(), st.sampled_from((1, 3)))
def test_kl_penalty_is_rlax(batch: Batch, dimensions: int) -> None:
    """One multiplier per dimension, each with its own bound; the value and both gradients."""
    log_prob, _, valid = batch
    kl = np.outer(-log_prob, 1.0 + np.arange(dimensions)).astype(np.float32)
    alpha = 0.5 + np.arange(dimensions, dtype=np.float32)
    actual, expected = (f(kl, alpha, valid) for f in (penalty_per_dimension, rlax_penalty_per_dimension))
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), actual, expected)


def test_kl_penalty_by_hand() -> None:
    """KL 0.2 and 0.6 are valid, 9 is not: alpha sees eps - 0.4, each valid KL sees alpha / 2."""
    kl, valid = jnp.array([0.2, 9.0, 0.6]), jnp.array([True, False, True])
    to_kl, to_alpha = jax.grad(policy_ops.kl_penalty, argnums=(0, 2))(kl, valid, jnp.array(3.0), EPSILON)
    np.testing.assert_allclose(to_kl, [1.5, 0.0, 1.5], rtol=1e-6)
    np.testing.assert_allclose(to_alpha, EPSILON - 0.4, rtol=1e-5)


def descend(dual: jax.Array, gradient: Callable[[jax.Array], jax.Array], steps: int, size: float) -> jax.Array:
    """Gradient steps on one multiplier as the learner does them: step, then project."""
    for _ in range(steps):
        dual = dual - size * gradient(dual)
        dual = policy_ops.project_duals(Duals(dual, dual, dual, dual)).categorical
    return dual


def test_multiplier_that_crossed_zero_recovers() -> None:
    """A KL far below its bound drives alpha through zero; a KL above it must bring alpha back."""

    def gradient(kl: float) -> Callable[[jax.Array], jax.Array]:
        samples = jnp.full(4, kl)
        return jax.grad(lambda alpha: policy_ops.kl_penalty(samples, jnp.ones(4, bool), alpha, EPSILON))

    floor = descend(jnp.array(0.01), gradient(0.0), steps=1, size=1.0)
    assert 0.0 < float(floor) < 1e-6
    recovered = descend(floor, gradient(EPSILON + 1.0), steps=3, size=0.1)
    np.testing.assert_allclose(recovered, 0.3, rtol=1e-4)


@pytest.mark.parametrize("size", [0.01, 1.0, 100.0])
def test_temperature_at_its_floor_recovers(size: float) -> None:
    """At the projection's floor A / eta is huge, and float32 must still see which way is up.

    The gradient there is eps - log n of the n top samples: all the weight is on one of them.
    """
    advantage = size * (1.0 + jnp.arange(64.0))
    floor = jnp.exp(policy_ops.project_duals(Duals(*[jnp.array(-300.0)] * 4)).log_temperature)
    np.testing.assert_allclose(floor, 1e-8, rtol=1e-4)
    np.testing.assert_allclose(temperature_gradient(floor, advantage), EPSILON - math.log(32), rtol=1e-3)


def test_projection_leaves_positive_duals_alone() -> None:
    duals = Duals(jnp.array(-0.5), jnp.array([-1.0, 2.0]), jnp.array([0.0]), jnp.zeros(0))
    projected = policy_ops.project_duals(duals)
    assert float(projected.log_temperature) == -0.5
    assert float(projected.categorical[1]) == 2.0
    assert all(np.all(np.asarray(leaf) > 0.0) for leaf in projected[1:])
    assert projected.covariance.shape == (0,)


def test_no_valid_transition_has_finite_values_and_gradients() -> None:
    nothing = jnp.zeros(3, bool)
    log_prob, advantage = jnp.array([-1.0, -2.0, -3.0]), jnp.array([5.0, -5.0, 0.0])
    loss, to_log_prob, to_temperature = loss_and_gradients(log_prob, advantage, nothing, 0.5, 0.5)
    assert not np.any(loss.top_mask)
    assert float(loss.policy) == float(loss.temperature) == float(to_temperature) == 0.0
    np.testing.assert_array_equal(to_log_prob, np.zeros(3))
    penalty, gradients = jax.value_and_grad(policy_ops.kl_penalty, argnums=(0, 2))(
        jnp.ones(3), nothing, jnp.array(2.0), EPSILON
    )
    assert float(penalty) == float(gradients[1]) == 0.0
    np.testing.assert_array_equal(gradients[0], np.zeros(3))
