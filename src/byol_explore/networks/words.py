"""Texts, read word by word."""

from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from byol_explore.networks.cores import LSTM, LSTMState
from byol_explore.networks.encoders import ObservationEncoder
from byol_explore.networks.layers import Linear, truncated_normal
from byol_explore.settings.parts import NetworkConfig
from byol_explore.spaces import Tokens


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
        flat = text.reshape(-1, text.shape[-1])

        def read(state: LSTMState, inputs: tuple[Array, Array]) -> tuple[LSTMState, None]:
            projected, word = inputs
            after = self.core.step(state, projected)
            return jax.tree.map(lambda a, s: jnp.where(word[:, None] == 0, s, a), after, state), None

        projected = jnp.moveaxis(self.project(self.words[flat]), 1, 0)
        state, _ = jax.lax.scan(read, self.core.initial_state(flat.shape[:1]), (projected, flat.T))
        return state.hidden.reshape(*text.shape[:-1], -1)

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
