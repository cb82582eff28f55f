"""Measure one rollout with the networks of a checkpoint or of a Curiosity, before any update."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.agent.learner import Learner
from byol_explore.agent.state import LearnerState
from byol_explore.curiosity.method import IntrinsicMethod, compute_output
from byol_explore.curiosity.method_learner import MethodLearner, MethodLearnerState
from byol_explore.doctor.evidence import BoundaryMeasurement, Measurements, TargetMeasurement, TaskMeasurement
from byol_explore.dropin.learning import Record, Sample
from byol_explore.networks.layers import trainable
from byol_explore.ops import rewards as rewards_ops
from byol_explore.ops import value as value_ops
from byol_explore.ops.arrays import first_nonfinite, merge_time_batch, split_time_batch
from byol_explore.ops.policy import categorical_entropy
from byol_explore.types import Action, AnyArray, Array, Encoder, Policy, PyTree, SequenceBatch, Trajectory

_Sequences = TypeVar("_Sequences", Trajectory, SequenceBatch)
MIN_NORM = 1e-12  # lower bound of divisors


class AgentForward(NamedTuple):
    """The agent's part of a rollout's forward pass."""

    intrinsic_part: Array  # [T-1, B] of the mixed reward
    extrinsic_part: Array  # [T-1, B]
    value: Array  # [T-1, B]
    value_target: Array  # [T-1, B]
    popart_mean: Array  # [tasks]
    popart_std: Array  # [tasks], 0 where all targets so far were 0


class RolloutForward(NamedTuple):
    """A rollout through the networks; n normalizers measure one task each, or a single one all of them."""

    embedding: AnyArray  # [T, B, N] of the encoder that the method compares
    uncertainty: AnyArray  # [T-1, B]
    reward: AnyArray  # [T-1, B] intrinsic, normalised
    before: rewards_ops.RunningMoments  # [n] of the normalizers before the rollout
    after: rewards_ops.RunningMoments  # [n] with the rollout in them
    agent: AgentForward | None = None


def forward_learner(learner: Learner, state: LearnerState, trajectory: Trajectory) -> RolloutForward:
    """Compute for every transition of a rollout what the learner computes on its way to a loss."""
    loss_function = learner.loss_function
    forward = loss_function.forward(state.online, state, trajectory)
    output, _, _ = loss_function.targets(state.online, state, forward, trajectory)
    rewards, popart = output.rewards, state.statistics.popart
    return RolloutForward(
        embedding=_compared_embedding(
            state.online.curiosity, state.method_state, forward.curiosity_view.embedding,
            state.online.actor.obs_normalizer(trajectory.observation),
        ),
        uncertainty=forward.method_output.uncertainty,
        reward=rewards.normalized,
        before=state.statistics.reward.normalizer.uncertainty,
        after=output.statistics.reward.normalizer.uncertainty,
        agent=AgentForward(
            rewards.intrinsic, rewards.extrinsic, output.value[:-1], output.targets.value_target,
            popart.mean, jnp.where(popart.mean_square > 0, value_ops.popart_std(popart, learner.critic.min_scale), 0.0),
        ),
    )  # fmt: skip


def forward_method_learner(learner: MethodLearner, state: MethodLearnerState, sample: Sample) -> RolloutForward:
    """Compute the same for sequences that a Curiosity has learned from."""
    view, sequence = learner.forward(state.networks, state, sample.state, sample.sequence)
    method = state.networks.method
    uncertainty = compute_output(method, state.method_state, view, sequence).uncertainty
    valid = jnp.asarray(sample.sequence.valid)
    normalizer, reward = learner.update_and_normalize(state.reward_normalizer, uncertainty, valid)
    return RolloutForward(
        _compared_embedding(method, state.method_state, view.embedding, sequence.observation), uncertainty, reward,
        *jax.tree.map(jnp.atleast_1d, (state.reward_normalizer.uncertainty, normalizer.uncertainty)),
    )  # fmt: skip


def _compared_embedding(method: IntrinsicMethod, state: PyTree, embedding: Array, observation: PyTree) -> Array:
    """Return embeddings [T, B, N] of the representation; of the target encoder if the method reads no others."""
    if not method.has_target_encoder or method.uses_representation:
        return embedding
    target = method.target_encoder(state)
    return split_time_batch(target(jax.tree.map(merge_time_batch, observation)), len(embedding))


_forward_learner = jax.jit(forward_learner, static_argnums=0)
_forward_method_learner = jax.jit(forward_method_learner, static_argnums=0)


def measure_rollout(
    learner: Learner, state: LearnerState, trajectory: Trajectory, tasks: list[str], steps: int,
    target: TargetMeasurement | None,
) -> Measurements:  # fmt: skip
    """Measure a checkpoint with one rollout of its target policy."""
    duals: dict[str, np.ndarray] = {}
    if learner.algorithm.has_kl_constraints:
        duals = jax.device_get(state.duals)._asdict()
    log_temperature = duals.pop("log_temperature", None)
    return _measure(
        partial(_forward_learner, learner, state), trajectory, np.asarray(trajectory.task_id), tasks,
        learner.target_computer.settings.decay, state.online.curiosity, state,
        {"parameters": (state.online, state.method_state), "optimizer": state.opt_state,
         "statistics": state.statistics},
        steps=steps,
        learner_steps=int(state.step),
        target=target,
        temperature=None if log_temperature is None else math.exp(log_temperature),
        kl_multipliers={name: float(np.max(x)) for name, x in duals.items() if x.size},
    )  # fmt: skip


def measure_curiosity(
    learner: MethodLearner, state: MethodLearnerState, sample: Sample, record: Record, name: str
) -> Measurements:
    """Measure a Curiosity with sequences that it has learned from, as one task of this name."""
    method, encoder = state.networks.method, state.networks.representation.encoder

    def forward(sequence: SequenceBatch) -> RolloutForward:
        return _forward_method_learner(learner, state, sample._replace(sequence=sequence))

    return _measure(
        forward, sample.sequence, np.zeros(np.shape(sample.sequence.is_first), np.int32), [name],
        learner.config.curiosity.normalizer_decay, method, state,
        {"parameters": (state.networks, state.method_state), "optimizer": state.opt_state,
         "statistics": state.reward_normalizer},
        steps=record.transitions,
        learner_steps=record.updates,
        target=measure_target(method, state.method_state, encoder) if method.has_target_encoder else None,
        temperature=None,
        kl_multipliers={},
    )  # fmt: skip


def _measure(
    forward_of: Callable[[_Sequences], RolloutForward], rollout: _Sequences, task: np.ndarray, names: list[str],
    decay: float, method: IntrinsicMethod, state: PyTree, parts: dict[str, PyTree], **others: Any,
) -> Measurements:  # fmt: skip
    """Measure everything that a run and a Curiosity have in common.

    Args:
      forward_of: runs the networks on sequences of the rollout's shapes.
      rollout: [T, B].
      task: [T, B] index into `names`.
      names: of the tasks.
      decay: of the normalizers.
      method: the intrinsic method.
      state: everything that must be finite.
      parts: trees by name, of which the largest magnitude is measured.
      others: the other fields of `Measurements`.
    """
    forward = jax.device_get(forward_of(rollout))
    valid = np.asarray(rollout.valid)
    observed = np.ones(task.shape, bool) if isinstance(rollout, Trajectory) else np.asarray(rollout.observed)
    by_normalizer = _by_normalizer(forward, valid, task)
    uncertainty_moments, normalizer_moments = _worst_fit(by_normalizer, forward.before, decay)
    present = set(task[:-1][valid].tolist())  # with random tasks some may be missing
    return Measurements(
        **others,
        tasks={
            name: _measure_task(forward, rollout, index, observed & (task == index))
            for index, name in enumerate(names)
            if index in present
        },
        boundary=BoundaryMeasurement(
            episode_ends=int(np.sum(~valid & observed[1:])),
            transitions=int(np.sum(observed[1:])),
            max_reward=float(np.max(np.abs(forward.reward[~valid]), initial=0.0)),
            normalizer_error=_normalizer_error(by_normalizer, forward, decay),
            uncertainty_leak=cross_episode_leak(
                rollout, forward.uncertainty, lambda other: forward_of(other).uncertainty,
                single_env=method.uses_batch_negatives,
            ),
        ),
        uncertainty_moments=uncertainty_moments,
        normalizer_moments=normalizer_moments,
        intrinsic_reward=float(np.mean(forward.reward[valid])),
        intrinsic_nonzero_fraction=float(np.mean(forward.reward[valid] > 0)),
        max_magnitude={name: max_magnitude(trainable(part)) for name, part in parts.items()},
        first_nonfinite=first_nonfinite(jax.device_get(state)),
    )  # fmt: skip


def _by_normalizer(forward: RolloutForward, valid: np.ndarray, task: np.ndarray) -> list[np.ndarray]:
    """Return the uncertainties of the valid transitions that each normalizer measures."""
    count = len(forward.before.mean)
    return [forward.uncertainty[valid & ((task[:-1] == index) | (count == 1))] for index in range(count)]


def _worst_fit(
    by_normalizer: list[np.ndarray], before: rewards_ops.RunningMoments, decay: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return (mean, std) of the rollout's uncertainties and of the running statistics, for the worst normalizer.

    The worst is that whose running std differs most from the rollout's, as a ratio.
    """
    running = rewards_ops.bias_corrected(before, decay)[0], rewards_ops.bias_corrected_std(before, decay)
    parts = [
        ((float(np.mean(now)), float(np.std(now))), (float(mean), float(std)))
        for now, mean, std in zip(by_normalizer, *running, strict=True)
        if now.size
    ]
    return max(parts, key=lambda part: abs(np.log(max(part[0][1], MIN_NORM) / max(part[1][1], MIN_NORM))))


