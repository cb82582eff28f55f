"""PopArt's statistics and the head that keeps its outputs (appendix C)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from byol_explore.ops import value as value_ops
from byol_explore.ops.value import PopArt

random_cases = settings(max_examples=30, deadline=None)
Batch = tuple[PopArt, np.ndarray, np.ndarray, np.ndarray]
Head = tuple[np.ndarray, np.ndarray]
TASKS, HIDDEN, MINIMUM = 3, 4, 0.1
RLAX_MINIMUM = 1e-4  # absolute: below all standard deviations here
update = jax.jit(value_ops.update_popart)
rlax_update = jax.jit(rlax.popart(TASKS, step_size=0.1, scale_lb=RLAX_MINIMUM, scale_ub=1e6)[1])
preserve_outputs = jax.jit(value_ops.rescale_head)
scale_of = jax.jit(value_ops.popart_std)


@st.composite
def statistics(draw: st.DrawFn, *, bounded: bool = True) -> PopArt:
    """Statistics of many batches; standard deviations are above the minimum, or with `bounded` on both sides of it."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    mean = rng.uniform(-2.0, 2.0, TASKS).astype(np.float32)
    stddev = rng.choice([0.01, 0.5, 3.0] if bounded else [0.5, 3.0], TASKS).astype(np.float32)
    return PopArt(mean, mean**2 + stddev**2, np.ones(TASKS, np.float32))


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Statistics, targets, tasks (some may be absent) and validity of n samples."""
    size = draw(st.sampled_from((5, 12)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    valid = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    target = (rng.normal(size=size) * 5.0).astype(np.float32)
    return draw(statistics()), target, rng.integers(0, TASKS, size), valid


@st.composite
def heads(draw: st.DrawFn) -> Head:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.normal(size=(HIDDEN, TASKS)).astype(np.float32), rng.normal(size=TASKS).astype(np.float32)


@jax.jit
def unnormalized(weight: jax.Array, bias: jax.Array, stats: PopArt, hidden: np.ndarray) -> jax.Array:
    return value_ops.popart_std(stats, MINIMUM) * (hidden @ weight + bias) + stats.mean


def as_rlax(stats: PopArt) -> rlax.PopArtState:
    return rlax.PopArtState(stats.mean, scale_of(stats, MINIMUM), stats.mean_square)


@random_cases
@given(st.lists(batches(), min_size=1, max_size=4), st.sampled_from((1e-5, 0.1, 1.0)))
def test_update_is_the_loop_over_batches_and_tasks(stream: list[Batch], step_size: float) -> None:
    stats = value_ops.init_popart(TASKS)
    for _, *batch in stream:
        stats = update(stats, *batch, step_size)
    history = [list(part) for part in zip(*[batch[1:] for batch in stream], strict=True)]
    expected = [references.popart_statistics(*history, task, step_size) for task in range(TASKS)]
    actual = np.stack([stats.mean, stats.mean_square], axis=1)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@random_cases
@given(batches())
def test_first_batch_is_adopted_exactly(batch: Batch) -> None:
    """Its statistics are those of a step of 1, whatever the step size, and so for a task that comes later."""
    start, expected = value_ops.init_popart(TASKS), update(value_ops.init_popart(TASKS), *batch[1:], 1.0)
    for step_size in (1e-5, 0.01, 0.3):
        actual = update(start, *batch[1:], step_size)
        np.testing.assert_array_equal(actual.mean, expected.mean)
        np.testing.assert_array_equal(actual.mean_square, expected.mean_square)


@random_cases
@given(statistics(bounded=False), heads(), st.permutations(range(TASKS)), st.integers(0, 2**32 - 1))
def test_update_and_head_are_rlax_popart_for_one_sample_per_task(
    stats: PopArt, head: Head, task: list[int], seed: int
) -> None:
    target, task = np.random.default_rng(seed).normal(size=TASKS).astype(np.float32), np.array(task)
    params, theirs = rlax_update({"w": head[0], "b": head[1]}, as_rlax(stats), target, task)
    ours = update(stats, target, task, np.ones(TASKS, bool), 0.1)
    np.testing.assert_allclose(ours.mean, theirs.shift, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours.mean_square, theirs.second_moment, rtol=1e-5)
    np.testing.assert_allclose(scale_of(ours, MINIMUM), theirs.scale, rtol=1e-3)
    weight, bias = preserve_outputs(*head, stats, ours, MINIMUM)
    np.testing.assert_allclose(weight, params["w"], rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(bias, params["b"], rtol=1e-3, atol=1e-4)


@random_cases
@given(statistics(), statistics(), heads())
def test_head_is_rlax_pop(old: PopArt, new: PopArt, head: Head) -> None:
    weight, bias = preserve_outputs(*head, old, new, MINIMUM)
    theirs = rlax.pop({"w": head[0], "b": head[1]}, as_rlax(old), as_rlax(new))
    np.testing.assert_allclose(weight, theirs["w"], rtol=1e-5)
    np.testing.assert_allclose(bias, theirs["b"], rtol=1e-5, atol=1e-5)


@random_cases
@given(batches(), heads())
def test_head_is_rescaled_so_that_new_statistics_keep_the_values(batch: Batch, head: Head) -> None:
    """The mistake is an update of the statistics alone: the same head then answers with other values."""
    stats, hidden = batch[0], np.linspace(-1.0, 1.0, 2 * HIDDEN, dtype=np.float32).reshape(2, HIDDEN)
    new = update(*batch, 0.5)
    values = unnormalized(*head, stats, hidden)
    rescaled = preserve_outputs(*head, stats, new, MINIMUM)
    np.testing.assert_allclose(unnormalized(*rescaled, new, hidden), values, rtol=1e-3, atol=1e-4)


def test_head_by_hand() -> None:
    """From mean 1, deviation 2 to mean 3, deviation 4: value 2 (w h + b) + 1 = 4 (w' h + b') + 3."""
    old = PopArt(jnp.array([1.0]), jnp.array([1.0 + 4.0]), jnp.array([0.5]))
    new = PopArt(jnp.array([3.0]), jnp.array([9.0 + 16.0]), jnp.array([0.75]))
    weight, bias = preserve_outputs(jnp.array([[6.0]]), jnp.array([5.0]), old, new, MINIMUM)
    np.testing.assert_allclose(weight, [[3.0]], rtol=1e-6)
    np.testing.assert_allclose(bias, [2.0], rtol=1e-6)


def test_weights_are_kept_if_the_old_statistics_saw_only_zeros() -> None:
    """Zeros have no scale to convert from: 4 (w h + b') + 3 with b' = b - 3 / 4, and nothing for the task of zeros."""
    zeros, nothing = jnp.zeros(2), value_ops.init_popart(2)
    old = update(nothing, jnp.zeros(4), jnp.array([0, 0, 1, 1]), jnp.ones(4, bool), 0.5)
    new = PopArt(jnp.array([3.0, 0.0]), jnp.array([9.0 + 16.0, 0.0]), jnp.array([0.75, 0.5]))
    weight = jnp.array([[6.0, 7.0]])
    for before in (nothing, old):
        kept, bias = preserve_outputs(weight, jnp.array([5.0, 2.0]), before, new, MINIMUM)
        np.testing.assert_array_equal(kept, weight)
        np.testing.assert_array_equal(bias, [5.0 - 0.75, 2.0])
    zero_head = preserve_outputs(jnp.zeros((1, 2)), zeros, old, new, MINIMUM)
    np.testing.assert_array_equal(unnormalized(*zero_head, new, np.ones((1, 1), np.float32)), [[0.0, 0.0]])


def test_update_by_hand() -> None:
    """Task 0 has targets 2 and 4 and an invalid one, then 1; task 1 has none.

    With a step of 1/2 the first batch is adopted, and the weight of the second is 1/2 of 3/4.
    """
    stats = value_ops.init_popart(2)
    np.testing.assert_array_equal(value_ops.popart_std(stats, MINIMUM), [1.0, 1.0])
    target, task = jnp.array([2.0, 4.0, 1e6, 7.0]), jnp.array([0, 0, 0, 1])
    new = update(stats, target, task, jnp.array([True, True, False, False]), 0.5)
    np.testing.assert_allclose(new, [[3.0, 0.0], [10.0, 0.0], [0.5, 0.0]], rtol=1e-6)
    np.testing.assert_allclose(value_ops.popart_std(new, MINIMUM), [1.0, 1.0], rtol=1e-6)
    new = update(new, jnp.ones(4), task, jnp.array([True, False, False, False]), 0.5)
    np.testing.assert_allclose(new, [[5 / 3, 0.0], [4.0, 0.0], [0.75, 0.0]], rtol=1e-6)


def test_step_of_zero_changes_nothing() -> None:
    stats = update(value_ops.init_popart(1), jnp.ones(3), jnp.zeros(3, int), jnp.ones(3, bool), 0.0)
    jax.tree.map(np.testing.assert_array_equal, stats, value_ops.init_popart(1))


def test_step_is_per_batch_and_not_per_sample() -> None:
    """Thousands of samples at the paper's step of 0.01 move the mean by 0.01, and do not diverge."""
    size = 4096
    target, task, valid = jnp.full(size, 5.0), jnp.zeros(size, int), jnp.ones(size, bool)
    stats = update(PopArt(*jnp.array([[0.0], [1.0], [1.0]])), target, task, valid, 0.01)
    np.testing.assert_allclose(stats.mean, [0.05], rtol=1e-4)
    for _ in range(300):
        stats = update(stats, target, task, valid, 0.01)
    np.testing.assert_allclose(stats.mean, [5.0 * (1 - 0.99**301)], rtol=1e-3)


@pytest.mark.parametrize("factor", [2.0**-30, 1.0, 2.0**30])
def test_lower_bound_of_the_scale_is_relative(factor: float) -> None:
    """Half the root mean square, where rounding makes the variance negative or targets hardly differ."""
    stats = PopArt(factor * jnp.array([2.0, 3.9, 3.0]), factor**2 * jnp.array([3.9, 16.0, 25.0]), jnp.ones(3))
    np.testing.assert_allclose(value_ops.popart_std(stats, 0.5), factor * np.array([3.9**0.5 / 2, 2.0, 4.0]), rtol=1e-6)


def test_zeros_have_no_scale() -> None:
    stats = value_ops.init_popart(1)
    for _ in range(3):
        stats = update(stats, jnp.zeros(4), jnp.zeros(4, int), jnp.ones(4, bool), 0.01)
        assert float(value_ops.popart_std(stats, MINIMUM)[0]) == 1.0


@random_cases
@given(batches(), st.sampled_from((1e6, np.nan)))
def test_invalid_samples_and_absent_tasks_change_nothing(batch: Batch, garbage: float) -> None:
    stats, target, task, valid = batch
    spoiled = update(stats, np.where(valid, target, garbage).astype(np.float32), task, valid, 0.1)
    jax.tree.map(np.testing.assert_array_equal, spoiled, update(*batch, 0.1))
    absent = np.setdiff1d(np.arange(TASKS), task[valid])
    for actual, expected in zip(spoiled, stats, strict=True):
        np.testing.assert_array_equal(np.asarray(actual)[absent], np.asarray(expected)[absent])


def test_no_valid_transition_has_finite_values_and_gradients() -> None:
    stats, nothing, task = value_ops.init_popart(2), jnp.zeros(3, bool), jnp.array([0, 1, 1])

    def total(target: jax.Array) -> jax.Array:
        new = value_ops.update_popart(stats, target, task, nothing, 0.1)
        return jnp.sum(value_ops.popart_std(new, MINIMUM) + new.mean)

    value, gradient = jax.jit(jax.value_and_grad(total))(jnp.array([1.0, jnp.inf, 3.0]))
    assert float(value) == 2.0
    np.testing.assert_array_equal(gradient, np.zeros(3))
