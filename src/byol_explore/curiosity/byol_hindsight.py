"""BYOL-Hindsight: BYOL-Explore for stochastic worlds (Jarrett et al., 2023).

A prediction from o_t over k steps is made from c = (b_{t,k-1}, a_{t+k-1}); its target is w = sg(f_phi(o_{t+k})). A
generator G encodes in z, in hindsight and from noise eps ~ N(0, I), the part of w that c does not predict. A
reconstructor R, in the predictor's place, predicts the rest from z and the belief:

    z = G(c, w, eps)            w^ = R(b_{t,k}, z)
    L_rec    = |w^ / |w^| - w / |w||^2
    L_inv(j) = g(c_j, z_j) - log mean_i exp g(c_j, z_i)            InfoNCE

z must not contain what c could predict. A bounded critic g measures how much of c it contains; its negatives z_i are
those of the other environments of the batch at the same (t, k). The critic maximises L_inv with z stopped. Generator
and reconstructor minimise L_rec + lambda L_inv with the critic frozen and no gradient of L_inv into c. The predictions
that land on an observation are summed, normalised and clipped as in BYOL-Explore:

    l_t = sum over p + q = t + 1 of (L_rec + lambda L_inv)(p, q)

Noise in w is encoded in z at no cost; a part that c predicts raises L_inv if z contains it. eps is drawn anew for every
learner step, and is the same for all starts of an environment, so that a sequence gets equal rewards whole and step by
step.

`BYOLHindsightPaper` is this method, for `curiosity.use_forecaster` off. Its world model minimises L_rec + lambda L_inv
too. Until the critic has learned, z contains all of w, the reconstructor reads nothing else, nothing keeps embeddings
apart, and they collapse. L_inv, which says little about novelty, then becomes most of the uncertainty.

`BYOLHindsight` therefore begins with a forecaster F of w from b_{t,k}. It has BYOL-Explore's own loss, which alone
trains the world model, and hindsight encodes only the error of F:

    z = eps + G(c, w)           w^ = sg(F(b_{t,k}) / |F(b_{t,k})|) + R(b_{t,k}, z)

G begins at 0, where z is pure noise, and pays kappa |G|^2 / 2 for its output, so it stays at 0 where it does not help.
It does not read eps: z given (c, w) is then N(G, I), and the mean of |G|^2 / 2 bounds the nats that z contains of c and
w, whatever the critic has found. (With eps it could remove noise for half a nat per number.)
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from byol_explore.curiosity.byol_explore import BYOLExplore, Predictions
from byol_explore.curiosity.method import BuildContext
from byol_explore.networks.layers import MLP
from byol_explore.ops import world_model
from byol_explore.types import Array, Encoder, SequenceBatch

MAX_LOGIT = 10.0  # of the critic: above log B of every batch that fits a machine


class HindsightState(NamedTuple):
    """Target encoder and noise of the coming learner step."""

    target: Encoder
    noise_seed: Array  # []


class InvarianceCritic(eqx.Module):
    """Score pairs by g(c, z) = bound * cos(u(c), v(z)). The bound prevents saturation of InfoNCE."""

    condition_net: MLP
    latent_net: MLP

    def __call__(self, condition: Array, z: Array) -> Array:
        """Score all pairs of c [..., B, M + gates] and z [..., B, size]. Returns g(c_j, z_i) [..., B, B] at [j, i]."""
        u, v = self.condition_net(condition), self.latent_net(z)
        return MAX_LOGIT * jnp.einsum("...jd,...id->...ji", world_model.l2_normalize(u), world_model.l2_normalize(v))


class BYOLHindsight(BYOLExplore):
    """BYOL-Explore whose predictor is the reconstructor, with a generator, a critic and a forecaster."""

    config_fields = (
        *BYOLExplore.config_fields, "invariance_weight", "hindsight_latent_size", "use_forecaster",
        "hindsight_latent_penalty",
    )  # fmt: skip
    uses_batch_negatives = True

    forecaster: MLP  # trains the world model
    generator: MLP
    critic: InvarianceCritic
    invariance: float = eqx.field(static=True)
    latent_penalty: float = eqx.field(static=True)  # kappa
    size: int = eqx.field(static=True)  # of z and eps

    @classmethod
    def create(cls, context: BuildContext, key: Array) -> "BYOLHindsight":
        """Build the method; `BYOLHindsightPaper` if the settings say so."""
        is_paper = not context.config.use_forecaster
        explore_key, *keys = jax.random.split(key, 5)  # BYOL-Explore's predictor is the forecaster
        base = BYOLExplore.create(context, explore_key)
        target, own = context.embedding_size, context.config.hindsight_latent_size
        size, hidden = target if own is None else own, context.network.predictor_hidden
        belief, condition = context.network.belief_size, context.network.belief_size + base.core.gate_size
        given = condition + target + (size if is_paper else 0)
        return (BYOLHindsightPaper if is_paper else BYOLHindsight)(
            core=base.core, action=base.action, project_action=base.project_action,
            predictor=MLP(belief + size, hidden, target, keys[0]),
            horizon=base.horizon, target_decay=base.target_decay,
            forecaster=None if is_paper else base.predictor,  # pyright: ignore[reportArgumentType]
            generator=MLP(given, hidden, size, keys[1], scale=1.0 if is_paper else 0.0),
            critic=InvarianceCritic(MLP(condition, hidden, size, keys[2]), MLP(size, hidden, size, keys[3])),
            invariance=context.config.invariance_weight, latent_penalty=context.config.hindsight_latent_penalty,
            size=size,
        )  # fmt: skip

    def init_state(self, context: BuildContext, encoder: Encoder, key: Array) -> HindsightState:
        """Return the target encoder, and the seed of the first noise."""
        return HindsightState(super().init_state(context, encoder, key), jax.random.randint(key, (), 0, 2**30))

    def update_state(self, state: HindsightState, encoder: Encoder, sequence: SequenceBatch) -> HindsightState:
        return HindsightState(super().update_state(state.target, encoder, sequence), state.noise_seed + 1)

    def target_encoder(self, state: HindsightState) -> Encoder:
        return state.target

    def prediction_loss(self, state: HindsightState, predictions: Predictions) -> tuple[Array, dict[str, Array]]:
        """Compute L_rec + lambda L_inv of each prediction. The terms that only train are added with value 0."""
        condition, belief = jax.lax.stop_gradient((_condition(predictions), predictions.belief))
        forecast = world_model.cosine_distance(self.forecaster(predictions.belief), predictions.target)
        noise = self.noise(state, predictions.valid.shape[-1])[predictions.horizon - 1]
        z = self.generate(condition, predictions.target, noise)
        known = jax.lax.stop_gradient(world_model.l2_normalize(self.forecaster(belief)))
        reconstruction = self.predictor(jnp.concatenate([belief, z], axis=-1)) + known
        error = world_model.cosine_distance(reconstruction, predictions.target)
        penalty = self.latent_penalty * jnp.sum(jnp.square(z - noise), axis=-1) / 2
        return self._sum_losses(error, condition, z, predictions.valid, forecast, penalty)

    def generate(self, condition: Array, target: Array, noise: Array) -> Array:
        """Encode in hindsight.

        Args:
          condition: [..., B, M + gates] c = (b_{t,k-1}, a_{t+k-1}).
          target: [..., B, N] w.
          noise: [..., B, size] eps.
        Returns:
          [..., B, size] z.
        """
        return noise + self.generator(jnp.concatenate([condition, target], axis=-1))

    def _sum_losses(
        self, error: Array, condition: Array, z: Array, valid: Array, forecast: Array, penalty: Array
    ) -> tuple[Array, dict[str, Array]]:
        """Add lambda L_inv to the error; the critic's loss, the forecast and the penalty train, but have value 0."""
        # Two players: the generator lowers L_inv with the critic frozen, the critic raises it with z stopped.
        invariance = invariance_loss(jax.lax.stop_gradient(self.critic)(condition, z), valid)
        critic_gain = invariance_loss(self.critic(condition, jax.lax.stop_gradient(z)), valid)
        others = forecast - critic_gain + penalty
        loss = error + self.invariance * invariance + others - jax.lax.stop_gradient(others)
        return loss, {"reconstruction_error": error, "invariance_loss": invariance, "forecast_error": forecast}

    def noise(self, state: HindsightState, batch: int) -> Array:
        """Return the noise eps [K, B, size] of one learner step."""
        # The seed is an integer, because a Curiosity's file holds plain arrays. It was drawn from the run's key, so the
        # key that it is folded into may be constant.
        # One draw for all starts of an environment, so a sequence has equal uncertainties whole and step by step.
        key = jax.random.fold_in(jax.random.key(0), state.noise_seed)
        return jax.random.normal(key, (self.horizon, batch, self.size))