def _normalizer_error(by_normalizer: list[np.ndarray], forward: RolloutForward, decay: float) -> float:
    """Return the relative error of the updated means if only valid transitions may count."""
    expected = [
        decay * float(mean) + (1.0 - decay) * float(np.mean(now)) if now.size else float(mean)
        for mean, now in zip(forward.before.mean, by_normalizer, strict=True)
    ]
    return float(np.max(np.abs(np.asarray(forward.after.mean) - expected) / np.maximum(np.abs(expected), MIN_NORM)))


def _measure_task(forward: RolloutForward, rollout: Any, index: int, observed: np.ndarray) -> TaskMeasurement:
    """Measure the observations [T, B] of one task and the transitions between them."""
    valid = np.asarray(rollout.valid) & observed[:-1]
    distinct = unique_indices(jax.tree.map(lambda x: np.asarray(x)[observed], rollout.observation))
    spread, rank = spread_and_effective_rank(np.asarray(forward.embedding)[observed][distinct])
    agent = forward.agent
    if agent is None:
        return TaskMeasurement(len(distinct), spread, rank, intrinsic_magnitude=float(np.mean(forward.reward[valid])))
    target, value = agent.value_target[valid], agent.value[valid]
    variance = float(np.var(target))
    entropy, min_std = policy_entropy_and_std(jax.tree.map(lambda x: np.asarray(x)[valid], rollout.behaviour_policy))
    return TaskMeasurement(
        len(distinct),
        spread,
        rank,
        intrinsic_magnitude=float(np.mean(np.abs(agent.intrinsic_part[valid]))),
        extrinsic_magnitude=float(np.mean(np.abs(agent.extrinsic_part[valid]))),
        normalized_entropy=entropy,
        min_action_std=min_std,
        value_target_mean=float(np.mean(target)),
        value_target_std=float(np.sqrt(variance)),
        popart_mean=float(agent.popart_mean[index]),
        popart_std=float(agent.popart_std[index]),
        explained_variance=1.0 - float(np.var(target - value)) / variance if variance > 0 else None,
    )


