"""Convert transitions of every environment to streams: one observation after the other, cut into sequences.

The stream follows the convention of `envs/vector.py`: the true last observation of an episode stays in it, and the
transition from there to the next first observation is a masked dummy. A transition (o, a, o') continues the stream if o
equals the o' before; a new episode begins after an episode's end, or if o differs.

    transitions   o0 -> o1,  o1 -> o2 (ends),  p0 -> p1
    stream        o0  o1  o2  p0  p1            is_first   1 0 0 1 0

An environment with more episode ends has a longer stream; all are padded to a multiple of the sequence length.
"""

from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np

from byol_explore.curiosity.stream import StreamPosition
from byol_explore.dropin.inputs import Transitions
from byol_explore.errors import UserError
from byol_explore.ops.arrays import where_batch
from byol_explore.types import Action, PyTree, SequenceBatch


class Stream(NamedTuple):
    """A section of the streams; slot 0 holds its first observation."""

    sequence: SequenceBatch  # [slots, B, ...] NumPy copies
    row: np.ndarray  # [T, B] slot in which each transition begins; -1 if skipped
    length: np.ndarray  # [B] transitions in each, including dummies
    steps: int  # transitions per sequence
    after: StreamPosition
    discontinuities: int  # transitions that did not continue their stream
    episode_ends: int  # episodes with a next one in the section
    repeated_final_obs: int  # episodes among these whose last observation is the next one's first


def make_stream(transitions: Transitions, position: StreamPosition, max_steps: int) -> Stream:
    """Continue streams.

    Args:
      transitions: [T, B, ...].
      position: [B, ...] where the streams continue.
      max_steps: transitions per sequence, at most.
    Returns:
      Stream with ceil(longest / steps) * steps + 1 slots.
    """
    real, env = ~transitions.skipped, np.arange(transitions.skipped.shape[1])
    times = np.where(real, np.arange(len(real))[:, None], -1)
    # [T + 1, B] the last transition before each step that was not skipped; -1 if there is none in this section
    previous = np.maximum.accumulate(np.concatenate([np.full((1, len(env)), -1), times]), axis=0)

    def position_at(t: int) -> StreamPosition:
        here = StreamPosition(transitions.done, transitions.next_observation)
        return where_batch(previous[t] >= 0, jax.tree.map(lambda x: x[previous[t], env], here), position, xp=np)

    ended, differs = np.zeros(real.shape, bool), np.zeros(real.shape, bool)
    for t in range(len(real)):  # step by step, to hold one copy of B observations at a time
        ended[t], expected = position_at(t)
        differs[t] = real[t] & _differs(jax.tree.map(lambda x, t=t: x[t], transitions.observation), expected)
    _check_order(differs[1:] & ~ended[1:] & real[:-1])
    begins = real & (ended | differs)
    earlier = previous[:-1] >= 0  # not the first transition of the section
    slot = np.where(real, np.cumsum(real, axis=0) - 1 + np.cumsum(begins & earlier, axis=0), -1)
    length = np.max(slot, axis=0, initial=-1) + 1
    longest = int(length.max(initial=0))
    steps = min(max_steps, 1 << max(longest - 1, 0).bit_length())  # powers of two bound the number of compiled shapes
    return Stream(
        sequence=_fill(transitions, slot, begins, length, slots=-(-longest // steps) * steps + 1),
        row=slot,
        length=length,
        steps=steps,
        after=position_at(len(real)),
        discontinuities=int(np.sum(differs & ~ended)),
        episode_ends=int(np.sum(ended & earlier & real)),
        repeated_final_obs=int(np.sum(ended & earlier & real & ~differs)),
    )


def _differs(one: PyTree, other: PyTree) -> np.ndarray:
    """Return [B] whether observations differ."""
    differs = jax.tree.map(lambda x, y: np.any((x != y).reshape(len(x), -1), axis=1), one, other)
    return np.any(jax.tree.leaves(differs), axis=0)


def _check_order(wrong: np.ndarray) -> None:
    """Raise a UserError for the first [t, env] at which obs[t + 1] does not continue an episode."""
    if np.any(wrong):
        t, env = np.argwhere(wrong)[0]
        raise UserError(
            f"next_obs[{t}, {env}] is not obs[{t + 1}, {env}], though no episode ended there: "
            "give the steps of each environment in order, [T, num_envs], and set terminations or truncations at ends"
        )


def _fill(
    transitions: Transitions, slot: np.ndarray, begins: np.ndarray, length: np.ndarray, slots: int
) -> SequenceBatch:
    """Copy observations and actions to their slots."""
    time, env = np.nonzero(slot >= 0)
    here = slot[time, env]
    taken = np.zeros((slots, slot.shape[1]), bool)
    taken[here, env] = True
    last = ~taken[here + 1, env]  # the stream ends, or an episode does: the slot behind holds the next observation

    def observations(before: np.ndarray, after: np.ndarray) -> np.ndarray:
        filled = np.zeros((slots, *before.shape[1:]), before.dtype)
        filled[here, env] = before[time, env]
        filled[here[last] + 1, env[last]] = after[time[last], env[last]]
        return filled

    def actions(given: np.ndarray) -> np.ndarray:
        filled = np.zeros((slots - 1, *given.shape[1:]), given.dtype)
        filled[here, env] = given[time, env]
        return filled

    is_first = np.ones(taken.shape, bool)
    is_first[here, env] = begins[time, env]
    is_first[here[last] + 1, env[last]] = False
    return SequenceBatch(
        observation=jax.tree.map(observations, transitions.observation, transitions.next_observation),
        action=Action(*map(actions, transitions.action)),
        is_first=is_first,
        padding=(np.arange(slots)[:, None] > length) | (length == 0),
    )


def iter_sequences(stream: Stream) -> Iterator[SequenceBatch]:
    """Yield the sequences [steps + 1, B] of all environments, in time order."""
    env = np.arange(len(stream.length))
    return (_cut(stream, np.full(env.shape, chunk), env) for chunk in range(_count(stream)))


def gather_minibatch(stream: Stream, chunk: np.ndarray, env: np.ndarray, size: int) -> SequenceBatch:
    """Return sequences as a batch.

    Args:
      stream: [slots, B, ...].
      chunk: [n] index of each sequence in its stream.
      env: [n] stream of each sequence.
      size: of the batch, at least n; the rest is padding.
    Returns:
      SequenceBatch [steps + 1, size].
    """
    extra = size - len(chunk)
    sequence = _cut(stream, np.pad(chunk, (0, extra)), np.pad(env, (0, extra)))
    assert sequence.padding is not None
    sequence.is_first[:, len(chunk) :] = sequence.padding[:, len(chunk) :] = True
    return sequence


def sequence_indices(stream: Stream) -> tuple[np.ndarray, np.ndarray]:
    """Return the chunk [n] and the environment [n] of every sequence that has a transition."""
    chunk, env = np.nonzero(np.arange(_count(stream))[:, None] * stream.steps < stream.length)
    return chunk, env


def _count(stream: Stream) -> int:
    return (len(stream.sequence.is_first) - 1) // stream.steps


def _cut(stream: Stream, chunk: np.ndarray, env: np.ndarray) -> SequenceBatch:
    """Copy sequences [steps + 1, n]."""
    rows = chunk * stream.steps + np.arange(stream.steps + 1)[:, None]
    whole = stream.sequence
    return SequenceBatch(
        jax.tree.map(lambda x: x[rows, env], whole.observation),
        jax.tree.map(lambda x: x[rows[:-1], env], whole.action),
        whole.is_first[rows, env],
        whole.padding[rows, env],  # pyright: ignore[reportOptionalSubscript]
    )
