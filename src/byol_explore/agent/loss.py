"""The loss of a minibatch: one forward pass, then the losses of curiosity, critic and policy."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from byol_explore.agent.algorithm import Algorithm, PolicyBatch
from byol_explore.agent.state import Batch, FiniteChecks, LearnerState, UpdateOutput
from byol_explore.agent.targets import PopArtCritic, RunningStatistics, TargetComputer, TargetOutput
from byol_explore.config.config import Config
from byol_explore.curiosity.method import MethodOutput, compute_output, health_metrics
from byol_explore.networks.representation import Networks, RepresentationOutput
from byol_explore.ops import policy as policy_ops
from byol_explore.ops.arrays import masked_mean, merge_time_batch
from byol_explore.types import Array, Policy, PyTree, Trajectory


class ForwardPass(NamedTuple):
    """Outputs of the networks for a batch, without the policy head."""

    policy_view: RepresentationOutput
    curiosity_view: RepresentationOutput  # the same arrays if the curiosity shares the policy's representation
    method_output: MethodOutput
    value_hidden: Array  # [T, B, H] of the last hidden layer of the value head

    @property
    def must_be_finite(self) -> dict[str, PyTree]:
        """Quantities to check, in causal order."""
        return {
            "observation embedding": self.policy_view.embedding,
            "belief": self.policy_view.belief,
            "curiosity loss": self.method_output.loss,
        }


class LossFunction:
    """The loss of a batch; holds settings and no state.

    Args:
      config: configuration of the run.
      algorithm, critic, target_computer: parts of the learner.
      behaviour_is_target: the target policy acted in every batch (see `Learner`).
    """

    def __init__(
        self, config: Config, algorithm: Algorithm, critic: PopArtCritic, target_computer: TargetComputer,
        *, behaviour_is_target: bool,
    ) -> None:  # fmt: skip
        self.value_weight, self.behaviour_is_target = config.agent.value_weight, behaviour_is_target
        self.algorithm, self.critic, self.target_computer = algorithm, critic, target_computer

    def forward(self, online: Networks, state: LearnerState, trajectory: Trajectory) -> ForwardPass:
        """Run the networks over a batch [T, B] from its stored recurrent states, as the actor ran them."""
        actor, recurrent_state, previous = online.actor, trajectory.initial_state, trajectory.previous
        sequence = actor.normalize(trajectory).sequence._replace(raw_observation=trajectory.observation)
        policy_view = actor.representation.unroll(sequence, previous, recurrent_state.policy_core)
        curiosity_view = policy_view
        if actor.curiosity_representation is not None:
            curiosity_view = actor.curiosity_representation.unroll(sequence, previous, recurrent_state.curiosity_core)
        curiosity_view = curiosity_view._replace(episodic_memory=recurrent_state.episodic_memory)
        method_output = compute_output(online.curiosity, state.method_state, curiosity_view, sequence)
        return ForwardPass(policy_view, curiosity_view, method_output, online.value_head.hidden(policy_view.belief))

    def targets(
        self, online: Networks, state: LearnerState, forward: ForwardPass, trajectory: Trajectory
    ) -> tuple[TargetOutput, dict[str, Array], FiniteChecks]:
        """Compute targets. Returns (targets, metrics, finite checks of all quantities on the way to them)."""
        uncertainty = forward.method_output.uncertainty
        output = self.target_computer(
            state.statistics, online.value_head.layers[-1], forward.value_hidden, uncertainty, trajectory,
            mixing=state.hyperparams.mixing,
        )  # fmt: skip
        metrics = self.target_computer.metrics(output, uncertainty, trajectory)
        finite = FiniteChecks.of({
            "extrinsic reward": jnp.where(trajectory.valid, trajectory.reward, 0.0),
            **forward.must_be_finite,
            "intrinsic reward": metrics["intrinsic_reward"],
            "value": metrics["value"],
            "value target": metrics["value_target"],
        })  # fmt: skip
        return output, metrics, finite

    def loss(
        self, online: Networks, duals: PyTree, state: LearnerState, batch: Batch
    ) -> tuple[Array, tuple[RunningStatistics, UpdateOutput]]:
        """Compute the loss that one learner step descends.

        loss = L_policy - w_entropy H(pi) + w_value L_value + w_curiosity L_curiosity

        Args:
          online: network parameters, to differentiate by.
          duals: the algorithm's parameters, to differentiate by.
          state: the learner before the step.
          batch: a minibatch, with targets if they were computed once per rollout.
        Returns:
          The loss [], and (statistics after the batch, output of the step).
        """
        trajectory, valid, hyperparams = batch.trajectory, batch.trajectory.valid, state.hyperparams
        forward = self.forward(online, state, trajectory)
        statistics, targets = state.statistics, batch.targets
        metrics, finite = {}, FiniteChecks.of(forward.must_be_finite)
        if targets is None:
            # The same forward pass gives targets and losses: the parameters have not moved yet.
            target_output, metrics, finite = self.targets(online, state, forward, trajectory)
            statistics, targets = target_output.statistics, target_output.targets
        value_loss = self.critic.loss(
            online.value_head.layers[-1], state.statistics.popart, statistics.popart,
            forward.value_hidden[:-1], trajectory.task_id[:-1], targets.value_target, valid,
        )  # fmt: skip
        # Beliefs [T, B]: the last one only bootstraps the value. The policy acts from the first T - 1.
        policy = online.actor.policy_head(forward.policy_view.belief[:-1])
        policies = PolicyBatch(
            policy, self._target_policy(state, trajectory), trajectory.behaviour_policy, trajectory.action, valid
        )
        flat: PolicyBatch = jax.tree.map(merge_time_batch, policies)
        policy_loss = self.algorithm.loss(duals, flat, merge_time_batch(targets.advantage))
        entropy = masked_mean(jax.vmap(policy_ops.entropy)(flat.online), flat.valid)
        loss = (
            policy_loss.loss - hyperparams.entropy_weight * entropy
            + self.value_weight * value_loss + hyperparams.loss_weight * forward.method_output.loss
        )  # fmt: skip
        metrics |= {
            "loss": loss,
            "loss_curiosity": forward.method_output.loss,
            "loss_value": value_loss,
            "entropy": entropy,
            **forward.method_output.metrics,
            **policy_loss.metrics,
            **health_metrics(
                online.curiosity, state.method_state, online.actor.curiosity_encoder, forward.curiosity_view.embedding
            ),
        }
        finite += FiniteChecks.of({"policy logits": policy, **policy_loss.must_be_finite})
        return loss, (statistics, UpdateOutput(metrics, finite, targets.intrinsic_reward))

    def _target_policy(self, state: LearnerState, trajectory: Trajectory) -> Policy:
        """Return the target policy [T-1, B, ...] at the first T - 1 observations."""
        # If the target policy acted, the trajectory holds its output already: skip a second forward pass of the
        # representation. Asynchronous actors acted with an older policy, but KL constraints are to the current one.
        if self.behaviour_is_target or not self.algorithm.needs_target_policy:
            return trajectory.behaviour_policy
        actor = state.target_actor
        sequence = actor.normalize(trajectory).sequence
        view = actor.representation.unroll(sequence, trajectory.previous, trajectory.initial_state.policy_core)
        return actor.policy_head(view.belief[:-1])
