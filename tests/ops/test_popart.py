"""PopArt's statistics and the head that keeps its outputs (appendix C)."""

import jax
import jax.numpy as jnp
import numpy as np
import rlax
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from byol_explore.ops import popart
from byol_explore.ops.popart import PopArt

random_cases = settings(max_examples=30, deadline=None)
Batch = tuple[PopArt, np.ndarray, np.ndarray, np.ndarray]
Head = tuple[np.ndarray, np.ndarray]
TASKS, HIDDEN, MINIMUM = 3, 4, 0.1
update = jax.jit(popart.update_popart)
rlax_update = jax.jit(rlax.popart(TASKS, step_size=0.1, scale_lb=MINIMUM, scale_ub=1e6)[1])
preserve_outputs = jax.jit(popart.preserve_outputs)
scale_of = jax.jit(popart.scale)


@st.composite
def statistics(draw: st.DrawFn) -> PopArt:
    """Statistics with standard deviations on both sides of the minimum."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    mean = rng.normal(size=TASKS).astype(np.float32)
    stddev = rng.choice([0.01, 0.5, 3.0], TASKS).astype(np.float32)
    return PopArt(mean, mean**2 + stddev**2)


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
    return popart.scale(stats, MINIMUM) * (hidden @ weight + bias) + stats.mean


def as_rlax(stats: PopArt) -> rlax.PopArtState:
    return rlax.PopArtState(stats.mean, scale_of(stats, MINIMUM), stats.mean_square)


@random_cases
@given(batches(), st.sampled_from((1e-3, 0.1, 1.0)))
def test_update_is_the_loop_over_tasks(batch: Batch, step_size: float) -> None:
    actual = update(*batch, step_size)
    expected = references.popart_update(batch[0].mean, batch[0].mean_square, *batch[1:], step_size)
    np.testing.assert_allclose(actual.mean, expected[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(actual.mean_square, expected[1], rtol=1e-5, atol=1e-5)


@random_cases
@given(statistics(), heads(), st.permutations(range(TASKS)), st.integers(0, 2**32 - 1))
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
    old = PopArt(jnp.array([1.0]), jnp.array([1.0 + 4.0]))
    new = PopArt(jnp.array([3.0]), jnp.array([9.0 + 16.0]))
    weight, bias = preserve_outputs(jnp.array([[6.0]]), jnp.array([5.0]), old, new, MINIMUM)
    np.testing.assert_allclose(weight, [[3.0]], rtol=1e-6)
    np.testing.assert_allclose(bias, [2.0], rtol=1e-6)


def test_update_by_hand() -> None:
    """Task 0 has targets 2 and 4 and an invalid one, task 1 has none: half a step towards mean 3 and square 10."""
    stats = popart.initial_popart(2)
    np.testing.assert_array_equal(popart.scale(stats, MINIMUM), [1.0, 1.0])
    target, task = jnp.array([2.0, 4.0, 1e6, 7.0]), jnp.array([0, 0, 0, 1])
    new = update(stats, target, task, jnp.array([True, True, False, False]), 0.5)
    np.testing.assert_allclose(new.mean, [1.5, 0.0], rtol=1e-6)
    np.testing.assert_allclose(new.mean_square, [5.5, 1.0], rtol=1e-6)


def test_step_is_per_batch_and_not_per_sample() -> None:
    """Thousands of samples at the paper's step of 0.01 move the mean by 0.01, and do not diverge."""
    size = 4096
    target, task, valid = jnp.full(size, 5.0), jnp.zeros(size, int), jnp.ones(size, bool)
    stats = update(popart.initial_popart(1), target, task, valid, 0.01)
    np.testing.assert_allclose(stats.mean, [0.05], rtol=1e-4)
    for _ in range(300):
        stats = update(stats, target, task, valid, 0.01)
    np.testing.assert_allclose(stats.mean, [5.0 * (1 - 0.99**301)], rtol=1e-3)


def test_scale_stays_inside_its_bounds() -> None:
    """A negative variance (rounding) and a huge one."""
    stats = PopArt(jnp.array([2.0, 0.0]), jnp.array([3.9, 1e20]))
    np.testing.assert_allclose(popart.scale(stats, 0.5, 100.0), [0.5, 100.0], rtol=1e-6)


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
    stats, nothing, task = popart.initial_popart(2), jnp.zeros(3, bool), jnp.array([0, 1, 1])

    def total(target: jax.Array) -> jax.Array:
        new = popart.update_popart(stats, target, task, nothing, 0.1)
        return jnp.sum(popart.scale(new, MINIMUM) + new.mean)

    value, gradient = jax.jit(jax.value_and_grad(total))(jnp.array([1.0, jnp.inf, 3.0]))
    assert float(value) == 2.0
    np.testing.assert_array_equal(gradient, np.zeros(3))
