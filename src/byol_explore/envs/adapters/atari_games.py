"""Facts of the ten Atari games that are hardest to explore: scores and where their RAM says what."""

from typing import NamedTuple


class Place(NamedTuple):
    """Where an agent is, as bytes of the RAM: what tells rooms apart, and the position in a room."""

    room: dict[str, int]  # name: address
    position: dict[str, int] = {}  # noqa: RUF012


class Game(NamedTuple):
    random: float  # score of random actions
    human: float
    place: Place | None = None


HARD_GAMES = {
    "alien": Game(227.8, 7127.7),
    "freeway": Game(0.0, 29.6, Place({}, {"y": 14})),
    "gravitar": Game(173.0, 3351.4),
    "hero": Game(1027.0, 30826.4, Place({"level": 117, "room": 28})),
    "montezuma_revenge": Game(0.0, 4753.3, Place({"level": 57, "room": 3}, {"x": 42, "y": 43})),
    "pitfall": Game(-229.4, 6463.7, Place({"room": 1})),
    "private_eye": Game(24.9, 69571.3, Place({"room": 92})),
    "qbert": Game(163.9, 13455.0),
    "solaris": Game(1236.3, 12326.7),
    "venture": Game(0.0, 1187.5, Place({"room": 90})),
}
