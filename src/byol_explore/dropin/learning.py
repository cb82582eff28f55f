"""Settings of a `Curiosity`, uncertainties of a stream, learning from it in minibatches, and the record of calls.

The lengths of sequences and the sizes of minibatches are rounded to a few values, which bounds the number of compiled
programs.
"""

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import numpy as np

from byol_explore.curiosity.method import MIN_ACTIVE_REWARD, prediction_error_growth
from byol_explore.curiosity.method_learner import MethodLearner, MethodLearnerConfig, MethodLearnerState, StreamState
from byol_explore.dropin.stream import Stream, gather_minibatch, iter_sequences, sequence_indices
from byol_explore.errors import DivergenceError
from byol_explore.types import PyTree, SequenceBatch
from byol_explore.utils.validation import Positive

MAX_ROWS = 1000  # of a record; the first row and the latest ones are kept
SAMPLE_SIZE = 16  # sequences that are kept for the doctor

_stream_uncertainty = jax.jit(MethodLearner.stream_uncertainty, static_argnums=0)
_update_and_normalize = jax.jit(MethodLearner.update_and_normalize, static_argnums=0)
_update = jax.jit(MethodLearner.update, static_argnums=0)


class Sample(NamedTuple):
    """Sequences [T, n], and the stream state before them."""

    state: StreamState
    sequence: SequenceBatch


@dataclass(frozen=True)
class Record:
    """Counts over all calls of `learn`, and the metrics of each call; plain data, saved as JSON."""

    calls: int = 0
    transitions: int = 0
    updates: int = 0
    active_updates: int = 0  # updates of calls with a mean reward of at least MIN_ACTIVE_REWARD
    discontinuities: int = 0  # streams that did not continue where they were
    episode_ends: int = 0  # episodes with a next one in the same call
    repeated_final_obs: int = 0  # episodes among these whose last observation is the next one's first
    rows: tuple[dict[str, Any], ...] = field(default=())

    @property
    def metrics(self) -> dict[str, Any]:
        """Metrics of the latest call."""
        return dict(self.rows[-1]) if self.rows else {}


def record_call(record: Record, stream: Stream, learned: "LearnResult") -> Record:
    """Add a call of `learn` to a record."""
    valid = np.asarray(stream.sequence.valid)
    rewards, uncertainty = learned.reward[valid], learned.uncertainty[valid]
    active = record.active_updates + learned.updates * bool(np.mean(rewards) >= MIN_ACTIVE_REWARD)
    counts = replace(
        record, calls=record.calls + 1, transitions=record.transitions + rewards.size,
        updates=record.updates + learned.updates, active_updates=active,
        discontinuities=record.discontinuities + stream.discontinuities,
        episode_ends=record.episode_ends + stream.episode_ends,
        repeated_final_obs=record.repeated_final_obs + stream.repeated_final_obs,
    )  # fmt: skip
    row = {
        "transitions": counts.transitions,
        "learner_steps": counts.updates,
        "uncertainty": float(np.mean(uncertainty)),
        "intrinsic_reward": float(np.mean(rewards)),
        "intrinsic_nonzero_fraction": float(np.mean(rewards > 0)),
        "active_update_fraction": active / counts.updates,
        "stream_discontinuities": stream.discontinuities,
        "prediction_error_growth": prediction_error_growth(learned.metrics["prediction_error"].tolist()),
        **{name: value.tolist() for name, value in learned.metrics.items()},
    }
    rows = (*record.rows, row)
    return replace(counts, rows=rows if len(rows) <= MAX_ROWS else (rows[0], *rows[2:]))


@dataclass(frozen=True)
class CuriositySettings(MethodLearnerConfig):
    """Settings of a `Curiosity`: those of a `MethodLearner`, and the minibatches of a `learn`."""

    sequence_length: Positive[int] = 32
    """Transitions per sequence that rollouts are cut into, at most."""
    batch_size: Positive[int] = 512
    """Transitions per learner step, approximately."""


class LearnResult(NamedTuple):
    """Result of learning from a rollout."""

    state: MethodLearnerState
    stream_state: StreamState  # after the last sequence
    reward: np.ndarray  # [slots - 1, B]
    uncertainty: np.ndarray  # [slots - 1, B]
    metrics: dict[str, Any]
    updates: int
    sample: Sample


