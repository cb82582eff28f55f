"""Hashed counts against a dictionary."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from builders import BATCH, TIME, numpy_mlp
from byol_explore.curiosity.counts import BITS
from methods import Case, make_case


@pytest.fixture(scope="module")
def case() -> Case:
    return make_case("counts")


def slow_codes(case: Case) -> np.ndarray:
    """[T, B] bit by bit."""
    planes, found = np.asarray(case.state.planes, np.float64), np.zeros((TIME, BATCH), int)
    for t, env in np.ndindex(TIME, BATCH):
        embedding = numpy_mlp(case.state.encoder.mlp, np.asarray(case.trajectory.observation)[t, env])
        for bit in range(BITS):
            found[t, env] += 2**bit * (embedding @ planes[:, bit] > 0)
    return found


def test_uncertainty_falls_with_the_root_of_the_visits(case: Case) -> None:
    _, output = case.look()
    visits = np.asarray(case.state.counts)[slow_codes(case)[1:]]
    assert len(set(visits.ravel().tolist())) > 3
    np.testing.assert_allclose(output.uncertainty, 1.0 / np.sqrt(1.0 + visits), rtol=1e-5)
    assert output.loss == 0
    assert output.metrics["codes_seen"] == np.sum(np.asarray(case.state.counts) > 0)


def test_all_that_was_seen_is_counted_and_what_fills_up_is_not(case: Case) -> None:
    filling = np.zeros((TIME, BATCH), bool)
    filling[4:, 1] = True
    sequence = case.trajectory.sequence._replace(filling=jnp.asarray(filling))
    after = jax.jit(case.method.after)(case.state, None, sequence)
    expected = np.array(case.state.counts)
    for code, fills in zip(slow_codes(case).ravel(), filling.ravel(), strict=True):
        expected[code] += not fills
    np.testing.assert_array_equal(after.counts, expected)
