"""Disagreement against loops over members and transitions."""

from typing import Any

import jax
import numpy as np
import pytest

from builders import BATCH, TIME, at, jit, largest, leaves_with_names, numpy_action_rows, numpy_linear, numpy_mlp
from byol_explore.curiosity.disagreement import MEMBERS, Disagreement
from methods import Case, explore, make_case


@pytest.fixture(scope="module")
def case() -> Case:
    return make_case("disagreement")


def slow_predictions(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """[members, T-1, B, N] and what they should be [T-1, B, N]."""
    method, trajectory = case.method, case.trajectory
    embedding = numpy_mlp(case.state.mlp, np.asarray(trajectory.observation))
    guesses = np.zeros((MEMBERS, TIME - 1, BATCH, embedding.shape[-1]))
    for i, t, env in np.ndindex(MEMBERS, TIME - 1, BATCH):
        member = at(method.members, i)
        action = numpy_linear(method.project_action, numpy_action_rows(method.action, at(trajectory.action, t, env)))
        guesses[i, t, env] = numpy_mlp(member, np.concatenate([embedding[t, env], action]))
    return guesses, embedding[1:]


def test_uncertainty_is_the_variance_and_the_loss_the_mean_error(case: Case) -> None:
    _, output = case.look()
    guesses, truth = slow_predictions(case)
    mean = sum(guesses) / MEMBERS
    variance = sum((guess - mean) ** 2 for guess in guesses) / MEMBERS
    valid = np.asarray(case.trajectory.valid)
    np.testing.assert_allclose(output.uncertainty[valid], variance.sum(axis=-1)[valid], rtol=1e-3)
    errors = np.sum((guesses - truth) ** 2, axis=-1).mean(axis=0)
    np.testing.assert_allclose(output.loss, errors[valid].mean(), rtol=1e-4)


def test_every_member_learns_for_itself(case: Case) -> None:
    @jit
    def gradients(of_loss: float, of_uncertainty: float) -> tuple[Disagreement, Any]:
        def objective(networks: Any) -> jax.Array:
            _, output = explore(case.representation, *networks, case.trajectory)
            return of_loss * output.loss + of_uncertainty * output.uncertainty.sum()

        return jax.grad(objective)((case.method, case.state))

    method, target = gradients(1.0, 0.0)
    assert largest(target) == 0
    for i in range(MEMBERS):
        assert {name for name, leaf in leaves_with_names(at(method.members, i)).items() if not np.any(leaf)} == set()
    assert np.any(method.action.tables)
    assert largest(gradients(0.0, 1.0)) == 0


def test_members_that_are_the_same_agree(case: Case) -> None:
    alike = jax.tree.map(lambda x: np.repeat(np.asarray(x)[:1], MEMBERS, axis=0), case.method.members)
    twins = Disagreement(case.method.action, case.method.project_action, alike)
    _, output = case._replace(method=twins).look()
    np.testing.assert_allclose(output.uncertainty, 0.0, atol=1e-10)
    assert output.loss > 0
