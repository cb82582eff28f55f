"""NovelD against a set of what each episode has seen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from builders import BATCH, TIME, call, make_spec, random_observation, small_actor
from byol_explore.agent.acting import policy_forward
from byol_explore.curiosity.noveld import ALPHA, CAPACITY, VisitedHashes, bin_numbers, observation_hash
from byol_explore.types import TimeStep
from methods import Case, make_case, seen_before


@pytest.fixture(scope="module")
def case() -> Case:
    return make_case("noveld")


def novelty(case: Case) -> np.ndarray:
    """Return the distances [T, B] between predictor and target."""
    observation = case.trajectory.observation
    prediction, target = (
        np.stack([np.asarray(call(encoder, observation[t]), np.float64) for t in range(TIME)])
        for encoder in (case.method.predictor, case.state)
    )
    return np.linalg.norm(prediction - target, axis=-1)


def cells(observation: np.ndarray) -> tuple[int, ...]:
    return tuple(np.round(np.arcsinh(observation / 0.1) / 0.25).astype(int).tolist())


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
    np.testing.assert_allclose(output.metrics["first_visit_fraction"], firsts[valid].mean(), rtol=1e-6)
    np.testing.assert_allclose(output.loss, np.mean(distance**2), rtol=1e-4)
    again = [(5, 0), (2, 2), (4, 2)]  # seen in the same episode, two of them with other observations between
    assert [bool(firsts[at]) for at in again] == [False] * 3
    assert firsts[2, 0]  # seen in the episode before only


@pytest.mark.parametrize("kind", ["grid", "image", "tokens", "dict"])
def test_hashes_differ_if_any_symbol_differs(kind: str) -> None:
    spec = make_spec(kind)
    observation = random_observation(np.random.default_rng(0), spec, (50,))
    found = np.asarray(observation_hash(observation))
    assert len(set(found.tolist())) == 50
    leaves, structure = jax.tree.flatten(observation)
    changed = leaves[-1].at[0].set(leaves[-1][0].at[(0,) * (leaves[-1].ndim - 1)].add(1))
    other = observation_hash(jax.tree.unflatten(structure, [*leaves[:-1], changed]))
    assert np.flatnonzero(np.asarray(other) != found).tolist() == [0]
    assert found.min() > 0


def test_numbers_in_one_bin_have_the_same_hash() -> None:
    found = np.asarray(observation_hash(jnp.asarray([[1.0, -9.0], [1.1, -9.4], [1.4, -9.0], [-1.0, 9.0]], jnp.float32)))
    assert found[0] == found[1]
    assert len(set(found.tolist())) == 3


def test_bins_are_equal_around_zero_and_grow_with_the_numbers() -> None:
    around_zero = [-0.04, -0.02, -0.012, 0.0, 0.012, 0.02, 0.04]
    assert bin_numbers(jnp.asarray(around_zero)).tolist() == [-2, -1, 0, 0, 0, 1, 2]
    assert bin_numbers(jnp.asarray([1.0, 1.1, 1.4, 100.0, 110.0, 140.0])).tolist() == [12, 12, 13, 30, 31, 32]
    assert bin_numbers(jnp.asarray([jnp.nan])).tolist() == [0]


def test_hash_of_an_observation_stays_while_the_normalizer_moves() -> None:
    spec = make_spec("vector")
    actor = small_actor(spec, recall=VisitedHashes())
    observation = random_observation(np.random.default_rng(3), spec, (BATCH,))
    start = jnp.zeros(BATCH)
    timestep = TimeStep(observation, start, start, start == 0, start, start)
    first, _ = policy_forward(actor, actor.initial_state(spec, BATCH), timestep)
    moved = actor.update_obs_stats(5.0 * observation + 3.0)
    again, _ = policy_forward(moved, first, timestep._replace(is_first=start == 1))
    np.testing.assert_array_equal(again.episodic_memory, first.episodic_memory)
    assert np.all(np.sum(np.asarray(first.episodic_memory) > 0, axis=1) == 1)


def test_first_visits_are_those_of_raw_observations(case: Case) -> None:
    view, output = case.look()
    sequence = case.trajectory.sequence
    normalized = sequence._replace(observation=2.0 * sequence.observation + 1.0, raw_observation=sequence.observation)
    visits = [
        call(case.method, case.state, view, each).metrics["first_visit_fraction"] for each in (sequence, normalized)
    ]
    assert visits[0] == visits[1] == output.metrics["first_visit_fraction"] < 1.0


def test_an_episode_with_too_many_observations_forgets_the_oldest() -> None:
    rules = VisitedHashes()
    observation = jnp.arange(CAPACITY + 1, dtype=jnp.int32)[:, None]
    memory = rules.init(1).at[0].set(observation_hash(observation[:-1])[::-1])  # all but the last
    again = rules.insert(memory, (), observation[5:6])  # pyright: ignore[reportArgumentType]
    np.testing.assert_array_equal(again, memory)
    full = rules.insert(memory, (), observation[-1:])  # pyright: ignore[reportArgumentType]
    is_new = [float(rules.novelty(full, (), observation[i : i + 1])[0]) for i in (0, 1, CAPACITY)]  # pyright: ignore[reportArgumentType]
    assert is_new == [1.0, 0.0, 0.0]
