"""The hybrid action distribution (section 4.1: categorical, Gaussian or both)."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from byol_explore.ops import policy as policy_ops
from byol_explore.types import Action, Policy

random_cases = settings(max_examples=25, deadline=None)
close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
ignore_rlax_deprecation = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")

sample, mode = jax.jit(policy_ops.sample_action), jax.jit(policy_ops.greedy_action)
log_prob, entropy = jax.jit(policy_ops.log_prob), jax.jit(policy_ops.entropy)
mean_kl, covariance_kl = jax.jit(policy_ops.mean_kl), jax.jit(policy_ops.covariance_kl)
categorical_kl = jax.jit(policy_ops.categorical_kl)
rlax_categorical_kl = jax.jit(rlax.categorical_kl_divergence)
rlax_gaussian_kl = jax.jit(rlax.multivariate_normal_kl_divergence)


@st.composite
def policy_pairs(draw: st.DrawFn) -> tuple[Policy, Policy]:
    """Two policies of one space: categories per discrete component, and continuous dimensions; either may be none."""
    categories, dimensions = draw(st.sampled_from((((3,), 0), ((), 2), ((2, 4), 1))))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def policy() -> Policy:
        logits = tuple(rng.normal(size=n).astype(np.float32) * 2 for n in categories)
        mean = rng.normal(size=dimensions).astype(np.float32)
        return Policy(logits, mean, np.exp(rng.normal(size=dimensions)).astype(np.float32))

    return policy(), policy()


def total_kl(target: Policy, online: Policy) -> jax.Array:
    gaussian = jnp.sum(policy_ops.mean_kl(target, online) + policy_ops.covariance_kl(target, online))
    return gaussian + sum(policy_ops.categorical_kl(p, q) for p, q in zip(target.logits, online.logits, strict=True))


kl_and_gradient = jax.jit(jax.value_and_grad(total_kl, argnums=1))


def discrete_policy(*logits: list[float]) -> Policy:
    return Policy(tuple(jnp.array(x) for x in logits), jnp.zeros(0), jnp.ones(0))


def gaussian_policy(mean: list[float], stddev: list[float]) -> Policy:
    return Policy((), jnp.array(mean), jnp.array(stddev))


@random_cases
@given(policy_pairs(), st.data())
def test_log_prob_is_the_sum_over_components(pair: tuple[Policy, Policy], data: st.DataObject) -> None:
    policy, other = pair
    discrete = [data.draw(st.integers(0, len(logits) - 1)) for logits in policy.logits]
    expected = sum(math.log(references.softmax(x)[a]) for x, a in zip(policy.logits, discrete, strict=True))
    for x, mean, stddev in zip(other.mean, policy.mean, policy.stddev, strict=True):
        expected += -(((float(x) - mean) / stddev) ** 2) / 2 - math.log(stddev * math.sqrt(2 * math.pi))
    action = Action(jnp.array(discrete, jnp.int32), jnp.asarray(other.mean))
    close(log_prob(policy, action), expected)


@random_cases
@given(policy_pairs())
def test_entropy_is_the_sum_over_components(pair: tuple[Policy, Policy]) -> None:
    policy, _ = pair
    expected = -sum(p * math.log(p) for logits in policy.logits for p in references.softmax(logits))
    for mean, stddev in zip(policy.mean, policy.stddev, strict=True):
        expected += references.gaussian_entropy(float(mean), float(stddev))
    close(entropy(policy), expected)


@random_cases
@given(policy_pairs())
def test_categorical_kl_is_the_loop(pair: tuple[Policy, Policy]) -> None:
    for p, q in zip(pair[0].logits, pair[1].logits, strict=True):
        close(categorical_kl(p, q), references.categorical_kl(p, q))


@random_cases
@given(policy_pairs())
def test_gaussian_kls_are_the_integrals(pair: tuple[Policy, Policy]) -> None:
    """Only the mean moves, the target's deviation kept; only the deviation moves, the target's mean kept."""
    target, online = pair
    mean_part, covariance_part = np.asarray(mean_kl(target, online)), np.asarray(covariance_kl(target, online))
    for i, (mean, stddev) in enumerate(zip(target.mean, target.stddev, strict=True)):
        close(mean_part[i], references.gaussian_kl(mean, stddev, online.mean[i], stddev))
        close(covariance_part[i], references.gaussian_kl(mean, stddev, mean, online.stddev[i]))


@ignore_rlax_deprecation
@random_cases
@given(policy_pairs())
def test_kls_are_rlax(pair: tuple[Policy, Policy]) -> None:
    """The Gaussian ones per dimension, so each is a one-dimensional divergence of rlax."""
    target, online = pair
    for p, q in zip(target.logits, online.logits, strict=True):
        close(categorical_kl(p, q), rlax_categorical_kl(p, q))
    columns = [x[:, None] for x in (target.mean, target.stddev, online.mean, online.stddev)]
    mean, stddev, online_mean, online_stddev = columns
    close(mean_kl(target, online), rlax_gaussian_kl(mean, stddev, online_mean, stddev))
    close(covariance_kl(target, online), rlax_gaussian_kl(mean, stddev, mean, online_stddev))


@ignore_rlax_deprecation
def test_decoupled_kls_sum_to_the_whole_if_one_part_is_fixed() -> None:
    target = gaussian_policy([1.0, -2.0], [0.5, 2.0])
    for online in (target._replace(mean=target.mean + 1.0), target._replace(stddev=target.stddev * 3.0)):
        whole = rlax_gaussian_kl(target.mean, target.stddev, online.mean, online.stddev)
        close(jnp.sum(policy_ops.mean_kl(target, online) + policy_ops.covariance_kl(target, online)), whole)


def test_categorical_kl_is_from_target_to_online() -> None:
    """KL(p || q) with p = (1/2, 1/2), q = (1/4, 3/4) is log 2 - log(3)/2; the other way round it is 0.131."""
    p, q = jnp.log(jnp.array([0.5, 0.5])), jnp.log(jnp.array([0.25, 0.75]))
    close(policy_ops.categorical_kl(p, q), math.log(2.0) - math.log(3.0) / 2)


def test_gaussian_kls_are_from_target_to_online() -> None:
    """The target's deviation divides: 1 off at deviation 2 is 1/8. From 2 to 1: 3/2 - log 2, not log 2 - 3/8."""
    target, online = gaussian_policy([0.0], [2.0]), gaussian_policy([1.0], [1.0])
    close(policy_ops.mean_kl(target, online), [1 / 8])
    close(policy_ops.covariance_kl(target, online), [3 / 2 - math.log(2.0)])


