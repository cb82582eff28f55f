"""From uncertainties and rewards to value targets and advantages; the PopArt critic.

The order is that of the data: uncertainty and extrinsic reward -> mixed reward -> value targets and advantages ->
PopArt statistics. No gradient flows through any of it.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from byol_explore.agent.algorithm import Algorithm
from byol_explore.config.config import Config, is_prioritized
from byol_explore.errors import UserError
from byol_explore.networks.layers import Linear
from byol_explore.ops import value as value_ops
from byol_explore.ops.arrays import masked_mean, mean_per_task, merge_time_batch
from byol_explore.ops.rewards import (
    RewardConfig,
    Rewards,
    RewardStatistics,
    bias_corrected_std,
    compute_rewards,
    init_reward_statistics,
)
from byol_explore.types import Array, Trajectory


class PopArtCritic(NamedTuple):
    """Reads values from the value head and learns them in PopArt's normalised units; holds settings and no state."""

    tasks: int  # outputs of the value head
    step_size: float  # of PopArt's statistics
    min_scale: float  # of PopArt's standard deviation, relative as in `popart_std`

    def values(self, layer: Linear, stats: value_ops.PopArt, hidden: Array, task: Array) -> Array:
        """Return values [T, B] in units of the reward, without gradient.

        Args:
          layer: last layer of the value head.
          stats: statistics of the value targets, per task.
          hidden: [T, B, H] input of that layer.
          task: [T, B] int32.
        """
        normalized = jax.lax.stop_gradient(self._select_task(layer(hidden), task))
        return value_ops.popart_std(stats, self.min_scale)[task] * normalized + stats.mean[task]

    def update(self, stats: value_ops.PopArt, target: Array, task: Array, valid: Array) -> value_ops.PopArt:
        """Add value targets [T-1, B] to the statistics of their tasks."""
        return value_ops.update_popart(
            stats, merge_time_batch(target), merge_time_batch(task), merge_time_batch(valid), self.step_size
        )

    def loss(
        self, layer: Linear, before: value_ops.PopArt, after: value_ops.PopArt, hidden: Array, task: Array,
        target: Array, valid: Array,
    ) -> Array:  # fmt: skip
        """Squared error [] in normalised units.

        Args:
          layer: last layer of the value head, under the statistics `before`.
          before: statistics without these targets.
          after: statistics with these targets.
          hidden: [T-1, B, H] input of that layer.
          task: [T-1, B] int32.
          target: [T-1, B] value targets in units of the reward.
          valid: [T-1, B] False for the dummy transition.
        """
        # PopArt adds the targets to its statistics first, rescales the head, and then descends the loss of the rescaled
        # head. `straight` computes with the rescaled layer and passes the gradient to the layer before it unchanged.
        rescaled = self.rescale_head(layer, before, after)
        straight = jax.tree.map(lambda old, new: old + jax.lax.stop_gradient(new - old), layer, rescaled)
        normalized = self._select_task(straight(hidden), task)
        expected = (target - after.mean[task]) / value_ops.popart_std(after, self.min_scale)[task]
        return masked_mean(jnp.square(normalized - expected), valid)

    def rescale_head(self, layer: Linear, before: value_ops.PopArt, after: value_ops.PopArt) -> Linear:
        """Return the last layer that gives the same values under new statistics."""
        assert layer.bias is not None
        parameters = value_ops.rescale_head(layer.weight, layer.bias, before, after, self.min_scale)
        return eqx.tree_at(lambda x: (x.weight, x.bias), layer, parameters)

    def _select_task(self, outputs: Array, task: Array) -> Array:
        """Select the output [...] of each task from [..., tasks]."""
        return jnp.sum(jax.nn.one_hot(task, self.tasks) * outputs, axis=-1)


class RunningStatistics(NamedTuple):
    """Running statistics of the learner, updated from data and not by gradients."""

    reward: RewardStatistics
    popart: value_ops.PopArt


class Targets(NamedTuple):
    """The quantities that losses read, without gradient."""

    advantage: Array  # [T-1, B] in units of PopArt's standard deviation of the task
    value_target: Array  # [T-1, B] in units of the reward
    intrinsic_reward: Array  # [T-1, B] normalised; for maps and films, no loss reads it


class TargetOutput(NamedTuple):
    """Targets of a batch and intermediate results."""

    statistics: RunningStatistics  # updated with the batch
    rewards: Rewards  # [T-1, B] each
    value: Array  # [T, B]
    targets: Targets


def compound_step_size(step_size: float, batches: int) -> float:
    """Return the step size that moves a running mean in one update as far as `batches` updates would."""
    return 1.0 - (1.0 - step_size) ** batches


