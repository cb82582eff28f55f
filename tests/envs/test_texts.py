"""Words by their hash: the same everywhere."""

import subprocess
import sys

import numpy as np

from byol_explore.envs.adapters.texts import TEXT, read_texts, tokens


def test_words_have_fixed_numbers() -> None:
    """By their CRC-32, so that runs of other days and machines know them too."""
    assert tokens("the goal")[:3] == (1 + 1_011_183_078 % 255, 1 + 4_242_336_558 % 255, 0)


def test_another_process_reads_the_same() -> None:
    """Python's own hash of texts would not."""
    text = "use the key to open the door and then get to the goal"
    program = f"from byol_explore.envs.adapters.texts import tokens; print(tokens({text!r}))"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert out.strip() == str(tokens(text))


def test_long_texts_are_cut_and_no_word_is_padding() -> None:
    text = " ".join(f"word{i}" for i in range(1000))
    assert len(tokens(text)) == TEXT.length
    numbers = [tokens(f"word{i}")[0] for i in range(5000)]
    assert (min(numbers), max(numbers)) == (1, TEXT.vocabulary - 1)


def test_a_batch_is_an_array_as_specified() -> None:
    read = read_texts(("go left", "GO, left!", "turn"))
    assert (read.shape, read.dtype) == ((3, *TEXT.shape), TEXT.dtype)
    np.testing.assert_array_equal(read[0], read[1])
    assert read[0, 0] != read[2, 0]
