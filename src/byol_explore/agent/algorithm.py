"""The base class of policy-gradient algorithms, V-MPO, and PPO.

An algorithm defines value targets, the policy loss, and how a rollout is cut into minibatches. It depends neither on
networks nor on intrinsic methods.
"""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from byol_explore.config.config import Config
from byol_explore.errors import missing_method
from byol_explore.ops import policy as policy_ops
from byol_explore.ops import value as value_ops
from byol_explore.ops.arrays import masked_mean
from byol_explore.spaces import ActionSpec
from byol_explore.types import Action, Array, Policy, PyTree


class PolicyBatch(NamedTuple):
    """Policies and actions of a minibatch, flat over time and environments: n = (T-1) B."""

    online: Policy  # [n, ...] of the parameters that are trained
    target: Policy  # [n, ...] to which KL constraints hold the online policy
    behaviour: Policy  # [n, ...] that acted
    action: Action  # [n, ...]
    valid: Array  # [n] bool


class PolicyLossOutput(NamedTuple):
    """Loss of the policy and of the duals, without the entropy bonus."""

    loss: Array  # []
    metrics: dict[str, Array]  # [] each
    must_be_finite: dict[str, PyTree]  # by the names under which a divergence is reported, in causal order


class Algorithm:
    """Base class: learns a policy from advantages. Holds settings and no state.

    A subclass defines `compute_targets` and `loss`; everything else has a default. Duals are parameters that the
    algorithm trains for itself, such as a temperature. They have an optimizer of their own.

    Args:
      config: configuration of the run.
      action: action space.
    """

    targets_per_rollout: ClassVar[bool] = False
    """Compute targets once per rollout (PPO) instead of once per minibatch (V-MPO)."""
    needs_target_policy: ClassVar[bool] = False
    """The loss reads `PolicyBatch.target`."""
    has_kl_constraints: ClassVar[bool] = False
    """The duals are `ops.policy.Duals`: a temperature and a multiplier for each KL constraint."""

    def __init__(self, config: Config, action: ActionSpec) -> None:
        self.config, self.action = config, action

    def initial_duals(self) -> PyTree:
        return ()

    def project_duals(self, duals: PyTree) -> PyTree:
        """Return the nearest duals that are allowed; called after every optimizer step."""
        return duals

    def target_period(self, updates: int) -> int:
        """Return the learner steps between refreshes of the acting policy, for `updates` learner steps per rollout."""
        return updates

    def epochs(self) -> int:
        """Return how often a rollout is learned from; more than once needs `targets_per_rollout`."""
        return 1

    def minibatch_order(self, key: Array, rows: int, batches: int) -> Array | None:
        """Draw the minibatches of a rollout. Its sequences are arranged in `rows` x `batches` groups.

        An algorithm that draws an order must set `targets_per_rollout`: otherwise the rewards of minibatches are put
        together in the order of the environments.

        Args:
          key: random key; another one for each rollout.
          rows: groups in a minibatch.
          batches: minibatches per epoch.
        Returns:
          [rows, epochs * batches] int: the group of each row that each learner step takes. None: step i takes group i.
        """
        return None

    def compute_targets(self, value: Array, reward: Array, discount: Array, valid: Array) -> tuple[Array, Array]:
        """Compute value targets and advantages.

        Args:
          value: [T, B] unnormalised V(b_t) of the parameters before the update.
          reward: [T-1, B] mixed reward, times 1 - gamma.
          discount: [T-1, B] gamma, or 0 at termination.
          valid: [T-1, B] False for the dummy transition between two episodes.
        Returns:
          Value targets [T-1, B] and advantages [T-1, B].
        """
        raise missing_method("algorithm", type(self), "compute_targets")

    def loss(self, duals: PyTree, batch: PolicyBatch, advantage: Array) -> PolicyLossOutput:
        """Compute the loss of a minibatch.

        Args:
          duals: as `initial_duals` returns them.
          batch: policies and actions of n transitions.
          advantage: [n] without gradient, in units of PopArt's standard deviation of the task.
        Returns:
          PolicyLossOutput with scalar loss and metrics.
        """
        raise missing_method("algorithm", type(self), "loss")


