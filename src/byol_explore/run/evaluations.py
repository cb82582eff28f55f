"""Evaluation while training: fresh episodes of the target policy, and the best mean over training."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from byol_explore.envs.guarding import guarded
from byol_explore.envs.host import AnyEnvironment, HostEnvironment
from byol_explore.envs.tasks import Task, list_tasks
from byol_explore.evaluation.play import Interrupted, Results, play
from byol_explore.evaluation.scores import human_normalized
from byol_explore.networks.assembly import Actor
from byol_explore.run.trackers import Progress, Tracker
from byol_explore.settings.config import Config
from byol_explore.types import Array


class Evaluations(Tracker):
    """The paper's scores: a mean over ten episodes, and its maximum over training."""

    name = "evaluations"

    def __init__(self, config: Config, envs: Sequence[AnyEnvironment]) -> None:
        self.tasks = list_tasks(config.env_ids, envs)
        self.episodes, self._seed = config.log.evaluate_episodes, config.seed
        self._every, self._step_timeout = config.log.evaluate_every, config.runtime.step_timeout
        self.last: dict[str, float] = {}  # mean return by task
        self.best: dict[str, float] = {}

    def after(self, progress: Progress) -> None:
        """Evaluate when it is due, unless the run is about to stop."""
        if progress.actor is not None and progress.crossed(self._every) and not progress.is_interrupted():
            said = self.run(progress.actor, progress.steps, should_stop=progress.is_interrupted)
            progress.say(f"evaluation after {progress.steps:,} steps: {said}")

    def run(self, actor: Actor, steps: int, should_stop: Callable[[], bool] = lambda: False) -> str:
        """Play every task with sampled actions; a few words about it. Given up halfway, it changes nothing."""
        try:
            scores = self._play(actor, steps, should_stop)
        except Interrupted:
            return "given up"
        self.last = scores
        self.best = {name: max(score, self.best.get(name, score)) for name, score in scores.items()}
        return ", ".join(f"{name} {score:.1f} (best {self.best[name]:.1f})" for name, score in scores.items())

    def _play(self, actor: Actor, steps: int, should_stop: Callable[[], bool]) -> dict[str, float]:
        """Mean return by task."""
        actor = jax.device_put(actor, jax.local_devices()[0])
        scores = {}
        for index, task in enumerate(self.tasks):
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(self._seed + 1), index), steps % 2**31)
            results = self._play_one(actor, task, key, should_stop)
            scores[task.name] = float(np.mean(results.episode_return))
        return scores

    def _play_one(self, actor: Actor, task: Task, key: Array, should_stop: Callable[[], bool]) -> Results:
        """One task; an environment outside jit is under guard."""

        def playing(env: AnyEnvironment) -> Results:
            return play(actor, env, self.episodes, key, task=task.number, should_stop=should_stop)

        if not isinstance(task.env, HostEnvironment):
            return playing(task.env)
        return guarded([task.env], self._step_timeout, lambda envs: playing(envs[0]))

    def summary(self) -> dict[str, Any]:
        """For a line of metrics: means over tasks, and each task where there are several."""
        if not self.last:
            return {}
        result: dict[str, Any] = {
            "evaluation_return": float(np.mean([*self.last.values()])),
            "evaluation_best": float(np.mean([*self.best.values()])),
        }
        percents = [
            human_normalized(self.best[task.name], task.spec.scores)
            for task in self.tasks
            if task.spec.scores is not None
        ]
        if percents:
            result["human_normalized_best"] = float(np.mean(percents))
        if len(self.tasks) > 1:
            result["evaluation"] = {name: {"return": self.last[name], "best": self.best[name]} for name in self.last}
        return result

    def to_meta(self) -> dict[str, Any]:
        return {"last": self.last, "best": self.best}

    def load_meta(self, meta: dict[str, Any]) -> None:
        self.last, self.best = dict(meta["last"]), dict(meta["best"])
