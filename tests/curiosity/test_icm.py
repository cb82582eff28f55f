"""ICM against slow loops (appendix B)."""

from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from builders import (
    BATCH,
    TIME,
    assert_trees_close,
    at,
    jit,
    largest,
    leaves_with_names,
    make,
    make_spec,
    make_trajectory,
    materials_for,
    numpy_action_rows,
    numpy_linear,
    numpy_mlp,
    permute_environments,
    replace_observations,
    small_actor,
    small_config,
)
from byol_explore.config.config import embedding_size, has_own_representation
from byol_explore.curiosity.icm import ICM
from byol_explore.curiosity.method import MethodOutput
from byol_explore.envs.interface import EnvSpec
from byol_explore.networks.representation import Representation, RepresentationOutput
from byol_explore.types import Action, Trajectory


class Case(NamedTuple):
    spec: EnvSpec
    representation: Representation
    icm: ICM
    trajectory: Trajectory

    def forward(self, trajectory: Trajectory) -> tuple[RepresentationOutput, MethodOutput]:
        return at(run_explore(self.representation, self.icm, trajectory))


def explore(
    representation: Representation, icm: ICM, trajectory: Trajectory
) -> tuple[RepresentationOutput, MethodOutput]:
    view = representation.unroll(trajectory.sequence, trajectory.previous, trajectory.initial_state.policy_core)
    return view, icm((), view, trajectory.sequence)


run_explore = jit(explore)


@pytest.fixture(scope="module", params=["discrete", "continuous", "hybrid"])
def case(request: pytest.FixtureRequest) -> Case:
    spec = make_spec("vector", request.param)
    actor = small_actor(spec)
    icm = make(lambda key: ICM.create(materials_for(small_config("icm"), spec), key), seed=1)
    return Case(spec, actor.representation, icm, make_trajectory(spec, actor))


def slow_log_likelihood(icm: ICM, outputs: np.ndarray, action: Action) -> float:
    """Return log p(a) from the outputs of the inverse model: softmax of discrete components, Gaussian of the rest."""
    total, start = 0.0, 0
    for component, categories in enumerate(icm.inverse.spec.discrete):
        probability = np.exp(outputs[start : start + categories])
        total += np.log(probability[action.discrete[component]] / probability.sum())
        start += categories
    dimensions = icm.inverse.spec.continuous
    for i in range(dimensions):
        mean, spread = outputs[start + i], outputs[start + dimensions + i]
        stddev = np.log1p(np.exp(spread + 0.54)) + icm.inverse.min_stddev
        density = np.exp(-0.5 * ((action.continuous[i] - mean) / stddev) ** 2) / (stddev * np.sqrt(2 * np.pi))
        total += np.log(density)
    return float(total)


