"""Hashed counts against a dictionary."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from builders import BATCH, TIME, jit, make_spec, make_trajectory, numpy_mlp, small_config
from byol_explore.curiosity.counts import BITS
from byol_explore.learner import Learner
from byol_explore.runtime.learning import learn
from byol_explore.settings.parts import PPOConfig
from dropins import rollout, small
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
    codes, first = slow_codes(case), np.asarray(case.trajectory.is_first)
    learned, recent = np.asarray(case.state.counts)[codes[1:]], np.zeros((TIME - 1, BATCH))
    for t, env in np.ndindex(TIME - 1, BATCH):
        began = max(np.flatnonzero(first[: t + 1, env]), default=0)
        recent[t, env] = np.sum(codes[began : t + 1, env] == codes[t + 1, env])
    valid = np.asarray(case.trajectory.valid)
    slow = 1.0 / np.sqrt(1.0 + learned + recent)
    np.testing.assert_allclose(output.uncertainty[valid], slow[valid], rtol=1e-5)
    assert len(set(learned.ravel().tolist())) > 3
    assert np.sum(recent[valid] > 0) >= 2
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


def test_an_algorithm_that_learns_from_a_rollout_twice_counts_it_once() -> None:
    config = dataclasses.replace(small_config("counts"), algorithm="ppo", ppo=PPOConfig(epochs=2))
    learner = Learner(config, make_spec("vector"), 1)
    state = jit(learner.init)(jax.random.key(0))
    assert learner.updates == 2
    trajectory = make_trajectory(learner.spec, state.acting)
    after, _ = jit(lambda state, trajectory: learn(learner, state, trajectory))(state, trajectory)
    assert np.sum(after.curiosity.counts) == TIME * BATCH


def test_so_does_a_curiosity_for_anybodys_agent() -> None:
    once, twice, given = small("counts"), small("counts", epochs=2), rollout(12, seed=3)
    for curiosity in (once, twice):
        curiosity.learn(*given)
    assert once.progress.record.updates * 2 == twice.progress.record.updates
    counted = [np.sum(curiosity.progress.state.method.counts) for curiosity in (once, twice)]  # pyright: ignore[reportOptionalMemberAccess]
    assert counted[0] == counted[1] >= given.obs[..., 0].size