def spread_and_effective_rank(embedding: np.ndarray) -> tuple[float, float]:
    """Measure how far embeddings [n, N] point in different directions.

    Returns:
      Spread 1 - |mean unit embedding|^2, and effective rank: the exponential of the entropy of the normalised
      eigenvalues of the covariance. Both are 0 if all embeddings are parallel.
    """
    vectors = np.asarray(embedding, np.float64)
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), MIN_NORM)
    mean = np.mean(unit, axis=0)
    spread = float(np.mean(np.sum(unit * unit, axis=1)) - mean @ mean)
    variances = np.linalg.eigvalsh(np.cov(unit.T, bias=True).reshape(len(mean), len(mean)))
    total = float(np.sum(np.maximum(variances, 0.0)))
    if not total > 1e-15:
        return max(spread, 0.0), 0.0
    shares = variances[variances > 0] / total
    return spread, float(np.exp(-np.sum(shares * np.log(shares))))


def unique_indices(observation: PyTree) -> list[int]:
    """Return the index of the first occurrence of each different observation [n, ...]."""
    rows = [np.asarray(x).reshape(len(x), -1) for x in jax.tree.leaves(observation)]
    first: dict[bytes, int] = {}
    for index in range(len(rows[0])):
        first.setdefault(b"".join(row[index].tobytes() for row in rows), index)
    return list(first.values())


