"""BYOL-Explore: multi-step prediction of bootstrapped latents (section 3.2 of the paper; read it beside this file).

    (i)   b_t = h_c(b_{t-1}, a_{t-1}, f(o_t))              closed loop, in `networks/representation.py`
          b_{t,0} = b_t,  b_{t,k} = h_o(b_{t,k-1}, a_{t+k-1})        open loop;  g(b_{t,k}) predicts
    (ii)  f_phi(o_{t+k}),  phi <- alpha phi + (1 - alpha) theta      targets
    (iii) loss(t,k) = |g(b_{t,k}) / |g(b_{t,k})| - sg(f_phi(o_{t+k}) / |f_phi(o_{t+k})|)|^2
          L = mean over t of 1 / K(t) sum over k = 1 ... K(t) of loss(t,k),   K(t) = min(K, T - 1 - t)
    (iv)  l_t = sum over p + q = t + 1 of loss(p,q)                  uncertainty of (o_t, a_t, o_{t+1})

A prediction (t, k) that crosses an episode boundary between o_t and o_{t+k} is masked, and K(t) does not count it.
"""

from typing import NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.curiosity.method import BuildContext, IntrinsicMethod, MethodOutput
from byol_explore.networks.core_inputs import ActionEmbedding
from byol_explore.networks.cores import CORES, Core, open_loop
from byol_explore.networks.layers import MLP, Linear
from byol_explore.networks.representation import RepresentationOutput
from byol_explore.ops import arrays, world_model
from byol_explore.ops.arrays import merge_time_batch, split_time_batch, where_batch
from byol_explore.types import Array, Encoder, PyTree, SequenceBatch


class PendingPredictions(NamedTuple):
    """Open-loop states b_{t-k,k}, k = 1 ... K-1, from which the next observation o_{t+1} will be predicted."""

    core_state: PyTree  # [K-1, B, ...] of the open-loop core
    is_open: Array  # [K-1, B] False if the episode had not begun at t - k


class Predictions(NamedTuple):
    """Predictions and their targets. All predictions of one row have the same t and k."""

    prev_belief: Array  # [..., B, M] b_{t,k-1}
    action: Array  # [..., B, gates] a_{t+k-1}, projected to the gates of the open-loop core
    belief: Array  # [..., B, M] b_{t,k}
    target: Array  # [..., B, N] f_phi(o_{t+k})
    horizon: np.ndarray  # [...] k
    valid: Array  # [..., B] o_t to o_{t+k} lie inside one episode