def stream_uncertainty(
    learner: MethodLearner, state: MethodLearnerState, stream_state: StreamState, carry: PyTree, stream: Stream
) -> tuple[list[StreamState], PyTree, np.ndarray]:
    """Compute uncertainties sequence by sequence, so that the device holds the observations of one at a time.

    Args:
      learner: method, networks and settings.
      state: parameters and statistics.
      stream_state: [B, ...] before the stream.
      carry: of the method, before the stream, such as pending predictions.
      stream: observations and actions, [slots, B, ...].
    Returns:
      Stream states [B, ...] before each sequence and after the last, the carry, and uncertainties [slots - 1, B].
    """
    states, uncertainties = [stream_state], []
    for sequence in iter_sequences(stream):
        stream_state, carry, uncertainty = _stream_uncertainty(learner, state, stream_state, carry, sequence)
        states.append(stream_state)
        uncertainties.append(np.asarray(uncertainty))
    return states, carry, np.concatenate(uncertainties)


def learn_rollout(
    learner: MethodLearner, settings: CuriositySettings, state: MethodLearnerState, stream_state: StreamState,
    stream: Stream, seed: list[int],
) -> LearnResult:  # fmt: skip
    """Compute rewards with the parameters before the rollout, then learn from its sequences in random order.

    Args:
      learner: method, networks and settings.
      settings: sizes of minibatches.
      state: parameters and statistics.
      stream_state: [B, ...] before the stream.
      stream: observations and actions, [slots, B, ...].
      seed: of the order of the sequences.
    Returns:
      LearnResult with rewards and uncertainties [slots - 1, B].
    """
    carry = learner.init_carry(state, len(stream.length))
    stream_states, _, uncertainty = stream_uncertainty(learner, state, stream_state, carry, stream)
    rng, (chunk, env) = np.random.default_rng(seed), sequence_indices(stream)
    count, size = minibatches(len(env), max(1, settings.batch_size // stream.steps))
    # One update of the statistics with the weight of all minibatches, so that their memory does not depend on the size.
    normalizer, reward = _update_and_normalize(
        learner, state.reward_normalizer, uncertainty, np.asarray(stream.sequence.valid), count
    )
    state, rows = state._replace(reward_normalizer=normalizer), []
    starts = jax.tree.map(lambda *parts: np.stack(parts), *jax.device_get(stream_states[:-1]))

    def minibatch(chosen: np.ndarray) -> Sample:
        padded = np.pad(chosen, (0, size - len(chosen)))
        before = jax.tree.map(lambda x: x[chunk[padded], env[padded]], starts)
        return Sample(before, gather_minibatch(stream, chunk[chosen], env[chosen], size))

    for _ in range(settings.epochs):
        for chosen in np.array_split(rng.permutation(len(env)), count):
            state, metrics = _update(learner, state, *minibatch(chosen))
            rows.append(metrics)
    metrics = jax.tree.map(lambda *values: np.mean(values, axis=0), *jax.device_get(rows))
    metrics["uncertainty_running_std"] = np.asarray(learner.uncertainty_std(normalizer))
    for name, value in {"uncertainty": uncertainty, **metrics}.items():
        if not np.all(np.isfinite(value)):
            raise DivergenceError(f"{name} became NaN or infinite; nothing of this rollout was kept")
    sample = minibatch(_most_episode_ends(stream, chunk, env)[: min(SAMPLE_SIZE, size)])
    return LearnResult(state, stream_states[-1], np.asarray(reward), uncertainty, metrics, len(rows), sample)


def minibatches(sequences: int, usual: int) -> tuple[int, int]:
    """Return the number of minibatches and their size, `usual` approximately; sizes are rounded up with padding."""
    count = max(1, round(sequences / usual))
    size, quarter = -(-sequences // count), max(1, usual // 4)
    return count, 1 << (size - 1).bit_length() if size < quarter else -(-size // quarter) * quarter


def _most_episode_ends(stream: Stream, chunk: np.ndarray, env: np.ndarray) -> np.ndarray:
    """Return the indices of the sequences, ordered by the number of episode ends inside, most first."""
    begins = stream.sequence.is_first & ~stream.sequence.padding  # pyright: ignore[reportOptionalOperand]
    # [chunks, B] starts of episodes behind the first observation of each sequence
    count = begins[1:].reshape(-1, stream.steps, begins.shape[1]).sum(axis=1)
    return np.argsort(-count[chunk, env], kind="stable")
