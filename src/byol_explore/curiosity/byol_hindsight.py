"""BYOL-Hindsight: BYOL-Explore for worlds that are partly noise (Jarrett et al., 2023).

Of a prediction from o_t over k steps, c = (b_{t,k-1}, a_{t+k-1}) is what it was made from, and w = sg(f_phi(o_{t+k}))
what it should have been. A generator tells in hindsight what could not be known, from noise eps ~ N(0, I), and a
reconstructor, in the predictor's place, needs to know only the rest:

    z = G(c, w, eps)            w^ = R(b_{t,k}, z)
    L_rec    = |w^ / |w^| - w / |w||^2
    L_inv(j) = log exp g(c_j, z_j) - log mean_i exp g(c_j, z_i)

z must not tell what c could have told: a critic g, bounded, finds out what it does tell. Its negatives z_i are those of
the batch's other environments at the same (t, k). The critic maximises L_inv, with z stopped; generator and
reconstructor minimise L_rec + lambda L_inv, with the critic frozen and without a gradient of L_inv into c. Landings are
summed, normalised and clipped as BYOL-Explore's:

    l_t = sum over p + q = t + 1 of (L_rec + lambda L_inv)(p, q)

What is pure noise moves into z, and costs nothing; what can be learned cannot hide there. Noise is drawn anew for every
learner step, the same for all starts of an environment, so that sequences are paid alike whole and step by step.

The paper's world model minimises L_rec + lambda L_inv too. While the critic is still learning z tells all of w, the
reconstructor looks at nothing else, and nothing is left that keeps embeddings apart: they collapse. And L_inv, which
says little of what is new, becomes most of the uncertainty. So here a forecaster F of w from b_{t,k} comes first. It
has BYOL-Explore's own loss, which alone trains the world model, and hindsight has to tell only what F could not know:

    z = eps + G(c, w)           w^ = sg(F(b_{t,k}) / |F(b_{t,k})|) + R(b_{t,k}, z)

G begins at 0, where z is pure noise, and pays kappa |G|^2 / 2 for what it tells, so that it keeps silent where telling
does not help. It does not see eps: then z given (c, w) is N(G, I), and the mean of |G|^2 / 2 is no less than the nats
that z tells of c and w, whatever the critic has found. (With eps it could take noise away for half a nat a number.)
Without `curiosity.forecasts` all is as in the paper.
"""

from typing import NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp

from byol_explore.curiosity.base import Materials
from byol_explore.curiosity.byol_explore import BYOLExplore, Landings
from byol_explore.networks.layers import MLP
from byol_explore.ops import latent
from byol_explore.types import Array, Encoder, Sequence

BOUND = 10.0  # of the critic: enough for log B of any batch that fits a machine


class Hindsight(NamedTuple):
    """The target encoder, and which noise comes next."""

    target: Encoder
    draw: Array  # []


class Critic(eqx.Module):
    """g(c, z) = bound cos(u(c), v(z)): all pairs of a batch cost no more than its members, and none is ever stuck."""

    of_condition: MLP
    of_hindsight: MLP

    def __call__(self, condition: Array, hindsight: Array) -> Array:
        """[..., B, B]: entry [j, i] is g(c_j, z_i)."""
        u, v = self.of_condition(condition), self.of_hindsight(hindsight)
        return BOUND * jnp.einsum("...jd,...id->...ji", latent.l2_normalize(u), latent.l2_normalize(v))


