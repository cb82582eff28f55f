"""The learner: one update of a `LearnerState`, and all updates of a rollout.

`Learner.learn_rollout` is the whole of it. `begin_rollout` cuts a rollout [T, E] into minibatches [T, B] of whole
sequences, `update` performs one learner step per minibatch, and `end_rollout` finishes. Anakin runs the three in one
compiled program; Sebulba compiles each of them and dispatches them one after the other.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from byol_explore.agent.loss import LossFunction
from byol_explore.agent.state import Batch, FiniteChecks, LearnerState, UpdateOutput, init_hyperparams, init_networks
from byol_explore.agent.targets import PopArtCritic, RunningStatistics, TargetComputer, compound_step_size
from byol_explore.config.config import Config
from byol_explore.curiosity.method import advance_state
from byol_explore.envs.interface import EnvSpec
from byol_explore.networks.representation import Networks, apply_direction, make_optimizer
from byol_explore.registry import ALGORITHMS
from byol_explore.types import AnyArray, Array, PyTree, Trajectory

TRAJECTORY_ENV_AXES: Any = Trajectory(*[1] * 7, initial_state=0)  # pyright: ignore[reportArgumentType]


def map_env_axis(function: Callable[..., Any], trajectory: Trajectory, *others: Trajectory) -> Trajectory:
    """Apply `function(env_axis, x, ...)` to every leaf: axis 1 of time-major leaves, axis 0 of the initial state."""
    return _map_axes(function, TRAJECTORY_ENV_AXES, trajectory, *others)


def _map_axes(function: Callable[..., Any], axes: PyTree, *trees: PyTree) -> Any:
    """Apply `function(axis, x, ...)` to every leaf, where `axes` is a tree prefix of the trees."""
    return jax.tree.map(
        lambda axis, *parts: jax.tree.map(lambda *leaves: function(axis, *leaves), *parts), axes, *trees
    )


class Learner:
    """Makes and updates a `LearnerState`; holds settings and no state.

    Args:
      config: configuration of the run.
      spec: spaces of the environments.
      tasks: number of tasks, each with a value of its own.
      envs: E, environments in a rollout; None for all of the run.
      synchronous: acting and learning alternate, so the newest target policy acts in every rollout.
    """

    def __init__(
        self, config: Config, spec: EnvSpec, tasks: int, *, envs: int | None = None, synchronous: bool = False
    ) -> None:
        self.config, self.spec, self.tasks = config, spec, tasks
        self.envs_per_rollout = config.runtime.num_envs if envs is None else envs
        self.algorithm = ALGORITHMS.get(config.algorithm)(config, spec.action)
        # Minibatches that hold every environment of a rollout once.
        self.batches_per_epoch = self.envs_per_rollout // config.runtime.batch_size
        self.updates_per_rollout = self.batches_per_epoch * self.algorithm.epochs()
        # Learner steps between refreshes of the acting policy.
        self.target_period = self.algorithm.target_period(self.updates_per_rollout)
        # Consecutive environments that stay together in a minibatch: one of each task, if tasks are fixed.
        self.group_size = len(config.env_ids) if config.task_sampling == "fixed" else 1
        batches = self.batches_per_epoch if self.algorithm.targets_per_rollout else 1
        self.critic = PopArtCritic(
            tasks, compound_step_size(config.agent.popart_step_size, batches), config.agent.popart_min_relative_std
        )
        self.target_computer = TargetComputer(config, self.algorithm, self.critic, batches)
        # In a synchronous run the behaviour policy is the target policy: skip its forward pass.
        self.behaviour_is_target = synchronous and target_is_constant(self.target_period, self.updates_per_rollout)
        self.loss_function = LossFunction(
            config, self.algorithm, self.critic, self.target_computer, behaviour_is_target=self.behaviour_is_target
        )
        self.optimizer = make_optimizer(config.optimizer)
        self.dual_optimizer = optax.adam(config.optimizer.dual_learning_rate)

    def init(self, key: Array, observation: PyTree = None) -> LearnerState:
        """Make a new state: target networks equal to the online ones, duals at their initial values.

        Args:
          key: random key.
          observation: [n, ...] warm-up observations, on which encoders are centred, or None (see `init_networks`).
        """
        online, method_state = init_networks(self.config, self.spec, self.tasks, key, observation)
        duals = self.algorithm.initial_duals()
        return LearnerState(
            online=online,
            method_state=method_state,
            # Copies, because a dispatch donates the buffers of the state, and none may be donated twice.
            target_actor=jax.tree.map(jnp.copy, online.actor),
            duals=duals,
            opt_state=self.optimizer.init(online),  # pyright: ignore[reportArgumentType]
            dual_opt_state=self.dual_optimizer.init(duals),
            statistics=self.target_computer.initial_statistics(),
            hyperparams=init_hyperparams(self.config),
            step=jnp.zeros((), jnp.int32),
        )

    def update(self, state: LearnerState, batch: Batch) -> tuple[LearnerState, UpdateOutput]:
        """Perform one learner step on a minibatch.

        The order matters: statistics and the value head first, then parameters by the gradient of the loss at the
        parameters before the step, then everything that depends on the new parameters.

        Args:
          state: before the step.
          batch: [T, B], with targets if the algorithm computes them per rollout.
        Returns:
          The state after the step, and its output.
        """
        gradient_fn = jax.grad(self.loss_function.loss, argnums=(0, 1), has_aux=True)
        (gradient, dual_gradient), (statistics, output) = gradient_fn(state.online, state.duals, state, batch)
        online = self._rescale_value_head(state.online, state.statistics, statistics)
        direction, opt_state = self.optimizer.update(gradient, state.opt_state)
        online = apply_direction(online, direction, state.hyperparams.learning_rate)
        dual_updates, dual_opt_state = self.dual_optimizer.update(dual_gradient, state.dual_opt_state)
        duals = self.algorithm.project_duals(optax.apply_updates(state.duals, dual_updates))  # pyright: ignore[reportArgumentType]
        if not self.algorithm.targets_per_rollout:  # else `end_rollout` does it
            online = _update_obs_stats(online, batch.trajectory)
        step = state.step + 1
        refresh = step % self.target_period == 0
        grad_norm = optax.tree.norm(gradient)
        # The method is updated with the same inputs as its loss: normalised by the statistics before the step.
        sequence, encoder = state.online.actor.normalize(batch.trajectory).sequence, online.actor.curiosity_encoder
        new_state = state._replace(
            online=online,
            method_state=advance_state(online.curiosity, state.method_state, encoder, sequence),
            target_actor=jax.tree.map(lambda new, old: jnp.where(refresh, new, old), online.actor, state.target_actor),
            duals=duals,
            opt_state=opt_state,
            dual_opt_state=dual_opt_state,
            statistics=statistics,
            step=step,
        )
        finite = output.finite + FiniteChecks.of({"gradient": grad_norm})
        return new_state, UpdateOutput({**output.metrics, "grad_norm": grad_norm}, finite, output.intrinsic_reward)

    def learn_rollout(self, state: LearnerState, rollout: Trajectory) -> tuple[LearnerState, UpdateOutput]:
        """Perform all updates of a rollout [T, E], whose environments may be sharded over devices.

        Returns:
          The state, and outputs with a leading axis of updates; intrinsic rewards are [T-1, E].
        """
        state, batches, prepared = self.begin_rollout(state, rollout)
        state, outputs = jax.lax.scan(self.update, state, batches)
        return self.end_rollout(state, rollout), self.merge_outputs(prepared, outputs)

    def begin_rollout(
        self, state: LearnerState, trajectory: Trajectory
    ) -> tuple[LearnerState, Batch, UpdateOutput | None]:
        """Cut a rollout [T, E] into the minibatches of its updates, with targets if the algorithm computes them once.

        Returns:
          The state, minibatches with a leading axis of updates, and the output of the targets if there are any.
        """
        batch, prepared = Batch(trajectory), None
        if self.algorithm.targets_per_rollout:
            state, batch, prepared = self.compute_rollout_targets(state, trajectory)
        return state, self.make_minibatches(state, batch), prepared

    def end_rollout(self, state: LearnerState, trajectory: Trajectory) -> LearnerState:
        """Add a rollout to the observation statistics, if its updates have not."""
        if not self.algorithm.targets_per_rollout:
            return state
        # With moving statistics the ratio to the behaviour policy would differ from 1 before any gradient, and every
        # epoch would add the same observations again. The target policy is a copy of the online one by now.
        online = _update_obs_stats(state.online, trajectory)
        target = eqx.tree_at(lambda actor: actor.obs_normalizer, state.target_actor, online.actor.obs_normalizer)
        return state._replace(online=online, target_actor=target)

    def compute_rollout_targets(
        self, state: LearnerState, trajectory: Trajectory
    ) -> tuple[LearnerState, Batch, UpdateOutput]:
        """Compute the targets of a rollout [T, E] with the parameters before its updates.

        Returns:
          The state with the rollout in its statistics, the rollout with targets, and the output for logs.
        """
        forward = self.loss_function.forward(state.online, state, trajectory)
        output, metrics, finite = self.loss_function.targets(state.online, state, forward, trajectory)
        online = self._rescale_value_head(state.online, state.statistics, output.statistics)
        state, targets = state._replace(online=online, statistics=output.statistics), output.targets
        return state, Batch(trajectory, targets), UpdateOutput(metrics, finite, targets.intrinsic_reward)

    def intrinsic_reward(self, state: LearnerState, trajectory: Trajectory) -> Array:
        """Return the normalised intrinsic reward [T-1, B] of a batch, without learning from it."""
        return self.compute_rollout_targets(state, trajectory)[2].intrinsic_reward

    def make_minibatches(self, state: LearnerState, batch: Batch) -> Batch:
        """Cut a rollout into minibatches of whole sequences, with a leading axis of updates.

        Every minibatch takes one group of each row (`split_rows`): a random one if the algorithm draws an order.
        """
        # The key depends on the seed and the learner step alone: a resumed run draws the same order.
        key = jax.random.fold_in(jax.random.key(self.config.seed), state.step)
        rows = self.config.runtime.batch_size // self.group_size
        order = self.algorithm.minibatch_order(key, rows, self.batches_per_epoch)

        def cut(axis: int, x: Array) -> Array:
            """[..., E, ...] to [updates, ..., B, ...], where `axis` is that of the environments."""
            groups = self.split_rows(x, axis)
            if order is not None:
                index = order.reshape(*[1] * axis, *order.shape, *[1] * (groups.ndim - axis - 2))
                groups = jnp.take_along_axis(groups, index, axis=axis + 1)
            groups = jnp.moveaxis(groups, axis + 1, 0)
            return groups.reshape(*groups.shape[: axis + 1], self.config.runtime.batch_size, *x.shape[axis + 1 :])

        return _map_axes(cut, Batch(TRAJECTORY_ENV_AXES, 1), batch)  # pyright: ignore[reportArgumentType]

    def split_rows(self, x: AnyArray, axis: int) -> AnyArray:
        """Split the axis of environments E into [rows, batches_per_epoch, group_size].

        A minibatch takes one group of each row.
        """
        # Devices and processes hold consecutive environments, so each holds whole rows, gives an equal part of every
        # minibatch, and no environment moves. Minibatches are the same on any number of devices.
        rows = x.shape[axis] // (self.batches_per_epoch * self.group_size)
        shape = rows, self.batches_per_epoch, self.group_size
        return x.reshape(*x.shape[:axis], *shape, *x.shape[axis + 1 :])

    def merge_outputs(self, prepared: UpdateOutput | None, outputs: UpdateOutput) -> UpdateOutput:
        """Join the outputs [updates, ...] of a rollout's updates with that of its targets; rewards become [T-1, E]."""
        if prepared is None:
            # Without targets per rollout there is no drawn order: minibatch i has group i of each row.
            batches, steps, size = outputs.intrinsic_reward.shape
            groups = outputs.intrinsic_reward.reshape(batches, steps, -1, self.group_size)
            reward = groups.transpose(1, 2, 0, 3).reshape(steps, batches * size)
            return outputs._replace(intrinsic_reward=reward)
        updates = len(outputs.finite.flags)
        metrics, finite = jax.tree.map(
            lambda x: jnp.broadcast_to(x, (updates, *x.shape)), (prepared.metrics, prepared.finite)
        )
        return UpdateOutput({**metrics, **outputs.metrics}, finite + outputs.finite, prepared.intrinsic_reward)

    def _rescale_value_head(self, online: Networks, before: RunningStatistics, after: RunningStatistics) -> Networks:
        """Keep all values when PopArt's statistics move."""
        return eqx.tree_at(
            lambda networks: networks.value_head.layers[-1],
            online,
            replace_fn=lambda layer: self.critic.rescale_head(layer, before.popart, after.popart),
        )


def _update_obs_stats(online: Networks, trajectory: Trajectory) -> Networks:
    return eqx.tree_at(lambda x: x.actor, online, online.actor.update_obs_stats(trajectory.observation))


def target_is_constant(period: int, updates: int) -> bool:
    """Return True if the target policy cannot change while one rollout is learned from.

    Args:
      period: learner steps between refreshes of the target policy.
      updates: learner steps per rollout.
    """
    # A rollout begins at a multiple of `updates`: every refresh lies between two rollouts if its period is one too.
    return period % updates == 0
