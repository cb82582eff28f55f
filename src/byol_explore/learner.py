"""The learner: its whole state in one pytree, and the one update that changes it.

It puts together what others do. A representation sees a batch, a curiosity is uncertain about it, a judge makes
rewards, value targets and advantages of that, an algorithm and a critic learn from them.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from byol_explore.algorithms.base import Choices
from byol_explore.algorithms.critic import Critic
from byol_explore.algorithms.judging import Judge, Judged, Statistics, compounded
from byol_explore.curiosity.base import CuriosityOutput, ask, move
from byol_explore.curiosity.vitals import vitals
from byol_explore.envs.base import EnvSpec
from byol_explore.networks.assembly import Actor, Networks, View
from byol_explore.networks.optimizing import make_optimizer
from byol_explore.ops import policies
from byol_explore.ops.moments import masked_mean
from byol_explore.registries import ALGORITHMS
from byol_explore.settings.config import Config
from byol_explore.starting import start_networks
from byol_explore.types import Array, Policy, PyTree, Trajectory


class LearnerState(NamedTuple):
    online: Networks
    curiosity: PyTree  # the method's state: a target encoder, counts, whatever it keeps
    acting: Actor  # the target policy
    duals: PyTree  # what the algorithm trains for itself
    optimizer: optax.OptState
    dual_optimizer: optax.OptState
    statistics: Statistics
    step: Array  # [] learner steps done


class Batch(NamedTuple):
    """What an update learns from, or all updates of a rollout."""

    trajectory: Trajectory
    judged: Judged | None = None  # None where every update judges its own batch


class Seen(NamedTuple):
    """A batch through the networks."""

    view: View
    curious: View  # what the curiosity sees: the same when it shares the policy's representation
    curiosity: CuriosityOutput
    value_hidden: Array  # [T, B, ...] the critic's last hidden layer


class UpdateOutput(NamedTuple):
    """What a learner step says of its batch."""

    metrics: dict[str, Array]
    finite: Array  # [len(Learner.finite_names)] whether each quantity was finite
    intrinsic_reward: Array  # [T-1, B] normalised, 0 where no transition is


SEEN = ("observation embedding", "belief", "curiosity loss")


class Learner:
    """Builds and updates a `LearnerState`; holds no state of its own.

    `envs` is the number of environments in the rollouts that it learns from. A runtime that acts and learns `in_turn`
    says so: where every batch is then acted by the very target policy that it is learned with, a forward pass is saved.
    """

    def __init__(
        self, config: Config, spec: EnvSpec, tasks: int, *, envs: int | None = None, in_turn: bool = False
    ) -> None:
        self.config, self.spec, self.tasks = config, spec, tasks
        self.envs, self.in_turn = config.runtime.num_envs if envs is None else envs, in_turn
        self.algorithm = ALGORITHMS.get(config.algorithm)(config, spec.action)
        batches = self.envs // config.runtime.batch_size if self.algorithm.judges_rollouts else 1  # judged at once
        self.critic = Critic(tasks, compounded(config.agent.popart_step, batches), config.agent.popart_min_scale)
        self.judge = Judge(config, self.algorithm, self.critic, batches)
        self.optimizer = make_optimizer(config.optimizer)
        self.dual_optimizer = optax.adam(config.optimizer.dual_learning_rate)

    @property
    def updates(self) -> int:
        """Learner steps per rollout."""
        return self.envs // self.config.runtime.batch_size * self.algorithm.epochs()

    @property
    def acting_period(self) -> int:
        """Learner steps between refreshes of the policy that acts."""
        return self.algorithm.acting_period(self.updates)

    @property
    def stored_is_target(self) -> bool:
        """Whether the policy that acted is the target policy in all updates from what it did."""
        return self.in_turn and keeps_target(self.acting_period, self.updates)

    @property
    def finite_names(self) -> tuple[str, ...]:
        """The quantities of `UpdateOutput.finite`, in causal order: what is seen is seen again in each update."""
        extrinsic, *judged = self.judge.checks
        again = SEEN if self.algorithm.judges_rollouts else ()
        return (extrinsic, *SEEN, *judged, *again, "policy logits", *self.algorithm.checks, "gradient")

    def init(self, key: Array, observation: PyTree = None) -> LearnerState:
        """A fresh state: target networks equal to the online ones, duals at their initial values.

        Networks are centred on the observations [n, ...] if there are any (`starting.py`).
        """
        online, curiosity = start_networks(self.config, self.spec, self.tasks, key, observation)
        duals = self.algorithm.initial_duals()
        return LearnerState(
            online=online,
            curiosity=curiosity,
            acting=jax.tree.map(jnp.copy, online.actor),
            duals=duals,
            optimizer=self.optimizer.init(online),  # pyright: ignore[reportArgumentType]
            dual_optimizer=self.dual_optimizer.init(duals),
            statistics=self.judge.initial_statistics(),
            step=jnp.zeros((), jnp.int32),
        )

    def prepare(self, state: LearnerState, trajectory: Trajectory) -> tuple[LearnerState, Batch, UpdateOutput]:
        """Judge a whole rollout [T, E] with the parameters before its updates: statistics move, nothing is learned."""
        seen = self.see(state.online, state, trajectory)
        layer = state.online.value.layers[-1]
        judgement = self.judge(state.statistics, layer, seen.value_hidden, seen.curiosity.uncertainty, trajectory)
        metrics = self.judge.metrics(judgement, seen.curiosity.uncertainty, trajectory)
        extrinsic, *judged = self.judge.to_check(metrics, trajectory)
        finite = _all_finite((extrinsic, *_to_check(seen), *judged))
        online = self._rescaled(state.online, state.statistics, judgement.statistics)
        state = state._replace(online=online, statistics=judgement.statistics)
        return state, Batch(trajectory, judgement.judged), UpdateOutput(metrics, finite, judgement.judged.intrinsic)

    def update(self, state: LearnerState, batch: Batch) -> tuple[LearnerState, UpdateOutput]:
        """One learner step."""
        gradient_fn = jax.grad(self._loss, argnums=(0, 1), has_aux=True)
        (gradient, dual_gradient), (statistics, output) = gradient_fn(state.online, state.duals, state, batch)
        online = self._rescaled(state.online, state.statistics, statistics)
        updates, optimizer = self.optimizer.update(gradient, state.optimizer)
        online: Networks = optax.apply_updates(online, updates)  # pyright: ignore[reportAssignmentType, reportArgumentType]
        updates, dual_optimizer = self.dual_optimizer.update(dual_gradient, state.dual_optimizer)
        duals = self.algorithm.project(optax.apply_updates(state.duals, updates))  # pyright: ignore[reportArgumentType]
        online = eqx.tree_at(lambda x: x.actor, online, online.actor.having_seen(batch.trajectory.observation))
        step = state.step + 1
        refresh = step % self.acting_period == 0
        gradient_norm = optax.tree.norm(gradient)
        metrics = {**output.metrics, "gradient_norm": gradient_norm}
        finite = jnp.append(output.finite, jnp.isfinite(gradient_norm))
        sequence, encoder = state.online.actor.normalized(batch.trajectory).sequence, online.actor.curious_encoder
        return (
            LearnerState(
                online=online,
                curiosity=move(online.curiosity, state.curiosity, encoder, sequence),
                acting=jax.tree.map(lambda new, old: jnp.where(refresh, new, old), online.actor, state.acting),
                duals=duals,
                optimizer=optimizer,
                dual_optimizer=dual_optimizer,
                statistics=statistics,
                step=step,
            ),
            UpdateOutput(metrics, finite, output.intrinsic_reward),
        )

    def see(self, online: Networks, state: LearnerState, trajectory: Trajectory) -> Seen:
        """One forward pass over a batch, the policy's head left out."""
        actor, memory, trajectory = online.actor, trajectory.memory, online.actor.normalized(trajectory)
        sequence, before = trajectory.sequence, trajectory.before
        view = actor.representation.unroll(sequence, before, memory.core)
        curious = view if actor.curious is None else actor.curious.unroll(sequence, before, memory.curious)
        curiosity = ask(online.curiosity, state.curiosity, curious, sequence)
        return Seen(view, curious, curiosity, online.value.hidden(view.belief))

    def intrinsic_reward(self, state: LearnerState, trajectory: Trajectory) -> Array:
        """[T-1, B] what curiosity would pay for a batch, which is not learned from."""
        return self.prepare(state, trajectory)[1].judged.intrinsic  # pyright: ignore[reportOptionalMemberAccess]

    def _loss(
        self, online: Networks, duals: PyTree, state: LearnerState, batch: Batch
    ) -> tuple[Array, tuple[Statistics, UpdateOutput]]:
        """Curiosity, value and policy losses from one forward pass with the parameters before the update."""
        config, trajectory, valid = self.config, batch.trajectory, batch.trajectory.valid
        seen = self.see(online, state, trajectory)
        layer, before, after, judged = online.value.layers[-1], state.statistics, state.statistics, batch.judged
        metrics, checks = {}, _to_check(seen)
        if judged is None:
            uncertainty = seen.curiosity.uncertainty
            judgement = self.judge(before, layer, seen.value_hidden, uncertainty, trajectory)
            after, judged = judgement.statistics, judgement.judged
            metrics = self.judge.metrics(judgement, uncertainty, trajectory)
            extrinsic, *others = self.judge.to_check(metrics, trajectory)
            checks = (extrinsic, *checks, *others)
        value_loss = self.critic.loss(
            layer, before.popart, after.popart, seen.value_hidden[:-1], trajectory.task[:-1], judged.value_target, valid
        )
        policy = online.actor.policy(seen.view.belief[:-1])
        target = self._target_policy(state, trajectory)
        choices = _flat(Choices(policy, target, trajectory.policy, trajectory.action, valid))
        policy_loss = self.algorithm.loss(duals, choices, judged.advantage.ravel())
        entropy = masked_mean(jax.vmap(policies.entropy)(choices.policy), choices.valid)
        loss = (
            policy_loss.loss - config.agent.entropy_weight * entropy
            + config.agent.value_weight * value_loss + config.curiosity.loss_weight * seen.curiosity.loss
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
        finite = _all_finite((*checks, policy, *policy_loss.checks))
        return loss, (after, UpdateOutput(metrics, finite, judged.intrinsic))

    def _target_policy(self, state: LearnerState, trajectory: Trajectory) -> Policy:
        """[T-1, B, ...] what the target policy says of a batch, which an older one may have acted."""
        if self.stored_is_target or not self.algorithm.needs_target:
            return trajectory.policy
        acting = state.acting
        sequence = acting.normalized(trajectory).sequence
        view = acting.representation.unroll(sequence, trajectory.before, trajectory.memory.core)
        return acting.policy(view.belief[:-1])

    def _rescaled(self, online: Networks, before: Statistics, after: Statistics) -> Networks:
        """With the value head whose values are the same under PopArt's new statistics."""
        return eqx.tree_at(
            lambda networks: networks.value.layers[-1],
            online,
            replace_fn=lambda layer: self.critic.rescaled(layer, before.popart, after.popart),
        )


def keeps_target(period: int, updates: int) -> bool:
    """Whether a target policy that acts and is then learned from by so many updates stays the same through them.

    Rollouts begin after whole multiples of these updates, so it does if every refresh is between two rollouts.
    """
    return period % updates == 0


def _to_check(seen: Seen) -> tuple[PyTree, ...]:
    """What must be finite, in the order of SEEN."""
    return seen.view.embedding, seen.view.belief, seen.curiosity.loss


def _all_finite(trees: tuple[PyTree, ...]) -> Array:
    """Whether each tree is finite everywhere."""
    bad = [sum(jnp.sum(~jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)) for tree in trees]
    return jnp.stack(bad) == 0


def _flat(choices: Choices) -> Choices:
    """Time and environments as one axis."""
    return jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), choices)
