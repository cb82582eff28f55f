"""Texts word by word: against an LSTM in NumPy, and padding that counts for nothing."""

import jax
import numpy as np
import pytest

from builders import WORDS, call, make, numpy_linear, numpy_words
from byol_explore.networks.centering import centered
from byol_explore.networks.words import TokensEncoder, WordReader


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
