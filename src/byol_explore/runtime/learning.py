"""How a rollout is cut into the batches of its updates, and learned from in one program."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from byol_explore.learner import Learner
from byol_explore.learner_state import Batch, LearnerState, UpdateOutput
from byol_explore.types import Array, PyTree, Trajectory


def learn(
    learner: Learner, state: LearnerState, rollout: Trajectory, devices: int = 1
) -> tuple[LearnerState, UpdateOutput]:
    """All updates of a rollout [T, E], whose environments may be spread over devices.

    Metrics and checks have an axis of updates in front; intrinsic rewards are [T-1, E].
    """
    if not learner.algorithm.judges_rollouts:
        batches = cut(learner, state, Batch(rollout), devices)
        state, output = jax.lax.scan(learner.update, state, batches)
        return state, output._replace(intrinsic_reward=_in_order(output.intrinsic_reward, devices))
    state, batch, judged = learner.prepare(state, rollout)
    state, output = jax.lax.scan(learner.update, state, cut(learner, state, batch, devices))
    return state, with_judgement(judged, output, learner.updates)


def cut(learner: Learner, state: LearnerState, batch: Batch, devices: int = 1) -> Batch:
    """Batches of whole sequences with an axis of updates in front, in the order that the algorithm wishes.

    Every device holds consecutive environments and gives an equal part of each batch.
    """
    key = jax.random.fold_in(jax.random.key(learner.config.seed), state.step)
    count, size = learner.envs // devices, learner.config.runtime.batch_size // devices  # on each device
    order = learner.algorithm.order(key, count)

    def of_device(x: Array, axis: int) -> Array:
        """[updates, ..., B, ...] of [..., E, ...], the axis being that of the environments."""
        lead, rest = x.shape[:axis], x.shape[axis + 1 :]
        shares = x.reshape(*lead, devices, count, *rest)
        chosen = shares if order is None else jnp.take(shares, order, axis=axis + 1)
        parts = chosen.reshape(*lead, devices, learner.updates, size, *rest)
        return jnp.moveaxis(parts, axis + 1, 0).reshape(learner.updates, *lead, devices * size, *rest)

    return over_environments(of_device, batch)


def over_environments(function: Callable[[Any, int], Any], batch: Batch) -> Batch:
    """A function of an array and its axis of environments, over all of a batch: what is timed has it second."""

    def timed(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda x: function(x, 1), tree)

    memory = jax.tree.map(lambda x: function(x, 0), batch.trajectory.memory)
    return Batch(timed(batch.trajectory._replace(memory=None))._replace(memory=memory), timed(batch.judged))


def with_judgement(judged: UpdateOutput, output: UpdateOutput, updates: int) -> UpdateOutput:
    """What was found out once about a rollout, beside what each of its updates says."""
    metrics, finite = jax.tree.map(
        lambda x: jnp.broadcast_to(x, (updates, *x.shape)), (judged.metrics, judged.finite)
    )  # fmt: skip
    return UpdateOutput(
        {**metrics, **output.metrics}, jnp.concatenate([finite, output.finite], axis=1), judged.intrinsic_reward
    )


def _in_order(rewards: Array, devices: int) -> Array:
    """[T-1, E] as the environments are, of rewards [updates, T-1, B] of batches that were cut in their order."""
    count, steps, _ = rewards.shape
    by_device = rewards.reshape(count, steps, devices, -1)
    return jnp.moveaxis(by_device, 0, 2).reshape(steps, -1)
