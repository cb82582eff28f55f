"""Hashes of words, equal in all processes."""

import subprocess
import sys

import numpy as np

from byol_explore.envs.gymnasium_spaces import TEXT, hash_tokens, tokenize


def test_words_have_fixed_tokens() -> None:
    """From their CRC-32, so that they are equal on other machines."""
    assert hash_tokens("the goal")[:3] == (1 + 1_011_183_078 % 255, 1 + 4_242_336_558 % 255, 0)


def test_another_process_computes_the_same_tokens() -> None:
    """Python's own hash of texts differs between processes."""
    text = "use the key to open the door and then get to the goal"
    program = f"from byol_explore.envs.gymnasium_spaces import hash_tokens; print(hash_tokens({text!r}))"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert out.strip() == str(hash_tokens(text))


def test_long_texts_are_cut_and_no_word_is_padding() -> None:
    text = " ".join(f"word{i}" for i in range(1000))
    assert len(hash_tokens(text)) == TEXT.length
    numbers = [hash_tokens(f"word{i}")[0] for i in range(5000)]
    assert (min(numbers), max(numbers)) == (1, TEXT.vocab_size - 1)


def test_a_batch_is_an_array_as_specified() -> None:
    read = tokenize(("go left", "GO, left!", "turn"))
    assert (read.shape, read.dtype) == ((3, *TEXT.shape), TEXT.dtype)
    np.testing.assert_array_equal(read[0], read[1])
    assert read[0, 0] != read[2, 0]