@random_cases
@given(policy_pairs())
def test_kl_to_itself_has_no_value_and_no_gradient(pair: tuple[Policy, Policy]) -> None:
    value, gradient = kl_and_gradient(pair[0], pair[0])
    for x in (value, *jax.tree.leaves(gradient)):
        np.testing.assert_allclose(x, 0.0, atol=1e-6)


def test_extreme_logits_stay_finite() -> None:
    policy = discrete_policy([0.0, -200.0, 200.0])
    action = Action(jnp.array([1]), jnp.zeros(0))
    close(log_prob(policy, action), -400.0)
    close(entropy(policy), 0.0)
    close(policy_ops.categorical_kl(policy.logits[0], jnp.zeros(3)), math.log(3.0))
    gradients = jax.grad(entropy)(policy), jax.grad(log_prob)(policy, action)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradients))


def test_samples_follow_the_policy() -> None:
    """20,000 samples of two equal components and two Gaussians; the components do not share their randomness."""
    count, probabilities = 20_000, [0.7, 0.2, 0.1]
    logits = jnp.broadcast_to(jnp.log(jnp.array(probabilities)), (count, 3))
    mean, stddev = (jnp.broadcast_to(jnp.array(x), (count, 2)) for x in ([1.0, -2.0], [0.5, 3.0]))
    action = sample(Policy((logits, logits), mean, stddev), jax.random.key(0))
    assert action.discrete.shape == action.continuous.shape == (count, 2)
    assert action.discrete.dtype == jnp.int32
    for component in range(2):
        frequency = np.bincount(action.discrete[:, component], minlength=3) / count
        np.testing.assert_allclose(frequency, probabilities, atol=0.015)
    np.testing.assert_allclose(np.mean(action.continuous, axis=0), [1.0, -2.0], atol=0.08)
    np.testing.assert_allclose(np.std(action.continuous, axis=0), [0.5, 3.0], rtol=0.03)
    together = np.corrcoef(np.concatenate([action.discrete, action.continuous], axis=1).T)
    np.testing.assert_allclose(together, np.eye(4), atol=0.04)


def test_greedy_action_is_the_most_likely() -> None:
    policy = Policy((jnp.array([[0.0, 2.0], [3.0, 1.0]]),), jnp.array([[0.5], [-0.5]]), jnp.ones((2, 1)))
    action = mode(policy)
    np.testing.assert_array_equal(action.discrete, [[1], [0]])
    np.testing.assert_array_equal(action.continuous, policy.mean)


@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_samples_have_the_batch_shape_where_a_part_is_empty(batch: tuple[int, ...]) -> None:
    discrete = Policy((jnp.zeros((*batch, 4)),), jnp.zeros((*batch, 0)), jnp.ones((*batch, 0)))
    continuous = Policy((), jnp.zeros((*batch, 2)), jnp.ones((*batch, 2)))
    for policy, shapes in ((discrete, (1, 0)), (continuous, (0, 2))):
        sampled = jax.eval_shape(policy_ops.sample_action, policy, jax.random.key(1))
        for action in (sampled, jax.eval_shape(policy_ops.greedy_action, policy)):
            assert action.discrete.shape == (*batch, shapes[0])
            assert action.continuous.shape == (*batch, shapes[1])
            assert action.discrete.dtype == jnp.int32
