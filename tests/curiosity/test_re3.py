"""RE3 against a list of distances that is sorted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from builders import BATCH, TIME, numpy_mlp
from byol_explore.curiosity.re3 import MOST, NEIGHBOURS, RE3, Bank
from methods import Case, make_case


@pytest.fixture(scope="module")
def case() -> Case:
    return make_case("re3")


def slow_bonus(bank: Bank, embedding: np.ndarray) -> float:
    points = np.asarray(bank.points, np.float64)[np.asarray(bank.there)]
    nearest = sorted(float(np.sqrt(np.sum((embedding - point) ** 2))) for point in points)[:NEIGHBOURS]
    return float(np.log(1.0 + sum(nearest) / len(nearest))) if nearest else 0.0


@pytest.mark.parametrize("count", [41, 2, 0])
def test_uncertainty_is_the_mean_distance_to_the_nearest_of_what_was_learned_from(case: Case, count: int) -> None:
    """Also of fewer than there should be, and of none."""
    there = case.state.there & (jnp.cumsum(case.state.there) <= count)
    case = case._replace(state=case.state._replace(there=there))
    _, output = case.look()
    slow = np.zeros((TIME - 1, BATCH))
    for t, env in np.ndindex(*slow.shape):
        embedding = numpy_mlp(case.state.encoder.mlp, np.asarray(case.trajectory.observation)[t + 1, env])
        slow[t, env] = slow_bonus(case.state, embedding)
    assert np.sum(there) == count
    np.testing.assert_allclose(output.uncertainty, slow, rtol=1e-5)
    valid = np.asarray(case.trajectory.valid)
    np.testing.assert_allclose(output.metrics["distance"], np.expm1(slow[valid]).mean(), rtol=1e-5)
    assert output.loss == 0
    assert (np.ptp(slow[valid]) > 0.1) == (count > 0)


def test_what_was_learned_from_often_enough_is_worth_nothing(case: Case) -> None:
    """Exactly nothing: distances are no differences of large numbers."""
    far = jax.tree.map(lambda x: 100.0 * x, case.state.encoder)
    state, sequence = case.state._replace(encoder=far), case.trajectory.sequence
    learn = jax.jit(case.method.after)
    for _ in range(NEIGHBOURS - 1):
        state = learn(state, None, sequence)
    assert np.asarray(case._replace(state=state).look()[1].uncertainty).max() > 0.1
    np.testing.assert_array_equal(case._replace(state=learn(state, None, sequence)).look()[1].uncertainty, 0.0)


def test_the_newest_are_remembered_and_what_fills_up_is_not(case: Case) -> None:
    filling = np.zeros((TIME, BATCH), bool)
    filling[4:, 1] = True
    sequence = case.trajectory.sequence._replace(filling=jnp.asarray(filling))
    after = jax.jit(case.method.after)(case.state, None, sequence)
    new = np.swapaxes(numpy_mlp(case.state.encoder.mlp, np.asarray(case.trajectory.observation)), 0, 1)[~filling.T]
    old = np.asarray(case.state.points)[np.asarray(case.state.there)]
    np.testing.assert_allclose(after.points[after.there], np.concatenate([new, old]), rtol=1e-4, atol=1e-5)
    full = case.state._replace(there=jnp.ones((MOST,), bool))
    after = jax.jit(case.method.after)(full, None, sequence)
    assert np.all(after.there)
    expected = np.concatenate([new, full.points])[:MOST]
    np.testing.assert_allclose(after.points, expected, rtol=1e-4, atol=1e-5)


def test_there_is_nothing_to_train(case: Case) -> None:
    assert jax.tree.leaves(case.method) == []
    assert not RE3.reads_representation
