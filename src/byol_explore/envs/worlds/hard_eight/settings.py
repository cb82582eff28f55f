"""The options of Hard-Eight. Light: nothing of the world is imported."""

from dataclasses import dataclass
from typing import Annotated

from byol_explore.rules import OneOf, Positive

RESOLUTIONS = ("96x72", "48x36", "32x24")
ACTIONS = ("continuous", "discrete")
TASKS = (
    "drawbridge", "remember-sensor", "navigate-cubes", "wall-sensor", "wall-sensor-stack", "push-blocks",
    "throw-across", "baseball",
)  # fmt: skip
ALL = "all"  # the name of a task that is another one in each episode


@dataclass(frozen=True)
class HardEightSettings:
    """What is seen and done; the defaults are those of DM-HARD-8, but for how long an action lasts."""

    resolution: Annotated[str, OneOf(RESOLUTIONS)] = "96x72"
    """Width and height of what is seen: 96x72, or 48x36 and 32x24 for small machines."""
    actions: Annotated[str, OneOf(ACTIONS)] = "continuous"
    """Continuous: the nine of DM-HARD-8, eight numbers and the grip; discrete: seven moves and turns, and the grip."""
    action_repeat: Positive[int] = 3
    """Ticks of a fifteenth of a second that an action lasts; rewards of them are added up."""

    @property
    def height(self) -> int:
        return int(self.resolution.split("x")[1])

    @property
    def width(self) -> int:
        return int(self.resolution.split("x")[0])