class BYOLHindsightPaper(BYOLHindsight):
    """The method as published: no forecaster, and the world model learns from the reconstruction."""

    forecaster: None  # pyright: ignore[reportIncompatibleVariableOverride]

    def prediction_loss(self, state: HindsightState, predictions: Predictions) -> tuple[Array, dict[str, Array]]:
        """Compute L_rec + lambda L_inv of each prediction; no gradient of L_inv reaches c."""
        condition = _condition(predictions)
        noise = self.noise(state, predictions.valid.shape[-1])[predictions.horizon - 1]
        z = self.generate(condition, predictions.target, noise)
        reconstruction = self.predictor(jnp.concatenate([predictions.belief, z], axis=-1))
        error = world_model.cosine_distance(reconstruction, predictions.target)
        # Generate z again for L_inv, with the gradient into c stopped.
        condition = jax.lax.stop_gradient(condition)
        z = self.generate(condition, predictions.target, noise)
        no_forecast = jnp.zeros(predictions.valid.shape)
        return self._sum_losses(error, condition, z, predictions.valid, no_forecast, jnp.zeros(()))

    def generate(self, condition: Array, target: Array, noise: Array) -> Array:
        return self.generator(jnp.concatenate([condition, target, noise], axis=-1))


def _condition(predictions: Predictions) -> Array:
    """Return c = (b_{t,k-1}, a_{t+k-1}) of each prediction, [..., B, M + gates]."""
    return jnp.concatenate([predictions.prev_belief, predictions.action], axis=-1)


def invariance_loss(scores: Array, valid: Array) -> Array:
    """Estimate how much of c each z contains (InfoNCE): 0 if nothing, log B if everything.

    Args:
      scores: [..., B, B] g(c_j, z_i) at [j, i].
      valid: [..., B] predictions that stay inside an episode; others are no negatives.
    Returns:
      [..., B] L_inv(j).
    """
    count = jnp.maximum(jnp.sum(valid, axis=-1, keepdims=True), 1)
    others = jax.nn.logsumexp(jnp.where(valid[..., None, :], scores, -1e9), axis=-1) - jnp.log(count)
    return jnp.diagonal(scores, axis1=-2, axis2=-1) - others