class TargetComputer:
    """Computes the targets of batches; holds settings and no state.

    Args:
      config: configuration of the run.
      algorithm: makes value targets and advantages of rewards.
      critic: reads values.
      batches: minibatches whose targets are computed at once. Running statistics then move once, as far as they would
        have moved batch by batch; otherwise PPO's would be slower than V-MPO's by this factor.
    """

    def __init__(self, config: Config, algorithm: Algorithm, critic: PopArtCritic, batches: int = 1) -> None:
        self.gamma, self.per_task = config.agent.gamma, config.curiosity.normalize_per_task
        self.algorithm, self.critic = algorithm, critic
        self.settings = RewardConfig(
            regime=config.regime,
            mixing=config.curiosity.mixing,
            prioritize=is_prioritized(config),
            decay=config.curiosity.normalizer_decay**batches,
            intrinsic_step=compound_step_size(config.intrinsic_rms_step_size(critic.tasks), batches),
            extrinsic_step=compound_step_size(config.agent.extrinsic_rms_step_size, batches),
            min_scale=config.agent.min_relative_reward_rms,
        )

    def initial_statistics(self) -> RunningStatistics:
        tasks = self.critic.tasks
        return RunningStatistics(init_reward_statistics(tasks, per_task=self.per_task), value_ops.init_popart(tasks))

    def __call__(
        self, statistics: RunningStatistics, layer: Linear, hidden: Array, uncertainty: Array, trajectory: Trajectory,
        *, mixing: Array,
    ) -> TargetOutput:  # fmt: skip
        """Compute the targets of a batch.

        Args:
          statistics: before the batch.
          layer: last layer of the value head.
          hidden: [T, B, H] input of that layer.
          uncertainty: [T-1, B] raw, of the intrinsic method.
          trajectory: [T, B] the batch.
          mixing: [] lambda, the weight of the intrinsic reward.
        """
        task, valid = trajectory.task_id, trajectory.valid
        settings = self.settings._replace(mixing=mixing)
        reward_statistics, rewards = compute_rewards(
            statistics.reward, uncertainty, trajectory.reward, task[:-1], valid, settings
        )
        value = self.critic.values(layer, statistics.popart, hidden, task)
        # Times 1 - gamma: values stay on the scale of a reward, whatever the horizon.
        reward, discount = (1.0 - self.gamma) * rewards.total, self.gamma * trajectory.discount
        target, advantage = self.algorithm.compute_targets(value, reward, discount, valid)
        for name, array in (("value targets", target), ("advantages", advantage)):
            if array.shape != valid.shape:
                raise UserError(
                    f"algorithm {type(self.algorithm).__name__} makes {name} of shape {array.shape}: it must be "
                    f"{valid.shape}"
                )
        popart = self.critic.update(statistics.popart, target, task[:-1], valid)
        # In units of each task's values: neither losses nor the balance of tasks depend on the scale of rewards.
        advantage = advantage / value_ops.popart_std(popart, self.critic.min_scale)[task[:-1]]
        targets = Targets(advantage, target, rewards.normalized)
        return TargetOutput(RunningStatistics(reward_statistics, popart), rewards, value, targets)

    def metrics(self, output: TargetOutput, uncertainty: Array, trajectory: Trajectory) -> dict[str, Array]:
        """Return the metrics of a batch whose targets were computed from `uncertainty` [T-1, B]."""
        valid, task, rewards, targets = trajectory.valid, trajectory.task_id[:-1], output.rewards, output.targets
        reward_per_task, transitions = mean_per_task(
            merge_time_batch(rewards.scaled), merge_time_batch(task), merge_time_batch(valid), self.critic.tasks
        )
        moments = output.statistics.reward.normalizer.uncertainty
        return {
            "uncertainty": masked_mean(uncertainty, valid),
            "uncertainty_running_std": jnp.mean(bias_corrected_std(moments, self.settings.decay)),
            "intrinsic_reward": masked_mean(rewards.normalized, valid),
            "intrinsic_nonzero_fraction": masked_mean((rewards.normalized > 0).astype(jnp.float32), valid),
            # Drawn tasks may be missing from a batch. The counts are the weights for means over batches.
            "intrinsic_reward_per_task": jnp.where(transitions > 0, reward_per_task, jnp.nan),
            "transitions_per_task": transitions,
            "extrinsic_reward": masked_mean(trajectory.reward, valid),
            "value": masked_mean(output.value[:-1], valid),
            "value_target": masked_mean(targets.value_target, valid),
            "popart_std": jnp.mean(value_ops.popart_std(output.statistics.popart, self.critic.min_scale)),
            "advantage_std": jnp.sqrt(masked_mean(jnp.square(targets.advantage), valid)),
        }
