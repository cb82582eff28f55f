"""Settings and reference scores of Atari, DM-HARD-8 and Gymnasium. Imports nothing heavy."""

import re
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

from byol_explore.errors import UserError
from byol_explore.utils.validation import Fraction, NonNegative, OneOf, Positive, parse_host_port

PROTOCOLS = ("paper", "training")
PROTOCOL_SETTINGS = ("max_noops", "sticky_action_prob", "max_frames")  # that the protocol decides


class _Resolution:
    """Settings with a `resolution` such as 96x72: width and height in pixels."""

    resolution: str

    @property
    def width(self) -> int:
        return int(self.resolution.split("x")[0])

    @property
    def height(self) -> int:
        return int(self.resolution.split("x")[1])


@dataclass(frozen=True)
class AtariSettings:
    """Environments atari:...; the defaults are those of the paper's kind of agent."""

    action_repeat: Positive[int] = 4
    """Frames per action; their rewards are summed."""
    frame_stack: Positive[int] = 1
    """Frames in an observation; a recurrent agent needs one."""
    sticky_action_prob: Fraction[float] = 0.0
    """Probability that the emulator repeats the last action instead, at every frame (0.25 is usual)."""
    full_action_set: bool = True
    """All 18 actions, or only those that do something in the game."""
    max_noops: NonNegative[int] = 30
    """Largest random number of frames without action at the start of an episode."""
    max_frames: Positive[int] = 108_000
    """Frames after which an episode is cut off."""
    clip_rewards: bool = False
    """Clip rewards to their sign."""
    terminal_on_life_loss: bool = False
    """End the episode when a life is lost."""
    num_workers: NonNegative[int] = 0
    """Worker processes per actor; 0 shares the cores among the actors."""
    evaluation_protocol: Annotated[str, OneOf(PROTOCOLS)] = "paper"
    """paper (up to 30 no-ops, no sticky actions, 108,000 frames) or training (as set here)."""

    def for_evaluation(self, protocol: str | None = None) -> "AtariSettings":
        """Return settings for whole games with unclipped scores.

        The protocol "training" keeps no-ops, sticky actions and the time limit. Action repeat, frame stack and the set
        of actions always stay: the agent is made for them.
        """
        protocol = protocol or self.evaluation_protocol
        values = self if protocol == "training" else AtariSettings()
        changes = {name: getattr(values, name) for name in PROTOCOL_SETTINGS}
        return replace(self, clip_rewards=False, terminal_on_life_loss=False, evaluation_protocol=protocol, **changes)


class RamLocation(NamedTuple):
    """Addresses of the bytes of the RAM that identify the agent's room, and its position in the room."""

    room: dict[str, int] = {}  # noqa: RUF012  # name: address
    position: dict[str, int] = {}  # noqa: RUF012
    layout: str = ""  # `EnvSpec.room_layout`


class GameInfo(NamedTuple):
    random: float  # score of random actions
    human: float
    ram_location: RamLocation | None = None


HARD_GAMES = {
    "alien": GameInfo(227.8, 7127.7),
    "freeway": GameInfo(0.0, 29.6, RamLocation({}, {"y": 14})),
    "gravitar": GameInfo(173.0, 3351.4),
    "hero": GameInfo(1027.0, 30826.4, RamLocation({"level": 117, "room": 28})),
    "montezuma_revenge": GameInfo(0.0, 4753.3, RamLocation({"level": 57, "room": 3}, {"x": 42, "y": 43}, "pyramid")),
    "pitfall": GameInfo(-229.4, 6463.7, RamLocation({"room": 1})),
    "private_eye": GameInfo(24.9, 69571.3, RamLocation({"room": 92})),
    "qbert": GameInfo(163.9, 13455.0),
    "solaris": GameInfo(1236.3, 12326.7),
    "venture": GameInfo(0.0, 1187.5, RamLocation({"room": 90})),
}


PREFIX = "dm-hard-eight:"
LOCATIONS = {"servers": "HOST:PORT", "directory": "PATH", "docker_image": "IMAGE"}
_SIZE = re.compile(r"[1-9][0-9]{0,3}x[1-9][0-9]{0,3}")
_LOCAL = ("localhost", "127.0.0.1", "::1")


class LevelInfo(NamedTuple):
    """The original's name of a task, and the scores of random actions and of people."""

    name: str
    random: float
    human: float