class BYOLExplore(IntrinsicMethod):
    """Open-loop core h_o and predictor g. The encoder f and the closed-loop core h_c belong to the representation."""

    prioritized_by_default = True
    has_target_encoder = has_ema_target = True
    scale_invariant_loss = True
    config_fields = ("horizon", "target_decay", "share_representation", "prioritize")

    core: Core  # h_o
    action: ActionEmbedding
    project_action: Linear
    predictor: MLP  # g
    horizon: int = eqx.field(static=True)  # K
    target_decay: float = eqx.field(static=True)  # alpha

    @classmethod
    def create(cls, context: BuildContext, key: Array) -> Self:
        network = context.network
        core_key, action, project, predictor = jax.random.split(key, 4)
        core = CORES[network.core](network.belief_size, core_key)
        return cls(
            core=core,
            action=ActionEmbedding(context.action, network.action_embedding_size, action, bins=network.action_bins),
            project_action=Linear(network.action_embedding_size, core.gate_size, project),
            predictor=MLP(network.belief_size, network.predictor_hidden, context.embedding_size, predictor),
            horizon=context.config.horizon,
            target_decay=context.config.target_decay,
        )

    def __call__(self, state: PyTree, view: RepresentationOutput, sequence: SequenceBatch) -> MethodOutput:
        predictions, valid = self.predict_all(state, view, sequence)
        row_losses, parts = self.prediction_loss(state, predictions)
        losses = _by_start(row_losses, self.horizon, sequence.valid.shape[0])  # [S, B, K] loss(t,k)
        # A start without a valid prediction has no loss, so it must not count in the mean over starts.
        start_loss, has_prediction = jax.vmap(world_model.mean_over_horizon, 1, 1)(losses, valid)
        # l_t is the paper's sum, not a mean. The first K - 1 transitions of an episode or a sequence have fewer terms,
        # so their rewards are smaller; the very first one has a single term.
        uncertainty = jax.vmap(world_model.transition_uncertainty, 1, 1)(jax.lax.stop_gradient(losses), valid)
        by_horizon = jax.vmap(arrays.masked_mean, (2, 2))(losses, valid)
        means = {name: arrays.masked_mean(part, predictions.valid) for name, part in parts.items()}
        return MethodOutput(
            loss=arrays.masked_mean(start_loss, has_prediction),
            uncertainty=uncertainty,
            metrics={"prediction_error": by_horizon, **means},
        )

    def predict_all(
        self, state: PyTree, view: RepresentationOutput, sequence: SequenceBatch
    ) -> tuple[Predictions, Array]:
        """Predict from every start, at every horizon that stays in the sequence (section 3.2 i).

        Args:
          state: target encoder.
          view: closed-loop states [T, B, ...].
          sequence: observations [T, B, ...] and actions [T-1, B, ...].
        Returns:
          Predictions [rows, B]: the rows of k = 1 in the order of their starts, then those of k = 2, and so on; and
          the mask [S, B, K] of the valid ones by start and horizon.
        """
        starts, horizons = sequence.valid.shape[0], range(1, self.horizon + 1)
        states = jax.tree.map(lambda x: x[:-1], view.core_state)  # o_{T-1} starts no prediction
        projected = self.action(sequence.action, None, self.project_action)
        beliefs = open_loop(self.core, projected, states, self.horizon)  # K arrays b_{t,k} [S - k + 1, B, M]
        prev_beliefs = [self.core.belief(states), *(belief[:-1] for belief in beliefs[:-1])]
        targets = encode_sequence(self.target_encoder(state), sequence.observation)
        valid = jax.vmap(world_model.prediction_mask, (1, None), 1)(sequence.is_first, self.horizon)
        # Predictions that leave the sequence are never computed: rows of longer horizons are fewer, so all horizons are
        # concatenated along one axis. Padding them to [S, K] instead would compute up to twice as many predictions.
        predictions = Predictions(
            prev_belief=jnp.concatenate(prev_beliefs),
            action=jnp.concatenate([projected[k - 1 :] for k in horizons]),
            belief=jnp.concatenate(beliefs),
            target=jnp.concatenate([targets[k:] for k in horizons]),
            horizon=np.concatenate([np.full(max(starts - k + 1, 0), k) for k in horizons]),
            valid=jnp.concatenate([valid[: max(starts - k + 1, 0), :, k - 1] for k in horizons]),
        )
        return predictions, valid

    def init_state(self, context: BuildContext, encoder: Encoder, key: Array) -> PyTree:
        """Return the target encoder: phi = theta. Fixed targets (alpha = 1) have random weights of their own."""
        return context.make_encoder(key) if self.target_decay == 1.0 else jax.tree.map(jnp.copy, encoder)

    def update_state(self, state: PyTree, encoder: Encoder, sequence: SequenceBatch) -> PyTree:
        """Update the targets: phi <- alpha phi + (1 - alpha) theta (section 3.2 ii)."""
        return state if self.target_decay == 1.0 else world_model.ema(state, encoder, self.target_decay)

    def prediction_loss(self, state: PyTree, predictions: Predictions) -> tuple[Array, dict[str, Array]]:
        """Compute the loss of every prediction (section 3.2 iii).

        Args:
          state: target encoder.
          predictions: [..., B].
        Returns:
          Losses [..., B], and parts of them [..., B] by the name of their metric.
        """
        return world_model.cosine_distance(self.predictor(predictions.belief), predictions.target), {}

    def init_carry(self, batch: int) -> PendingPredictions:
        lead = (self.horizon - 1, batch)
        return PendingPredictions(self.core.initial_state(lead), jnp.zeros(lead, bool))

    def stream_uncertainty(
        self, state: PyTree, carry: PendingPredictions, view: RepresentationOutput, sequence: SequenceBatch
    ) -> tuple[PendingPredictions, Array]:
        # Compute l_t one transition at a time (section 3.2 iv). All predictions that land on o_{t+1} read the same
        # action a_t, so one step of the open-loop core advances all K of them.
        projected = self.action(sequence.action, None, self.project_action)

        def step(carry: PendingPredictions, inputs: PyTree) -> tuple[PendingPredictions, tuple[Array, Array, Array]]:
            start, projected_t, is_first, is_padding = inputs
            before = jax.tree.map(lambda s, w: jnp.concatenate([s[None], w]), start, carry.core_state)  # [K, B, ...]
            is_open = jnp.concatenate([jnp.ones_like(is_first)[None], carry.is_open & ~is_first])
            after = self.core.step(before, jnp.broadcast_to(projected_t, (self.horizon, *projected_t.shape)))
            pending = PendingPredictions(jax.tree.map(lambda x: x[:-1], after), is_open[:-1])
            outputs = self.core.belief(before), self.core.belief(after), is_open
            return where_batch(is_padding, carry, pending, axis=1), outputs

        starts = jax.tree.map(lambda x: x[:-1], view.core_state)
        inputs = (starts, projected, sequence.is_first[:-1], ~sequence.observed[1:])
        carry, (prev_beliefs, beliefs, is_open) = jax.lax.scan(step, carry, inputs)  # [S, K, B, ...]
        targets = encode_sequence(self.target_encoder(state), jax.tree.map(lambda x: x[1:], sequence.observation))
        projected, targets = (
            jnp.broadcast_to(x[:, None], (*beliefs.shape[:3], x.shape[-1])) for x in (projected, targets)
        )
        horizon = np.broadcast_to(np.arange(1, self.horizon + 1), beliefs.shape[:2])
        valid = is_open & sequence.valid[:, None]
        predictions = Predictions(prev_beliefs, projected, beliefs, targets, horizon, valid)
        losses, _ = self.prediction_loss(state, predictions)
        return carry, jnp.sum(jnp.where(valid, losses, 0.0), axis=1)


def _by_start(losses: Array, horizon: int, starts: int) -> Array:
    """Return loss(t,k) [S, B, K] from rows [rows, B] in the order of `predict_all`; 0 outside the sequence."""
    ends = [sum(max(starts - j, 0) for j in range(k)) for k in range(1, horizon)]
    padded = [jnp.pad(loss, ((0, starts - loss.shape[0]), (0, 0))) for loss in jnp.split(losses, ends)]
    return jnp.stack(padded, axis=-1)


def encode_sequence(encoder: Encoder, observation: PyTree) -> Array:
    """Encode observations [T, B, ...] in one call. Returns embeddings [T, B, N] without gradient."""
    # One large batch: a convolution inside a scan is many times slower on CPU.
    steps = jax.tree.leaves(observation)[0].shape[0]
    return jax.lax.stop_gradient(split_time_batch(encoder(jax.tree.map(merge_time_batch, observation)), steps))
