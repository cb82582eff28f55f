"""The map of Montezuma's pyramid."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from byol_explore.report.pyramid import FLOORS, draw_pyramid, room_position

COVERAGE = {
    "rooms": [[0, 1, 0], [0, 2, 51_000], [1, 1, 2_000_000]],
    "room_names": ["level", "room"],
    "visits": [[0, 1, 9, 30, 500], [0, 1, 10, 30, 1], [0, 2, 3, 20, 7]],
    "position_names": ["x", "y"],
    "cell": 8,
}


def test_every_room_has_one_place_and_the_first_is_under_the_top() -> None:
    rooms = [room for floor in FLOORS for room in floor]
    assert rooms == list(range(24))
    assert len({room_position(room) for room in rooms}) == 24
    assert room_position(1) == (0, 0)
    assert room_position(5) == (0, 1)  # below it
    assert room_position(15) == (-4, 3)
    with pytest.raises(ValueError, match="room 24"):
        room_position(24)


def test_rooms_that_were_entered_are_coloured(tmp_path: Path) -> None:
    path = draw_pyramid(COVERAGE, tmp_path / "rooms.png")
    fewer = draw_pyramid({**COVERAGE, "rooms": [[0, 1, 0]]}, tmp_path / "fewer.png")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["fewer.png", "rooms.png"]
    with Image.open(path) as more, Image.open(fewer) as less:
        assert more.size == less.size
        difference = np.abs(np.asarray(more, int) - np.asarray(less, int)).sum(axis=-1)
    assert np.count_nonzero(difference) > 500


def test_nothing_entered_yet_is_drawn_too(tmp_path: Path) -> None:
    assert draw_pyramid({**COVERAGE, "rooms": [], "visits": []}, tmp_path / "rooms.png").exists()
