"""What the closed-loop core reads besides the embedding: previous action and reward, and other senses."""

from collections.abc import Mapping
from typing import Protocol, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from byol_explore.networks.actions import ActionEmbedding
from byol_explore.networks.layers import Linear
from byol_explore.networks.words import WordReader
from byol_explore.spaces import ActionSpec, Kind, Tokens
from byol_explore.types import Action, PyTree


class Inputs(Protocol):
    """Everything known at o_t, projected to the core's gates. Leading axes are arbitrary."""

    def __call__(
        self, embedding: Array, observation: PyTree, action: Action, reward: Array, is_first: Array
    ) -> Array: ...
    def for_deviation(self, deviation: float) -> Self:
        """The inputs that make of embeddings so many times as long what these make of embeddings as they are."""
        ...


class ActionInputs(eqx.Module):
    """Embedding and previous action, as in the paper's Atari network."""

    action: ActionEmbedding
    project_embedding: Linear
    project_action: Linear

    def __init__(
        self, size: int, gates: int, spec: ActionSpec, key: Array, *, action_size: int, bins: int | tuple[int, ...]
    ) -> None:
        action, first, second = jax.random.split(key, 3)
        self.action = ActionEmbedding(spec, action_size, action, bins=bins)
        # One layer on the concatenation, held in two parts.
        self.project_embedding = Linear(size, gates, first)
        self.project_action = Linear(action_size, gates, second, use_bias=False)

    def __call__(
        self,
        embedding: Float[Array, "*batch N"],
        observation: PyTree,
        action: Action,
        reward: Float[Array, "*batch"],
        is_first: Bool[Array, "*batch"],
    ) -> Float[Array, "*batch gates"]:
        return self.project_embedding(embedding) + self.action(action, is_first, self.project_action)

    def for_deviation(self, deviation: float) -> Self:
        """With smaller weights for the embedding."""
        return eqx.tree_at(lambda inputs: inputs.project_embedding.weight, self, replace_fn=lambda x: x / deviation)


def signed_hyperbolic(x: Float[Array, "*n"], epsilon: float = 1e-3) -> Float[Array, "*n"]:
    """sign(x) (sqrt(|x| + 1) - 1) + epsilon x, which tames large rewards."""
    return jnp.sign(x) * (jnp.sqrt(jnp.abs(x) + 1.0) - 1.0) + epsilon * x


class SenseInputs(eqx.Module):
    """Embedding, other entries of the observation and previous action, and the squashed previous reward if asked for.

    Vectors and the action become a few numbers each (linear, ReLU), texts what a reader makes of them. All are
    concatenated, and projected once more if there is a mix size: with it this is the paper's network for DM-HARD-8
    (appendix A.2).
    """

    senses: dict[str, Linear | WordReader]
    action: ActionEmbedding
    project_action: Linear
    mix: Linear | None
    project: Linear
    size: int = eqx.field(static=True)  # N
    reads_reward: bool = eqx.field(static=True)

    def __init__(
        self, size: int, gates: int, spec: ActionSpec, key: Array, *, action_size: int, bins: int | tuple[int, ...],
        senses: Mapping[str, Kind], sense_size: int = 20, reads_reward: bool = False, mix_size: int | None = None,
    ) -> None:  # fmt: skip
        action, project_action, mix, project, *keys = jax.random.split(key, 4 + len(senses))
        self.senses = {}
        for name, k in zip(sorted(senses), keys, strict=True):
            kind = senses[name]
            of_words = isinstance(kind, Tokens)
            self.senses[name] = WordReader(kind.vocabulary, k) if of_words else Linear(kind.shape[0], sense_size, k)
        self.action = ActionEmbedding(spec, action_size, action, bins=bins)
        self.project_action = Linear(action_size, sense_size, project_action)
        sizes = [sense.size if isinstance(sense, WordReader) else sense_size for sense in self.senses.values()]
        total = size + sum(sizes) + sense_size + reads_reward
        self.mix = None if mix_size is None else Linear(total, mix_size, mix)
        self.project = Linear(total if mix_size is None else mix_size, gates, project)
        self.size, self.reads_reward = size, reads_reward

    def __call__(
        self,
        embedding: Float[Array, "*batch N"],
        observation: PyTree,
        action: Action,
        reward: Float[Array, "*batch"],
        is_first: Bool[Array, "*batch"],
    ) -> Float[Array, "*batch gates"]:
        def sense(name: str) -> Array:
            part = self.senses[name]
            return part(observation[name]) if isinstance(part, WordReader) else jax.nn.relu(part(observation[name]))

        parts = [embedding, *map(sense, sorted(self.senses))]
        parts.append(jax.nn.relu(self.action(action, is_first, self.project_action)))
        if self.reads_reward:
            parts.append(jnp.where(is_first, 0.0, signed_hyperbolic(reward))[..., None])
        mixed = jnp.concatenate(parts, axis=-1)
        return self.project(mixed if self.mix is None else self.mix(mixed))

    def for_deviation(self, deviation: float) -> Self:
        """With smaller weights for the embedding, which comes first."""

        def first(inputs: "SenseInputs") -> Array:
            return (inputs.project if inputs.mix is None else inputs.mix).weight

        return eqx.tree_at(first, self, replace_fn=lambda weight: weight.at[: self.size].divide(deviation))
