"""Disagreement against loops over members and transitions."""

from typing import Any

import jax
import numpy as np
import pytest

from builders import BATCH, TIME, at, jit, largest, leaves_with_names, numpy_action_rows, numpy_linear, numpy_mlp
from byol_explore.curiosity.disagreement import ENSEMBLE_SIZE, Disagreement
from methods import Case, explore, make_case


@pytest.fixture(scope="module")
def case() -> Case:
    return make_case("disagreement")


def slow_predictions(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Return predictions [members, T-1, B, N] and targets [T-1, B, N]."""
    method, trajectory = case.method, case.trajectory
    embedding = numpy_mlp(case.state.mlp, np.asarray(trajectory.observation))
    predictions = np.zeros((ENSEMBLE_SIZE, TIME - 1, BATCH, embedding.shape[-1]))
    for i, t, env in np.ndindex(ENSEMBLE_SIZE, TIME - 1, BATCH):
        member = at(method.ensemble, i)
        action = numpy_linear(method.project_action, numpy_action_rows(method.action, at(trajectory.action, t, env)))
        predictions[i, t, env] = numpy_mlp(member, np.concatenate([embedding[t, env], action]))
    return predictions, embedding[1:]


def test_uncertainty_is_the_variance_and_the_loss_the_mean_error(case: Case) -> None:
    _, output = case.look()
    predictions, target = slow_predictions(case)
    mean = sum(predictions) / ENSEMBLE_SIZE
    variance = sum((prediction - mean) ** 2 for prediction in predictions) / ENSEMBLE_SIZE
    valid = np.asarray(case.trajectory.valid)
    np.testing.assert_allclose(output.uncertainty[valid], variance.sum(axis=-1)[valid], rtol=1e-3)
    errors = np.sum((predictions - target) ** 2, axis=-1).mean(axis=0)
    np.testing.assert_allclose(output.loss, errors[valid].mean(), rtol=1e-4)


def test_the_loss_trains_every_member(case: Case) -> None:
    @jit
    def gradients(of_loss: float, of_uncertainty: float) -> tuple[Disagreement, Any]:
        def objective(networks: Any) -> jax.Array:
            _, output = explore(case.representation, *networks, case.trajectory)
            return of_loss * output.loss + of_uncertainty * output.uncertainty.sum()

        return jax.grad(objective)((case.method, case.state))

    method, target = gradients(1.0, 0.0)
    assert largest(target) == 0
    for i in range(ENSEMBLE_SIZE):
        assert {name for name, leaf in leaves_with_names(at(method.ensemble, i)).items() if not np.any(leaf)} == set()
    assert np.any(method.action.tables)
    assert largest(gradients(0.0, 1.0)) == 0


def test_equal_members_have_no_disagreement(case: Case) -> None:
    equal = jax.tree.map(lambda x: np.repeat(np.asarray(x)[:1], ENSEMBLE_SIZE, axis=0), case.method.ensemble)
    method = Disagreement(case.method.action, case.method.project_action, equal)
    _, output = case._replace(method=method).look()
    np.testing.assert_allclose(output.uncertainty, 0.0, atol=1e-10)
    assert output.loss > 0
