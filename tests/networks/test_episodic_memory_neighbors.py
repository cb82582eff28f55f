"""Nearest neighbours in an episode, against Python lists."""

from collections import deque

import numpy as np
import pytest

from builders import BATCH, jit
from byol_explore.networks.episodic_memory import NearestNeighborMemory, squared_distances
from byol_explore.types import SequenceBatch

MOST, NEIGHBORS, SIZE = 5, 3, 2


def slow_nearest(seen: deque[np.ndarray], here: np.ndarray) -> list[float]:
    distances = sorted(float(np.sum((here - there) ** 2)) for there in seen)
    return (distances + [np.inf] * NEIGHBORS)[:NEIGHBORS]


@pytest.mark.parametrize("starts", [0.0, 0.03, 0.3])
def test_neighbors_along_sequences_equal_those_step_by_step(starts: float) -> None:
    """A stream in sequences of different lengths, some longer than what is remembered, with episodes of all lengths."""
    rng, recall = np.random.default_rng(0), NearestNeighborMemory(SIZE, MOST, NEIGHBORS)
    walk, step = jit(recall.unroll), jit(recall.step)
    embedding = rng.integers(-9, 9, (40, BATCH, SIZE)).astype(np.float32)
    is_first = rng.random((40, BATCH)) < starts
    seen: list[deque[np.ndarray]] = [deque(maxlen=MOST) for _ in range(BATCH)]
    memory = stepped = recall.init(BATCH)
    begin = 0
    for length in (2, 9, 4, 3, 12, 7):
        piece = slice(begin, begin + length)
        memory, novelty = walk(memory, embedding[piece], SequenceBatch((), (), is_first[piece]))  # pyright: ignore[reportArgumentType]
        assert novelty.shape == (length - 1, BATCH, NEIGHBORS)
        for t in range(length - 1):
            stepped = step(stepped, embedding[begin + t], (), is_first[begin + t])
            alone = recall.novelty(stepped, embedding[begin + t + 1], ())
            for env in range(BATCH):
                if is_first[begin + t, env]:
                    seen[env].clear()
                seen[env].append(embedding[begin + t, env])
                expected = slow_nearest(seen[env], embedding[begin + t + 1, env])
                np.testing.assert_allclose(novelty[t, env], expected, atol=1e-4)
                np.testing.assert_allclose(alone[env], expected, atol=1e-4)
        for walked, one_by_one in zip(memory, stepped, strict=True):
            np.testing.assert_array_equal(walked, one_by_one)
        begin += length - 1
    assert max(len(one) for one in seen) == MOST or starts == 0.3


def test_padding_is_not_remembered_even_by_a_full_ring() -> None:
    rng, recall = np.random.default_rng(1), NearestNeighborMemory(SIZE, MOST, NEIGHBORS)
    embedding = rng.normal(size=(12, 1, SIZE)).astype(np.float32)
    filling = np.arange(12)[:, None] >= 9
    whole, _ = recall.unroll(recall.init(1), embedding, SequenceBatch((), (), filling, filling))  # pyright: ignore[reportArgumentType]
    shorter, _ = recall.unroll(recall.init(1), embedding[:9], SequenceBatch((), (), filling[:9]))  # pyright: ignore[reportArgumentType]
    for one, other in zip(whole, shorter, strict=True):
        np.testing.assert_array_equal(one, other)
    assert int(whole.length[0]) == 8 > MOST


def test_squared_distances_are_those_of_differences() -> None:
    rng = np.random.default_rng(2)
    one, others = rng.normal(size=(4, 3, 8)).astype(np.float32), rng.normal(size=(3, 6, 8)).astype(np.float32)
    expected = np.sum(np.square(one[:, :, None].astype(float) - others[None]), axis=-1)
    np.testing.assert_allclose(squared_distances(one, others), expected, rtol=1e-5)  # pyright: ignore[reportArgumentType]
    same = squared_distances(1e3 * one, 1e3 * one.swapaxes(0, 1))  # pyright: ignore[reportArgumentType]
    assert np.all(np.asarray(same) >= 0.0)
