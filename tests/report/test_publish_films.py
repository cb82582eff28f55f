"""Films in published copies."""

import io

import numpy as np
import pytest
from PIL import Image, ImageSequence

from byol_explore.report.publish import shrink_film
from byol_explore.report.read_runs import MAX_FILM_FRAMES

SIZE = 120


def film(frames: int) -> bytes:
    """Make a film of a red square that moves from left to right over tiles."""
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


def test_long_films_keep_duration_and_ends_with_fewer_frames() -> None:
    long = film(110)
    before, after = frames_of(long), frames_of(shrink_film(long))
    assert (len(before), len(after)) == (110, MAX_FILM_FRAMES)
    assert sum(time for _, time in after) == sum(time for _, time in before) == 110 * 90
    for index in (0, -1):
        np.testing.assert_allclose(after[index][0], before[index][0], atol=8)
    assert len(shrink_film(long)) < len(long) / 2


def test_short_films_keep_all_frames() -> None:
    before, after = frames_of(film(5)), frames_of(shrink_film(film(5)))
    assert [time for _, time in after] == [time for _, time in before]
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(other[0], one[0], atol=8)


def test_invalid_film_is_an_error() -> None:
    with pytest.raises(OSError, match="cannot identify"):
        shrink_film(b"no film")
