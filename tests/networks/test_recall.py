"""What is remembered of episodes: by whoever acts, along sequences, and in pieces of them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from builders import BATCH, TIME, assert_trees_close, jit, make_spec, make_trajectory, small_actor
from byol_explore.agent import perceive
from byol_explore.curiosity.e3b import Ellipse
from byol_explore.curiosity.noveld import Visits
from byol_explore.networks.neighbours import Neighbours
from byol_explore.networks.recall import NOTHING, Recall
from byol_explore.types import Memory, Sequence, TimeStep, Trajectory

NEAREST = Neighbours(8, most=64, neighbours=3)


@pytest.mark.parametrize(("recall", "apart"), [(Ellipse(8), False), (Ellipse(8), True), (NEAREST, False)])
def test_the_agent_remembers_what_the_learner_finds_along_the_sequence(recall: Recall, apart: bool) -> None:
    """In the embeddings that the curiosity reads: its own, or the policy's."""
    spec = make_spec("vector")
    actor = small_actor(spec, apart=apart, recall=recall)
    trajectory = make_trajectory(spec, actor)
    trajectory = trajectory._replace(memory=trajectory.memory._replace(episode=recall.blank(BATCH)))

    @jit
    def acted(trajectory: Trajectory) -> Memory:
        def step(memory: Memory, seen: Any) -> tuple[Memory, None]:
            nothing = jnp.zeros(BATCH)
            timestep = TimeStep(seen[0], nothing, nothing, seen[1], nothing)
            return perceive(actor, memory, timestep)[0], None

        seen = trajectory.observation[:-1], trajectory.is_first[:-1]
        return jax.lax.scan(step, trajectory.memory, seen)[0]

    @jit
    def found(trajectory: Trajectory) -> Any:
        sequence = actor.normalized(trajectory).sequence
        representation = actor.representation if actor.curious is None else actor.curious
        return recall.walk(trajectory.memory.episode, representation.embed(sequence.observation), sequence)

    memory, novelty = found(trajectory)
    assert_trees_close(acted(trajectory).episode, memory, rtol=1e-4)
    assert novelty.shape[:2] == (TIME - 1, BATCH)


def random_sequence(rng: np.random.Generator, steps: int, filling: int) -> Sequence:
    """Small numbers that often come again; the first environment has fewer observations than the others."""
    observation = rng.integers(0, 3, (steps, BATCH, 1)).astype(np.int32)
    is_filling = (np.arange(steps)[:, None] >= steps - filling) & (np.arange(BATCH) == 0)
    return Sequence(observation, None, (rng.random((steps, BATCH)) < 0.2) | is_filling, is_filling)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("recall", [Ellipse(4), Visits(), Neighbours(4, most=64, neighbours=3)])
def test_a_sequence_in_two_pieces_is_remembered_as_a_whole(recall: Recall) -> None:
    rng = np.random.default_rng(1)
    sequence, embedding = random_sequence(rng, 9, 2), rng.normal(size=(9, BATCH, 4)).astype(np.float32)
    walk = jit(recall.walk)
    whole, novelty = walk(recall.blank(BATCH), embedding, sequence)
    pieces = [jax.tree.map(lambda x, cut=cut: x[cut], (embedding, sequence)) for cut in (slice(5), slice(4, 9))]
    memory, first = walk(recall.blank(BATCH), *pieces[0])
    memory, second = walk(memory, *pieces[1])
    assert_trees_close(memory, whole, rtol=1e-6)
    there = ~np.asarray(sequence.filling)[1:]
    np.testing.assert_allclose(np.concatenate([first, second])[there], np.asarray(novelty)[there], rtol=1e-6)
    shorter = jax.tree.map(lambda x: x[:7], (embedding, sequence._replace(filling=None)))
    kept, _ = walk(recall.blank(BATCH), *shorter)
    for one, other in zip(jax.tree.leaves(kept), jax.tree.leaves(whole), strict=True):
        np.testing.assert_array_equal(one[0], other[0])  # as if nothing had been filled up
    assert len(set(np.asarray(novelty)[there].ravel().tolist())) > 1


def test_nothing_is_remembered_by_most() -> None:
    memory, novelty = NOTHING.walk((), jnp.zeros((4, 2, 3)), Sequence((), (), jnp.zeros((4, 2), bool)))  # pyright: ignore[reportArgumentType]
    assert memory == NOTHING.blank(2) == ()
    np.testing.assert_array_equal(novelty, np.ones((3, 2)))
    assert Ellipse(4) == Ellipse(4) != Ellipse(5)
