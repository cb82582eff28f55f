"""Streams of transitions inside jit: one observation after the other, cut into sequences.

A stream follows the convention of `envs/vector.py`: the true last observation of an episode stays in it, and the
transition from there to the next first observation is a masked dummy. A transition (o, a, o') continues the stream if o
equals the o' before; a new episode begins after an episode's end, or if o differs.

    transitions   o0 -> o1,  o1 -> o2 (ends),  p0 -> p1
    stream        o0  o1  o2  p0  p1            is_first   1 0 0 1 0

`dropin/stream.py` makes the same streams with NumPy, of any length. Inside jit all shapes are static: a rollout of T
steps becomes T + 1 slots, and one more for each of the first `max_episode_ends` episode ends of an environment. Behind
the last observation is padding.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.curiosity.inputs import Transition
from byol_explore.types import AnyArray, Array, PyTree, SequenceBatch


class StreamPosition(NamedTuple):
    """Where streams continue."""

    is_first: AnyArray  # [B] the next observation is the first of an episode
    observation: PyTree  # [B, ...] otherwise, the next observation


class PackedStream(NamedTuple):
    """A section of the streams; slot 0 holds its first observation."""

    sequence: SequenceBatch  # [slots, N, ...]
    row: Array  # [T, N] slot in which each transition begins
    after: StreamPosition  # [N, ...]
    counts: dict[str, Array]  # of what was masked or interrupted, by name


def pack_stream(
    rollout: Transition, position: StreamPosition, max_episode_ends: int, last_obs: PyTree | None = None
) -> PackedStream:
    """Make streams of a rollout, inside jit.

    Transitions from or to an observation with NaN or infinite numbers are masked, and those numbers are read as 0.

    Args:
      rollout: [T, N, ...], with an `Action`.
      position: [N, ...] where the streams continue.
      max_episode_ends: E, ends of episodes of one environment that get a slot of their own for the last observation.
        The transition to the last observation of any further episode is masked. A discontinuity takes a slot too.
      last_obs: [N, ...] observations after the rollout, if `rollout.next_obs` is None: no last observation of an
        episode is known then, and all transitions that end one are masked.
    Returns:
      PackedStream with T + E + 1 slots, T + 1 without `next_obs`.
    """
    obs, bad = _replace_nonfinite(rollout.obs)
    has_finals = rollout.next_obs is not None
    after = rollout.next_obs if has_finals else jax.tree.map(_shift, rollout.obs, last_obs)
    after, bad_after = _replace_nonfinite(after)
    bad = bad | bad_after
    expected = jax.tree.map(lambda first, x: jnp.concatenate([first[None], x[:-1]]), position.observation, after)
    ended = jnp.concatenate([position.is_first[None], rollout.done[:-1]])
    differs = _differs(obs, expected)
    begins = ended | differs
    steps = len(begins)
    time = jnp.arange(steps)[:, None]
    extra = jnp.cumsum(begins & (time > 0), axis=0) if has_finals else jnp.zeros_like(begins, jnp.int32)  # [T, N]
    limit = max_episode_ends if has_finals else 0
    row = time + jnp.minimum(extra, limit)
    masks = begins | jnp.pad(bad[:-1], ((1, 0), (0, 0)))  # [T, N] is_first of o_t
    following = jnp.concatenate([row[1:], row[-1:] + 2])
    has_own_slot = following > row + 1  # the slot behind is free for the observation after the action
    last_masked = bad if has_finals else bad | rollout.done
    slots = steps + limit + 1
    source = _sources(row, has_own_slot, slots)
    counts = {
        "masked_episode_ends": jnp.sum(jnp.maximum(extra[-1] - limit, 0)) if has_finals else jnp.sum(rollout.done),
        "stream_discontinuities": jnp.sum(differs & ~ended),
        "nonfinite_transitions": jnp.sum(bad),
    }
    return PackedStream(
        SequenceBatch(
            observation=jax.tree.map(lambda x, y: _gather_slots(x, y, source), obs, after),
            action=jax.tree.map(lambda x: _gather_slots(x, jnp.zeros_like(x), source)[:-1], rollout.action),
            is_first=(source < 0) | _gather_slots(masks, last_masked, source),
            padding=jnp.arange(slots)[:, None] > row[-1] + 1,
        ),
        row,
        StreamPosition(rollout.done[-1] | bad[-1], jax.tree.map(lambda x: x[-1], after)),
        counts,
    )


def _shift(x: Array, last: Array) -> Array:
    return jnp.concatenate([x[1:], last[None]])


def _replace_nonfinite(observation: PyTree) -> tuple[PyTree, Array]:
    """Replace NaN and infinities in observations [T, N, ...] by 0. Returns them and the mask [T, N] of changes."""
    leaves = [x for x in jax.tree.leaves(observation) if jnp.issubdtype(x.dtype, jnp.floating)]
    shape = jax.tree.leaves(observation)[0].shape[:2]
    bad = sum((~_all_per_env(jnp.isfinite(x)) for x in leaves), start=jnp.zeros(shape, bool))

    def replace(x: Array) -> Array:
        return jnp.where(jnp.isfinite(x), x, 0) if jnp.issubdtype(x.dtype, jnp.floating) else x

    return jax.tree.map(replace, observation), bad


def _all_per_env(x: Array) -> Array:
    return jnp.all(x, axis=tuple(range(2, x.ndim)))


def _differs(one: PyTree, other: PyTree) -> Array:
    """Return [T, N] whether observations differ."""
    equal = [_all_per_env(x == y) for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)]
    return ~jnp.all(jnp.stack(equal), axis=0)


def _sources(row: Array, has_own_slot: Array, slots: int) -> Array:
    """Return [slots, N] the contents of each slot: t for o_t, T + t for the observation after it, -1 for padding."""
    steps, num_envs = row.shape
    time, env = jnp.arange(steps)[:, None], jnp.arange(num_envs)
    empty = jnp.full((slots, num_envs), -1)
    behind = jnp.where(has_own_slot, row + 1, slots)  # an index out of bounds is not written
    return empty.at[row, env].set(time).at[behind, env].set(steps + time, mode="drop")


def _gather_slots(before: Array, after: Array, source: Array) -> Array:
    """Return [slots, N, ...] from arrays [T, N, ...] of o_t and of the observations after; zeros in padding."""
    steps = len(before)
    wide = source.reshape(*source.shape, *[1] * (before.ndim - 2))
    picked = [jnp.take_along_axis(x, wide % steps, axis=0) for x in (before, after)]
    return jnp.where(wide < 0, 0, jnp.where(wide < steps, *picked)).astype(before.dtype)


def cut_sequences(sequence: SequenceBatch, steps: int, count: int) -> SequenceBatch:
    """Cut streams into sequences that overlap by one observation; the last one is padded.

    Args:
      sequence: [slots, N, ...] with `padding`.
      steps: transitions per sequence.
      count: number of sequences, so that count * steps + 1 >= slots.
    Returns:
      SequenceBatch [count, steps + 1, N, ...].
    """
    missing = count * steps + 1 - len(sequence.is_first)
    rows = np.arange(count)[:, None] * steps + np.arange(steps + 1)

    def cut(x: Array, fill: Any, rows: np.ndarray, extra: int) -> Array:
        return jnp.pad(x, ((0, extra), *[(0, 0)] * (x.ndim - 1)), constant_values=fill)[rows]

    return SequenceBatch(
        jax.tree.map(lambda x: cut(x, 0, rows, missing), sequence.observation),
        jax.tree.map(lambda x: cut(x, 0, rows[:, :-1], missing), sequence.action),
        cut(sequence.is_first, True, rows, missing),
        cut(sequence.padding, True, rows, missing),
    )
