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
# Returns of random actions (4,096 episodes of each task with the nine actions: benchmarks/hard_eight_shares.py) and of
# people. The people played the original, which is another world: no one has been measured in this one.
SCORES = {
    "drawbridge": (0.0, 12.3), "remember-sensor": (-2.5147, 7.6), "navigate-cubes": (0.0073, 7.8),
    "wall-sensor": (0.0049, 9.1), "wall-sensor-stack": (0.0, 8.6), "push-blocks": (0.0, 8.4),
    "throw-across": (0.0, 5.7), "baseball": (0.0, 7.9),
}  # fmt: skip
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