class VMPO(Algorithm):
    """V-MPO (Song et al. 2020): imitate the best samples, within KL constraints to the target policy.

    Targets are computed for every minibatch, with the parameters before its update, and statistics move with every
    minibatch, as in the paper: one forward pass serves targets and losses.
    """

    needs_target_policy = has_kl_constraints = True

    def initial_duals(self) -> policy_ops.Duals:
        settings, action = self.config.vmpo, self.action
        return policy_ops.Duals(
            log_temperature=jnp.log(jnp.asarray(settings.init_temperature)),
            categorical=jnp.full((len(action.discrete),), settings.init_alpha_categorical),
            mean=jnp.full((action.continuous,), settings.init_alpha_mean),
            covariance=jnp.full((action.continuous,), settings.init_alpha_covariance),
        )

    def project_duals(self, duals: policy_ops.Duals) -> policy_ops.Duals:
        return policy_ops.project_duals(duals)

    def target_period(self, updates: int) -> int:
        return self.config.vmpo.target_period

    def compute_targets(self, value: Array, reward: Array, discount: Array, valid: Array) -> tuple[Array, Array]:
        targets = jax.vmap(value_ops.vtrace_targets, 1, 1)(value, reward, discount, valid)
        return targets, targets - value[:-1]

    def loss(self, duals: policy_ops.Duals, batch: PolicyBatch, advantage: Array) -> PolicyLossOutput:
        settings, valid, temperature = self.config.vmpo, batch.valid, jnp.exp(duals.log_temperature)
        log_prob = jax.vmap(policy_ops.log_prob)(batch.online, batch.action)
        loss = policy_ops.policy_loss(
            log_prob, advantage, valid, temperature, settings.epsilon_temperature, settings.top_fraction
        )
        # Without advantages the weights are uniform at any temperature, and the loss would lower it with every update.
        has_advantages = jnp.any(valid & (advantage != 0.0))
        temperature_loss = jnp.where(has_advantages, loss.temperature, 0.0)
        penalty, kl = self._kl_penalty(duals, batch.target, batch.online, valid)
        metrics = {
            "loss_policy": loss.policy,
            "loss_temperature": temperature_loss,
            "loss_kl": penalty,
            "kl": masked_mean(kl, valid),
            "temperature": temperature,
            "kl_multiplier_mean": jnp.mean(jnp.concatenate([duals.categorical, duals.mean, duals.covariance])),
        }
        finite = {"policy loss": loss.policy, "temperature": temperature, "KL penalty": penalty}
        return PolicyLossOutput(loss.policy + temperature_loss + penalty, metrics, finite)

    def _kl_penalty(self, duals: policy_ops.Duals, target: Policy, online: Policy, valid: Array) -> tuple[Array, Array]:
        """Return the penalty [] of all KL constraints, and the KL [n] of each sample."""
        settings = self.config.vmpo
        categorical = [
            jax.vmap(policy_ops.categorical_kl)(p, q) for p, q in zip(target.logits, online.logits, strict=True)
        ]
        mean = jax.vmap(policy_ops.mean_kl)(target, online)
        covariance = jax.vmap(policy_ops.covariance_kl)(target, online)
        penalty = jnp.zeros(())
        for index, kl in enumerate(categorical):
            penalty += policy_ops.kl_penalty(kl, valid, duals.categorical[index], settings.epsilon_categorical)
        for index in range(mean.shape[1]):
            penalty += policy_ops.kl_penalty(mean[:, index], valid, duals.mean[index], settings.epsilon_mean)
            penalty += policy_ops.kl_penalty(
                covariance[:, index], valid, duals.covariance[index], settings.epsilon_covariance
            )
        return penalty, sum(categorical, jnp.sum(mean, axis=1) + jnp.sum(covariance, axis=1))


class PPO(Algorithm):
    """PPO (Schulman et al. 2017): the clipped surrogate, with generalised advantage estimation.

    Every minibatch is one learner step: it descends the losses of policy, critic and curiosity together, and the
    method's target encoder follows. The acting policy is refreshed after each rollout.
    """

    # Epochs revisit the transitions of a rollout. If targets were recomputed in each learner step, the advantages would
    # change under the clipped ratio, whose reference is the policy before the first step, and every transition would
    # enter the statistics once per epoch.
    targets_per_rollout = True

    def epochs(self) -> int:
        return self.config.ppo.epochs

    def minibatch_order(self, key: Array, rows: int, batches: int) -> Array:
        groups = jnp.broadcast_to(jnp.arange(batches), (rows, self.epochs(), batches))
        return jax.random.permutation(key, groups, axis=-1, independent=True).reshape(rows, -1)

    def compute_targets(self, value: Array, reward: Array, discount: Array, valid: Array) -> tuple[Array, Array]:
        estimate = jax.vmap(value_ops.generalized_advantage, (1, 1, 1, 1, None), 1)
        advantage = estimate(value, reward, discount, valid, self.config.ppo.gae_lambda)
        return value[:-1] + advantage, advantage

    def loss(self, duals: PyTree, batch: PolicyBatch, advantage: Array) -> PolicyLossOutput:
        settings, valid = self.config.ppo, batch.valid
        new = jax.vmap(policy_ops.log_prob)(batch.online, batch.action)
        old = jax.vmap(policy_ops.log_prob)(batch.behaviour, batch.action)
        if settings.normalize_advantage:
            advantage = policy_ops.standardize_advantage(advantage, valid)
        loss, clipped = policy_ops.clipped_surrogate(new - old, advantage, settings.clip_epsilon)
        loss = masked_mean(loss, valid)
        metrics = {
            "loss_policy": loss,
            "kl": masked_mean(old - new, valid),  # estimated from the actions taken
            "clip_fraction": masked_mean(clipped.astype(jnp.float32), valid),
        }
        return PolicyLossOutput(loss, metrics, {"policy loss": loss})