# The paper does not print the scores of random actions. They seem to be 0 except for the penalties of Remember Sensor,
# where this number makes the paper's statistics follow from its scores.
LEVELS = {
    "drawbridge": LevelInfo("drawbridge_max3fork_safe_randomwall", 0.0, 12.3),
    "remember-sensor": LevelInfo("sensorhidden_color_novary_greywall", -0.46, 7.6),
    "navigate-cubes": LevelInfo("ball_room_navigation_cubes", 0.0, 7.8),
    "wall-sensor": LevelInfo("reach_wall", 0.0, 9.1),
    "wall-sensor-stack": LevelInfo("reach_wall_require_stack", 0.0, 8.6),
    "push-blocks": LevelInfo("slot_colored_block", 0.0, 8.4),
    "throw-across": LevelInfo("throw_across", 0.0, 5.7),
    "baseball": LevelInfo("use_object_knock_down", 0.0, 7.9),
}


@dataclass(frozen=True)
class DMHardEightSettings(_Resolution):
    """Environments dm-hard-eight:...; one of servers, directory and docker-image must be given."""

    servers: tuple[str, ...] = ()
    """Addresses host:port of running servers; each environment takes the least used one."""
    directory: str | None = None
    """The original's files, copied out of its container; each environment starts Linux64Player in it."""
    docker_image: str | None = None
    """An image that docker has already; each environment runs a container of it."""
    resolution: str = "96x72"
    """Width and height of the picture, in the original's ratio of 4 to 3."""
    action_repeat: Positive[int] = 2
    """Steps of the server per action; their rewards are summed."""
    start_timeout: Positive[float] = 45.0
    """Seconds that a server may take until the first observation, also after it was lost."""
    answer_timeout: Positive[float] = 15.0
    """Seconds that a server may take for a step before it counts as lost."""
    max_reconnects: NonNegative[int] = 3
    """Losses of a server in a row, without the end of an episode between them, after which the run fails."""

    def check(self) -> None:
        """Raise a UserError for the first value of the wrong form."""
        if not _SIZE.fullmatch(self.resolution) or 3 * self.width != 4 * self.height:
            raise UserError(
                f"dm_hard_eight.resolution is {self.resolution!r}: it must be WIDTHxHEIGHT in the ratio of 4 to 3, "
                "like 96x72"
            )
        for address in self.servers:
            if parse_host_port(address) is None:
                raise UserError(f"dm_hard_eight.servers names {address!r}: it must be HOST:PORT, like localhost:10000")
        if len(self.locations) > 1:
            raise UserError(f"dm_hard_eight has {' and '.join(self.locations)}: give one of them")

    @property
    def locations(self) -> list[str]:
        """Return the names of the given settings that locate the original."""
        return [name for name in LOCATIONS if getattr(self, name)]


def is_local(address: str) -> bool:
    """Return True if an address host:port names this machine."""
    return (parse_host_port(address) or ("", 0))[0] in _LOCAL


RESOLUTIONS = ("96x72", "48x36", "32x24")
ACTION_SETS = ("continuous", "discrete")


@dataclass(frozen=True)
class HardEightSettings(_Resolution):
    """Environments hard-eight:...; the defaults are those of DM-HARD-8, except for the action repeat."""

    resolution: Annotated[str, OneOf(RESOLUTIONS)] = "96x72"
    """Width and height of the picture in pixels; 48x36 and 32x24 are for small machines."""
    action_set: Annotated[str, OneOf(ACTION_SETS)] = "continuous"
    """continuous: the nine actions of DM-HARD-8, eight numbers and the grip. discrete: seven moves, and the grip."""
    action_repeat: Positive[int] = 3
    """Ticks of 1/15 s per action; their rewards are summed."""


GYMNASIUM_IDS = ("ID for every registered ID, for example gymnasium:Acrobot-v1",)
ENVPOOL_IDS = ("ID for every registered ID, for example envpool:MiniGrid-KeyCorridorS3R3-v0",)
ENTRY_POINT = "vector_entry_point"
VECTORIZATIONS = ("sync", "async", ENTRY_POINT)


@dataclass(frozen=True)
class GymnasiumSettings:
    """Environments gymnasium:...; keyword arguments of gymnasium.make are given with --env-kwargs."""

    wrappers: tuple[str, ...] = ()
    """Import paths (my_package:Wrapper) of wrappers around every environment, the innermost first."""
    vectorization: Annotated[str, OneOf(VECTORIZATIONS)] = "sync"
    """sync (one after the other in this process), async (a process each) or vector_entry_point (the environment's
    own; sync if that does not reset in Gymnasium's NEXT_STEP mode)."""
    max_steps: Positive[int | None] = None
    """Steps after which an episode is cut off; None is the limit that the environment is registered with."""
