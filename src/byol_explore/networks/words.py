"""Texts, read word by word.

An instruction stays the same for a whole episode, and often for all environments, so that a batch of hundreds of
observations has a few texts. Each is read once, and what was read is handed to every observation that has it: with its
gradient, reading took two fifths of a learner step of the preset hard-eight-small before.
"""

from collections.abc import Callable
from typing import NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from byol_explore.networks.cores import LSTM, LSTMState
from byol_explore.networks.encoders import ObservationEncoder
from byol_explore.networks.layers import Linear, truncated_normal
from byol_explore.settings.parts import NetworkConfig
from byol_explore.spaces import Tokens

FEW = 32  # texts that are looked for in a batch; one with more is read text by text


class Distinct(NamedTuple):
    """The different rows of an array, each once."""

    rows: Int[Array, "few length"]  # in the order of their words; zeros where there are fewer
    which: Int[Array, " n"]  # of them each row is, where `number` is at most few
    number: Int[Array, ""]  # of different rows


def distinct(rows: Int[Array, "n length"], few: int) -> Distinct:
    """Up to `few` different rows, found by sorting: equal ones are neighbours then."""
    order = jnp.lexsort(rows.T[::-1])
    in_order = rows[order]
    is_new = jnp.any(in_order[1:] != in_order[:-1], axis=1)
    rank = jnp.concatenate([jnp.zeros((1,), jnp.int32), jnp.cumsum(is_new, dtype=jnp.int32)])
    return Distinct(
        rows=jnp.zeros((few, rows.shape[1]), rows.dtype).at[rank].set(in_order, mode="drop"),
        which=jnp.zeros_like(rank).at[order].set(rank),
        number=rank[-1] + 1,
    )


def read_each_once(
    read: Callable[[Array], Array], texts: Int[Array, "n length"], few: int = FEW
) -> Float[Array, "n size"]:
    """`read(texts)`, computed from the different ones alone where there are few.

    The gradient reads again: a branch that is not taken would fill all that its own gradient needs with zeros.
    """
    if texts.shape[0] <= few:
        return read(texts)
    found = distinct(texts, few)
    again = jax.checkpoint(lambda rows: read(rows), prevent_cse=False)
    return jax.lax.cond(found.number <= few, lambda: again(found.rows)[found.which], lambda: again(texts))


class WordReader(eqx.Module):
    """Words, 20 numbers each, read by an LSTM of 64 (appendix A.2); word 0 is padding and leaves the state as it is."""

    words: Float[Array, "vocabulary width"]
    project: Linear
    core: LSTM

    def __init__(self, vocabulary: int, key: Array, *, width: int = 20, size: int = 64) -> None:
        words, project, core = jax.random.split(key, 3)
        self.words = truncated_normal(words, (vocabulary, width), 1)
        self.project = Linear(width, 4 * size, project)
        self.core = LSTM(size, core)

    @property
    def size(self) -> int:
        return self.core.size

    def __call__(self, text: Int[Array, "*batch length"]) -> Float[Array, "*batch size"]:
        hidden = read_each_once(self._read, text.reshape(-1, text.shape[-1]))
        return hidden.reshape(*text.shape[:-1], -1)

    def _read(self, texts: Int[Array, "n length"]) -> Float[Array, "n size"]:
        def read(state: LSTMState, inputs: tuple[Array, Array]) -> tuple[LSTMState, None]:
            projected, word = inputs
            after = self.core.step(state, projected)
            return jax.tree.map(lambda a, s: jnp.where(word[:, None] == 0, s, a), after, state), None

        projected = jnp.moveaxis(self.project(self.words[texts]), 1, 0)
        state, _ = jax.lax.scan(read, self.core.initial_state(texts.shape[:1]), (projected, texts.T))
        return state.hidden

    def centered(self, text: Int[Array, "*batch length"]) -> Self:
        """As it is: what all texts share is taken off by the layer behind, not inside the recurrence."""
        return self


class TokensEncoder(ObservationEncoder):
    """For texts: a reader, then linear to N."""

    reads = (Tokens,)

    reader: WordReader
    linear: Linear

    def __init__(self, vocabulary: int, size: int, key: Array) -> None:
        reader, linear = jax.random.split(key)
        self.reader = WordReader(vocabulary, reader)
        self.linear = Linear(self.reader.size, size, linear)

    @classmethod
    def make(cls, spec: Tokens, network: NetworkConfig, size: int, key: Array) -> Self:
        return cls(spec.vocabulary, size, key)

    def __call__(self, observation: Int[Array, "n length"]) -> Float[Array, "n N"]:
        return self.linear(self.reader(observation))
