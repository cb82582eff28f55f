"""NGU against slow loops over the observations of each episode."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from builders import BATCH, TIME, call, jit, largest, leaves_with_names, numpy_mlp
from byol_explore.curiosity.ngu import DECAY, EPSILON, LIMIT, NEIGHBORS, XI, C, episodic_bonus
from byol_explore.ops.rewards import RunningMoments, init_moments
from methods import Case, explore, make_case, seen_before


@pytest.fixture(scope="module")
def case() -> Case:
    return make_case("ngu")


def feature(case: Case, observation: np.ndarray) -> np.ndarray:
    return numpy_mlp(case.representation.encoder.mlp, observation)  # pyright: ignore[reportFunctionMemberAccess]


def nearest(case: Case, t: int, env: int, seen: list[Any]) -> list[float]:
    """Return the squared distances of o_{t+1} to the nearest of some observations."""
    here = feature(case, np.asarray(case.trajectory.observation)[t + 1, env])
    return sorted(float(np.sum((here - feature(case, observation)) ** 2)) for observation in seen)[:NEIGHBORS]


def slow_episodic(distances: list[float]) -> float:
    total = 0.0
    for distance in distances:
        total += EPSILON / (max(distance - XI, 0.0) + EPSILON)
    return 1.0 / (np.sqrt(total) + C)


def errors(case: Case) -> np.ndarray:
    """Return the errors [T, B] of RND's predictor."""
    observation = case.trajectory.observation
    prediction, target = (
        np.stack([np.asarray(call(encoder, observation[t]), np.float64) for t in range(TIME)])
        for encoder in (case.method.predictor, case.state.target)
    )
    return np.sum((prediction - target) ** 2, axis=-1)


def statistics(moments: RunningMoments) -> tuple[float, float]:
    weight = 1.0 - DECAY ** int(moments.num_updates)
    mean, square = float(moments.mean) / weight, float(moments.mean_square) / weight
    return mean, np.sqrt(square - mean**2 + 1e-8)


def test_uncertainty_is_episodic_times_lifelong_novelty(case: Case) -> None:
    _, output = case.look()
    mean_square = float(case.state.distances.mean_square) / (1.0 - DECAY ** int(case.state.distances.num_updates))
    (mean, deviation), error = statistics(case.state.errors), errors(case)
    new, lifelong = np.zeros((TIME - 1, BATCH)), np.zeros((TIME - 1, BATCH))
    for t, env in np.ndindex(*new.shape):
        new[t, env] = slow_episodic([d / mean_square for d in nearest(case, t, env, seen_before(case, t, env))])
        lifelong[t, env] = min(max(1.0 + (error[t + 1, env] - mean) / deviation, 1.0), LIMIT)
    valid = np.asarray(case.trajectory.valid)
    np.testing.assert_allclose(output.uncertainty[valid], (new * lifelong)[valid], rtol=2e-3)
    again = [(5, 0), (2, 2), (4, 2)]  # seen in the same episode, two of them with other observations between
    assert max(new[place] for place in again) < 1.1 < 2.0 < np.median(new[valid])
    assert new[2, 0] > 2.0  # seen in the episode before only
    assert 1.0 == lifelong[valid].min() < np.median(lifelong[valid]) < lifelong[valid].max() == LIMIT


def test_uncertainty_is_zero_before_the_first_update(case: Case) -> None:
    state = case.state._replace(distances=init_moments(), errors=init_moments())
    _, output = case._replace(state=state).look()
    np.testing.assert_array_equal(output.uncertainty, 0.0)
    assert output.loss > 0


def test_statistics_are_moments_of_the_sequences_learned_from(case: Case) -> None:
    """Distances are to neighbours in the same sequence and episode, with the current encoder."""
    padding = np.zeros((TIME, BATCH), bool)
    padding[5:, 2] = True
    first = np.asarray(case.trajectory.is_first) | padding
    sequence = case.trajectory.sequence._replace(padding=jnp.asarray(padding), is_first=jnp.asarray(first))
    after = jit(lambda networks, sequence: networks[0].update_state(case.state, networks[1], sequence))(
        (case.method, case.representation.encoder), sequence
    )
    observation, found = np.asarray(case.trajectory.observation), []
    for t, env in np.ndindex(TIME - 1, BATCH):
        if not first[t + 1, env]:
            began = max(np.flatnonzero(first[: t + 1, env]), default=0)
            found += nearest(case, t, env, [observation[i, env] for i in range(began, t + 1)])
    for moments, before, values in (
        (after.distances, case.state.distances, np.sqrt(found)),
        (after.errors, case.state.errors, errors(case)[~padding]),
    ):
        np.testing.assert_allclose(moments.mean, DECAY * before.mean + (1 - DECAY) * values.mean(), rtol=1e-4)
        expected = DECAY * before.mean_square + (1 - DECAY) * np.mean(values**2)
        np.testing.assert_allclose(moments.mean_square, expected, rtol=1e-4)
        assert moments.num_updates == before.num_updates + 1


def test_the_loss_trains_both_models_and_the_uncertainty_neither(case: Case) -> None:
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


def test_missing_neighbours_do_not_count() -> None:
    one = episodic_bonus(jnp.asarray([0.0, *[jnp.inf] * (NEIGHBORS - 1)]))
    np.testing.assert_allclose(one, 1.0 / (1.0 + C), rtol=1e-6)
    np.testing.assert_allclose(episodic_bonus(jnp.zeros(NEIGHBORS)), 1.0 / (np.sqrt(NEIGHBORS) + C), rtol=1e-6)
