"""Numbers of a rollout: what the learner would compute from it, before any update."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import numpy as np

from byol_explore.curiosity.base import Curiosity
from byol_explore.doctor.evidence import BoundaryProbe, Probe, TargetProbe, TaskProbe
from byol_explore.learner import Learner
from byol_explore.learner_state import LearnerState
from byol_explore.networks.layers import trained
from byol_explore.ops import moments, popart, vmpo
from byol_explore.run.finite import first_not_finite
from byol_explore.types import Action, AnyArray, Array, Encoder, Policy, PyTree, Sequence, Trajectory

_Timed = TypeVar("_Timed", Trajectory, Sequence)


class Seen(NamedTuple):
    """A rollout through the networks of a checkpoint."""

    embedding: AnyArray  # [T, B, N] of the encoder that the curiosity compares
    uncertainty: AnyArray  # [T-1, B]
    intrinsic: AnyArray  # [T-1, B] normalised
    normalizer: moments.Normalizer  # with this rollout in it
    intrinsic_part: Array  # [T-1, B] of the mixed reward
    extrinsic_part: Array  # [T-1, B]
    value: Array  # [T-1, B]
    value_target: Array  # [T-1, B]
    running: tuple[Array, Array]  # [1 or tasks] means and standard deviations in the normalizers before
    popart_scale: Array  # [tasks]


def look(learner: Learner, state: LearnerState, trajectory: Trajectory) -> Seen:
    """What the learner finds out on its way to a loss, kept for every transition."""
    curiosity, objective = state.online.curiosity, learner.objective
    seen = objective.see(state.online, state, trajectory)
    judgement, _, _ = objective.judged(state.online, state, seen, trajectory)
    rewards, embedding = judgement.rewards, seen.curious.embedding
    if curiosity.has_target and not curiosity.reads_representation:  # it sees through the target alone
        observation = state.online.actor.normalizer(trajectory.observation)
        embedding = jax.vmap(curiosity.target(state.curiosity))(observation)
    raw, decay = state.statistics.reward.normalizer.raw, learner.judge.settings.decay
    return Seen(
        embedding=embedding,
        uncertainty=seen.curiosity.uncertainty,
        intrinsic=rewards.normalized,
        normalizer=judgement.statistics.reward.normalizer,
        intrinsic_part=rewards.intrinsic,
        extrinsic_part=rewards.extrinsic,
        value=judgement.value[:-1],
        value_target=judgement.judged.value_target,
        running=(moments.corrected(raw, decay)[0], moments.standard_deviation(raw, decay)),
        popart_scale=popart.scale(state.statistics.popart, learner.critic.min_scale),
    )


_look = jax.jit(look, static_argnums=0)


def probe_rollout(
    learner: Learner, state: LearnerState, trajectory: Trajectory, tasks: list[str], steps: int,
    target: TargetProbe | None,
) -> Probe:  # fmt: skip
    """All numbers of a checkpoint and a rollout."""
    seen = jax.device_get(_look(learner, state, trajectory))
    valid = np.asarray(trajectory.valid)
    now, running = _farthest_off(seen, trajectory)
    played = set(np.asarray(trajectory.task)[:-1][valid].tolist())  # tasks that are drawn may be missing
    duals: dict[str, np.ndarray] = {}
    if isinstance(state.duals, vmpo.Duals):
        duals = jax.device_get(state.duals)._asdict()
    temperature = duals.pop("temperature", None)
    multipliers = {name: float(np.max(x)) for name, x in duals.items() if x.size}
    state = jax.device_get(state)
    return Probe(
        steps=steps,
        learner_steps=int(state.step),
        tasks={name: _task(state, trajectory, seen, index) for index, name in enumerate(tasks) if index in played},
        target=target,
        boundary=_boundary(learner, state, trajectory, seen),
        uncertainty=now,
        normalizer=running,
        intrinsic_reward=float(np.mean(seen.intrinsic[valid])),
        paid_share=float(np.mean(seen.intrinsic[valid] > 0)),
        temperature=None if temperature is None else float(temperature),
        multipliers=multipliers,
        largest={
            "parameters": largest(trained((state.online, state.curiosity))),
            "optimizer": largest(state.optimizer),
            "statistics": largest(state.statistics),
        },
        not_finite=first_not_finite(state),
    )


def _by_normalizer(seen: Seen, trajectory: Trajectory) -> list[np.ndarray]:
    """Uncertainties of the valid transitions that each normalizer measures."""
    valid, task = np.asarray(trajectory.valid), np.asarray(trajectory.task)[:-1]
    count = len(seen.running[0])
    return [seen.uncertainty[valid & ((task == index) | (count == 1))] for index in range(count)]


def _farthest_off(seen: Seen, trajectory: Trajectory) -> tuple[tuple[float, float], tuple[float, float]]:
    """Mean and deviation now, and the running ones, of the normalizer whose deviation fits least."""
    parts = [
        ((float(np.mean(now)), float(np.std(now))), (float(mean), float(stddev)))
        for now, mean, stddev in zip(_by_normalizer(seen, trajectory), *seen.running, strict=True)
        if now.size
    ]
    return max(parts, key=lambda part: abs(np.log(max(part[0][1], 1e-12) / max(part[1][1], 1e-12))))


def _task(state: LearnerState, trajectory: Trajectory, seen: Seen, index: int) -> TaskProbe:
    mine = np.asarray(trajectory.task) == index  # [T, B]
    valid = np.asarray(trajectory.valid) & mine[:-1]
    target, value = seen.value_target[valid], seen.value[valid]
    embedding = seen.embedding[mine]
    distinct = first_of_each(jax.tree.map(lambda x: np.asarray(x)[mine], trajectory.observation))
    spread, rank = spread_and_rank(embedding[distinct])
    policy = jax.tree.map(lambda x: np.asarray(x)[valid], trajectory.policy)
    entropy, stddev = width(policy)
    variance = float(np.var(target))
    return TaskProbe(
        spread=spread,
        rank=rank,
        distinct=len(distinct),
        intrinsic=float(np.mean(np.abs(seen.intrinsic_part[valid]))),
        extrinsic=float(np.mean(np.abs(seen.extrinsic_part[valid]))),
        entropy=entropy,
        stddev=stddev,
        target_mean=float(np.mean(target)),
        target_stddev=float(np.sqrt(variance)),
        popart_mean=float(state.statistics.popart.mean[index]),
        popart_scale=float(seen.popart_scale[index]),
        explained=1.0 - float(np.var(target - value)) / variance if variance > 0 else None,
    )


def spread_and_rank(embedding: np.ndarray) -> tuple[float, float]:
    """1 - |mean unit embedding|^2, and the exponential of the entropy of the variances' shares, [n, N] to numbers.

    All embeddings in one point have a spread of 0 and a rank of 0.
    """
    vectors = np.asarray(embedding, np.float64)
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    mean = np.mean(unit, axis=0)
    spread = float(np.mean(np.sum(unit * unit, axis=1)) - mean @ mean)
    variances = np.linalg.eigvalsh(np.cov(unit.T, bias=True).reshape(len(mean), len(mean)))
    total = float(np.sum(np.maximum(variances, 0.0)))
    if not total > 1e-15:
        return max(spread, 0.0), 0.0
    shares = variances[variances > 0] / total
    return spread, float(np.exp(-np.sum(shares * np.log(shares))))


def first_of_each(observation: PyTree) -> list[int]:
    """Where in observations [n, ...] each different one comes first: how often it comes is no matter."""
    rows = [np.asarray(x).reshape(len(x), -1) for x in jax.tree.leaves(observation)]
    seen: dict[bytes, int] = {}
    for index in range(len(rows[0])):
        seen.setdefault(b"".join(row[index].tobytes() for row in rows), index)
    return list(seen.values())


def width(policy: Policy) -> tuple[float | None, float | None]:
    """Share of the largest entropy that the discrete actions have; the narrowest standard deviation of the others."""
    entropy = None
    if policy.logits:
        largest = sum(float(np.log(logits.shape[-1])) for logits in policy.logits)
        mean = sum(float(np.mean(_entropy(np.asarray(logits, np.float64)))) for logits in policy.logits)
        entropy = mean / largest if largest > 0 else 1.0
    narrowest = float(np.min(np.mean(policy.stddev, axis=0))) if policy.stddev.size else None
    return entropy, narrowest


def _entropy(logits: np.ndarray) -> np.ndarray:
    """Of categoricals given by logits [n, categories]."""
    weights = np.exp(logits - np.max(logits, axis=-1, keepdims=True))
    shares = weights / np.sum(weights, axis=-1, keepdims=True)
    return -np.sum(shares * np.log(np.maximum(shares, 1e-300)), axis=-1)


def _boundary(learner: Learner, state: LearnerState, trajectory: Trajectory, seen: Seen) -> BoundaryProbe:
    """What the dummy transitions are worth, and whether anything of them or across them was counted."""
    valid, decay = np.asarray(trajectory.valid), learner.judge.settings.decay
    old, new = state.statistics.reward.normalizer.raw, seen.normalizer.raw
    expected = [
        decay * float(mean) + (1.0 - decay) * float(np.mean(now)) if now.size else float(mean)
        for mean, now in zip(old.mean, _by_normalizer(seen, trajectory), strict=True)
    ]
    return BoundaryProbe(
        ends=int(np.sum(~valid)),
        transitions=valid.size,
        reward=float(np.max(np.abs(seen.intrinsic[~valid]), initial=0.0)),
        counted=float(np.max(np.abs(np.asarray(new.mean) - expected) / np.maximum(np.abs(expected), 1e-12))),
        leak=leak(
            trajectory,
            seen.uncertainty,
            lambda other: _look(learner, state, other).uncertainty,
            alone=state.online.curiosity.contrasts,
        ),
    )


def leak(
    trajectory: _Timed, before: np.ndarray, uncertainty_of: Callable[[_Timed], Array], *, alone: bool = False
) -> float:
    """The largest change of an uncertainty when all observations of other episodes change, relative.

    The first boundary of each environment splits its sequence; each side in turn gets another environment's
    observations, and the uncertainties of the other side must stay. Of a method that contrasts environments only one
    is changed, and must stay: the others may follow it.
    """
    is_first = np.array(trajectory.is_first)
    is_first[0] = False
    later = np.cumsum(is_first, axis=0) > 0  # [T, B] after the first boundary
    split = later[-1] & (np.cumsum(later[-1]) == 1) if alone else later[-1]
    largest = 0.0
    for side in (later & split, ~later & split):
        observation = jax.tree.map(lambda x, side=side: _swap(np.asarray(x), side), trajectory.observation)
        after = np.asarray(uncertainty_of(trajectory._replace(observation=observation)))
        untouched = ~side[:-1] & ~side[1:] & split
        change = np.abs(after - before)[untouched]
        largest = max(largest, float(np.max(change, initial=0.0)))
    return largest / max(float(np.mean(np.abs(before))), 1e-12)


def _swap(x: np.ndarray, where: np.ndarray) -> np.ndarray:
    """The next environment's entries where the mask [T, B] says so."""
    return np.where(where.reshape(*where.shape, *[1] * (x.ndim - 2)), np.roll(x, 1, axis=1), x)


