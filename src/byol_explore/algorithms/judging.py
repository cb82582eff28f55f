"""What transitions were worth: uncertainties become rewards, rewards become value targets and advantages."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from byol_explore.algorithms.base import Algorithm
from byol_explore.algorithms.critic import Critic
from byol_explore.curiosity.reward import Rewards, RewardSettings, RewardStatistics, initial_statistics, make_rewards
from byol_explore.errors import UserError
from byol_explore.networks.layers import Linear
from byol_explore.ops import moments, popart
from byol_explore.ops.moments import masked_mean
from byol_explore.settings.config import Config
from byol_explore.settings.methods import prioritizes
from byol_explore.types import Array, PyTree, Trajectory


class Statistics(NamedTuple):
    """Running statistics, changed by data and not by gradients."""

    reward: RewardStatistics
    popart: popart.PopArt


class Judged(NamedTuple):
    """What learning needs to know of transitions, [T-1, B]; no gradient flows through it."""

    advantage: Array
    value_target: Array  # in units of the reward
    intrinsic: Array  # reward, normalised: for maps and films


class Judgement(NamedTuple):
    """All that was found out about a batch, and the statistics with the batch in them."""

    statistics: Statistics
    rewards: Rewards
    value: Array  # [T, B]
    judged: Judged


def compounded(step: float, batches: int) -> float:
    """How far a running mean moves that takes in so many batches at once, as far as one after the other would."""
    return 1.0 - (1.0 - step) ** batches


def reward_settings(config: Config, tasks: int, batches: int = 1) -> RewardSettings:
    """How this configuration makes rewards of uncertainties in so many tasks, so many batches of them at once."""
    return RewardSettings(
        regime=config.regime,
        mixing=config.curiosity.mixing,
        prioritize=prioritizes(config),
        decay=config.curiosity.normalizer_decay**batches,
        intrinsic_step=compounded(config.intrinsic_scale_step(tasks), batches),
        extrinsic_step=compounded(config.agent.extrinsic_scale_step, batches),
        min_scale=config.agent.min_reward_scale,
    )


class Judge:
    """Judges batches for an algorithm, or rollouts of so many batches; holds no state."""

    checks = ("extrinsic reward", "intrinsic reward", "value", "value target")

    def __init__(self, config: Config, algorithm: Algorithm, critic: Critic, batches: int = 1) -> None:
        self.gamma, self.per_task = config.agent.gamma, config.curiosity.normalize_per_task
        self.settings, self.algorithm, self.critic = reward_settings(config, critic.tasks, batches), algorithm, critic

    def initial_statistics(self) -> Statistics:
        """Before the first batch."""
        tasks = self.critic.tasks
        return Statistics(initial_statistics(tasks, per_task=self.per_task), popart.initial_popart(tasks))

    def __call__(
        self, statistics: Statistics, layer: Linear, hidden: Array, uncertainty: Array, trajectory: Trajectory,
        *, mixing: Array,
    ) -> Judgement:  # fmt: skip
        """Of uncertainties [T-1, B], and values that the critic's last layer reads off `hidden` [T, B, ...]."""
        task, valid = trajectory.task, trajectory.valid
        settings = self.settings._replace(mixing=mixing)
        reward_statistics, rewards = make_rewards(
            statistics.reward, uncertainty, trajectory.reward, task[:-1], valid, settings
        )
        value = self.critic.values(layer, statistics.popart, hidden, task)
        reward, discount = (1.0 - self.gamma) * rewards.total, self.gamma * trajectory.discount
        target, advantage = self.algorithm.targets(value, reward, discount, valid)
        for what, array in (("value targets", target), ("advantages", advantage)):
            if array.shape != valid.shape:
                name = type(self.algorithm).__name__
                raise UserError(f"algorithm {name} makes {what} of shape {array.shape}: it must be {valid.shape}")
        statistics = Statistics(reward_statistics, self.critic.update(statistics.popart, target, task[:-1], valid))
        return Judgement(statistics, rewards, value, Judged(advantage, target, rewards.normalized))

    def metrics(self, judgement: Judgement, uncertainty: Array, trajectory: Trajectory) -> dict[str, Array]:
        """What a log says of a judgement."""
        valid, task, rewards, judged = trajectory.valid, trajectory.task[:-1], judgement.rewards, judgement.judged
        scale = popart.scale(judgement.statistics.popart, self.critic.min_scale)
        raw = judgement.statistics.reward.normalizer.raw

        def paid(index: Array) -> Array:
            """Of a task; one that is not in the batch, as tasks that are drawn may be, counts as the batch does."""
            mine = valid & (task == index)
            return masked_mean(rewards.scaled, jnp.where(jnp.any(mine), mine, valid))

        return {
            "uncertainty": masked_mean(uncertainty, valid),
            "uncertainty_stddev": jnp.mean(moments.standard_deviation(raw, self.settings.decay)),
            "intrinsic_reward": masked_mean(rewards.normalized, valid),
            "paid_share": masked_mean((rewards.normalized > 0).astype(jnp.float32), valid),
            "paid_reward": jax.vmap(paid)(jnp.arange(self.critic.tasks)),
            "extrinsic_reward": masked_mean(trajectory.reward, valid),
            "value": masked_mean(judgement.value[:-1], valid),
            "value_target": masked_mean(judged.value_target, valid),
            "value_scale": jnp.mean(scale),
            "advantage_stddev": jnp.sqrt(masked_mean(jnp.square(judged.advantage), valid)),
        }

    def to_check(self, metrics: dict[str, Array], trajectory: Trajectory) -> tuple[PyTree, ...]:
        """What must be finite, in the order of `checks`."""
        extrinsic = jnp.where(trajectory.valid, trajectory.reward, 0.0)
        return extrinsic, metrics["intrinsic_reward"], metrics["value"], metrics["value_target"]
