"""From transitions to a stream: what a curiosity reads of every environment, one observation after the other.

The stream is the trainer's (`envs/base.py`): the true last observation of an episode stays in it, and between it and
the next first one there is a dummy transition that counts nowhere. A transition (o, a, o') continues the stream where o
is what the one before led to; where an episode ended, or where o is another observation, a new episode begins.

    transitions   o0 -> o1,  o1 -> o2 (ends),  p0 -> p1
    stream        o0  o1  o2  p0  p1            is_first   1 0 0 1 0

Streams of environments in which more episodes end are longer; all are filled up to the length of whole sequences.
"""

from typing import NamedTuple

import jax
import numpy as np

from byol_explore.dropin.reading import Transitions
from byol_explore.errors import UserError
from byol_explore.types import Action, PyTree, Sequence


class Place(NamedTuple):
    """Where the streams have come to."""

    begins: np.ndarray  # [B] the next observation is an episode's first
    observation: PyTree  # [B, ...] the one that was come to, where none begins


class Stream(NamedTuple):
    """A stretch of the streams; slots are numbered from its first observation on."""

    sequence: Sequence  # [slots, B, ...] in NumPy, memory of its own
    slot: np.ndarray  # [T, B] where each transition begins; -1 where it was skipped
    length: np.ndarray  # [B] transitions in each, dummies among them
    steps: int  # transitions per sequence that it is cut into
    after: Place
    breaks: int  # streams that were not continued
    ends: int  # episodes that ended inside, with a next one after it
    alike: int  # of these, whose last observation is the next one's first


def beginning(observation: PyTree) -> Place:
    """Before anything was seen; observations [B, ...] of any kind show what they will look like."""
    size = len(jax.tree.leaves(observation)[0])
    return Place(np.ones(size, bool), jax.tree.map(np.array, observation))


