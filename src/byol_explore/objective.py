"""What the learner descends: the losses of curiosity, critic and policy over a batch, from one forward pass."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from byol_explore.algorithms.base import Algorithm, Choices
from byol_explore.algorithms.critic import Critic
from byol_explore.algorithms.judging import Judge, Judgement, Statistics
from byol_explore.curiosity.base import CuriosityOutput, ask
from byol_explore.curiosity.vitals import vitals
from byol_explore.learner_state import Batch, LearnerState, UpdateOutput
from byol_explore.networks.assembly import Networks, View
from byol_explore.ops import policies
from byol_explore.ops.batches import flat
from byol_explore.ops.moments import masked_mean
from byol_explore.settings.config import Config
from byol_explore.types import Array, Policy, PyTree, Trajectory

SEEN = ("observation embedding", "belief", "curiosity loss")


class Seen(NamedTuple):
    """A batch through the networks."""

    view: View
    curious: View  # what the curiosity sees: the same when it shares the policy's representation
    curiosity: CuriosityOutput
    value_hidden: Array  # [T, B, ...] the critic's last hidden layer


class Objective:
    """The loss of a batch; holds no state.

    Where the policy that acted `is_target`, the target policy is not asked again what it said.
    """

    def __init__(self, config: Config, algorithm: Algorithm, critic: Critic, judge: Judge, *, is_target: bool) -> None:
        self.value_weight, self.is_target = config.agent.value_weight, is_target
        self.algorithm, self.critic, self.judge = algorithm, critic, judge

    @property
    def finite_names(self) -> tuple[str, ...]:
        """What is checked, in causal order: what is seen is seen again in each update."""
        extrinsic, *judged = self.judge.checks
        again = SEEN if self.algorithm.judges_rollouts else ()
        return (extrinsic, *SEEN, *judged, *again, "policy logits", *self.algorithm.checks)

    def see(self, online: Networks, state: LearnerState, trajectory: Trajectory) -> Seen:
        """One forward pass over a batch, the policy's head left out."""
        actor, memory, trajectory = online.actor, trajectory.memory, online.actor.normalized(trajectory)
        sequence, before = trajectory.sequence, trajectory.before
        view = actor.representation.unroll(sequence, before, memory.core)
        curious = view if actor.curious is None else actor.curious.unroll(sequence, before, memory.curious)
        curious = curious._replace(episode=memory.episode)
        curiosity = ask(online.curiosity, state.curiosity, curious, sequence)
        return Seen(view, curious, curiosity, online.value.hidden(view.belief))

    def judged(
        self, online: Networks, state: LearnerState, seen: Seen, trajectory: Trajectory
    ) -> tuple[Judgement, dict[str, Array], Array]:
        """What transitions were worth, what a log says of it, and whether all that was seen until then is finite."""
        uncertainty, layer = seen.curiosity.uncertainty, online.value.layers[-1]
        judgement = self.judge(
            state.statistics, layer, seen.value_hidden, uncertainty, trajectory, mixing=state.dials.mixing
        )
        metrics = self.judge.metrics(judgement, uncertainty, trajectory)
        extrinsic, *others = self.judge.to_check(metrics, trajectory)
        return judgement, metrics, _all_finite((extrinsic, *_to_check(seen), *others))

    def loss(
        self, online: Networks, duals: PyTree, state: LearnerState, batch: Batch
    ) -> tuple[Array, tuple[Statistics, UpdateOutput]]:
        """Curiosity, value and policy losses from one forward pass with the parameters before the update."""
        trajectory, valid, dials = batch.trajectory, batch.trajectory.valid, state.dials
        seen = self.see(online, state, trajectory)
        before, after, judged = state.statistics, state.statistics, batch.judged
        metrics, finite = {}, _all_finite(_to_check(seen))
        if judged is None:
            judgement, metrics, finite = self.judged(online, state, seen, trajectory)
            after, judged = judgement.statistics, judgement.judged
        value_loss = self.critic.loss(
            online.value.layers[-1], before.popart, after.popart,
            seen.value_hidden[:-1], trajectory.task[:-1], judged.value_target, valid,
        )  # fmt: skip
        policy = online.actor.policy(seen.view.belief[:-1])
        target = self._target_policy(state, trajectory)
        choices = jax.tree.map(flat, Choices(policy, target, trajectory.policy, trajectory.action, valid))
        policy_loss = self.algorithm.loss(duals, choices, flat(judged.advantage))
        entropy = masked_mean(jax.vmap(policies.entropy)(choices.policy), choices.valid)
        loss = (
            policy_loss.loss - dials.entropy_weight * entropy
            + self.value_weight * value_loss + dials.loss_weight * seen.curiosity.loss
        )  # fmt: skip
        metrics |= {
            "loss": loss,
            "loss_curiosity": seen.curiosity.loss,
            "loss_value": value_loss,
            "entropy": entropy,
            **seen.curiosity.metrics,
            **policy_loss.metrics,
            **vitals(online.curiosity, state.curiosity, online.actor.curious_encoder, seen.curious.embedding),
        }
        finite = jnp.concatenate([finite, _all_finite((policy, *policy_loss.checks))])
        return loss, (after, UpdateOutput(metrics, finite, judged.intrinsic))

    def _target_policy(self, state: LearnerState, trajectory: Trajectory) -> Policy:
        """[T-1, B, ...] what the target policy says of a batch, which an older one may have acted."""
        if self.is_target or not self.algorithm.needs_target:
            return trajectory.policy
        acting = state.acting
        sequence = acting.normalized(trajectory).sequence
        view = acting.representation.unroll(sequence, trajectory.before, trajectory.memory.core)
        return acting.policy(view.belief[:-1])


def _to_check(seen: Seen) -> tuple[PyTree, ...]:
    """What must be finite, in the order of SEEN."""
    return seen.view.embedding, seen.view.belief, seen.curiosity.loss


def _all_finite(trees: tuple[PyTree, ...]) -> Array:
    """Whether each tree is finite everywhere."""
    bad = [sum(jnp.sum(~jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)) for tree in trees]
    return jnp.stack(bad) == 0
