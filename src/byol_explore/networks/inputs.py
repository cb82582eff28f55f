"""What the closed-loop core reads besides the embedding: previous action and reward, and other senses."""

from typing import Protocol, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from byol_explore.envs.base import ActionSpec
from byol_explore.networks.actions import ActionEmbedding
from byol_explore.networks.cores import LSTM, LSTMState
from byol_explore.networks.layers import Linear, truncated_normal
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

    def __init__(self, size: int, gates: int, spec: ActionSpec, key: Array, *, action_size: int, bins: int) -> None:
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


class Instruction(eqx.Module):
    """Words, 20 numbers each, read by an LSTM of 64; word 0 is padding and leaves the state as it is."""

    words: Float[Array, "vocabulary width"]
    project: Linear
    core: LSTM

    def __init__(self, vocabulary: int, key: Array, *, width: int = 20, size: int = 64) -> None:
        words, project, core = jax.random.split(key, 3)
        self.words = truncated_normal(words, (vocabulary, width), 1)
        self.project = Linear(width, 4 * size, project)
        self.core = LSTM(size, core)

    def __call__(self, text: Int[Array, "*batch length"]) -> Float[Array, "*batch size"]:
        flat = text.reshape(-1, text.shape[-1])

        def read(state: LSTMState, inputs: tuple[Array, Array]) -> tuple[LSTMState, None]:
            projected, word = inputs
            after = self.core.step(state, projected)
            return jax.tree.map(lambda a, s: jnp.where(word[:, None] == 0, s, a), after, state), None

        projected = jnp.moveaxis(self.project(self.words[flat]), 1, 0)
        state, _ = jax.lax.scan(read, self.core.initial_state(flat.shape[:1]), (projected, flat.T))
        return state.hidden.reshape(*text.shape[:-1], -1)


HARD_EIGHT_ENTRIES = frozenset({"rgb", "hand_force", "hand_is_holding", "hand_distance", "instruction"})


class HardEightInputs(eqx.Module):
    """Hand force, holding, hand distance and last action (20 numbers each, ReLU), the squashed previous reward
    and the instruction, concatenated with the embedding and projected to 512 (appendix A.2).
    """

    force: Linear
    holding: Linear
    distance: Linear
    action: ActionEmbedding
    project_action: Linear
    instruction: Instruction
    mix: Linear
    project: Linear

    def __init__(
        self, size: int, gates: int, spec: ActionSpec, key: Array, *,
        action_size: int, bins: int, vocabulary: int = 256, width: int = 512, sense: int = 20,
    ) -> None:  # fmt: skip
        keys = jax.random.split(key, 8)
        self.force, self.holding, self.distance = (Linear(1, sense, k) for k in keys[:3])
        self.action = ActionEmbedding(spec, action_size, keys[3], bins=bins)
        self.project_action = Linear(action_size, sense, keys[4])
        self.instruction = Instruction(vocabulary, keys[5])
        self.mix = Linear(size + 4 * sense + 1 + self.instruction.core.size, width, keys[6])
        self.project = Linear(width, gates, keys[7])

    def __call__(
        self,
        embedding: Float[Array, "*batch N"],
        observation: dict[str, Array],
        action: Action,
        reward: Float[Array, "*batch"],
        is_first: Bool[Array, "*batch"],
    ) -> Float[Array, "*batch gates"]:
        def sense(layer: Linear, name: str) -> Array:
            return jax.nn.relu(layer(observation[name].astype(jnp.float32)[..., None]))

        previous_reward = jnp.where(is_first, 0.0, signed_hyperbolic(reward))
        parts = [
            embedding,
            sense(self.force, "hand_force"),
            sense(self.holding, "hand_is_holding"),
            sense(self.distance, "hand_distance"),
            jax.nn.relu(self.action(action, is_first, self.project_action)),
            previous_reward[..., None],
            self.instruction(observation["instruction"]),
        ]
        return self.project(self.mix(jnp.concatenate(parts, axis=-1)))

    def for_deviation(self, deviation: float) -> Self:
        """With smaller weights for the embedding, which comes first."""
        senses = (self.force, self.holding, self.distance, self.project_action)
        others = sum(layer.weight.shape[1] for layer in senses) + 1 + self.instruction.core.size
        weight = self.mix.weight.at[:-others].divide(deviation)
        return eqx.tree_at(lambda inputs: inputs.mix.weight, self, weight)
