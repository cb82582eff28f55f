"""Normalisation of vectors: against NumPy, and the same for all networks."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from builders import (
    BATCH,
    TIME,
    assert_trees_close,
    at,
    call,
    jit,
    make_spec,
    make_trajectory,
    random_observation,
    small_config,
    small_network,
    update_of,
)
from byol_explore.agent.acting import policy_forward
from byol_explore.agent.learner import Learner
from byol_explore.agent.state import LearnerState
from byol_explore.config.sections import VMPOConfig
from byol_explore.networks.layers import ObservationNormalizer, VectorNormalizer, trainable
from byol_explore.spaces import Image, Vector
from byol_explore.types import TimeStep, Trajectory


def batches(seed: int = 0) -> list[np.ndarray]:
    """Make batches of several shapes with numbers of very different sizes; the last number is constant."""
    rng = np.random.default_rng(seed)
    scale, offset = np.asarray([1.0, 1e-2, 300.0, 0.0]), np.asarray([0.0, 1.0, -1000.0, 7.0])
    return [(rng.normal(size=(*lead, 4)) * scale + offset).astype(np.float32) for lead in ((3, 2), (5, 1), (4, 4))]


def test_statistics_and_outputs_equal_a_loop_over_all_numbers_so_far() -> None:
    normalizer, seen = VectorNormalizer(4), []
    for batch in batches():
        normalizer = normalizer.update(jnp.asarray(batch))
        seen += list(batch.reshape(-1, 4).astype(np.float64))
        mean = sum(seen) / len(seen)
        variance = sum((x - mean) ** 2 for x in seen) / len(seen)
        np.testing.assert_allclose(normalizer.mean, mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(normalizer.variance, variance, rtol=1e-4, atol=1e-6)
        assert float(normalizer.count) == len(seen)
        expected = np.clip((batch - mean) / np.sqrt(variance + 1e-6), -5.0, 5.0)
        np.testing.assert_allclose(call(normalizer, batch), expected, rtol=1e-3, atol=1e-3)
    assert np.asarray(call(normalizer, 1e6 * np.ones((1, 4), np.float32))).tolist() == [[5.0] * 4]


def test_before_the_first_batch_nothing_changes() -> None:
    x = 1e3 * batches()[0]
    np.testing.assert_array_equal(call(VectorNormalizer(4), x), x)


def test_only_vectors_are_normalised_if_configured() -> None:
    spec: dict[str, Any] = {"eye": Image(2, 2, 1), "arm": Vector(4)}
    seen = {"eye": np.ones((16, 2, 2, 1), np.uint8), "arm": batches()[2].reshape(16, 4)}
    moved, unused = (ObservationNormalizer(spec, normalizes=on).update(seen)(seen) for on in (True, False))
    assert moved["eye"] is seen["eye"]
    np.testing.assert_allclose(np.mean(moved["arm"], axis=0), 0.0, atol=1e-3)
    assert all(unused[name] is seen[name] for name in seen)
    assert not jax.tree.leaves(ObservationNormalizer(Image(2, 2, 1)))
    assert ObservationNormalizer(Image(2, 2, 1))(seen["eye"]) is seen["eye"]


def test_no_gradient_trains_it() -> None:
    normalizer, x = VectorNormalizer(4).update(batches()[0]), batches()[1]
    gradient = jax.grad(lambda module: jnp.sum(jnp.square(module(x))))(normalizer)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradient))
    assert jax.tree.leaves(trainable({"normalizer": normalizer})) == []


# In the agent


def setup(method: str = "byol-explore", **network: Any) -> tuple[Learner, LearnerState, Trajectory]:
    """Make a learner whose statistics contain warm-up observations."""
    config = dataclasses.replace(small_config(method), vmpo=VMPOConfig(target_period=2))
    config = dataclasses.replace(config, network=dataclasses.replace(small_network(), **network))
    spec = make_spec("vector")
    learner, look = Learner(config, spec, 1), random_observation(np.random.default_rng(3), spec, (20,))
    state = learner.init(jax.random.key(0), 3.0 * look + 1.0)
    return learner, state, make_trajectory(spec, state.target_actor)


def test_an_update_moves_it_once_and_a_refresh_copies_it_to_the_target() -> None:
    learner, state, trajectory = setup()
    update = update_of(learner)
    first, _ = update(state, trajectory)
    expected = state.online.actor.obs_normalizer.update(trajectory.observation)
    assert_trees_close(first.online.actor.obs_normalizer, expected, rtol=1e-5, atol=1e-6)
    assert float(first.online.actor.obs_normalizer.entries[""].count) == 20 + TIME * BATCH
    assert_trees_close(first.target_actor.obs_normalizer, state.target_actor.obs_normalizer, rtol=0, atol=0)
    second, _ = update(first, trajectory)
    assert_trees_close(second.target_actor.obs_normalizer, second.online.actor.obs_normalizer, rtol=0, atol=0)


@pytest.mark.parametrize("method", ["byol-explore", "rnd"])
def test_all_networks_see_the_same_normalised_observations(method: str) -> None:
    """Encoder, core, curiosity and its target act as if the environment returned normalised observations."""
    learner, state, trajectory = setup(method)
    plain = eqx.tree_at(lambda actor: actor.obs_normalizer, state.online.actor, ObservationNormalizer(Vector(6)))
    networks = eqx.tree_at(lambda networks: networks.actor, state.online, plain)
    normalized = trajectory._replace(observation=call(state.online.actor.obs_normalizer, trajectory.observation))
    assert np.abs(np.asarray(normalized.observation) - trajectory.observation).max() > 0.1
    seen = jit(learner.loss_function.forward)(state.online, state, trajectory)
    expected = jit(learner.loss_function.forward)(networks, state, normalized)
    assert_trees_close(seen, expected, rtol=1e-4, atol=1e-5)
    raw = jit(learner.loss_function.forward)(networks, state, trajectory)
    assert np.abs(np.asarray(raw.method_output.uncertainty) - seen.method_output.uncertainty).max() > 1e-3


def test_the_actor_sees_what_the_learner_sees() -> None:
    learner, state, trajectory = setup()
    nothing = np.zeros(BATCH, np.float32)
    first = TimeStep(
        at(trajectory.observation, 0),
        trajectory.initial_state.prev_reward,
        nothing,
        trajectory.is_first[0],
        nothing > 0,
        nothing > 0,
    )
    memory, _ = jit(policy_forward)(state.target_actor, trajectory.initial_state, first)
    seen = jit(learner.loss_function.forward)(state.online, state, trajectory)
    np.testing.assert_allclose(memory.policy_core, at(seen.policy_view.core_state, 0), rtol=1e-4, atol=1e-5)


def test_encoders_are_centred_on_normalised_observations() -> None:
    learner, state, _ = setup()
    look = 3.0 * random_observation(np.random.default_rng(3), learner.spec, (20,)) + 1.0
    actor = state.online.actor
    embedding = call(actor.representation.encoder, call(actor.obs_normalizer, look))
    np.testing.assert_allclose(np.mean(embedding, axis=0), 0.0, atol=1e-4)


def test_without_it_observations_are_as_they_come() -> None:
    _, state, trajectory = setup(normalize_vectors=False)
    assert not jax.tree.leaves(state.online.actor.obs_normalizer)
    assert state.online.actor.normalize(trajectory).observation is trajectory.observation
