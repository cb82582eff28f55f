"""E3B against the inverse of the whole covariance, computed at every observation."""

from typing import Any

import jax
import numpy as np
import pytest

from builders import BATCH, TIME, jit, largest, leaves_with_names, numpy_mlp
from byol_explore.curiosity.e3b import E3B, RIDGE, InverseCovariance
from byol_explore.networks.representation import Representation
from methods import Case, explore, make_case, seen_before


@pytest.fixture(scope="module")
def case() -> Case:
    return make_case("e3b")


def slow_bonus(case: Case, t: int, env: int) -> float:
    """Return f^T C^-1 f of o_{t+1}, where C contains the observations of the episode up to o_t."""
    mlp = case.representation.encoder.mlp  # pyright: ignore[reportFunctionMemberAccess]
    covariance = RIDGE * np.eye(8)
    for observation in seen_before(case, t, env):
        feature = numpy_mlp(mlp, observation)
        covariance += np.outer(feature, feature)
    feature = numpy_mlp(mlp, np.asarray(case.trajectory.observation)[t + 1, env])
    return float(feature @ np.linalg.inv(covariance) @ feature)


def test_uncertainty_equals_a_slow_elliptical_bonus(case: Case) -> None:
    _, output = case.look()
    valid = np.asarray(case.trajectory.valid)
    slow = np.asarray([[slow_bonus(case, t, env) for env in range(BATCH)] for t in range(TIME - 1)])
    np.testing.assert_allclose(output.uncertainty[valid], slow[valid], rtol=1e-3)
    np.testing.assert_allclose(output.metrics["inverse_loss"], output.loss)
    assert slow[5, 0] < 1 < slow[4, 0]  # seen a step before, and new


def test_the_memory_of_a_long_episode_is_the_inverse_covariance() -> None:
    rng, rules = np.random.default_rng(0), InverseCovariance(8)
    features = rng.normal(size=(1000, 2, 8)).astype(np.float32) * np.linspace(0.01, 3.0, 8, dtype=np.float32)
    memory, _ = jit(lambda m, f: jax.lax.scan(lambda m, x: (rules.insert(m, x, ()), None), m, f))(
        rules.init(2), features
    )
    wide = features.astype(np.float64)
    covariance = RIDGE * np.eye(8) + np.einsum("tbi,tbj->bij", wide, wide)
    np.testing.assert_allclose(memory, np.linalg.inv(covariance), rtol=2e-3, atol=1e-5)
    assert np.all(np.asarray(rules.novelty(memory, features[0], ())) >= 0)


def test_only_the_inverse_loss_trains_the_encoder(case: Case) -> None:
    @jit
    def gradients(of_loss: float, of_uncertainty: float) -> tuple[Representation, E3B]:
        def objective(networks: Any) -> jax.Array:
            _, output = explore(*networks, case.state, case.trajectory)
            return of_loss * output.loss + of_uncertainty * output.uncertainty.sum()

        return jax.grad(objective)((case.representation, case.method))

    representation, method = gradients(1.0, 0.0)
    trained = leaves_with_names((representation.encoder, method))
    assert {name for name, leaf in trained.items() if not np.any(leaf)} == set()
    assert largest(gradients(0.0, 1.0)) == 0
