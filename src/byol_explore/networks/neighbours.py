"""An episode remembered as a list: how far is an observation from the nearest that it has seen?

The list is a ring of the newest observations. Episodes begin by counting anew, not by wiping it, and whole sequences
are compared with it at once, so that a step costs one write and a sequence one product of matrices.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from byol_explore.networks.recall import Recall
from byol_explore.types import Array, PyTree, Sequence


class Seen(NamedTuple):
    """The episode's observation i is at i modulo `most`; beyond `length` there is what earlier episodes left."""

    embedding: Array  # [B, most, N]
    length: Array  # [B] observations of the episode so far


@dataclass(frozen=True)
class Neighbours(Recall):
    """Novelties are the squared distances [B, K] to the nearest, infinite where there are fewer."""

    size: int
    most: int  # observations that are remembered, the newest ones
    neighbours: int

    def blank(self, batch: int) -> Seen:
        return Seen(jnp.zeros((batch, self.most, self.size)), jnp.zeros(batch, jnp.int32))

    def after(self, memory: Seen, embedding: Array, observation: PyTree) -> Seen:
        nowhere = jnp.zeros(memory.length.shape, bool)
        return self._write(memory, embedding, nowhere, ~nowhere)

    def novelty(self, memory: Seen, embedding: Array, observation: PyTree) -> Array:
        distances = squared_distances(embedding[None], memory.embedding)[0]
        return self._nearest(jnp.where(self._age(memory) < memory.length[:, None], distances, jnp.inf))

    def step(self, memory: Seen, embedding: Array, observation: PyTree, is_first: Array) -> Seen:
        return self._write(memory, embedding, is_first, jnp.ones_like(is_first))

    def walk(self, memory: Seen, embedding: Array, sequence: Sequence) -> tuple[Seen, Array]:
        """All transitions at once: each against what was remembered before, and against the sequence itself."""
        now, then, is_first, is_there = embedding[:-1], embedding[1:], sequence.is_first[:-1], sequence.seen[1:]
        episode = jnp.cumsum(is_first, axis=0)  # [T-1, B], 0 for the one that was under way
        step = jnp.arange(len(now))
        age = self._age(memory)
        old = (age < memory.length[:, None]) & (age + step[:, None, None] + 1 < self.most) & (episode == 0)[..., None]
        behind = (step[:, None] - step)[:, None, :]  # [T-1, 1, T-1], of o_i behind o_t
        new = (behind >= 0) & (behind < self.most) & (episode[..., None] == episode.T)
        distances = [
            jnp.where(old, squared_distances(then, memory.embedding), jnp.inf),
            jnp.where(new, squared_distances(then, now.swapaxes(0, 1)), jnp.inf),
        ]
        nearest = self._nearest(jnp.concatenate(distances, axis=-1))

        def write(memory: Seen, inputs: tuple[Array, Array, Array]) -> tuple[Seen, None]:
            return self._write(memory, *inputs), None

        return jax.lax.scan(write, memory, (now, is_first, is_there))[0], nearest

    def _write(self, memory: Seen, embedding: Array, is_first: Array, is_there: Array) -> Seen:
        """With one observation more where one is there."""
        count = jnp.where(is_first, 0, memory.length)
        place = jnp.where(is_there, count % self.most, self.most)  # beyond the end: not written
        written = memory.embedding.at[jnp.arange(len(place)), place].set(embedding, mode="drop")
        return Seen(written, jnp.where(is_there, count + 1, memory.length))

    def _age(self, memory: Seen) -> Array:
        """[B, most] observations since then, of each place in the ring."""
        return (memory.length[:, None] - 1 - jnp.arange(self.most)) % self.most

    def _nearest(self, distances: Array) -> Array:
        return -jax.lax.top_k(-distances, self.neighbours)[0]


def squared_distances(one: Array, others: Array) -> Array:
    """[T, B, M] between [T, B, N] and [B, M, N]."""
    squares = jnp.sum(jnp.square(one), axis=-1)[..., None] + jnp.sum(jnp.square(others), axis=-1)
    products = jnp.einsum("tbn,bmn->tbm", one, others, precision="highest")  # a small difference of large numbers
    return jnp.maximum(squares - 2.0 * products, 0.0)