class BYOLHindsight(BYOLExplore):
    """BYOL-Explore whose predictor is the reconstructor, with a generator, a critic and a forecaster beside it."""

    reads = (*BYOLExplore.reads, "invariance", "hindsight_size", "forecasts", "hindsight_cost")
    contrasts = True

    forecaster: MLP | None  # what trains the world model; None if all is as in the paper
    generator: MLP
    critic: Critic
    invariance: float = eqx.field(static=True)
    cost: float = eqx.field(static=True)  # kappa
    size: int = eqx.field(static=True)  # of z and eps

    @classmethod
    def make(cls, materials: Materials, key: Array) -> Self:
        """All networks have the predictor's hidden layers."""
        explore_key, *keys = jax.random.split(key, 5)  # BYOL-Explore's predictor is the forecaster
        base = BYOLExplore.make(materials, explore_key)
        target, own = materials.embedding_size, materials.settings.hindsight_size
        size, hidden = target if own is None else own, materials.network.predictor_hidden
        forecasts = materials.settings.forecasts
        belief, condition = materials.network.belief_size, materials.network.belief_size + base.core.gates
        given = condition + target + (0 if forecasts else size)
        return cls(
            core=base.core, action=base.action, project_action=base.project_action,
            predictor=MLP(belief + size, hidden, target, keys[0]),
            horizon=base.horizon, target_decay=base.target_decay,
            forecaster=base.predictor if forecasts else None,
            generator=MLP(given, hidden, size, keys[1], scale=0.0 if forecasts else 1.0),
            critic=Critic(MLP(condition, hidden, size, keys[2]), MLP(size, hidden, size, keys[3])),
            invariance=materials.settings.invariance, cost=materials.settings.hindsight_cost, size=size,
        )  # fmt: skip

    def init(self, materials: Materials, encoder: Encoder, key: Array) -> Hindsight:
        return Hindsight(super().init(materials, encoder, key), jax.random.randint(key, (), 0, 2**30))

    def after(self, state: Hindsight, encoder: Encoder, sequence: Sequence) -> Hindsight:
        return Hindsight(super().after(state.target, encoder, sequence), state.draw + 1)

    def target(self, state: Hindsight) -> Encoder:
        return state.target

    def compare(self, state: Hindsight, landings: Landings) -> tuple[Array, dict[str, Array]]:
        """L_rec + lambda L_inv of each prediction; what only trains has parts of its own that are 0."""
        condition, belief = jnp.concatenate([landings.before, landings.action], axis=-1), landings.belief
        forecast, known = self.forecast(landings), jax.lax.stop_gradient(condition)
        if self.forecaster is not None:
            condition, belief = known, jax.lax.stop_gradient(belief)
        noise = self.noise(state, landings.valid.shape[-1])[landings.horizon - 1]
        told = self.generate(condition, landings.target, noise)
        error = latent.cosine_distance(self.reconstruct(belief, told), landings.target)
        hidden = told  # for L_inv: the same, but without a gradient into c
        if self.forecaster is None:
            hidden = self.generate(known, landings.target, noise)
        told_of = invariance_loss(jax.lax.stop_gradient(self.critic)(known, hidden), landings.valid)
        found = invariance_loss(self.critic(known, jax.lax.stop_gradient(hidden)), landings.valid)
        others = forecast - found + self.price(told, noise)
        loss = error + self.invariance * told_of + others - jax.lax.stop_gradient(others)
        return loss, {"reconstruction_error": error, "invariance": told_of, "forecast_error": forecast}

    def forecast(self, landings: Landings) -> Array:
        """BYOL-Explore's own loss [..., B] of each prediction; 0 where nothing is forecast."""
        if self.forecaster is None:
            return jnp.zeros(landings.valid.shape)
        return latent.cosine_distance(self.forecaster(landings.belief), landings.target)

    def generate(self, condition: Array, target: Array, noise: Array) -> Array:
        """Z [..., B, size]."""
        if self.forecaster is None:
            return self.generator(jnp.concatenate([condition, target, noise], axis=-1))
        return noise + self.generator(jnp.concatenate([condition, target], axis=-1))

    def reconstruct(self, belief: Array, told: Array) -> Array:
        """W^ [..., B, N] of what was known and of z: beside a forecast only the rest."""
        rest = self.predictor(jnp.concatenate([belief, told], axis=-1))
        if self.forecaster is None:
            return rest
        return rest + jax.lax.stop_gradient(latent.l2_normalize(self.forecaster(belief)))

    def price(self, told: Array, noise: Array) -> Array:
        """What z costs the generator, [..., B]."""
        return jnp.zeros(()) if self.forecaster is None else self.cost * jnp.sum(jnp.square(told - noise), axis=-1) / 2

    def noise(self, state: Hindsight, batch: int) -> Array:
        """Eps [K, B, size], until the next learner step."""
        return jax.random.normal(jax.random.fold_in(jax.random.key(0), state.draw), (self.horizon, batch, self.size))


def invariance_loss(scores: Array, valid: Array) -> Array:
    """L_inv [..., B] of scores g(c_j, z_i) [..., B, B]: 0 where z tells nothing of c, log B where it tells all."""
    count = jnp.maximum(jnp.sum(valid, axis=-1, keepdims=True), 1)
    others = jax.nn.logsumexp(jnp.where(valid[..., None, :], scores, -1e9), axis=-1) - jnp.log(count)
    return jnp.diagonal(scores, axis1=-2, axis2=-1) - others
