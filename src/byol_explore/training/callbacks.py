"""Callback, Progress, reward activity, actor faults, periodic evaluation.

The callbacks of every run (episode window, coverage, evaluation) and those given to `train(config, callbacks=[...])`
have one interface.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from byol_explore.agent.state import validate_hyperparams
from byol_explore.config.config import Config, has_intrinsic_reward
from byol_explore.curiosity.method import MIN_ACTIVE_REWARD
from byol_explore.envs.interface import AnyEnvironment, HostEnvironment, Task, list_tasks
from byol_explore.envs.watchdog import run_watched
from byol_explore.evaluation.rollouts import EpisodeResults, Interrupted, run_episodes
from byol_explore.evaluation.scores import human_normalized
from byol_explore.networks.representation import Actor
from byol_explore.runtime.base import RolloutStats
from byol_explore.types import Array


class Progress:
    """State of a run after a dispatch, for callbacks.

    Args:
      config: configuration of the run.
      say: print a line to the user.
      is_interrupted: return True once a signal asked the run to stop.
    """

    def __init__(self, config: Config, say: Callable[[str], None], is_interrupted: Callable[[], bool]) -> None:
        self.config, self.say, self.is_interrupted = config, say, is_interrupted
        self.before = self.steps = 0  # environment steps before and after the dispatch
        self.metrics: dict[str, np.ndarray] = {}  # [updates, ...] metrics of each learner step of the dispatch
        self.counts: Mapping[str, int] = {}  # faults, restarts and dropped sequences of actors in the dispatch
        self.actor: Actor | None = None  # target actor, on this process's devices
        self.hyperparams: dict[str, float] = {}  # current values of the settings that `set` can change
        self.changes: dict[str, float] = {}  # values set since the dispatch, applied before the next one
        self.wants_stop = False

    def passed_multiple(self, interval: int) -> bool:
        """Return True if the dispatch passed a multiple of `interval` environment steps; 0 is never passed."""
        return interval > 0 and self.before // interval != self.steps // interval

    def set(self, **values: float) -> None:
        """Change hyperparameters from the next dispatch on; the values are logged and saved in checkpoints.

        Args:
          **values: hyperparameters by name, such as `mixing=0.05`; an unknown name or value raises UserError.
        """
        self.changes.update(validate_hyperparams(self.config, values))

    def stop(self) -> None:
        """End the run after this dispatch, as if all its steps were done."""
        self.wants_stop = True


class Callback:
    """Base class whose methods do nothing. Override those that are needed."""

    name: str = ""  # key of the state in checkpoints; without a name no state is saved

    def on_rollout(self, steps: RolloutStats, at: int) -> None:
        """Handle a rollout after the learning from it.

        Args:
          steps: per-step statistics [T-1, E] of the rollout.
          at: environment steps of the run before this rollout.
        """

    def on_dispatch(self, progress: Progress) -> None:
        """Handle the end of a dispatch, after its rollouts.

        Args:
          progress: state of the run; its methods stop the run and change hyperparameters.
        """

    def metrics(self) -> dict[str, Any]:
        """Return metrics for a log line and for summary.json.

        Returns:
          JSON values by name.
        """
        return {}

    def on_log(self, row: dict[str, Any]) -> None:
        """Handle a log line after it was written.

        Args:
          row: metrics of the line by name, those of all callbacks among them.
        """

    def on_checkpoint(self, directory: Path) -> None:
        """Write files of the callback's own, after each checkpoint.

        Args:
          directory: the run directory.
        """

    def state_dict(self) -> Any:
        """Return the callback's state for a checkpoint.

        Returns:
          JSON data; `load_state_dict` must restore everything that later metrics depend on.
        """
        return None

    def load_state_dict(self, meta: Any) -> None:
        """Restore the state from a checkpoint.

        Args:
          meta: the value that `state_dict` returned.
        """


class ActorFaults(Callback):
    """Count faults and restarts of actors and environments, and dropped sequences; threads count only environments."""

    name = "actor_faults"

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def on_dispatch(self, progress: Progress) -> None:
        self.counts.update(progress.counts)

    def metrics(self) -> dict[str, Any]:
        return dict(self.counts)

    state_dict = metrics

    def load_state_dict(self, meta: dict[str, int]) -> None:
        self.counts = Counter(meta)


class RewardActivity(Callback):
    """Fraction of a run's learner steps in which curiosity pays.

    A learner step is active if the normalised intrinsic reward of its batch, averaged over its tasks, is at least
    `MIN_ACTIVE_REWARD`.
    """

    # The fraction of transitions with any reward is no substitute: while the running deviation is far too large,
    # several percent of the transitions get a reward close to zero.

    name = "reward_activity"

    def __init__(self, config: Config) -> None:
        self.is_used = has_intrinsic_reward(config)
        self.steps = self.active = 0

    def on_dispatch(self, progress: Progress) -> None:
        reward = progress.metrics["intrinsic_reward_per_task"]  # [updates, tasks], NaN where a task is not in the batch
        tasks = np.maximum(np.sum(~np.isnan(reward), axis=1), 1)
        self.steps += len(reward)
        self.active += int(np.sum(np.nansum(reward, axis=1) / tasks >= MIN_ACTIVE_REWARD))

    def metrics(self) -> dict[str, float]:
        """Return the fraction; empty without an intrinsic reward."""
        return {"active_update_fraction": self.active / self.steps} if self.is_used and self.steps else {}

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "active": self.active}

    def load_state_dict(self, meta: dict[str, Any]) -> None:
        self.steps, self.active = meta["steps"], meta["active"]


class EvaluationCallback(Callback):
    """Evaluate during training as the paper does: mean return of ten episodes, and its maximum over training."""

    name = "evaluation"

    def __init__(self, config: Config, envs: Sequence[AnyEnvironment]) -> None:
        self.config, self.tasks = config, list_tasks(config.env_ids, envs)
        self.last: dict[str, float] = {}  # mean return by task, in the latest evaluation
        self.best: dict[str, float] = {}  # and the maximum over all evaluations

    def on_dispatch(self, progress: Progress) -> None:
        """Evaluate when due, unless the run was interrupted."""
        is_due = progress.passed_multiple(self.config.log.evaluate_every) and not progress.is_interrupted()
        if progress.actor is not None and is_due:
            scores = self.run(progress.actor, progress.steps, should_stop=progress.is_interrupted)
            progress.say(f"evaluation after {progress.steps:,} steps: {scores}")

    def run(self, actor: Actor, steps: int, should_stop: Callable[[], bool] = lambda: False) -> str:
        """Play every task with sampled actions. Returns the scores as text. Keeps the old scores if interrupted."""
        try:
            scores = self._play(actor, steps, should_stop)
        except Interrupted:
            return "interrupted"
        self.last = scores
        self.best = {name: max(score, self.best.get(name, score)) for name, score in scores.items()}
        return ", ".join(f"{name} {score:.1f} (best {self.best[name]:.1f})" for name, score in scores.items())

    def _play(self, actor: Actor, steps: int, should_stop: Callable[[], bool]) -> dict[str, float]:
        """Return the mean return by task."""
        actor = jax.device_put(actor, jax.local_devices()[0])
        scores = {}
        for index, task in enumerate(self.tasks):
            # Keys depend on seed, task and step alone, so a resumed run evaluates as an uninterrupted one.
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(self.config.seed + 1), index), steps % 2**31)
            scores[task.name] = float(np.mean(self._play_task(actor, task, key, should_stop).episode_return))
        return scores

    def _play_task(self, actor: Actor, task: Task, key: Array, should_stop: Callable[[], bool]) -> EpisodeResults:
        """Play one task; environments outside jit run under the watchdog."""
        episodes = self.config.log.evaluate_episodes

        def play(envs: Sequence[AnyEnvironment]) -> EpisodeResults:
            return run_episodes(actor, envs[0], episodes, key, task=task.index_in_env, should_stop=should_stop)

        if not isinstance(task.env, HostEnvironment):
            return play([task.env])
        runtime = self.config.runtime
        return run_watched([task.env], runtime.step_timeout, play, max_restarts=runtime.max_env_restarts)

    def metrics(self) -> dict[str, Any]:
        """Return means over tasks; with several tasks also the scores of each. Empty before the first evaluation."""
        if not self.last:
            return {}
        result: dict[str, Any] = {
            "evaluation_return": float(np.mean([*self.last.values()])),
            "evaluation_return_max": float(np.mean([*self.best.values()])),
        }
        percents = [
            human_normalized(self.best[task.name], task.spec.reference_scores)
            for task in self.tasks
            if task.spec.reference_scores is not None
        ]
        if percents:
            result["human_normalized_best"] = float(np.mean(percents))
        if len(self.tasks) > 1:
            result["evaluation"] = {name: {"return": self.last[name], "best": self.best[name]} for name in self.last}
        return result

    def state_dict(self) -> dict[str, Any]:
        return {"last": self.last, "best": self.best}

    def load_state_dict(self, meta: dict[str, Any]) -> None:
        self.last, self.best = dict(meta["last"]), dict(meta["best"])
