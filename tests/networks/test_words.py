"""Texts word by word: against an LSTM in NumPy, padding that counts for nothing, and each of a batch read once."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import WORDS, call, make, numpy_linear, numpy_words
from byol_explore.networks.centering import centered
from byol_explore.networks.words import FEW, TokensEncoder, WordReader, distinct, read_each_once


@pytest.fixture(scope="module")
def reader() -> WordReader:
    return make(lambda key: WordReader(WORDS, key))


def test_a_text_equals_an_lstm_over_its_words(reader: WordReader) -> None:
    texts = np.asarray([[3, 1, 2, 0, 0], [1, 3, 2, 0, 0], [5, 0, 0, 0, 0], [4, 4, 7, 8, 1]])
    out = np.asarray(call(reader, texts))
    assert out.shape == (4, 64)
    for text, read in zip(texts, out, strict=True):
        np.testing.assert_allclose(read, numpy_words(reader, text), rtol=1e-4, atol=1e-5)
    assert np.abs(out[0] - out[1]).max() > 1e-3, "the order of words must count"


def test_padding_leaves_a_text_as_it_is(reader: WordReader) -> None:
    """Wherever it stands, and however much of it."""
    short = np.asarray(call(reader, np.asarray([[3, 1, 2]])))
    padded = np.asarray(call(reader, np.asarray([[3, 1, 2, 0, 0], [0, 0, 3, 1, 2], [3, 0, 1, 0, 2], [0] * 5])))
    np.testing.assert_allclose(padded[:3], np.repeat(short, 3, axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(padded[3], np.zeros(64))


def test_the_encoder_is_a_linear_layer_on_what_was_read() -> None:
    encoder, text = make(lambda key: TokensEncoder(WORDS, 8, key)), np.asarray([[3, 1, 0], [2, 2, 5]])
    expected = [numpy_linear(encoder.linear, numpy_words(encoder.reader, words)) for words in text]
    np.testing.assert_allclose(call(encoder, text), expected, rtol=1e-4, atol=1e-5)


def test_centring_leaves_the_recurrence_alone() -> None:
    encoder, text = TokensEncoder(WORDS, 8, jax.random.key(0)), np.asarray([[3, 1, 0], [2, 2, 5], [1, 0, 0]])
    moved = jax.jit(centered)(encoder, text)
    jax.tree.map(np.testing.assert_array_equal, moved.reader, encoder.reader)
    np.testing.assert_allclose(np.asarray(moved(text)).mean(axis=0), 0.0, atol=1e-6)


@settings(deadline=None)
@given(rows=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=6, max_size=6))
def test_distinct_rows_are_those_of_numpy(rows: list[tuple[int, int]]) -> None:
    expected, which = np.unique(np.asarray(rows), axis=0, return_inverse=True)
    for few in (4, 9):
        found = jax.jit(distinct, static_argnums=1)(jnp.asarray(rows), few)
        assert found.number == len(expected)
        np.testing.assert_array_equal(found.rows[: len(expected)], expected[:few])
        np.testing.assert_array_equal(found.rows[len(expected) :], 0)
        np.testing.assert_array_equal(found.which, which.reshape(-1))


@pytest.mark.parametrize("different", [1, FEW, FEW + 1])
def test_a_batch_is_read_as_its_texts_are_one_by_one(reader: WordReader, different: int) -> None:
    """With its gradient, also where it has more texts than are looked for."""
    rng = np.random.default_rng(0)
    texts = np.unique(rng.integers(0, WORDS, (200, 4)), axis=0)[:different]
    batch = texts[rng.permutation(80) % different].reshape(2, 40, 4)
    weight = rng.normal(size=(*batch.shape[:2], reader.size)).astype(np.float32)

    def loss(reader: WordReader, batch: np.ndarray, weight: np.ndarray) -> jax.Array:
        return jnp.sum(weight * jnp.square(reader(jnp.asarray(batch))))

    gradient = eqx.filter_jit(eqx.filter_value_and_grad(loss))
    flat, weights = batch.reshape(-1, 4), weight.reshape(-1, reader.size)
    few = [slice(start, start + FEW) for start in range(0, len(flat), FEW)]  # are read text by text
    expected = jax.tree.map(lambda *parts: sum(parts), *(gradient(reader, flat[part], weights[part]) for part in few))
    together = gradient(reader, batch, weight)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4), together, expected)


def test_texts_that_repeat_are_not_read_again() -> None:
    def read(texts: jax.Array) -> jax.Array:
        jax.debug.callback(lambda: sizes.append(texts.shape[0]))
        return texts.astype(jnp.float32)

    sizes: list[int] = []
    for different in (3, 4):
        texts = jnp.arange(12)[:, None] % different
        np.testing.assert_array_equal(jax.jit(lambda texts: read_each_once(read, texts, 3))(texts), texts)
        jax.effects_barrier()
    assert sizes == [3, 12]
