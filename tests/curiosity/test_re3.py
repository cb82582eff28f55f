"""RE3 against sorted lists of distances."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from builders import BATCH, TIME, numpy_mlp
from byol_explore.curiosity.re3 import CAPACITY, NEIGHBORS, RE3, EmbeddingBuffer
from methods import Case, make_case


@pytest.fixture(scope="module")
def case() -> Case:
    return make_case("re3")


def slow_bonus(buffer: EmbeddingBuffer, embedding: np.ndarray) -> float:
    points = np.asarray(buffer.embeddings, np.float64)[np.asarray(buffer.is_filled)]
    nearest = sorted(float(np.sqrt(np.sum((embedding - point) ** 2))) for point in points)[:NEIGHBORS]
    return float(np.log(1.0 + sum(nearest) / len(nearest))) if nearest else 0.0


@pytest.mark.parametrize("count", [41, 2, 0])
def test_uncertainty_is_the_mean_distance_to_the_nearest_neighbors(case: Case, count: int) -> None:
    """Also to fewer than K neighbors, and to none."""
    is_filled = case.state.is_filled & (jnp.cumsum(case.state.is_filled) <= count)
    case = case._replace(state=case.state._replace(is_filled=is_filled))
    _, output = case.look()
    slow = np.zeros((TIME - 1, BATCH))
    for t, env in np.ndindex(*slow.shape):
        embedding = numpy_mlp(case.state.encoder.mlp, np.asarray(case.trajectory.observation)[t + 1, env])
        slow[t, env] = slow_bonus(case.state, embedding)
    assert np.sum(is_filled) == count
    np.testing.assert_allclose(output.uncertainty, slow, rtol=1e-5)
    valid = np.asarray(case.trajectory.valid)
    np.testing.assert_allclose(output.metrics["knn_distance"], np.expm1(slow[valid]).mean(), rtol=1e-5)
    assert output.loss == 0
    assert (np.ptp(slow[valid]) > 0.1) == (count > 0)


def test_uncertainty_is_zero_after_enough_visits(case: Case) -> None:
    """Exactly zero: distances are not computed as differences of large numbers."""
    far = jax.tree.map(lambda x: 100.0 * x, case.state.encoder)
    state, sequence = case.state._replace(encoder=far), case.trajectory.sequence
    learn = jax.jit(case.method.update_state)
    for _ in range(NEIGHBORS - 1):
        state = learn(state, None, sequence)
    assert np.asarray(case._replace(state=state).look()[1].uncertainty).max() > 0.1
    np.testing.assert_array_equal(case._replace(state=learn(state, None, sequence)).look()[1].uncertainty, 0.0)


def test_the_buffer_keeps_the_newest_without_padding(case: Case) -> None:
    padding = np.zeros((TIME, BATCH), bool)
    padding[4:, 1] = True
    sequence = case.trajectory.sequence._replace(padding=jnp.asarray(padding))
    after = jax.jit(case.method.update_state)(case.state, None, sequence)
    new = np.swapaxes(numpy_mlp(case.state.encoder.mlp, np.asarray(case.trajectory.observation)), 0, 1)[~padding.T]
    old = np.asarray(case.state.embeddings)[np.asarray(case.state.is_filled)]
    np.testing.assert_allclose(after.embeddings[after.is_filled], np.concatenate([new, old]), rtol=1e-4, atol=1e-5)
    full = case.state._replace(is_filled=jnp.ones((CAPACITY,), bool))
    after = jax.jit(case.method.update_state)(full, None, sequence)
    assert np.all(after.is_filled)
    expected = np.concatenate([new, full.embeddings])[:CAPACITY]
    np.testing.assert_allclose(after.embeddings, expected, rtol=1e-4, atol=1e-5)


def test_there_is_nothing_to_train(case: Case) -> None:
    assert jax.tree.leaves(case.method) == []
    assert not RE3.uses_representation
