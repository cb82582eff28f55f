"""Texts as numbers of words: the same in every process and every run, without a vocabulary to keep."""

import re
import zlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from byol_explore.spaces import Tokens

TEXT = Tokens(length=32, vocabulary=256)
_WORD = re.compile(r"\w+")


@lru_cache(maxsize=4096)  # missions come again in every episode
def tokens(text: str) -> tuple[int, ...]:
    """The first 32 words in lower case, each hashed to 1, ..., 255 (two may share a number); 0 fills up the rest."""
    words = _WORD.findall(text.lower())[: TEXT.length]
    numbers = [1 + zlib.crc32(word.encode()) % (TEXT.vocabulary - 1) for word in words]
    return (*numbers, *[0] * (TEXT.length - len(numbers)))


def read_texts(texts: Sequence[str]) -> np.ndarray:
    """[E, 32] of so many texts."""
    return np.asarray([tokens(text) for text in texts], TEXT.dtype)