def measure_target(curiosity: Curiosity, state: PyTree, online: Encoder, before: PyTree | None = None) -> TargetProbe:
    """How far a method's target is from the encoder that predicts it, and whether it moves.

    `before` is the method's state in an earlier checkpoint. A method with networks of its own has no such encoder.
    """
    comparable = curiosity.reads_representation
    nothing = Sequence((), Action((), ()), ())  # a target follows the encoder, whatever was seen
    after = trained(curiosity.target(curiosity.after(state, online, nothing)))
    target, encoder = trained(curiosity.target(state)), trained(online)
    difference = _norm_of_difference(encoder, target) if comparable else 0.0
    stepped = _norm_of_difference(after, target)
    size = max(_norm(target), 1e-12)
    moved = None if before is None else _norm_of_difference(trained(curiosity.target(before)), target) / size
    return TargetProbe(
        distance=difference / max(_norm(encoder), 1e-12) if comparable else None,
        step=stepped / difference if difference > 0 else stepped / size,
        moved=moved,
    )


def _norm(tree: PyTree) -> float:
    return float(np.sqrt(sum(np.sum(np.square(np.asarray(x, np.float64))) for x in jax.tree.leaves(tree))))


def _norm_of_difference(one: PyTree, other: PyTree) -> float:
    return _norm(jax.tree.map(lambda x, y: np.asarray(x, np.float64) - np.asarray(y, np.float64), one, other))


def largest(tree: PyTree) -> float:
    """The largest magnitude of all finite numbers."""
    leaves = [np.asarray(x) for x in jax.tree.leaves(tree)]
    sizes = [np.max(np.abs(x[np.isfinite(x)]), initial=0.0) for x in leaves if np.issubdtype(x.dtype, np.floating)]
    return float(max(sizes, default=0.0))
