"""Texts word by word: against an LSTM in NumPy, padding that counts for nothing, and each of a batch read once."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import WORDS, call, make, numpy_linear, numpy_words
from byol_explore.networks.centering import center_encoder
from byol_explore.networks.paper_encoders import MAX_UNIQUE, InstructionEncoder, TokensEncoder, apply_to_unique_rows


@pytest.fixture(scope="module")
def reader() -> InstructionEncoder:
    return make(lambda key: InstructionEncoder(WORDS, key))


def test_a_text_equals_an_lstm_over_its_words(reader: InstructionEncoder) -> None:
    texts = np.asarray([[3, 1, 2, 0, 0], [1, 3, 2, 0, 0], [5, 0, 0, 0, 0], [4, 4, 7, 8, 1]])
    out = np.asarray(call(reader, texts))
    assert out.shape == (4, 64)
    for text, read in zip(texts, out, strict=True):
        np.testing.assert_allclose(read, numpy_words(reader, text), rtol=1e-4, atol=1e-5)
    assert np.abs(out[0] - out[1]).max() > 1e-3, "the order of words must count"


def test_padding_does_not_change_a_text(reader: InstructionEncoder) -> None:
    """Wherever it stands, and however much of it."""
    short = np.asarray(call(reader, np.asarray([[3, 1, 2]])))
    padded = np.asarray(call(reader, np.asarray([[3, 1, 2, 0, 0], [0, 0, 3, 1, 2], [3, 0, 1, 0, 2], [0] * 5])))
    np.testing.assert_allclose(padded[:3], np.repeat(short, 3, axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(padded[3], np.zeros(64))


def test_the_encoder_is_a_linear_layer_on_the_reader() -> None:
    encoder, text = make(lambda key: TokensEncoder(WORDS, 8, key)), np.asarray([[3, 1, 0], [2, 2, 5]])
    expected = [numpy_linear(encoder.linear, numpy_words(encoder.reader, words)) for words in text]
    np.testing.assert_allclose(call(encoder, text), expected, rtol=1e-4, atol=1e-5)


def test_centring_leaves_the_recurrence_alone() -> None:
    encoder, text = TokensEncoder(WORDS, 8, jax.random.key(0)), np.asarray([[3, 1, 0], [2, 2, 5], [1, 0, 0]])
    moved = jax.jit(center_encoder)(encoder, text)
    jax.tree.map(np.testing.assert_array_equal, moved.reader, encoder.reader)
    np.testing.assert_allclose(np.asarray(moved(text)).mean(axis=0), 0.0, atol=1e-6)


@pytest.mark.parametrize("different", [1, MAX_UNIQUE, MAX_UNIQUE + 1])
def test_a_batch_equals_its_texts_one_by_one(reader: InstructionEncoder, different: int) -> None:
    """With its gradient, also where it has more texts than are looked for."""
    rng = np.random.default_rng(0)
    texts = np.unique(rng.integers(0, WORDS, (200, 4)), axis=0)[:different]
    batch = texts[rng.permutation(80) % different].reshape(2, 40, 4)
    weight = rng.normal(size=(*batch.shape[:2], reader.size)).astype(np.float32)

    def loss(reader: InstructionEncoder, batch: np.ndarray, weight: np.ndarray) -> jax.Array:
        return jnp.sum(weight * jnp.square(reader(jnp.asarray(batch))))

    gradient = eqx.filter_jit(eqx.filter_value_and_grad(loss))
    flat, weights = batch.reshape(-1, 4), weight.reshape(-1, reader.size)
    few = [slice(start, start + MAX_UNIQUE) for start in range(0, len(flat), MAX_UNIQUE)]  # are read text by text
    expected = jax.tree.map(lambda *parts: sum(parts), *(gradient(reader, flat[part], weights[part]) for part in few))
    together = gradient(reader, batch, weight)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4), together, expected)


@jax.jit
def encode_rows(rows: jax.Array) -> jax.Array:
    """Encode rows as themselves, up to LIMIT different ones once each; `encoded_counts` gets the number encoded."""

    def encode(rows: jax.Array) -> jax.Array:
        jax.debug.callback(lambda: encoded_counts.append(rows.shape[0]))
        return rows.astype(jnp.float32)

    return apply_to_unique_rows(encode, rows, LIMIT)


LIMIT = 4
encoded_counts: list[int] = []


@settings(deadline=None)
@given(rows=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=6, max_size=6))
def test_repeated_rows_are_encoded_once(rows: list[tuple[int, int]]) -> None:
    encoded_counts.clear()
    np.testing.assert_array_equal(encode_rows(jnp.asarray(rows)), rows)
    jax.effects_barrier()
    assert encoded_counts == [LIMIT if len(set(rows)) <= LIMIT else len(rows)]
