"""All that watch every run."""

import json
from collections.abc import Sequence
from pathlib import Path

from byol_explore.envs.host import AnyEnvironment
from byol_explore.envs.tasks import list_tasks
from byol_explore.evaluation.rules import evaluation_envs
from byol_explore.evaluation.success import success_rules
from byol_explore.report.pyramid import draw_pyramid
from byol_explore.run.coverage import Coverage
from byol_explore.run.episode_window import EpisodeWindow
from byol_explore.run.evaluations import Evaluations
from byol_explore.run.maps import CuriosityMaps
from byol_explore.run.mishaps import Mishaps
from byol_explore.run.trackers import Tracker
from byol_explore.run.vitals import Payments
from byol_explore.settings.config import Config


def make_window(config: Config, envs: Sequence[AnyEnvironment]) -> EpisodeWindow:
    """What is known of episodes before the first one."""
    tasks = list_tasks(config.env_ids, envs)
    rules = success_rules([task.spec for task in tasks], config.success_above)
    names, limits = [task.name for task in tasks], [task.spec.max_steps for task in tasks]
    stages = [task.stages for task in tasks]
    return EpisodeWindow(names, config.log.window, rules, limits, config.runtime.num_envs, stages)


def make_trackers(config: Config, envs: Sequence[AnyEnvironment], window: EpisodeWindow) -> list[Tracker]:
    """All that watch every run."""
    tasks = list_tasks(config.env_ids, envs)
    maps = CuriosityMaps([task.name for task in tasks], [task.env for task in tasks])
    trackers: list[Tracker] = [window, Payments(config), maps, Mishaps()]
    if len(envs) == 1:
        trackers.append(Coverage(envs[0].spec))
    if config.env == "atari:montezuma_revenge":
        trackers.append(PyramidPicture())
    return [*trackers, Evaluations(config, evaluation_envs(envs))]


class PyramidPicture(Tracker):
    """rooms.png: Montezuma's rooms as coverage.json has them."""

    def write(self, directory: Path) -> None:
        if (path := directory / "coverage.json").exists():
            draw_pyramid(json.loads(path.read_text()), directory / "rooms.png")
