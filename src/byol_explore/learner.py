"""The learner: the one update that changes a `LearnerState`.

It puts together what others do. A representation sees a batch, a curiosity is uncertain about it, a judge makes
rewards, value targets and advantages of that, an algorithm and a critic learn from them (`objective.py`).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from byol_explore.algorithms.critic import Critic
from byol_explore.algorithms.judging import Judge, Statistics, compounded
from byol_explore.curiosity.base import move
from byol_explore.envs.base import EnvSpec
from byol_explore.learner_state import Batch, LearnerState, UpdateOutput, initial_dials
from byol_explore.networks.assembly import Networks
from byol_explore.networks.optimizing import descend, make_optimizer
from byol_explore.objective import Objective
from byol_explore.registries import ALGORITHMS
from byol_explore.settings.config import Config
from byol_explore.starting import start_networks
from byol_explore.types import Array, PyTree, Trajectory


class Learner:
    """Builds and updates a `LearnerState`; holds no state of its own.

    `envs` is the number of environments in the rollouts that it learns from. A runtime that acts and learns `in_turn`
    says so: where every batch is then acted by the very target policy that it is learned with, a forward pass is saved.
    """

    def __init__(
        self, config: Config, spec: EnvSpec, tasks: int, *, envs: int | None = None, in_turn: bool = False
    ) -> None:
        self.config, self.spec, self.tasks = config, spec, tasks
        self.envs = config.runtime.num_envs if envs is None else envs
        self.algorithm = ALGORITHMS.get(config.algorithm)(config, spec.action)
        batches = self.envs // config.runtime.batch_size if self.algorithm.judges_rollouts else 1  # judged at once
        self.critic = Critic(tasks, compounded(config.agent.popart_step, batches), config.agent.popart_min_scale)
        self.judge = Judge(config, self.algorithm, self.critic, batches)
        self.stored_is_target = in_turn and keeps_target(self.acting_period, self.updates)
        self.objective = Objective(config, self.algorithm, self.critic, self.judge, is_target=self.stored_is_target)
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
    def finite_names(self) -> tuple[str, ...]:
        """The quantities of `UpdateOutput.finite`, in causal order."""
        return (*self.objective.finite_names, "gradient")

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
            dials=initial_dials(self.config),
            step=jnp.zeros((), jnp.int32),
        )

    def prepare(self, state: LearnerState, trajectory: Trajectory) -> tuple[LearnerState, Batch, UpdateOutput]:
        """Judge a whole rollout [T, E] with the parameters before its updates: statistics move, nothing is learned."""
        seen = self.objective.see(state.online, state, trajectory)
        judgement, metrics, finite = self.objective.judged(state.online, state, seen, trajectory)
        online = self._rescaled(state.online, state.statistics, judgement.statistics)
        state = state._replace(online=online, statistics=judgement.statistics)
        return state, Batch(trajectory, judgement.judged), UpdateOutput(metrics, finite, judgement.judged.intrinsic)

    def update(self, state: LearnerState, batch: Batch) -> tuple[LearnerState, UpdateOutput]:
        """One learner step."""
        gradient_fn = jax.grad(self.objective.loss, argnums=(0, 1), has_aux=True)
        (gradient, dual_gradient), (statistics, output) = gradient_fn(state.online, state.duals, state, batch)
        online = self._rescaled(state.online, state.statistics, statistics)
        direction, optimizer = self.optimizer.update(gradient, state.optimizer)
        online = descend(online, direction, state.dials.learning_rate)
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
            state._replace(
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

    def intrinsic_reward(self, state: LearnerState, trajectory: Trajectory) -> Array:
        """[T-1, B] what curiosity would pay for a batch, which is not learned from."""
        return self.prepare(state, trajectory)[1].judged.intrinsic  # pyright: ignore[reportOptionalMemberAccess]

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
