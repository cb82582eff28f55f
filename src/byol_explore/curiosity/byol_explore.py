"""BYOL-Explore: multi-step prediction of bootstrapped latents (section 3.2). Read it beside the paper."""

from typing import NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp

from byol_explore.curiosity.base import Curiosity, CuriosityOutput, Materials
from byol_explore.networks.actions import ActionEmbedding
from byol_explore.networks.assembly import View
from byol_explore.networks.cores import CORES, Core, open_loop
from byol_explore.networks.layers import MLP, Linear
from byol_explore.ops import latent, moments, windows
from byol_explore.ops.batches import flat, timed
from byol_explore.types import Action, Array, Encoder, PyTree, Sequence


class Windows(NamedTuple):
    """Predictions under way along a stream: b_{t-k,k} for k = 1..K-1, that all arrive at the coming o_t."""

    state: PyTree  # [K-1, B, ...] of the open-loop core
    is_open: Array  # [K-1, B] whether there was such a start in this episode


class BYOLExplore(Curiosity):
    """Open-loop core h_o and predictor g; the encoder and the closed-loop core come with the view."""

    prioritizes = True
    has_target = True
    compares_directions = True
    reads = ("horizon", "target_decay", "share", "prioritize")

    core: Core
    action: ActionEmbedding
    project_action: Linear
    predictor: MLP
    horizon: int = eqx.field(static=True)
    target_decay: float = eqx.field(static=True)

    @classmethod
    def make(cls, materials: Materials, key: Array) -> Self:
        """Sizes are those of the network, horizon K and decay alpha those of the curiosity's settings."""
        network, settings = materials.network, materials.settings
        core_key, action, project, predictor = jax.random.split(key, 4)
        core = CORES[network.core](network.belief_size, core_key)
        return cls(
            core=core,
            action=ActionEmbedding(materials.action, network.action_size, action, bins=network.action_bins),
            project_action=Linear(network.action_size, core.gates, project),
            predictor=MLP(network.belief_size, network.predictor_hidden, materials.embedding_size, predictor),
            horizon=settings.horizon,
            target_decay=settings.target_decay,
        )

    def init(self, materials: Materials, encoder: Encoder, key: Array) -> Encoder:
        """Phi starts equal to theta; fixed targets (alpha = 1) are a random draw of their own."""
        return materials.make_encoder(key) if self.target_decay == 1.0 else jax.tree.map(jnp.copy, encoder)

    def after(self, state: Encoder, encoder: Encoder, sequence: Sequence) -> Encoder:
        """Phi <- alpha phi + (1 - alpha) theta (section 3.2 ii)."""
        return state if self.target_decay == 1.0 else latent.ema(state, encoder, self.target_decay)

    def target(self, state: Encoder) -> Encoder:
        return state

    def __call__(self, state: Encoder, view: View, sequence: Sequence) -> CuriosityOutput:
        losses = self.prediction_losses(state, view, sequence)  # [S, B, K]
        validity = jax.vmap(windows.window_validity, (1, None), 1)(sequence.is_first, self.horizon)
        start_loss, start_valid = jax.vmap(windows.mean_over_horizon, 1, 1)(losses, validity)
        uncertainty = jax.vmap(windows.sum_over_landings, 1, 1)(jax.lax.stop_gradient(losses), validity)
        by_horizon = jax.vmap(moments.masked_mean, (2, 2))(losses, validity)
        return CuriosityOutput(
            loss=moments.masked_mean(start_loss, start_valid),
            uncertainty=uncertainty,
            metrics={"prediction_error": by_horizon},
        )

    def opened(self, batch: int) -> Windows:
        """No prediction is under way."""
        lead = (self.horizon - 1, batch)
        return Windows(self.core.initial_state(lead), jnp.zeros(lead, bool))

    def follow(self, state: Encoder, carry: Windows, view: View, sequence: Sequence) -> tuple[Windows, Array]:
        """l_t one transition at a time: what lands on o_{t+1} was all predicted by o_t and a_t (section 3.2 iv)."""
        projected = self.action(sequence.action, None, self.project_action)

        def step(windows: Windows, inputs: PyTree) -> tuple[Windows, tuple[Array, Array]]:
            start, projected_t, begins, is_filling = inputs
            states = jax.tree.map(lambda s, w: jnp.concatenate([s[None], w]), start, windows.state)
            is_open = jnp.concatenate([jnp.ones_like(begins)[None], windows.is_open & ~begins])
            states = self.core.step(states, jnp.broadcast_to(projected_t, (self.horizon, *projected_t.shape)))
            after = Windows(jax.tree.map(lambda x: x[:-1], states), is_open[:-1])
            return _where(is_filling, windows, after), (self.core.belief(states), is_open)

        starts = jax.tree.map(lambda x: x[:-1], view.state)
        inputs = (starts, projected, sequence.is_first[:-1], ~sequence.seen[1:])
        carry, (beliefs, is_open) = jax.lax.scan(step, carry, inputs)  # [S, K, B, ...]
        targets = encode(state, jax.tree.map(lambda x: x[1:], sequence.observation))[:, None]
        predictions = self.predictor(beliefs)
        losses = latent.cosine_distance(predictions, jnp.broadcast_to(targets, predictions.shape))
        landed = is_open & sequence.valid[:, None]
        return carry, jnp.sum(jnp.where(landed, losses, 0.0), axis=1)

    def prediction_losses(self, target: Encoder, view: View, sequence: Sequence) -> Array:
        """loss(t, k) of every start and horizon, [S, B, K]; zero where the window leaves the sequence."""
        starts = sequence.is_first.shape[0] - 1
        beliefs = self.simulate(jax.tree.map(lambda x: x[:-1], view.state), sequence.action)
        predictions = self.predictor(jnp.concatenate(beliefs))
        targets = encode(target, sequence.observation)
        landed = jnp.concatenate([targets[k:] for k in range(1, self.horizon + 1)])
        losses = latent.cosine_distance(predictions, landed)
        ends = [sum(max(starts - j, 0) for j in range(k)) for k in range(1, self.horizon)]
        per_horizon = jnp.split(losses, ends)
        padded = [jnp.pad(loss, ((0, starts - loss.shape[0]), (0, 0))) for loss in per_horizon]
        return jnp.stack(padded, axis=-1)

    def simulate(self, state: PyTree, action: Action) -> list[Array]:
        """b_{t,k} for k = 1..K from every start (section 3.2 i)."""
        projected = self.action(action, None, self.project_action)
        return open_loop(self.core, projected, state, self.horizon)


def encode(encoder: Encoder, observation: PyTree) -> Array:
    """Embeddings [T, B, N] of all observations in one call, out of gradients' reach."""
    steps = jax.tree.leaves(observation)[0].shape[0]
    return jax.lax.stop_gradient(timed(encoder(jax.tree.map(flat, observation)), steps))


def _where(mask: Array, one: Windows, other: Windows) -> Windows:
    """The windows of one where the mask [B] is True, of the other elsewhere."""
    return jax.tree.map(lambda x, y: jnp.where(mask.reshape(1, -1, *[1] * (x.ndim - 2)), x, y), one, other)
