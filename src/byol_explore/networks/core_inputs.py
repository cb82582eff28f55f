"""Action embedding, and the projection of everything that the closed-loop core reads at o_t."""

from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from byol_explore.config.sections import NetworkConfig
from byol_explore.errors import UserError
from byol_explore.networks.encoders import core_input_entries
from byol_explore.networks.layers import Linear, truncated_normal
from byol_explore.networks.paper_encoders import InstructionEncoder
from byol_explore.spaces import ActionSpec, ArraySpace, HasSpaces, Tokens
from byol_explore.types import Action, PyTree


class ActionEmbedding(eqx.Module):
    """Learned embedding of a hybrid action, with a separate vector for "no previous action" at an episode start.

    Each discrete component and each binned continuous dimension has a table. The embedding is the sum of their rows,
    which equals a linear layer on the concatenated one-hot vectors.

    Args:
      spec: action space with D discrete components and C continuous dimensions.
      size: length of the embedding.
      bins: number of bins per continuous dimension, one for all of them or one for each.
    """

    tables: Float[Array, "rows size"]
    no_action: Float[Array, " size"]
    spec: ActionSpec = eqx.field(static=True)
    bins: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, spec: ActionSpec, size: int, key: Array, *, bins: int | tuple[int, ...] = 9) -> None:
        bins = action_bins(spec, bins)
        rows = sum(spec.discrete) + sum(bins)
        components = len(spec.discrete) + spec.continuous
        table_key, no_action_key = jax.random.split(key)
        self.tables = truncated_normal(table_key, (rows, size), max(components, 1))
        self.no_action = truncated_normal(no_action_key, (size,), 1)
        self.spec, self.bins = spec, bins

    @property
    def size(self) -> int:
        """Length of the embedding."""
        return self.no_action.shape[0]

    def one_hots(self, action: Action) -> Float[Array, "*batch rows"]:
        """Concatenate the one-hot vectors of all components of an action."""
        parts = [jax.nn.one_hot(action.discrete[..., i], n) for i, n in enumerate(self.spec.discrete)]
        for dimension, bins in enumerate(self.bins):
            unit = jnp.clip((action.continuous[..., dimension] + 1.0) / 2.0, 0.0, 1.0)
            parts.append(jax.nn.one_hot(jnp.minimum((unit * bins).astype(jnp.int32), bins - 1), bins))
        return jnp.concatenate(parts, axis=-1)

    def __call__(
        self, action: Action, is_first: Bool[Array, "*batch"] | None, layer: Linear
    ) -> Float[Array, "*batch outputs"]:
        """Embed actions and apply a linear layer to the embedding.

        Args:
          action: discrete [..., D] and continuous [..., C].
          is_first: [...] True where no action precedes the observation; None if an action always does.
          layer: linear layer from `size` to `outputs`.
        Returns:
          [..., outputs].
        """
        # The layer is applied to the few rows of the tables, not to the whole batch.
        tables = jnp.concatenate([self.tables, self.no_action[None]]) @ layer.weight
        one_hots = self.one_hots(action)
        no_action = jnp.zeros(one_hots.shape[:-1]) if is_first is None else is_first.astype(one_hots.dtype)
        rows = jnp.concatenate([one_hots * (1.0 - no_action)[..., None], no_action[..., None]], axis=-1)
        outputs = rows @ tables
        return outputs if layer.bias is None else outputs + layer.bias


def action_bins(spec: ActionSpec, bins: int | tuple[int, ...]) -> tuple[int, ...]:
    """Return one number of bins per continuous dimension. Raise UserError if there are too few or too many."""
    if isinstance(bins, int) or not spec.continuous:
        return (bins,) * spec.continuous if isinstance(bins, int) else ()
    if len(bins) != spec.continuous:
        raise UserError(
            f"network.action_bins has {len(bins)} numbers, {bins}, but actions have {spec.continuous} continuous "
            "dimensions: it must be one number for all of them, or one for each"
        )
    return bins


def signed_hyperbolic(x: Float[Array, "*n"], epsilon: float = 1e-3) -> Float[Array, "*n"]:
    """Compress large rewards: sign(x) (sqrt(|x| + 1) - 1) + epsilon x."""
    return jnp.sign(x) * (jnp.sqrt(jnp.abs(x) + 1.0) - 1.0) + epsilon * x


