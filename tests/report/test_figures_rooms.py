"""Pictures of the rooms of Montezuma's Revenge."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from byol_explore.report.figures import ROOM_POSITIONS, draw_rooms

COVERAGE = {
    "rooms": [[0, 1, 0], [0, 2, 51_000], [1, 1, 2_000_000]],
    "room_names": ["level", "room"],
    "visits": [[0, 1, 9, 30, 500], [0, 1, 10, 30, 1], [0, 2, 3, 20, 7]],
    "position_names": ["x", "y"],
    "cell": 8,
    "layout": "pyramid",
}


def test_every_room_has_a_position() -> None:
    assert list(ROOM_POSITIONS) == list(range(24))
    assert len(set(ROOM_POSITIONS.values())) == 24
    assert [ROOM_POSITIONS[room] for room in (0, 1, 5, 15, 23)] == [(-1, 0), (0, 0), (0, 1), (-4, 3), (4, 3)]


def pixels(coverage: dict[str, Any]) -> np.ndarray:
    with Image.open(io.BytesIO(draw_rooms(coverage))) as picture:
        return np.asarray(picture.convert("RGB"), int)


def test_entered_rooms_are_coloured() -> None:
    more, fewer = pixels(COVERAGE), pixels({**COVERAGE, "rooms": [[0, 1, 0]]})
    assert more.shape == fewer.shape
    assert np.count_nonzero(np.abs(more - fewer).sum(axis=-1)) > 500


def test_coverage_without_rooms_is_drawn() -> None:
    assert pixels({**COVERAGE, "rooms": [], "visits": []}).size


def test_an_unknown_layout_is_an_error() -> None:
    with pytest.raises(ValueError, match="room layout 'castle' is unknown"):
        draw_rooms({**COVERAGE, "layout": "castle"})
