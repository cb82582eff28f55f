"""NGU against lists of what each episode has seen."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from builders import BATCH, TIME, call, jit, largest, leaves_with_names, numpy_mlp
from byol_explore.curiosity.ngu import DECAY, EPSILON, LIMIT, NEIGHBOURS, XI, C, episodic
from byol_explore.ops.moments import Moments, initial_moments
from methods import Case, explore, make_case, seen_before


@pytest.fixture(scope="module")
def case() -> Case:
    return make_case("ngu")


def feature(case: Case, observation: np.ndarray) -> np.ndarray:
    return numpy_mlp(case.representation.encoder.mlp, observation)  # pyright: ignore[reportFunctionMemberAccess]


def nearest(case: Case, t: int, env: int, seen: list[Any]) -> list[float]:
    """Squared distances of o_{t+1} to the nearest of these observations."""
    here = feature(case, np.asarray(case.trajectory.observation)[t + 1, env])
    return sorted(float(np.sum((here - feature(case, observation)) ** 2)) for observation in seen)[:NEIGHBOURS]


def slow_episodic(distances: list[float]) -> float:
    total = 0.0
    for distance in distances:
        total += EPSILON / (max(distance - XI, 0.0) + EPSILON)
    return 1.0 / (np.sqrt(total) + C)


def errors(case: Case) -> np.ndarray:
    """[T, B] of RND's predictor."""
    observation = case.trajectory.observation
    guess, truth = (
        np.stack([np.asarray(call(encoder, observation[t]), np.float64) for t in range(TIME)])
        for encoder in (case.method.predictor, case.state.target)
    )
    return np.sum((guess - truth) ** 2, axis=-1)


def statistics(moments: Moments) -> tuple[float, float]:
    weight = 1.0 - DECAY ** int(moments.batches)
    mean, square = float(moments.mean) / weight, float(moments.mean_square) / weight
    return mean, np.sqrt(square - mean**2 + 1e-8)


def test_uncertainty_is_the_novelty_in_the_episode_times_that_of_all(case: Case) -> None:
    _, output = case.look()
    usual = float(case.state.distances.mean_square) / (1.0 - DECAY ** int(case.state.distances.batches))
    (mean, deviation), error = statistics(case.state.errors), errors(case)
    new, lifelong = np.zeros((TIME - 1, BATCH)), np.zeros((TIME - 1, BATCH))
    for t, env in np.ndindex(*new.shape):
        new[t, env] = slow_episodic([d / usual for d in nearest(case, t, env, seen_before(case, t, env))])
        lifelong[t, env] = min(max(1.0 + (error[t + 1, env] - mean) / deviation, 1.0), LIMIT)
    valid = np.asarray(case.trajectory.valid)
    np.testing.assert_allclose(output.uncertainty[valid], (new * lifelong)[valid], rtol=2e-3)
    again = [(5, 0), (2, 2), (4, 2)]  # seen in the same episode, two of them before or across other observations
    assert max(new[place] for place in again) < 1.1 < 2.0 < np.median(new[valid])
    assert new[2, 0] > 2.0  # only the former episode has seen it
    assert 1.0 == lifelong[valid].min() < np.median(lifelong[valid]) < lifelong[valid].max() == LIMIT


def test_nothing_is_worth_anything_before_distances_are_known(case: Case) -> None:
    state = case.state._replace(distances=initial_moments(), errors=initial_moments())
    _, output = case._replace(state=state).look()
    np.testing.assert_array_equal(output.uncertainty, 0.0)
    assert output.loss > 0


def test_statistics_are_those_of_what_was_learned_from(case: Case) -> None:
    """Distances are of the neighbours inside of a sequence and an episode, with the encoder as it is then."""
    filling = np.zeros((TIME, BATCH), bool)
    filling[5:, 2] = True
    first = np.asarray(case.trajectory.is_first) | filling
    sequence = case.trajectory.sequence._replace(filling=jnp.asarray(filling), is_first=jnp.asarray(first))
    after = jit(lambda networks, sequence: networks[0].after(case.state, networks[1], sequence))(
        (case.method, case.representation.encoder), sequence
    )
    observation, found = np.asarray(case.trajectory.observation), []
    for t, env in np.ndindex(TIME - 1, BATCH):
        if not first[t + 1, env]:
            began = max(np.flatnonzero(first[: t + 1, env]), default=0)
            found += nearest(case, t, env, [observation[i, env] for i in range(began, t + 1)])
    for moments, before, values in (
        (after.distances, case.state.distances, np.sqrt(found)),
        (after.errors, case.state.errors, errors(case)[~filling]),
    ):
        np.testing.assert_allclose(moments.mean, DECAY * before.mean + (1 - DECAY) * values.mean(), rtol=1e-4)
        expected = DECAY * before.mean_square + (1 - DECAY) * np.mean(values**2)
        np.testing.assert_allclose(moments.mean_square, expected, rtol=1e-4)
        assert moments.batches == before.batches + 1


def test_both_losses_train_what_they_should_and_the_uncertainty_nothing(case: Case) -> None:
    @jit
    def gradients(of_loss: float, of_uncertainty: float) -> Any:
        def objective(networks: Any) -> jax.Array:
            representation, method, target = networks
            _, output = explore(representation, method, case.state._replace(target=target), case.trajectory)
            return of_loss * output.loss + of_uncertainty * output.uncertainty.sum()

        return jax.grad(objective)((case.representation, case.method, case.state.target))

    representation, method, target = gradients(1.0, 0.0)
    trained = leaves_with_names((representation.encoder, method))
    assert {name for name, leaf in trained.items() if not np.any(leaf)} == set()
    assert largest(target) == 0
    assert largest(gradients(0.0, 1.0)) == 0


def test_fewer_neighbours_than_there_should_be_are_the_only_ones_that_count() -> None:
    one = episodic(jnp.asarray([0.0, *[jnp.inf] * (NEIGHBOURS - 1)]))
    np.testing.assert_allclose(one, 1.0 / (1.0 + C), rtol=1e-6)
    np.testing.assert_allclose(episodic(jnp.zeros(NEIGHBOURS)), 1.0 / (np.sqrt(NEIGHBOURS) + C), rtol=1e-6)
