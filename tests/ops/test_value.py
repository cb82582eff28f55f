"""Value targets (section 4.1, appendix C)."""

import jax
import jax.numpy as jnp
import numpy as np
import rlax
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from byol_explore.ops import value as value_ops

random_cases = settings(max_examples=40, deadline=None)
Sequence = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
targets_of = jax.jit(value_ops.vtrace_targets)  # a scan compiles anew at every call outside jit
rlax_vtrace = jax.jit(rlax.vtrace)


@st.composite
def sequences(draw: st.DrawFn) -> Sequence:
    """Values [T], rewards, discounts and validity [S]: terminations and truncations anywhere."""
    length = draw(st.sampled_from((2, 5, 9)))
    is_first = np.array(draw(st.lists(st.booleans(), min_size=length, max_size=length)))
    terminal = np.array(draw(st.lists(st.booleans(), min_size=length - 1, max_size=length - 1)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    value, reward = rng.normal(size=length), rng.normal(size=length - 1)
    discount = np.where(terminal, 0.0, rng.uniform(0.5, 1.0, length - 1))
    return value.astype(np.float32), reward.astype(np.float32), discount.astype(np.float32), ~is_first[1:]


@random_cases
@given(sequences())
def test_targets_are_the_loop_over_future_rewards(sequence: Sequence) -> None:
    np.testing.assert_allclose(targets_of(*sequence), references.value_targets(*sequence), rtol=1e-4, atol=1e-5)


@random_cases
@given(sequences())
def test_targets_are_rlax_vtrace_without_boundaries(sequence: Sequence) -> None:
    value, reward, discount, _ = sequence
    errors = rlax_vtrace(value[:-1], value[1:], reward, discount, np.ones_like(reward))
    actual = targets_of(value, reward, discount, np.ones(len(reward), bool))
    np.testing.assert_allclose(actual, errors + value[:-1], rtol=1e-4, atol=1e-5)


def test_bootstrap_from_the_last_value_by_hand() -> None:
    value = jnp.array([0.0, 0.0, 0.0, 8.0])
    actual = targets_of(value, jnp.array([1.0, 2.0, 4.0]), jnp.full(3, 0.5), jnp.ones(3, bool))
    np.testing.assert_array_equal(actual, [1 + 0.5 * 6, 2 + 0.5 * 8, 4 + 0.5 * 8])


def test_truncation_bootstraps_from_the_true_last_observation() -> None:
    """o_0 o_1 | o_2 o_3: o_1 ends a truncated episode, and the transition from o_1 to o_2 is the dummy one."""
    value = jnp.array([1.0, 10.0, 100.0, 1000.0])
    reward = jnp.array([3.0, 7.0, 5.0])
    valid = jnp.array([True, False, True])
    actual = targets_of(value, reward, jnp.full(3, 0.5), valid)
    np.testing.assert_array_equal(actual, [3 + 0.5 * 10, 10, 5 + 0.5 * 1000])


def test_termination_bootstraps_from_nothing() -> None:
    """The same episodes, the first one terminated: its last value is not asked."""
    value = jnp.array([1.0, 10.0, 100.0, 1000.0])
    reward = jnp.array([3.0, 7.0, 5.0])
    valid = jnp.array([True, False, True])
    actual = targets_of(value, reward, jnp.array([0.0, 0.5, 0.5]), valid)
    np.testing.assert_array_equal(actual, [3, 10, 5 + 0.5 * 1000])


def test_termination_at_the_end_of_the_sequence_ignores_the_last_value() -> None:
    actual = targets_of(jnp.array([0.0, 0.0, 99.0]), jnp.ones(2), jnp.array([0.5, 0.0]), jnp.ones(2, bool))
    np.testing.assert_array_equal(actual, [1.5, 1.0])


def test_rewards_and_values_do_not_cross_episode_boundaries() -> None:
    """Nothing after o_2, the last observation of its episode, changes a target before it."""
    valid = jnp.array([True, True, False, True, True])
    value, reward, discount = jnp.arange(6.0), jnp.arange(5.0), jnp.full(5, 0.9)
    before = targets_of(value, reward, discount, valid)
    after = targets_of(value.at[3:].add(50.0), reward.at[2:].add(50.0), discount, valid)
    np.testing.assert_array_equal(after[:3], before[:3])
    assert np.all(np.asarray(after[3:]) > np.asarray(before[3:]))


@random_cases
@given(sequences())
def test_dummy_transition_has_no_advantage(sequence: Sequence) -> None:
    value, _, _, valid = sequence
    advantage = np.asarray(targets_of(*sequence)) - value[:-1]
    np.testing.assert_array_equal(advantage[~valid], 0.0)


def test_no_valid_transition_has_finite_values_and_gradients() -> None:
    value, nothing = jnp.array([1.0, 2.0, 3.0]), jnp.zeros(2, bool)

    def total(value: jax.Array, reward: jax.Array) -> jax.Array:
        return jnp.sum(value_ops.vtrace_targets(value, reward, jnp.full(2, 0.9), nothing))

    np.testing.assert_array_equal(targets_of(value, jnp.ones(2), jnp.full(2, 0.9), nothing), [1.0, 2.0])
    to_value, to_reward = jax.jit(jax.grad(total, argnums=(0, 1)))(value, jnp.ones(2))
    np.testing.assert_array_equal(to_value, [1.0, 1.0, 0.0])
    np.testing.assert_array_equal(to_reward, [0.0, 0.0])
