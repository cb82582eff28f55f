"""NovelD against a set of what each episode has seen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from builders import BATCH, TIME, call, make_spec, random_observation
from byol_explore.curiosity.noveld import ALPHA, CELL, MOST, Visits, codes
from methods import Case, make_case, seen_before


@pytest.fixture(scope="module")
def case() -> Case:
    return make_case("noveld")


def novelty(case: Case) -> np.ndarray:
    """[T, B] the distance of predictor and target."""
    observation = case.trajectory.observation
    guess, truth = (
        np.stack([np.asarray(call(encoder, observation[t]), np.float64) for t in range(TIME)])
        for encoder in (case.method.predictor, case.state)
    )
    return np.linalg.norm(guess - truth, axis=-1)


def cells(observation: np.ndarray) -> tuple[int, ...]:
    return tuple(np.floor(observation / CELL).astype(int).tolist())


def test_uncertainty_is_the_gain_of_novelty_at_first_visits(case: Case) -> None:
    _, output = case.look()
    slow, distance = np.zeros((TIME - 1, BATCH)), novelty(case)
    firsts = np.zeros(slow.shape, bool)
    for t, env in np.ndindex(TIME - 1, BATCH):
        seen = {cells(observation) for observation in seen_before(case, t, env)}
        firsts[t, env] = cells(np.asarray(case.trajectory.observation)[t + 1, env]) not in seen
        slow[t, env] = firsts[t, env] * max(distance[t + 1, env] - ALPHA * distance[t, env], 0.0)
    valid = np.asarray(case.trajectory.valid)
    np.testing.assert_allclose(output.uncertainty[valid], slow[valid], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(output.metrics["first_visits"], firsts[valid].mean(), rtol=1e-6)
    np.testing.assert_allclose(output.loss, np.mean(distance**2), rtol=1e-4)
    again = [(5, 0), (2, 2), (4, 2)]  # seen in the same episode, two of them before or across other observations
    assert [bool(firsts[at]) for at in again] == [False] * 3
    assert firsts[2, 0]  # only the former episode has seen it


@pytest.mark.parametrize("kind", ["grid", "image", "tokens", "dict"])
def test_codes_tell_observations_apart_by_any_symbol(kind: str) -> None:
    spec = make_spec(kind)
    observation = random_observation(np.random.default_rng(0), spec, (50,))
    found = np.asarray(codes(observation))
    assert len(set(found.tolist())) == 50
    leaves, structure = jax.tree.flatten(observation)
    changed = leaves[-1].at[0].set(leaves[-1][0].at[(0,) * (leaves[-1].ndim - 1)].add(1))
    other = codes(jax.tree.unflatten(structure, [*leaves[:-1], changed]))
    assert np.flatnonzero(np.asarray(other) != found).tolist() == [0]
    assert found.min() > 0


def test_numbers_are_the_same_in_one_cell() -> None:
    found = np.asarray(codes(jnp.asarray([[0.1, -0.1], [0.4, -0.4], [0.6, -0.1], [-0.1, 0.1]], jnp.float32)))
    assert found[0] == found[1]
    assert len(set(found.tolist())) == 3


def test_an_episode_with_too_many_observations_forgets_the_oldest() -> None:
    visits = Visits()
    observation = jnp.arange(MOST + 1, dtype=jnp.int32)[:, None]
    memory = visits.blank(1).at[0].set(codes(observation[:-1])[::-1])  # all but the last were seen
    again = visits.after(memory, (), observation[5:6])  # pyright: ignore[reportArgumentType]
    np.testing.assert_array_equal(again, memory)
    full = visits.after(memory, (), observation[-1:])  # pyright: ignore[reportArgumentType]
    news = [float(visits.novelty(full, (), observation[i : i + 1])[0]) for i in (0, 1, MOST)]  # pyright: ignore[reportArgumentType]
    assert news == [1.0, 0.0, 0.0]
