"""Hashed counts against slow loops."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from builders import BATCH, TIME, jit, make_spec, make_trajectory, numpy_mlp, small_config
from byol_explore.agent.learner import Learner
from byol_explore.config.sections import PPOConfig
from byol_explore.curiosity.counts import BITS
from dropins import rollout, small
from methods import Case, make_case


@pytest.fixture(scope="module")
def case() -> Case:
    return make_case("counts")


def slow_hashes(case: Case) -> np.ndarray:
    """Return hashes [T, B], computed bit by bit."""
    planes, found = np.asarray(case.state.planes, np.float64), np.zeros((TIME, BATCH), int)
    for t, env in np.ndindex(TIME, BATCH):
        embedding = numpy_mlp(case.state.encoder.mlp, np.asarray(case.trajectory.observation)[t, env])
        for bit in range(BITS):
            found[t, env] += 2**bit * (embedding @ planes[:, bit] > 0)
    return found


def test_uncertainty_is_the_inverse_root_of_the_visits(case: Case) -> None:
    _, output = case.look()
    hashes, first = slow_hashes(case), np.asarray(case.trajectory.is_first)
    learned, recent = np.asarray(case.state.counts)[hashes[1:]], np.zeros((TIME - 1, BATCH))
    for t, env in np.ndindex(TIME - 1, BATCH):
        began = max(np.flatnonzero(first[: t + 1, env]), default=0)
        recent[t, env] = np.sum(hashes[began : t + 1, env] == hashes[t + 1, env])
    valid = np.asarray(case.trajectory.valid)
    slow = 1.0 / np.sqrt(1.0 + learned + recent)
    np.testing.assert_allclose(output.uncertainty[valid], slow[valid], rtol=1e-5)
    assert len(set(learned.ravel().tolist())) > 3
    assert np.sum(recent[valid] > 0) >= 2
    assert output.loss == 0
    assert output.metrics["hash_codes_seen"] == np.sum(np.asarray(case.state.counts) > 0)


def test_update_counts_all_observations_except_padding(case: Case) -> None:
    padding = np.zeros((TIME, BATCH), bool)
    padding[4:, 1] = True
    sequence = case.trajectory.sequence._replace(padding=jnp.asarray(padding))
    after = jax.jit(case.method.update_state)(case.state, None, sequence)
    expected = np.array(case.state.counts)
    for index, is_padding in zip(slow_hashes(case).ravel(), padding.ravel(), strict=True):
        expected[index] += not is_padding
    np.testing.assert_array_equal(after.counts, expected)


def test_a_rollout_of_two_epochs_is_counted_once_by_a_learner() -> None:
    config = dataclasses.replace(small_config("counts"), algorithm="ppo", ppo=PPOConfig(epochs=2))
    learner = Learner(config, make_spec("vector"), 1)
    state = jit(learner.init)(jax.random.key(0))
    assert learner.updates_per_rollout == 2
    trajectory = make_trajectory(learner.spec, state.target_actor)
    after, _ = jit(learner.learn_rollout)(state, trajectory)
    assert np.sum(after.method_state.counts) == TIME * BATCH


def test_a_rollout_of_two_epochs_is_counted_once_by_a_curiosity() -> None:
    once, twice, given = small("counts"), small("counts", epochs=2), rollout(12, seed=3)
    for curiosity in (once, twice):
        curiosity.learn(*given)
    assert once.progress.record.updates * 2 == twice.progress.record.updates
    counted = [np.sum(curiosity.progress.state.method_state.counts) for curiosity in (once, twice)]  # pyright: ignore[reportOptionalMemberAccess]
    assert counted[0] == counted[1] >= given.obs[..., 0].size
