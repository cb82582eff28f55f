"""Proximal policy optimisation (Schulman et al., 2017), recurrent: epochs over whole sequences of a rollout."""

import jax
import jax.numpy as jnp

from byol_explore.algorithms.base import Algorithm, Choices, PolicyLoss
from byol_explore.ops import policies, ppo, returns
from byol_explore.ops.moments import masked_mean
from byol_explore.types import Array, PyTree


class PPO(Algorithm):
    """The clipped surrogate with generalised advantage estimation.

    Uncertainties, rewards, values and advantages are those of the parameters before a rollout's first update; the
    normalizer and PopArt move once per rollout, as far as they would have moved batch by batch. Every minibatch of an
    epoch is a learner step: it descends the policy's, the critic's and the curiosity's loss together, and the
    curiosity's target follows after each of them. The policy that acts is refreshed after each rollout.
    """

    judges_rollouts = True

    def epochs(self) -> int:
        return self.config.ppo.epochs

    def order(self, key: Array, count: int) -> Array:
        keys = jax.random.split(key, self.epochs())
        return jax.vmap(lambda each: jax.random.permutation(each, count))(keys).ravel()

    def targets(self, value: Array, reward: Array, discount: Array, valid: Array) -> tuple[Array, Array]:
        estimate = jax.vmap(returns.generalized_advantage, (1, 1, 1, 1, None), 1)
        advantage = estimate(value, reward, discount, valid, self.config.ppo.gae_lambda)
        return value[:-1] + advantage, advantage

    def loss(self, duals: PyTree, choices: Choices, advantage: Array) -> PolicyLoss:
        settings, valid = self.config.ppo, choices.valid
        new, old = (
            jax.vmap(policies.log_prob)(policy, choices.action) for policy in (choices.policy, choices.behaviour)
        )
        if settings.normalize_advantage:
            advantage = ppo.standardize(advantage, valid)
        loss, clipped = ppo.clipped_surrogate(new - old, advantage, settings.clip)
        loss = masked_mean(loss, valid)
        metrics = {
            "loss_policy": loss,
            "kl": masked_mean(old - new, valid),  # an estimate, from the actions that were taken
            "clipped_ratios": masked_mean(clipped.astype(jnp.float32), valid),
        }
        return PolicyLoss(loss, metrics, (loss,))
