"""The learner: its whole state in one pytree, and the one update that changes it."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from byol_explore.agent import log_prob
from byol_explore.config import Config
from byol_explore.curiosity.methods import embedding_size, has_own_representation, make_curiosity
from byol_explore.curiosity.reward import (
    RewardScale,
    initial_normalizers,
    initial_scale,
    intrinsic_reward,
    mix,
    rescale,
)
from byol_explore.envs.base import EnvSpec
from byol_explore.networks.assembly import Actor, Networks, View, make_actor, make_encoder
from byol_explore.networks.centering import with_centered_encoders
from byol_explore.networks.layers import MLP, Linear, trained
from byol_explore.ops import latent, moments, policies, popart, returns, vmpo
from byol_explore.ops.moments import masked_mean
from byol_explore.types import Array, Encoder, Policy, PyTree, Trajectory


class Statistics(NamedTuple):
    """Running statistics, changed by every batch and not by gradients."""

    normalizer: moments.Normalizer  # one for all tasks, or one for each: [1 or tasks] in every field
    popart: popart.PopArt
    extrinsic: RewardScale
    intrinsic: RewardScale


class LearnerState(NamedTuple):
    online: Networks
    target: PyTree  # of the curiosity: EMA encoder, or RND's fixed one
    acting: Actor  # the target policy
    duals: vmpo.Duals
    optimizer: optax.OptState
    dual_optimizer: optax.OptState
    statistics: Statistics
    step: Array  # [] learner steps done


class UpdateOutput(NamedTuple):
    """What a learner step says of its batch."""

    metrics: dict[str, Array]
    finite: Array  # [len(FINITE_ORDER)] whether each quantity was finite, in causal order
    intrinsic_reward: Array  # [T-1, B] normalised, 0 where no transition is


FINITE_ORDER = (
    "extrinsic reward",
    "observation embedding",
    "belief",
    "curiosity loss",
    "intrinsic reward",
    "value",
    "value target",
    "policy logits",
    "policy loss",
    "temperature",
    "KL penalty",
    "gradient",
)


class Learner:
    """Builds and updates a `LearnerState`; holds no state of its own.

    A runtime that knows that every batch is acted by the very target policy that it is learned with says so by
    `stored_is_target`, and saves a forward pass.
    """

    def __init__(self, config: Config, spec: EnvSpec, tasks: int, *, stored_is_target: bool = False) -> None:
        self.config, self.spec, self.tasks = config, spec, tasks
        self.stored_is_target = stored_is_target
        optimizer = config.optimizer
        clip = optimizer.max_gradient_norm
        self.optimizer = optax.chain(
            optax.clip_by_global_norm(clip) if clip > 0 else optax.identity(),
            optax.adam(optimizer.learning_rate, b1=optimizer.b1, b2=optimizer.b2),
        )
        self.dual_optimizer = optax.adam(optimizer.dual_learning_rate)

    def init(self, key: Array, observation: PyTree = None) -> LearnerState:
        """A fresh state: target networks equal to the online ones, duals at their initial values.

        All encoders are centred on the observations [n, ...] if there are any (`networks/centering.py`).
        """
        config = self.config
        actor_key, value_key, curiosity_key, fresh_key = jax.random.split(key, 4)
        own = has_own_representation(config)
        size = embedding_size(config)
        actor = make_actor(config.network, self.spec, actor_key, own_world=own, world_size=size)
        network = config.network
        value = MLP(network.belief_size, network.value_hidden, self.tasks, value_key)
        curiosity = make_curiosity(config, self.spec, curiosity_key)
        fresh = make_encoder(network, self.spec, fresh_key, size)
        if observation is not None:
            directions = config.method == "byol-explore"  # are all that its loss sees of embeddings
            networks = (actor, curiosity, fresh)
            actor, curiosity, fresh = with_centered_encoders(networks, observation, scaled=directions)
        online = Networks(actor, value, curiosity)
        duals = self._initial_duals()
        return LearnerState(
            online=online,
            target=curiosity.initial_target(world_encoder(actor), fresh),
            acting=jax.tree.map(jnp.copy, actor),
            duals=duals,
            optimizer=self.optimizer.init(online),  # pyright: ignore[reportArgumentType]
            dual_optimizer=self.dual_optimizer.init(duals),
            statistics=Statistics(
                initial_normalizers(self.tasks if config.curiosity.normalize_per_task else 1),
                popart.initial_popart(self.tasks),
                initial_scale(self.tasks),
                initial_scale(self.tasks),
            ),
            step=jnp.zeros((), jnp.int32),
        )

    def _initial_duals(self) -> vmpo.Duals:
        agent, action = self.config.agent, self.spec.action
        return vmpo.Duals(
            temperature=jnp.asarray(agent.temperature),
            categorical=jnp.full((len(action.discrete),), agent.kl_categorical),
            mean=jnp.full((action.continuous,), agent.kl_mean),
            covariance=jnp.full((action.continuous,), agent.kl_covariance),
        )

    def update(self, state: LearnerState, trajectory: Trajectory) -> tuple[LearnerState, UpdateOutput]:
        """One learner step."""
        gradient_fn = jax.grad(self._loss, argnums=(0, 1), has_aux=True)
        (gradient, dual_gradient), (statistics, output) = gradient_fn(state.online, state.duals, state, trajectory)
        popart_before, popart_after = state.statistics.popart, statistics.popart
        online = eqx.tree_at(
            lambda networks: networks.value.layers[-1],
            state.online,
            replace_fn=lambda layer: self._rescale(layer, popart_before, popart_after),
        )
        updates, optimizer = self.optimizer.update(gradient, state.optimizer)
        online: Networks = optax.apply_updates(online, updates)  # pyright: ignore[reportAssignmentType, reportArgumentType]
        updates, dual_optimizer = self.dual_optimizer.update(dual_gradient, state.dual_optimizer)
        duals = vmpo.project_duals(optax.apply_updates(state.duals, updates))  # pyright: ignore[reportArgumentType]
        step = state.step + 1
        refresh = step % self.config.agent.target_period == 0
        gradient_norm = optax.tree.norm(gradient)
        metrics = {**output.metrics, "gradient_norm": gradient_norm}
        finite = jnp.append(output.finite, jnp.isfinite(gradient_norm))
        return (
            LearnerState(
                online=online,
                target=online.curiosity.update_target(state.target, world_encoder(online.actor)),
                acting=jax.tree.map(lambda new, old: jnp.where(refresh, new, old), online.actor, state.acting),
                duals=duals,
                optimizer=optimizer,
                dual_optimizer=dual_optimizer,
                statistics=statistics,
                step=step,
            ),
            UpdateOutput(metrics, finite, output.intrinsic_reward),
        )

    def intrinsic_reward(self, state: LearnerState, trajectory: Trajectory) -> Array:
        """[T-1, B] what the agent would be paid for a batch, which it does not learn from."""
        _, world_view = self.views(state.online.actor, trajectory)
        curiosity = state.online.curiosity(state.target, world_view, trajectory)
        return self._reward(state.statistics, curiosity.uncertainty, trajectory)[1]

    def views(self, actor: Actor, trajectory: Trajectory) -> tuple[View, View]:
        """What the policy and what the curiosity see of a batch; the same when they share."""
        memory = trajectory.memory
        view = actor.representation.unroll(trajectory, memory.core)
        return view, view if actor.world is None else actor.world.unroll(trajectory, memory.world)

    def _mean(self, x: Array, valid: Array) -> Array:
        return masked_mean(x, valid)

    def _loss(
        self, online: Networks, duals: vmpo.Duals, state: LearnerState, trajectory: Trajectory
    ) -> tuple[Array, tuple[Statistics, UpdateOutput]]:
        """Curiosity, value and policy losses from one forward pass with the parameters before the update."""
        agent, curiosity_config = self.config.agent, self.config.curiosity
        actor = online.actor
        view, world_view = self.views(actor, trajectory)
        curiosity = online.curiosity(state.target, world_view, trajectory)
        reward, intrinsic, statistics, reward_metrics = self._reward(
            state.statistics, curiosity.uncertainty, trajectory
        )
        value_loss, advantage, statistics, value_metrics = self._value_loss(
            online.value, view, reward, statistics, trajectory
        )
        policy = actor.policy(view.belief[:-1])
        target = self._target_policy(state.acting, trajectory)
        policy_loss, policy_metrics = self._policy_loss(policy, target, duals, advantage, trajectory)
        loss = policy_loss + agent.value_weight * value_loss + curiosity_config.loss_weight * curiosity.loss
        metrics = {
            "loss": loss,
            "loss_curiosity": curiosity.loss,
            "loss_value": value_loss,
            **curiosity.metrics,
            **reward_metrics,
            **value_metrics,
            **policy_metrics,
            **self._health(state, world_view.embedding),
        }
        checks = (
            jnp.where(trajectory.valid, trajectory.reward, 0.0),
            view.embedding, view.belief, curiosity.loss, metrics["intrinsic_reward"], metrics["value"],
            metrics["value_target"], policy, metrics["loss_policy"], metrics["temperature"], metrics["loss_kl"],
        )  # fmt: skip
        finite = self._all_finite(checks)
        return loss, (statistics, UpdateOutput(metrics, finite, intrinsic))

    def _health(self, state: LearnerState, embedding: Array) -> dict[str, Array]:
        """Whether embeddings differ from each other, and how far the target is behind."""
        unit = latent.l2_normalize(embedding)
        mean = jax.vmap(self._mean, (-1, None))(unit, jnp.ones(unit.shape[:-1], bool))
        metrics = {"embedding_spread": 1.0 - jnp.sum(jnp.square(mean))}
        if self.config.method == "byol-explore":
            encoder = world_encoder(state.online.actor)
            apart = jax.tree.map(jnp.subtract, state.target, encoder)
            metrics["target_distance"] = optax.tree.norm(trained(apart)) / optax.tree.norm(trained(encoder))
        return jax.tree.map(jax.lax.stop_gradient, metrics)

    def _all_finite(self, trees: tuple[PyTree, ...]) -> Array:
        """Whether each tree is finite everywhere."""
        bad = [sum(jnp.sum(~jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)) for tree in trees]
        return jnp.stack(bad) == 0

    def _reward(
        self, statistics: Statistics, uncertainty: Array, trajectory: Trajectory
    ) -> tuple[Array, Array, Statistics, dict[str, Array]]:
        """The reward that the agent maximises and its intrinsic part, [T-1, B] (section 3.3, appendix A.3, C)."""
        config, valid = self.config, trajectory.valid
        decay, task = config.curiosity.normalizer_decay, jnp.broadcast_to(trajectory.task, valid.shape)
        normalizer, intrinsic = intrinsic_reward(
            statistics.normalizer, uncertainty, task, valid, decay, config.prioritize
        )

        def on_scale(stats: RewardScale, reward: Array, step: float) -> tuple[RewardScale, Array]:
            flat = (reward.ravel(), task.ravel(), valid.ravel())
            stats, scaled = rescale(stats, *flat, step, config.agent.min_reward_scale)
            return stats, scaled.reshape(reward.shape)

        extrinsic_stats, extrinsic = on_scale(
            statistics.extrinsic, trajectory.reward, config.agent.extrinsic_scale_step
        )
        intrinsic_stats, scaled = on_scale(statistics.intrinsic, intrinsic, config.intrinsic_scale_step)
        reward = mix(extrinsic, scaled, config.regime, config.curiosity.mixing)
        metrics = {
            "uncertainty": self._mean(uncertainty, valid),
            "uncertainty_stddev": jnp.mean(moments.standard_deviation(normalizer.raw, decay)),
            "intrinsic_reward": self._mean(intrinsic, valid),
            "paid_share": self._mean((intrinsic > 0).astype(jnp.float32), valid),
            "paid_reward": jax.vmap(lambda index: self._mean(scaled, valid & (task == index)))(jnp.arange(self.tasks)),
            "extrinsic_reward": self._mean(trajectory.reward, valid),
        }
        statistics = Statistics(normalizer, statistics.popart, extrinsic_stats, intrinsic_stats)
        return (1.0 - config.agent.gamma) * reward, jnp.where(valid, intrinsic, 0.0), statistics, metrics

    def _value_loss(
        self, head: MLP, view: View, reward: Array, statistics: Statistics, trajectory: Trajectory
    ) -> tuple[Array, Array, Statistics, dict[str, Array]]:
        """V-trace targets in unnormalised space, squared error in PopArt's (appendix C).

        PopArt takes in the targets first and the head is rescaled; the loss is that of the rescaled head, and its
        gradient is applied to it.
        """
        agent, valid, stats = self.config.agent, trajectory.valid, statistics.popart
        task = trajectory.task
        chosen = jax.nn.one_hot(task, self.tasks)  # [B, tasks]
        hidden, last = head.hidden(view.belief), head.layers[-1]
        scale = popart.scale(stats, agent.popart_min_scale)[task]
        normalized = jax.lax.stop_gradient(jnp.sum(chosen * last(hidden), axis=-1))
        value = scale * normalized + stats.mean[task]  # [T, B]
        discount = agent.gamma * trajectory.discount
        targets = jax.vmap(returns.vtrace_targets, 1, 1)(value, reward, discount, valid)
        new_stats = popart.update_popart(
            stats,
            targets.ravel(),
            jnp.broadcast_to(task, targets.shape).ravel(),
            valid.ravel(),
            agent.popart_step,
        )
        rescaled = self._rescale(last, stats, new_stats)
        # Computes with the rescaled layer, passes the gradient straight on to the parameters.
        through = jax.tree.map(lambda old, new: old + jax.lax.stop_gradient(new - old), last, rescaled)
        normalized = jnp.sum(chosen * through(hidden[:-1]), axis=-1)
        new_scale = popart.scale(new_stats, agent.popart_min_scale)
        normalized_targets = (targets - new_stats.mean[task]) / new_scale[task]
        loss = self._mean(jnp.square(normalized - normalized_targets), valid)
        metrics = {
            "value": self._mean(value[:-1], valid),
            "value_target": self._mean(targets, valid),
            "value_scale": jnp.mean(new_scale),
        }
        return loss, targets - value[:-1], statistics._replace(popart=new_stats), metrics

    def _rescale(self, layer: Linear, old: popart.PopArt, new: popart.PopArt) -> Linear:
        """The value head's last layer whose unnormalised outputs stay the same under new statistics."""
        assert layer.bias is not None
        rescaled = popart.preserve_outputs(layer.weight, layer.bias, old, new, self.config.agent.popart_min_scale)
        return eqx.tree_at(lambda x: (x.weight, x.bias), layer, rescaled)

    def _target_policy(self, acting: Actor, trajectory: Trajectory) -> Policy:
        """[T-1, B, ...] what the target policy says of a batch, which an older one may have acted."""
        if self.stored_is_target:
            return trajectory.policy
        return acting.policy(acting.representation.unroll(trajectory, trajectory.memory.core).belief[:-1])

    def _policy_loss(
        self, policy: Policy, target: Policy, duals: vmpo.Duals, advantage: Array, trajectory: Trajectory
    ) -> tuple[Array, dict[str, Array]]:
        """V-MPO over the whole batch, with KL constraints to the target policy."""
        agent, valid = self.config.agent, trajectory.valid
        flat = valid.ravel()
        loss = vmpo.policy_loss(
            log_prob(policy, trajectory.action).ravel(), advantage.ravel(), flat,
            duals.temperature, agent.temperature_epsilon, agent.top_fraction,
        )  # fmt: skip
        categorical = [
            jax.vmap(jax.vmap(policies.categorical_kl))(old, new).ravel()
            for old, new in zip(target.logits, policy.logits, strict=True)
        ]
        mean = jax.vmap(jax.vmap(policies.mean_kl))(target, policy).reshape(flat.shape[0], -1)
        covariance = jax.vmap(jax.vmap(policies.covariance_kl))(target, policy).reshape(mean.shape)
        penalty = jnp.zeros(())
        for index, kl in enumerate(categorical):
            penalty += vmpo.kl_penalty(kl, flat, duals.categorical[index], agent.kl_categorical_epsilon)
        for index in range(mean.shape[1]):
            penalty += vmpo.kl_penalty(mean[:, index], flat, duals.mean[index], agent.kl_mean_epsilon)
            penalty += vmpo.kl_penalty(covariance[:, index], flat, duals.covariance[index], agent.kl_covariance_epsilon)
        entropy = self._mean(jax.vmap(jax.vmap(policies.entropy))(policy), valid)
        total = loss.policy + loss.temperature + penalty - agent.entropy_weight * entropy
        kl = sum(categorical, jnp.sum(mean, axis=1) + jnp.sum(covariance, axis=1))
        metrics = {
            "loss_policy": loss.policy,
            "loss_temperature": loss.temperature,
            "loss_kl": penalty,
            "entropy": entropy,
            "kl": self._mean(kl, flat),
            "temperature": duals.temperature,
            "kl_multiplier": jnp.mean(jnp.concatenate([duals.categorical, duals.mean, duals.covariance])),
            "advantage_stddev": jnp.sqrt(self._mean(jnp.square(advantage), valid)),
        }
        return total, metrics


def keeps_target(period: int, updates: int) -> bool:
    """Whether a target policy that acts and is then learned from by so many updates stays the same through them.

    Rollouts begin after whole multiples of these updates, so it does if every refresh is between two rollouts.
    """
    return period % updates == 0


def world_encoder(actor: Actor) -> Encoder:
    """The encoder that the curiosity reads: its own, or the policy's when they share."""
    return actor.representation.encoder if actor.world is None else actor.world.encoder