def slow_terms(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Return inverse losses and forward errors [T-1, B], computed one transition at a time."""
    icm, trajectory = case.icm, case.trajectory
    encoder: Any = case.representation.encoder
    inverse, forward = np.zeros((TIME - 1, BATCH)), np.zeros((TIME - 1, BATCH))
    for t, j in np.ndindex(TIME - 1, BATCH):
        before, after = (numpy_mlp(encoder.mlp, at(trajectory.observation, s, j)) for s in (t, t + 1))
        action = at(trajectory.action, t, j)
        outputs = numpy_mlp(icm.inverse.mlp, np.concatenate([before, after]))
        inverse[t, j] = -slow_log_likelihood(icm, outputs, action)
        embedded = numpy_linear(icm.project_action, numpy_action_rows(icm.action, action))
        prediction = numpy_mlp(icm.forward, np.concatenate([before, embedded]))
        forward[t, j] = np.sum((prediction - after) ** 2)
    return inverse, forward


def test_losses_and_uncertainty_equal_loops(case: Case) -> None:
    _, output = case.forward(case.trajectory)
    inverse, forward = slow_terms(case)
    valid = np.asarray(case.trajectory.valid)
    np.testing.assert_allclose(output.metrics["inverse_loss"], inverse[valid].mean(), rtol=1e-4)
    np.testing.assert_allclose(output.metrics["prediction_error"], [forward[valid].mean()], rtol=1e-4)
    np.testing.assert_allclose(output.loss, inverse[valid].mean() + forward[valid].mean(), rtol=1e-4)
    np.testing.assert_allclose(output.uncertainty[valid], forward[valid], rtol=1e-4, atol=1e-5)


def test_dummy_transitions_do_not_change_the_loss(case: Case) -> None:
    trajectory = case.trajectory
    dummy = ~np.asarray(trajectory.valid)
    other = make_trajectory(case.spec, small_actor(case.spec), seed=7).action
    action = jax.tree.map(lambda a, b: np.where(dummy[..., None], b, a), trajectory.action, other)
    assert any(np.any(np.asarray(a) != b) for a, b in zip(trajectory.action, action, strict=True))
    _, before = case.forward(trajectory)
    _, after = case.forward(trajectory._replace(action=action))
    np.testing.assert_allclose(after.loss, before.loss, rtol=1e-6)
    assert_trees_close(after.metrics, before.metrics, rtol=1e-6)


def test_an_observation_changes_the_two_transitions_beside_it(case: Case) -> None:
    where = np.zeros((TIME, BATCH), bool)
    where[3, 1] = True
    _, before = case.forward(case.trajectory)
    _, after = case.forward(replace_observations(case.spec, case.trajectory, where))
    moved = np.abs(after.uncertainty - before.uncertainty) > 1e-6
    np.testing.assert_array_equal(moved, where[:-1] | where[1:])


def test_permuted_environments_give_permuted_uncertainties(case: Case) -> None:
    order = [2, 0, 1]
    _, before = case.forward(case.trajectory)
    _, after = case.forward(permute_environments(case.trajectory, order))
    np.testing.assert_allclose(after.uncertainty, before.uncertainty[:, order], rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def gradients(case: Case) -> dict[str, tuple[Representation, ICM]]:
    """Return gradients of the inverse loss, the forward loss, their sum and the uncertainty."""

    @jit
    def gradient(weights: np.ndarray) -> tuple[Representation, ICM]:
        def objective(networks: tuple[Representation, ICM]) -> jax.Array:
            _, output = explore(*networks, case.trajectory)
            forward, inverse = output.metrics["prediction_error"][0], output.metrics["inverse_loss"]
            parts = (inverse, forward, output.loss, output.uncertainty.sum())
            return sum(weight * part for weight, part in zip(weights, parts, strict=True))

        return jax.grad(objective)((case.representation, case.icm))

    names = ("inverse", "forward", "loss", "uncertainty")
    return {name: at(gradient(row)) for name, row in zip(names, np.eye(4, dtype=np.float32), strict=True)}


def test_the_inverse_loss_trains_the_encoder(gradients: dict[str, Any]) -> None:
    representation, icm = gradients["inverse"]
    assert {name for name, leaf in leaves_with_names(representation.encoder).items() if not np.any(leaf)} == set()
    assert {name for name, leaf in leaves_with_names(icm.inverse).items() if not np.any(leaf)} == set()
    assert largest((icm.forward, icm.action, icm.project_action)) == 0


def test_the_forward_loss_does_not_reach_the_encoder(gradients: dict[str, Any]) -> None:
    representation, icm = gradients["forward"]
    assert largest((representation, icm.inverse)) == 0
    assert {name for name, leaf in leaves_with_names(icm.forward).items() if not np.any(leaf)} == set()
    assert np.any(icm.action.tables)


def test_the_loss_trains_both_models_and_the_uncertainty_neither(gradients: dict[str, Any]) -> None:
    both = jax.tree.map(np.add, gradients["inverse"], gradients["forward"])
    assert_trees_close(gradients["loss"], both, rtol=1e-4, atol=1e-5)
    assert largest(gradients["uncertainty"]) == 0


def test_icm_has_no_target(case: Case) -> None:
    encoder = case.representation.encoder
    context = materials_for(small_config("icm"), case.spec)
    assert case.icm.init_state(context, encoder, jax.random.key(0)) == ()
    assert case.icm.update_state((), encoder, case.trajectory.sequence) == ()
    assert not case.icm.has_target_encoder


@pytest.mark.parametrize(("share", "size"), [(True, 8), (False, 5)])
def test_embedding_size_applies_to_an_own_representation_only(share: bool, size: int) -> None:
    config = small_config("icm", share_representation=share, embedding_size=5)
    assert has_own_representation(config) is not share
    assert embedding_size(config) == size
