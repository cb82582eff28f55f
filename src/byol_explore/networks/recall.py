"""What a curiosity remembers of the episode under way, beside the recurrent state.

Whoever walks along a stream carries it from one observation to the next: the agent while it acts, and a `Bonus` from
one sequence to the other. So each sequence comes with what was remembered before its first observation
(`View.episode`), wherever an episode was cut. The encoder may have learned since, as with a recurrent state.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from byol_explore.types import Array, PyTree, Sequence


@dataclass(frozen=True)
class Recall:
    """How an episode is remembered; this one remembers nothing. There are no parameters in it but plain numbers."""

    def blank(self, batch: int) -> PyTree:
        """Of so many episodes [B, ...] of which nothing was seen."""
        return ()

    def after(self, memory: PyTree, embedding: Array, observation: PyTree) -> PyTree:
        """With one observation [B, ...] more of each episode, whose embedding is [B, N]."""
        return memory

    def novelty(self, memory: PyTree, embedding: Array, observation: PyTree) -> Array:
        """[B] of an observation beside all of its episode that is remembered."""
        return jnp.ones(embedding.shape[0])

    def step(self, memory: PyTree, embedding: Array, observation: PyTree, is_first: Array) -> PyTree:
        """One observation further in a stream, in which episodes begin."""
        fresh = where(is_first, self.blank(is_first.shape[0]), memory)
        return self.after(fresh, embedding, observation)

    def walk(self, memory: PyTree, embedding: Array, sequence: Sequence) -> tuple[PyTree, Array]:
        """Along sequences, whose embeddings are [T, B, N]: what those that follow them need, and novelties [T-1, B].

        The novelty of transition t is that of o_{t+1} beside its episode up to o_t. The last observation is the first
        of what follows, so it is not remembered yet; nor is any that only fills up.
        """

        def step(memory: PyTree, inputs: Any) -> tuple[PyTree, Array]:
            (embedding, observation), then, is_first, is_there = inputs
            after = self.step(memory, embedding, observation, is_first)
            return where(is_there, after, memory), self.novelty(after, *then)

        if not jax.tree.leaves(memory):
            return memory, jnp.ones(sequence.valid.shape)
        seen = (embedding, sequence.observation)
        now, then = (jax.tree.map(lambda x, cut=cut: x[cut], seen) for cut in (slice(None, -1), slice(1, None)))
        return jax.lax.scan(step, memory, (now, then, sequence.is_first[:-1], sequence.seen[1:]))


NOTHING = Recall()


def where(mask: Array, one: PyTree, other: PyTree) -> PyTree:
    """The entries [B, ...] of one where the mask [B] is True, of the other elsewhere."""
    return jax.tree.map(lambda x, y: jnp.where(mask.reshape(-1, *[1] * (x.ndim - 1)), x, y), one, other)
