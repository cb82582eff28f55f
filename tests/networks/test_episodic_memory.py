"""Episodic memories: while acting, along sequences, and along pieces of sequences."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from builders import BATCH, TIME, assert_trees_close, jit, make_spec, make_trajectory, small_actor
from byol_explore.agent.acting import policy_forward
from byol_explore.curiosity.e3b import InverseCovariance
from byol_explore.curiosity.noveld import VisitedHashes
from byol_explore.networks.episodic_memory import NO_MEMORY, EpisodicMemory, NearestNeighborMemory
from byol_explore.types import RecurrentState, SequenceBatch, TimeStep, Trajectory

NEAREST = NearestNeighborMemory(8, capacity=64, neighbors=3)


@pytest.mark.parametrize(
    ("recall", "apart"), [(InverseCovariance(8), False), (InverseCovariance(8), True), (NEAREST, False)]
)
def test_acting_and_learning_build_the_same_memory(recall: EpisodicMemory, apart: bool) -> None:
    """In the embeddings that the curiosity reads: its own, or the policy's."""
    spec = make_spec("vector")
    actor = small_actor(spec, apart=apart, recall=recall)
    trajectory = make_trajectory(spec, actor)
    trajectory = trajectory._replace(
        initial_state=trajectory.initial_state._replace(episodic_memory=recall.init(BATCH))
    )

    @jit
    def acted(trajectory: Trajectory) -> RecurrentState:
        def step(memory: RecurrentState, seen: Any) -> tuple[RecurrentState, None]:
            nothing = jnp.zeros(BATCH)
            timestep = TimeStep(seen[0], nothing, nothing, seen[1], nothing, nothing)
            return policy_forward(actor, memory, timestep)[0], None

        seen = trajectory.observation[:-1], trajectory.is_first[:-1]
        return jax.lax.scan(step, trajectory.initial_state, seen)[0]

    @jit
    def found(trajectory: Trajectory) -> Any:
        sequence = actor.normalize(trajectory).sequence
        representation = (
            actor.representation if actor.curiosity_representation is None else actor.curiosity_representation
        )
        return recall.unroll(
            trajectory.initial_state.episodic_memory, representation.embed(sequence.observation), sequence
        )

    memory, novelty = found(trajectory)
    assert_trees_close(acted(trajectory).episodic_memory, memory, rtol=1e-4)
    assert novelty.shape[:2] == (TIME - 1, BATCH)


def random_sequence(rng: np.random.Generator, steps: int, filling: int) -> SequenceBatch:
    """Make small numbers that repeat often; the first environment has fewer observations than the others."""
    observation = rng.integers(0, 3, (steps, BATCH, 1)).astype(np.int32)
    is_filling = (np.arange(steps)[:, None] >= steps - filling) & (np.arange(BATCH) == 0)
    return SequenceBatch(observation, None, (rng.random((steps, BATCH)) < 0.2) | is_filling, is_filling)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "recall", [InverseCovariance(4), VisitedHashes(), NearestNeighborMemory(4, capacity=64, neighbors=3)]
)
def test_two_pieces_of_a_sequence_give_the_same_memory(recall: EpisodicMemory) -> None:
    rng = np.random.default_rng(1)
    sequence, embedding = random_sequence(rng, 9, 2), rng.normal(size=(9, BATCH, 4)).astype(np.float32)
    walk = jit(recall.unroll)
    whole, novelty = walk(recall.init(BATCH), embedding, sequence)
    pieces = [jax.tree.map(lambda x, cut=cut: x[cut], (embedding, sequence)) for cut in (slice(5), slice(4, 9))]
    memory, first = walk(recall.init(BATCH), *pieces[0])
    memory, second = walk(memory, *pieces[1])
    assert_trees_close(memory, whole, rtol=1e-6)
    there = ~np.asarray(sequence.padding)[1:]
    np.testing.assert_allclose(np.concatenate([first, second])[there], np.asarray(novelty)[there], rtol=1e-6)
    shorter = jax.tree.map(lambda x: x[:7], (embedding, sequence._replace(padding=None)))
    kept, _ = walk(recall.init(BATCH), *shorter)
    for one, other in zip(jax.tree.leaves(kept), jax.tree.leaves(whole), strict=True):
        np.testing.assert_array_equal(one[0], other[0])  # as if nothing had been filled up
    assert len(set(np.asarray(novelty)[there].ravel().tolist())) > 1


def test_the_base_class_remembers_nothing() -> None:
    memory, novelty = NO_MEMORY.unroll((), jnp.zeros((4, 2, 3)), SequenceBatch((), (), jnp.zeros((4, 2), bool)))  # pyright: ignore[reportArgumentType]
    assert memory == NO_MEMORY.init(2) == ()
    np.testing.assert_array_equal(novelty, np.ones((3, 2)))
    assert InverseCovariance(4) == InverseCovariance(4) != InverseCovariance(5)
