"""Short films show the same episode."""

import io

import numpy as np
import pytest
from PIL import Image, ImageSequence

from byol_explore.report.short_films import MOST_FRAMES, short_film

SIZE = 120


def film(frames: int) -> bytes:
    """A red square that goes from left to right over a floor of tiles, a step a frame."""
    floor = np.kron(np.indices((12, 12)).sum(axis=0) % 2 * 60, np.ones((10, 10), int))
    pictures = []
    for index in range(frames):
        picture = np.repeat(floor[..., None], 3, axis=2).astype(np.uint8)
        left = index * (SIZE - 10) // max(frames - 1, 1)
        picture[50:60, left : left + 10] = (255, 40, 40)
        pictures.append(Image.fromarray(picture))
    file = io.BytesIO()
    pictures[0].save(file, "gif", save_all=True, append_images=pictures[1:], duration=90, loop=0)
    return file.getvalue()


def frames_of(data: bytes) -> list[tuple[np.ndarray, int]]:
    with Image.open(io.BytesIO(data)) as opened:
        return [(np.asarray(frame.convert("RGB"), int), frame.info["duration"]) for frame in
                ImageSequence.Iterator(opened)]  # fmt: skip


def test_a_long_film_has_fewer_frames_lasts_as_long_and_ends_where_it_ended() -> None:
    long = film(110)
    before, after = frames_of(long), frames_of(short_film(long))
    assert (len(before), len(after)) == (110, MOST_FRAMES)
    assert sum(time for _, time in after) == sum(time for _, time in before) == 110 * 90
    for index in (0, -1):
        np.testing.assert_allclose(after[index][0], before[index][0], atol=8)
    assert len(short_film(long)) < len(long) / 2


def test_a_short_film_keeps_all_its_frames() -> None:
    before, after = frames_of(film(5)), frames_of(short_film(film(5)))
    assert [time for _, time in after] == [time for _, time in before]
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(other[0], one[0], atol=8)


def test_what_is_no_film_is_refused() -> None:
    with pytest.raises(OSError, match="cannot identify"):
        short_film(b"no film")
