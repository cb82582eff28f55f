"""V-MPO (Song et al., 2020), the paper's algorithm: section 4.1 and appendix C."""

import jax
import jax.numpy as jnp

from byol_explore.algorithms.base import Algorithm, Choices, PolicyLoss
from byol_explore.ops import policies, returns, vmpo
from byol_explore.ops.moments import masked_mean
from byol_explore.types import Array, Policy


class VMPO(Algorithm):
    """The best half of the samples, weighted by their advantages, with KL constraints to the target policy.

    Everything is computed anew for every batch, and statistics move with every batch.
    """

    checks = ("policy loss", "temperature", "KL penalty")
    needs_target = True

    def initial_duals(self) -> vmpo.Duals:
        settings, action = self.config.vmpo, self.action
        return vmpo.Duals(
            temperature=jnp.asarray(settings.temperature),
            categorical=jnp.full((len(action.discrete),), settings.kl_categorical),
            mean=jnp.full((action.continuous,), settings.kl_mean),
            covariance=jnp.full((action.continuous,), settings.kl_covariance),
        )

    def project(self, duals: vmpo.Duals) -> vmpo.Duals:
        return vmpo.project_duals(duals)

    def acting_period(self, updates: int) -> int:
        return self.config.vmpo.target_period

    def targets(self, value: Array, reward: Array, discount: Array, valid: Array) -> tuple[Array, Array]:
        targets = jax.vmap(returns.vtrace_targets, 1, 1)(value, reward, discount, valid)
        return targets, targets - value[:-1]

    def loss(self, duals: vmpo.Duals, choices: Choices, advantage: Array) -> PolicyLoss:
        settings, valid = self.config.vmpo, choices.valid
        log_prob = jax.vmap(policies.log_prob)(choices.policy, choices.action)
        loss = vmpo.policy_loss(
            log_prob, advantage, valid, duals.temperature, settings.temperature_epsilon, settings.top_fraction
        )
        penalty, kl = self._constraints(duals, choices.target, choices.policy, valid)
        metrics = {
            "loss_policy": loss.policy,
            "loss_temperature": loss.temperature,
            "loss_kl": penalty,
            "kl": masked_mean(kl, valid),
            "temperature": duals.temperature,
            "kl_multiplier": jnp.mean(jnp.concatenate([duals.categorical, duals.mean, duals.covariance])),
        }
        checks = (loss.policy, duals.temperature, penalty)
        return PolicyLoss(loss.policy + loss.temperature + penalty, metrics, checks)

    def _constraints(self, duals: vmpo.Duals, target: Policy, policy: Policy, valid: Array) -> tuple[Array, Array]:
        """The penalty of all KL constraints, and the KL of each sample."""
        settings = self.config.vmpo
        categorical = [
            jax.vmap(policies.categorical_kl)(old, new)
            for old, new in zip(target.logits, policy.logits, strict=True)
        ]  # fmt: skip
        mean = jax.vmap(policies.mean_kl)(target, policy)
        covariance = jax.vmap(policies.covariance_kl)(target, policy)
        penalty = jnp.zeros(())
        for index, kl in enumerate(categorical):
            penalty += vmpo.kl_penalty(kl, valid, duals.categorical[index], settings.kl_categorical_epsilon)
        for index in range(mean.shape[1]):
            penalty += vmpo.kl_penalty(mean[:, index], valid, duals.mean[index], settings.kl_mean_epsilon)
            penalty += vmpo.kl_penalty(
                covariance[:, index], valid, duals.covariance[index], settings.kl_covariance_epsilon
            )
        return penalty, sum(categorical, jnp.sum(mean, axis=1) + jnp.sum(covariance, axis=1))
