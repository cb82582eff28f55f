"""Following a stream, paying for it, and learning from it in minibatches.

Programs are compiled for few shapes, whatever is given: sequences are of one of few lengths, and minibatches of one of
few sizes.
"""

from typing import Any, NamedTuple

import jax
import numpy as np

from byol_explore.curiosity.bonus import Bonus, BonusMemory, BonusState
from byol_explore.dropin.records import Sample
from byol_explore.dropin.settings import Settings
from byol_explore.dropin.stream import Stream, chunks, pick, pieces
from byol_explore.errors import DivergenceError
from byol_explore.types import PyTree

SAMPLE = 16  # sequences that are kept for the doctor

_follow = jax.jit(Bonus.follow, static_argnums=0)
_judge = jax.jit(Bonus.judge, static_argnums=0)
_pay = jax.jit(Bonus.pay, static_argnums=0)
_update = jax.jit(Bonus.update, static_argnums=0)


class Walk(NamedTuple):
    """A stretch of streams, followed."""

    memories: list[BonusMemory]  # before each chunk, and after the last
    carry: PyTree
    uncertainty: np.ndarray  # [slots - 1, B]


class Learned(NamedTuple):
    """What a rollout has come to."""

    state: BonusState
    memory: BonusMemory
    reward: np.ndarray  # [slots - 1, B]
    uncertainty: np.ndarray  # [slots - 1, B]
    metrics: dict[str, Any]
    updates: int
    sample: Sample


def follow(bonus: Bonus, state: BonusState, memory: BonusMemory, carry: PyTree, stream: Stream) -> Walk:
    """Uncertainties of a stretch, chunk by chunk, so that its observations need not all fit a device at once."""
    memories, uncertainties = [memory], []
    for sequence in chunks(stream):
        memory, carry, uncertainty = _follow(bonus, state, memory, carry, sequence)
        memories.append(memory)
        uncertainties.append(np.asarray(uncertainty))
    return Walk(memories, carry, np.concatenate(uncertainties))


def pay_for(bonus: Bonus, state: BonusState, uncertainty: np.ndarray, stream: Stream) -> np.ndarray:
    """By statistics as they stand."""
    return np.asarray(_pay(bonus, state.rewards, uncertainty, np.asarray(stream.sequence.valid)))


def learn_from(
    bonus: Bonus, settings: Settings, state: BonusState, memory: BonusMemory, stream: Stream, seed: list[int]
) -> Learned:
    """Pay for a stretch by the networks as they are, then learn from all of its sequences in random order.

    The statistics move once, as far as they would by as many batches as are then learned from.
    """
    walk = follow(bonus, state, memory, bonus.opened(state, len(stream.length)), stream)
    rng, (chunk, env) = np.random.default_rng(seed), pieces(stream)
    count, size = minibatches(len(env), max(1, settings.batch_size // stream.steps))
    normalizer, reward = _judge(bonus, state.rewards, walk.uncertainty, np.asarray(stream.sequence.valid), count)
    state, rows = state._replace(rewards=normalizer), []
    starts = jax.tree.map(lambda *parts: np.stack(parts), *jax.device_get(walk.memories[:-1]))

    def batch(chosen: np.ndarray) -> Sample:
        padded = np.pad(chosen, (0, size - len(chosen)))
        before = jax.tree.map(lambda x: x[chunk[padded], env[padded]], starts)
        return Sample(before, pick(stream, chunk[chosen], env[chosen], size))

    for _ in range(settings.epochs):
        for chosen in np.array_split(rng.permutation(len(env)), count):
            state, metrics = _update(bonus, state, *batch(chosen))
            rows.append(metrics)
    metrics = jax.tree.map(lambda *values: np.mean(values, axis=0), *jax.device_get(rows))
    metrics["uncertainty_stddev"] = np.asarray(bonus.deviation(normalizer))
    _check_finite(metrics, walk.uncertainty)
    return Learned(
        state, walk.memories[-1], np.asarray(reward), walk.uncertainty, metrics, len(rows),
        batch(_telling(stream, chunk, env)[: min(SAMPLE, size)]),
    )  # fmt: skip


def minibatches(sequences: int, usual: int) -> tuple[int, int]:
    """How many, and sequences in each, some of which may be filled up: about as many as usual, and few sizes."""
    count = max(1, round(sequences / usual))
    size, quarter = -(-sequences // count), max(1, usual // 4)
    return count, 1 << (size - 1).bit_length() if size < quarter else -(-size // quarter) * quarter


def _telling(stream: Stream, chunk: np.ndarray, env: np.ndarray) -> np.ndarray:
    """Sequences, those in which most episodes end first."""
    slots = np.arange(len(stream.sequence.is_first))[:, None]
    begins = stream.sequence.is_first & ~stream.sequence.filling & (slots > 0)  # pyright: ignore[reportOptionalOperand]
    until = np.concatenate([np.zeros((1, begins.shape[1]), int), np.cumsum(begins, axis=0)])
    inside = until[(chunk + 1) * stream.steps + 1, env] - until[chunk * stream.steps + 1, env]
    return np.argsort(-inside, kind="stable")


def _check_finite(metrics: dict[str, Any], uncertainty: np.ndarray) -> None:
    for name, value in {"uncertainty": uncertainty, **metrics}.items():
        if not np.all(np.isfinite(value)):
            raise DivergenceError(f"{name} became NaN or infinite; nothing of this rollout was kept")