def policy_entropy_and_std(policy: Policy) -> tuple[float | None, float | None]:
    """Measure how random a policy [n, ...] is.

    Returns:
      Mean entropy of the discrete actions, divided by that of a uniform policy, and the smallest mean standard
      deviation of a continuous dimension; None without such actions.
    """
    entropy = None
    if policy.logits:
        largest = sum(float(np.log(logits.shape[-1])) for logits in policy.logits)
        mean = sum(float(jnp.mean(jax.vmap(categorical_entropy)(logits))) for logits in policy.logits)
        entropy = mean / largest if largest > 0 else 1.0
    return entropy, float(np.min(np.mean(policy.stddev, axis=0))) if policy.stddev.size else None


def cross_episode_leak(
    rollout: _Sequences,
    uncertainty: np.ndarray,
    uncertainty_of: Callable[[_Sequences], Array],
    *,
    single_env: bool = False,
) -> float:
    """Measure whether uncertainties depend on observations of other episodes.

    The first episode boundary of each environment splits its sequence in two. The observations of one part are
    replaced by those of another environment: the uncertainties of the other part must not change. The same is done
    the other way round.

    Args:
      rollout: sequences [T, B] with episode boundaries.
      uncertainty: [T-1, B] of the rollout.
      uncertainty_of: computes uncertainties [T-1, B] of other sequences.
      single_env: change one environment only, for methods whose losses compare environments with each other.
    Returns:
      The largest change, relative to the mean uncertainty.
    """
    is_first = np.array(rollout.is_first)
    is_first[0] = False
    later = np.cumsum(is_first, axis=0) > 0  # [T, B] after the first boundary
    split = later[-1] & (np.cumsum(later[-1]) == 1) if single_env else later[-1]
    largest = 0.0
    for side in (later & split, ~later & split):
        observation = jax.tree.map(lambda x, side=side: _swap(np.asarray(x), side), rollout.observation)
        after = np.asarray(uncertainty_of(rollout._replace(observation=observation)))
        change = np.abs(after - uncertainty)[~side[:-1] & ~side[1:] & split]
        largest = max(largest, float(np.max(change, initial=0.0)))
    return largest / max(float(np.mean(np.abs(uncertainty))), MIN_NORM)


def _swap(x: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Replace entries [T, B, ...] by the next environment's where the mask [T, B] is set."""
    return np.where(where.reshape(*where.shape, *[1] * (x.ndim - 2)), np.roll(x, 1, axis=1), x)


def measure_target(
    method: IntrinsicMethod, state: PyTree, online: Encoder, before: PyTree | None = None
) -> TargetMeasurement:
    """Measure how far the target encoder is from the online encoder, and whether it moves.

    Args:
      method: the method, with a target encoder.
      state: its state.
      online: the encoder that predicts the target; methods with networks of their own have none to compare.
      before: the method's state in an earlier checkpoint.
    """
    no_data = SequenceBatch((), Action((), ()), ())  # a target follows the encoder, whatever the data
    after = _vector(method.target_encoder(method.update_state(state, online, no_data)))
    target, encoder = _vector(method.target_encoder(state)), _vector(online)
    stepped, size = _norm(after - target), max(_norm(target), MIN_NORM)
    difference = _norm(encoder - target) if method.uses_representation else 0.0
    return TargetMeasurement(
        relative_distance=difference / max(_norm(encoder), MIN_NORM) if method.uses_representation else None,
        step_fraction=stepped / (difference if difference > 0 else size),
        relative_change=None if before is None else _norm(_vector(method.target_encoder(before)) - target) / size,
    )


def _vector(tree: PyTree) -> np.ndarray:
    """Return all trainable parameters as one vector."""
    leaves = [np.ravel(np.asarray(x, np.float64)) for x in jax.tree.leaves(trainable(tree))]
    return np.concatenate([np.zeros(0), *leaves])


def _norm(vector: np.ndarray) -> float:
    return float(np.linalg.norm(vector))


def max_magnitude(tree: PyTree) -> float:
    """Return the largest magnitude of all finite floating-point numbers."""
    leaves = [np.asarray(x) for x in jax.tree.leaves(tree)]
    sizes = [np.max(np.abs(x[np.isfinite(x)]), initial=0.0) for x in leaves if np.issubdtype(x.dtype, np.floating)]
    return float(max(sizes, default=0.0))
