"""The tasks and the options of DM-HARD-8, the original in its container. Light: nothing of dm_env_rpc is imported."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from byol_explore.errors import UserError
from byol_explore.rules import NotNegative, Positive

PREFIX = "dm-hard-eight:"
WAYS = {"server": "HOST:PORT", "directory": "PATH", "container": "IMAGE"}
_SIZE = re.compile(r"[1-9][0-9]{0,3}x[1-9][0-9]{0,3}")
_ADDRESS = re.compile(r"([\w.-]+|\[[0-9a-fA-F:]+\]):[1-9][0-9]{0,4}")
_LOCAL = ("localhost", "127.0.0.1", "[::1]")


class Level(NamedTuple):
    """What the original calls a task, and what random actions and people score in it."""

    name: str
    random: float
    human: float


# The paper does not print what random actions score. Nothing, as it seems, but for the penalties of Remember Sensor:
# there, this number makes the paper's statistics follow from its scores.
LEVELS = {
    "drawbridge": Level("drawbridge_max3fork_safe_randomwall", 0.0, 12.3),
    "remember-sensor": Level("sensorhidden_color_novary_greywall", -0.46, 7.6),
    "navigate-cubes": Level("ball_room_navigation_cubes", 0.0, 7.8),
    "wall-sensor": Level("reach_wall", 0.0, 9.1),
    "wall-sensor-stack": Level("reach_wall_require_stack", 0.0, 8.6),
    "push-blocks": Level("slot_colored_block", 0.0, 8.4),
    "throw-across": Level("throw_across", 0.0, 5.7),
    "baseball": Level("use_object_knock_down", 0.0, 7.9),
}


@dataclass(frozen=True)
class DMHardEightSettings:
    """Where the original is, and how it is played. One of server, directory and container must be given."""

    server: tuple[str, ...] = ()
    """Where it listens already, host:port; several with +, of which each environment takes the least used one."""
    directory: str | None = None
    """The original's files, copied out of its container; each environment starts Linux64Player in it."""
    container: str | None = None
    """An image that docker has already; each environment runs a container of it."""
    resolution: str = "96x72"
    """Width and height of what is seen, in the original's ratio of 4 to 3."""
    action_repeat: Positive[int] = 2
    """Steps of the server that an action lasts; rewards of them are added up."""
    start_timeout: Positive[float] = 45.0
    """Seconds until a server must have answered and shown the first observation, also after it was lost."""
    answer_timeout: Positive[float] = 15.0
    """Seconds after which a server that does not answer a step counts as lost."""
    reconnects: NotNegative[int] = 3
    """How often a server may be lost without an episode of it having come to its end."""

    def __post_init__(self) -> None:
        if not _SIZE.fullmatch(self.resolution) or 3 * self.width != 4 * self.height:
            raise UserError(
                f"env_settings.resolution is {self.resolution!r}: it must be WIDTHxHEIGHT in the ratio of 4 to 3, "
                "like 96x72"
            )
        for address in self.server:
            if not _ADDRESS.fullmatch(address):
                raise UserError(f"env_settings.server names {address!r}: it must be HOST:PORT, like localhost:10000")
        if len(self.ways) > 1:
            raise UserError(f"env_settings has {' and '.join(self.ways)}: give one of them")

    @property
    def ways(self) -> list[str]:
        """Which of the settings that say where the original is are given."""
        return [name for name in WAYS if getattr(self, name)]

    @property
    def width(self) -> int:
        return int(self.resolution.split("x")[0])

    @property
    def height(self) -> int:
        return int(self.resolution.split("x")[1])


def is_local(address: str) -> bool:
    """Whether a server is on this machine by its address."""
    return address.rpartition(":")[0] in _LOCAL


def leads_outside(setting: str, text: str) -> bool:
    """Whether a setting starts code of others or reaches another machine, which a file must not do unasked."""
    return setting in ("directory", "container") or (setting == "server" and not all(map(is_local, text.split("+"))))