class CoreInputs(eqx.Module):
    """Project everything known at o_t to the gates of the closed-loop core.

    Without extra inputs this is one linear layer on the embedding and the previous action, as in the paper's Atari
    network. Extra inputs are entries of the observation that only the core reads, and the squashed previous reward.
    With them, vectors and the action are embedded by a linear layer and ReLU, texts by an instruction encoder; all
    parts are concatenated and projected. With `core_mix_size` another linear layer comes before that projection,
    which is the paper's network for DM-HARD-8 (appendix A.2).

    Args:
      config: `core_inputs`, `core_input_size`, `core_mix_size`, `use_prev_reward`, `action_embedding_size` and
        `action_bins` are read.
      spec: observation and action space.
      size: N, length of f(o).
      gates: width of the core's projected input.
    """

    extra_inputs: dict[str, Linear | InstructionEncoder]
    action: ActionEmbedding
    project: Linear
    project_action: Linear
    mixer: Linear | None
    size: int = eqx.field(static=True)  # N
    has_extras: bool = eqx.field(static=True)
    use_prev_reward: bool = eqx.field(static=True)

    def __init__(self, config: NetworkConfig, spec: HasSpaces, size: int, gates: int, key: Array) -> None:
        entries = core_input_entries(config, spec)
        action_size, part_size, mix_size = config.action_embedding_size, config.core_input_size, config.core_mix_size
        self.size, self.use_prev_reward = size, config.use_prev_reward
        self.has_extras = bool(entries) or config.use_prev_reward or mix_size is not None
        action_key, *layer_keys = jax.random.split(key, 4 + len(entries))
        self.action = ActionEmbedding(spec.action, action_size, action_key, bins=config.action_bins)
        self.extra_inputs, self.mixer = {}, None
        if not self.has_extras:
            # One layer on the concatenation, stored as two: see `ActionEmbedding.__call__`.
            self.project = Linear(size, gates, layer_keys[0])
            self.project_action = Linear(action_size, gates, layer_keys[1], use_bias=False)
            return
        self.project_action = Linear(action_size, part_size, layer_keys[0])
        total = size + part_size + self.use_prev_reward
        for name, extra_key in zip(sorted(entries), layer_keys[3:], strict=True):
            part = self.extra_inputs[name] = _extra_input(entries[name], part_size, extra_key)
            total += part.size if isinstance(part, InstructionEncoder) else part_size
        self.mixer = None if mix_size is None else Linear(total, mix_size, layer_keys[1])
        self.project = Linear(mix_size or total, gates, layer_keys[2])

    def __call__(
        self,
        embedding: Float[Array, "*batch N"],
        observation: PyTree,
        action: Action,
        reward: Float[Array, "*batch"],
        is_first: Bool[Array, "*batch"],
    ) -> Float[Array, "*batch gates"]:
        """Project the inputs of one or many steps.

        Args:
          embedding: [..., N] f(o_t).
          observation: [..., *shape] o_t; only the entries of `extra_inputs` are read.
          action: a_{t-1}.
          reward: [...] r_{t-1}; read with `use_prev_reward` only.
          is_first: [...] True where o_t begins an episode: a_{t-1} and r_{t-1} are ignored there.
        Returns:
          [..., gates] input of the core's gates.
        """
        projected_action = self.action(action, is_first, self.project_action)
        if not self.has_extras:
            return self.project(embedding) + projected_action
        parts = [embedding, *(self._read_extra(name, observation[name]) for name in sorted(self.extra_inputs))]
        parts.append(jax.nn.relu(projected_action))
        if self.use_prev_reward:
            parts.append(jnp.where(is_first, 0.0, signed_hyperbolic(reward))[..., None])
        mixed = jnp.concatenate(parts, axis=-1)
        return self.project(mixed if self.mixer is None else self.mixer(mixed))

    def rescale_for_std(self, std: float) -> Self:
        """Divide the embedding's weights by `std`."""

        # Embeddings start `std` times larger; the core must see the same input.
        def first_layer(inputs: "CoreInputs") -> Array:
            return (inputs.project if inputs.mixer is None else inputs.mixer).weight

        return eqx.tree_at(first_layer, self, replace_fn=lambda weight: weight.at[: self.size].divide(std))

    def _read_extra(self, name: str, x: Array) -> Array:
        part = self.extra_inputs[name]
        return part(x) if isinstance(part, InstructionEncoder) else jax.nn.relu(part(x))


def _extra_input(space: ArraySpace, size: int, key: Array) -> Linear | InstructionEncoder:
    return InstructionEncoder(space.vocab_size, key) if isinstance(space, Tokens) else Linear(space.shape[0], size, key)