def make_stream(transitions: Transitions, place: Place, most: int) -> Stream:
    """The stream that goes on from a place, to be cut into sequences of at most so many transitions."""
    real = ~transitions.skipped
    differs, after = _walk(transitions, place)
    ended = np.concatenate([place.begins[None], _carried(transitions.ended, real, place.begins)])[:-1]
    begins = real & (ended | differs)
    earlier = np.cumsum(real, axis=0) - real > 0  # some other transition came before
    slot = np.where(real, np.cumsum(real, axis=0) - 1 + np.cumsum(begins & earlier, axis=0), -1)
    length = np.max(slot, axis=0, initial=-1) + 1
    steps = _steps(int(length.max(initial=0)), most)
    slots = -(-int(length.max(initial=0)) // steps) * steps + 1
    return Stream(
        sequence=_fill(transitions, slot, begins, length, slots),
        slot=slot,
        length=length,
        steps=steps,
        after=after,
        breaks=int(np.sum(differs & ~ended & real)),
        ends=int(np.sum(ended & earlier & real)),
        alike=int(np.sum(ended & earlier & real & ~differs)),
    )


def _walk(transitions: Transitions, place: Place) -> tuple[np.ndarray, Place]:
    """[T, B] whether an observation is another one than its stream had come to, and where the streams end up."""
    ended, skipped = transitions.ended, transitions.skipped
    differs = np.zeros(ended.shape, bool)
    begins, observation = place.begins, place.observation
    for t in range(len(ended)):
        now, to = jax.tree.map(lambda x, t=t: x[t], (transitions.observation, transitions.next_observation))
        differs[t] = ~skipped[t] & _differ(now, observation)
        if t:
            _check_order(differs[t] & ~begins & ~skipped[t - 1], t)
        observation = _choose(skipped[t], observation, to)
        begins = np.where(skipped[t], begins, ended[t])
    return differs, Place(begins, jax.tree.map(np.array, observation))


def _check_order(wrong: np.ndarray, t: int) -> None:
    if np.any(wrong):
        env = np.argmax(wrong)
        raise UserError(
            f"next_obs[{t - 1}, {env}] is not obs[{t}, {env}], though no episode ended there: "
            "give the steps of each environment in order, [T, num_envs], and set terminations or truncations at ends"
        )


def _differ(one: PyTree, other: PyTree) -> np.ndarray:
    """[B]."""
    apart = jax.tree.map(lambda x, y: np.any((x != y).reshape(len(x), -1), axis=1), one, other)
    return np.any(jax.tree.leaves(apart), axis=0)


def _choose(mask: np.ndarray, one: PyTree, other: PyTree) -> PyTree:
    if not np.any(mask):
        return other
    return jax.tree.map(lambda x, y: np.where(mask.reshape(-1, *[1] * (x.ndim - 1)), x, y), one, other)


def _carried(ended: np.ndarray, real: np.ndarray, before: np.ndarray) -> np.ndarray:
    """[T, B] whether the latest real transition has ended an episode."""
    carried = np.zeros(ended.shape, bool)
    for t in range(len(ended)):
        before = carried[t] = np.where(real[t], ended[t], before)
    return carried


def _steps(longest: int, most: int) -> int:
    """Transitions per sequence: as many as may be, or a power of two that is enough, for few programs to compile."""
    return min(most, 1 << max(longest - 1, 0).bit_length())


def _fill(transitions: Transitions, slot: np.ndarray, begins: np.ndarray, length: np.ndarray, slots: int) -> Sequence:
    """Every observation and action in its slot."""
    at = np.nonzero(slot >= 0)
    here, env = slot[at], at[1]
    taken = np.zeros((slots, slot.shape[1]), bool)
    taken[here, env] = True
    last = ~taken[here + 1, env]  # nothing goes on from there

    def observations(before: np.ndarray, after: np.ndarray) -> np.ndarray:
        filled = np.zeros((slots, *before.shape[1:]), before.dtype)
        filled[here, env] = before[at]
        filled[here[last] + 1, env[last]] = after[at[0][last], env[last]]
        return filled

    def actions(given: np.ndarray) -> np.ndarray:
        filled = np.zeros((slots - 1, *given.shape[1:]), given.dtype)
        filled[here, env] = given[at]
        return filled

    is_first = np.ones(taken.shape, bool)
    is_first[here, env] = begins[at]
    is_first[here[last] + 1, env[last]] = False
    return Sequence(
        observation=jax.tree.map(observations, transitions.observation, transitions.next_observation),
        action=Action(*map(actions, transitions.action)),
        is_first=is_first,
        filling=(np.arange(slots)[:, None] > length) | (length == 0),
    )


def chunks(stream: Stream) -> list[Sequence]:
    """The stretch in sequences [steps + 1, B], in the order of time."""
    return [_cut(stream, np.full(stream.length.shape, c), np.arange(len(stream.length))) for c in range(_count(stream))]


def pick(stream: Stream, chunk: np.ndarray, env: np.ndarray, size: int) -> Sequence:
    """So many sequences as a batch [steps + 1, size], of which the last ones are only filled up."""
    extra = size - len(chunk)
    sequence = _cut(stream, np.pad(chunk, (0, extra)), np.pad(env, (0, extra)))
    assert sequence.filling is not None
    sequence.is_first[:, len(chunk) :] = sequence.filling[:, len(chunk) :] = True
    return sequence


def pieces(stream: Stream) -> tuple[np.ndarray, np.ndarray]:
    """Chunk and environment of every sequence with a transition in it."""
    chunk, env = np.nonzero(np.arange(_count(stream))[:, None] * stream.steps < stream.length)
    return chunk, env


def _count(stream: Stream) -> int:
    return (len(stream.sequence.is_first) - 1) // stream.steps


def _cut(stream: Stream, chunk: np.ndarray, env: np.ndarray) -> Sequence:
    """Copies of sequences [steps + 1, n]."""
    rows = chunk * stream.steps + np.arange(stream.steps + 1)[:, None]
    whole = stream.sequence
    return Sequence(
        jax.tree.map(lambda x: x[rows, env], whole.observation),
        jax.tree.map(lambda x: x[rows[:-1], env], whole.action),
        whole.is_first[rows, env],
        whole.filling[rows, env],  # pyright: ignore[reportOptionalSubscript]
    )
