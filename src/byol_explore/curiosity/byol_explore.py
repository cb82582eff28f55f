"""BYOL-Explore: multi-step prediction of bootstrapped latents (section 3.2). Read it beside the paper."""

from typing import NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.curiosity.base import Curiosity, CuriosityOutput, Materials
from byol_explore.networks.actions import ActionEmbedding
from byol_explore.networks.assembly import View
from byol_explore.networks.cores import CORES, Core, open_loop
from byol_explore.networks.layers import MLP, Linear
from byol_explore.ops import latent, moments, windows
from byol_explore.ops.batches import flat, timed
from byol_explore.types import Array, Encoder, PyTree, Sequence


class Windows(NamedTuple):
    """Predictions under way along a stream: b_{t-k,k} for k = 1..K-1, that all arrive at the coming o_t."""

    state: PyTree  # [K-1, B, ...] of the open-loop core
    is_open: Array  # [K-1, B] whether there was such a start in this episode


class Landings(NamedTuple):
    """Predictions [..., B], and what they land on. Those of one row differ in nothing but their environment."""

    before: Array  # [..., B, M] b_{t,k-1}
    action: Array  # [..., B, gates] a_{t+k-1} as the core reads it
    belief: Array  # [..., B, M] b_{t,k}
    target: Array  # [..., B, N] f_phi(o_{t+k})
    horizon: np.ndarray  # [...] k
    valid: Array  # [..., B] whether the prediction stays inside one episode


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

    def init(self, materials: Materials, encoder: Encoder, key: Array) -> PyTree:
        """Phi starts equal to theta; fixed targets (alpha = 1) are a random draw of their own."""
        return materials.make_encoder(key) if self.target_decay == 1.0 else jax.tree.map(jnp.copy, encoder)

    def after(self, state: PyTree, encoder: Encoder, sequence: Sequence) -> PyTree:
        """Phi <- alpha phi + (1 - alpha) theta (section 3.2 ii)."""
        return state if self.target_decay == 1.0 else latent.ema(state, encoder, self.target_decay)

    def target(self, state: PyTree) -> Encoder:
        return state

    def __call__(self, state: PyTree, view: View, sequence: Sequence) -> CuriosityOutput:
        landings, validity = self.land(state, view, sequence)
        compared, parts = self.compare(state, landings)
        losses = _by_start(compared, self.horizon, sequence.valid.shape[0])  # [S, B, K]
        start_loss, start_valid = jax.vmap(windows.mean_over_horizon, 1, 1)(losses, validity)
        uncertainty = jax.vmap(windows.sum_over_landings, 1, 1)(jax.lax.stop_gradient(losses), validity)
        by_horizon = jax.vmap(moments.masked_mean, (2, 2))(losses, validity)
        means = {name: moments.masked_mean(part, landings.valid) for name, part in parts.items()}
        return CuriosityOutput(
            loss=moments.masked_mean(start_loss, start_valid),
            uncertainty=uncertainty,
            metrics={"prediction_error": by_horizon, **means},
        )

    def compare(self, state: PyTree, landings: Landings) -> tuple[Array, dict[str, Array]]:
        """The loss of every prediction [..., B] (section 3.2 iii), and parts of it that are worth a line in a log."""
        return latent.cosine_distance(self.predictor(landings.belief), landings.target), {}

    def opened(self, batch: int) -> Windows:
        """No prediction is under way."""
        lead = (self.horizon - 1, batch)
        return Windows(self.core.initial_state(lead), jnp.zeros(lead, bool))

    def follow(self, state: PyTree, carry: Windows, view: View, sequence: Sequence) -> tuple[Windows, Array]:
        """l_t one transition at a time: what lands on o_{t+1} was all predicted by o_t and a_t (section 3.2 iv)."""
        projected = self.action(sequence.action, None, self.project_action)

        def step(windows: Windows, inputs: PyTree) -> tuple[Windows, tuple[Array, Array, Array]]:
            start, projected_t, begins, is_filling = inputs
            before = jax.tree.map(lambda s, w: jnp.concatenate([s[None], w]), start, windows.state)
            is_open = jnp.concatenate([jnp.ones_like(begins)[None], windows.is_open & ~begins])
            states = self.core.step(before, jnp.broadcast_to(projected_t, (self.horizon, *projected_t.shape)))
            after = Windows(jax.tree.map(lambda x: x[:-1], states), is_open[:-1])
            return _where(is_filling, windows, after), (self.core.belief(before), self.core.belief(states), is_open)

        starts = jax.tree.map(lambda x: x[:-1], view.state)
        inputs = (starts, projected, sequence.is_first[:-1], ~sequence.seen[1:])
        carry, (before, beliefs, is_open) = jax.lax.scan(step, carry, inputs)  # [S, K, B, ...]
        targets = encode(self.target(state), jax.tree.map(lambda x: x[1:], sequence.observation))
        projected, targets = (
            jnp.broadcast_to(x[:, None], (*beliefs.shape[:3], x.shape[-1])) for x in (projected, targets)
        )
        horizon = np.broadcast_to(np.arange(1, self.horizon + 1), beliefs.shape[:2])
        landed = is_open & sequence.valid[:, None]
        losses, _ = self.compare(state, Landings(before, projected, beliefs, targets, horizon, landed))
        return carry, jnp.sum(jnp.where(landed, losses, 0.0), axis=1)

    def land(self, state: PyTree, view: View, sequence: Sequence) -> tuple[Landings, Array]:
        """Predictions of every start and horizon that stay in the sequence, rows [rows, B]; which are valid [S, B, K].

        Rows are those of k = 1 in the order of their starts, then those of k = 2, and so on.
        """
        starts, ahead = sequence.valid.shape[0], range(1, self.horizon + 1)
        states = jax.tree.map(lambda x: x[:-1], view.state)
        projected = self.action(sequence.action, None, self.project_action)
        beliefs = open_loop(self.core, projected, states, self.horizon)  # b_{t,k} (section 3.2 i)
        before = [self.core.belief(states), *(belief[:-1] for belief in beliefs[:-1])]
        targets = encode(self.target(state), sequence.observation)
        validity = jax.vmap(windows.window_validity, (1, None), 1)(sequence.is_first, self.horizon)
        landings = Landings(
            before=jnp.concatenate(before),
            action=jnp.concatenate([projected[k - 1 :] for k in ahead]),
            belief=jnp.concatenate(beliefs),
            target=jnp.concatenate([targets[k:] for k in ahead]),
            horizon=np.concatenate([np.full(max(starts - k + 1, 0), k) for k in ahead]),
            valid=jnp.concatenate([validity[: max(starts - k + 1, 0), :, k - 1] for k in ahead]),
        )
        return landings, validity


def _by_start(losses: Array, horizon: int, starts: int) -> Array:
    """loss(t, k) [S, B, K] of rows [rows, B]; zero where the window leaves the sequence."""
    ends = [sum(max(starts - j, 0) for j in range(k)) for k in range(1, horizon)]
    padded = [jnp.pad(loss, ((0, starts - loss.shape[0]), (0, 0))) for loss in jnp.split(losses, ends)]
    return jnp.stack(padded, axis=-1)


def encode(encoder: Encoder, observation: PyTree) -> Array:
    """Embeddings [T, B, N] of all observations in one call, out of gradients' reach."""
    steps = jax.tree.leaves(observation)[0].shape[0]
    return jax.lax.stop_gradient(timed(encoder(jax.tree.map(flat, observation)), steps))


def _where(mask: Array, one: Windows, other: Windows) -> Windows:
    """The windows of one where the mask [B] is True, of the other elsewhere."""
    return jax.tree.map(lambda x, y: jnp.where(mask.reshape(1, -1, *[1] * (x.ndim - 2)), x, y), one, other)
