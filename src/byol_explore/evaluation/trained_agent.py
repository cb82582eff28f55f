"""Load a trained agent and use it, or measure it: `load_agent`, `TrainedAgent`, `evaluate`."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from byol_explore.agent.acting import select_action
from byol_explore.agent.learner import Learner
from byol_explore.config.config import Config
from byol_explore.envs.interface import AnyEnvironment, EnvSpec, HostEnvironment, Task, count_tasks, list_tasks
from byol_explore.envs.registry import make_envs
from byol_explore.errors import UserError, unknown_name
from byol_explore.evaluation.films import check_film_path, save_film
from byol_explore.evaluation.rollouts import (
    EpisodeResults,
    evaluation_envs,
    protocol_settings,
    record_frames,
    run_episodes,
    success_rate,
    success_rules,
)
from byol_explore.evaluation.scores import human_normalized, mean_interval, rate_interval
from byol_explore.networks.representation import Actor
from byol_explore.storage.checkpoint import Checkpoints, Restored
from byol_explore.storage.run_directory import load_config
from byol_explore.types import UNKNOWN_SUCCESS, Action, PyTree, RecurrentState, TimeStep
from byol_explore.utils.packages import enable_compilation_cache


class TrainedAgent:
    """A policy with one recurrent state for each of E environments.

    Observations and actions are those of the training environment with a leading axis of environments: for a Gymnasium
    environment those of its vector environments, else arrays of `EnvSpec.observation` and `Action`.
    """

    def __init__(self, actor: Actor, spec: EnvSpec, env: Any = None, *, seed: int = 0) -> None:
        self.actor, self.spec = actor, spec
        self._from_native = (
            env.observations.from_native if hasattr(env, "observations") else lambda observation: observation
        )
        self._to_native = env.actions.to_native if hasattr(env, "actions") else lambda action: action
        self._act = jax.jit(select_action, static_argnames="greedy")
        self._key = jax.random.key(seed)
        self._recurrent_state: RecurrentState | None = None
        self._is_first: np.ndarray = np.zeros(0, bool)

    def reset(self, mask: np.ndarray | None = None) -> None:
        """Start new episodes: in all environments, whose number may change, or where `mask` [E] is True."""
        if mask is None or self._recurrent_state is None:
            self._recurrent_state = None
            return
        mask = np.asarray(mask, bool)
        if mask.shape != self._is_first.shape:
            raise UserError(f"a mask of shape {mask.shape} for {len(self._is_first)} environments")
        self._is_first = self._is_first | mask

    def act(self, observation: PyTree, reward: np.ndarray | None = None, *, greedy: bool = True) -> Any:
        """Choose the next actions.

        Args:
          observation: observations [E, ...].
          reward: [E] rewards of the previous actions, for agents with `network.use_prev_reward`; zeros by default.
          greedy: take the most likely action instead of sampling.
        Returns:
          Actions [E, ...].
        """
        seen = self._from_native(observation)
        count = self._num_observations(seen)
        if self._recurrent_state is None:
            self._recurrent_state = self.actor.initial_state(self.spec, count)
            self._is_first = np.ones(count, bool)
        if count != len(self._is_first):
            raise UserError(f"{count} observations for {len(self._is_first)} environments: call reset() first")
        self._key, key = jax.random.split(self._key)
        rewards = np.zeros(count, np.float32) if reward is None else np.asarray(reward, np.float32)
        if rewards.shape != (count,):
            raise UserError(f"rewards of shape {rewards.shape} for {count} observations: it must be {(count,)}")
        unknown = np.full(count, UNKNOWN_SUCCESS, np.int8)
        timestep = TimeStep(seen, rewards, np.ones(count, np.float32), self._is_first, np.zeros(count, bool), unknown)
        self._recurrent_state, _, action = self._act(self.actor, self._recurrent_state, timestep, key, greedy=greedy)
        self._is_first = np.zeros(count, bool)
        return self._to_native(Action(*map(np.asarray, action)))

    def _num_observations(self, seen: PyTree) -> int:
        """Return E of observations [E, ...]; raise a UserError unless their shapes are those of the spec."""
        kinds, entries = (x if isinstance(x, dict) else {"": x} for x in (self.spec.observation, seen))
        shapes: dict[str, tuple[int, ...]] = {name: getattr(array, "shape", ()) for name, array in entries.items()}
        wanted = {name: kind.shape for name, kind in kinds.items()}
        counts = {shape[:1] for shape in shapes.values()}
        if {name: shape[1:] for name, shape in shapes.items()} != wanted or len(counts) > 1 or () in counts:
            found, expected = (x.get("", x) for x in (shapes, wanted))
            raise UserError(f"observations of shape {found}: each must be {expected}, with a leading axis over all")
        return counts.pop()[0]


def load_agent(run_dir: Path | str, *, checkpoint: str | int = "last", seed: int = 0) -> TrainedAgent:
    """Load the target policy of a run.

    Args:
      run_dir: run directory.
      checkpoint: "last", "best" or the step of a checkpoint.
      seed: seed of sampled actions.
    """
    directory = Path(run_dir)
    config = load_config(directory)
    envs = make_envs(config.env_ids, config.env_settings)
    restored = restore_actor(config, envs, Checkpoints(directory / "checkpoints"), str(checkpoint))
    return TrainedAgent(restored.state, envs[0].spec, envs[0], seed=seed)


def restore_actor(
    config: Config, envs: Sequence[AnyEnvironment], checkpoints: Checkpoints, which: str
) -> Restored:  # fmt: skip
    """Restore the target policy of a checkpoint, trained on any number of devices.

    Args:
      config: the run's configuration.
      envs: its environments.
      checkpoints: its checkpoints.
      which: "last", "best" or the step of a checkpoint.
    """
    known = checkpoints.steps()
    if which == "last":
        step = None
    elif which == "best":
        step = checkpoints.best_step()
    elif which.isdigit() and int(which) in known:
        step = int(which)
    else:
        raise unknown_name("checkpoint", which, ["last", "best", *map(str, known)])
    learner = jax.eval_shape(Learner(config, envs[0].spec, count_tasks(envs)).init, jax.random.key(0))
    restored = checkpoints.restore(learner.target_actor, step=step, part="learner.target_actor")
    return restored._replace(skipped=restored.skipped + checkpoints.without_score()) if which == "best" else restored


ACTING_MODES = {"sampled": False, "greedy": True}  # `greedy` by the name in reports


def evaluate(
    run_dir: Path | str,
    *,
    episodes: int | None = None,
    checkpoint: str = "last",
    seed: int = 0,
    success_threshold: float | None = None,
    video: Path | str | None = None,
    video_episodes: int = 3,
    protocol: str | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> dict[str, Any]:
    """Evaluate a run's target policy, per task, with sampled actions (as in training) and with greedy actions.

    Args:
      run_dir: run directory.
      episodes: episodes per task and acting mode; by default 200, or 10 as in the paper for host environments.
      checkpoint: "last", "best" or the step of a checkpoint.
      seed: seed of levels and sampled actions.
      success_threshold: return above which an episode is a success; by default that of the run.
      video: film to write; its suffix chooses the format (`films.FORMATS`).
      video_episodes: episodes per task in the film.
      protocol: evaluation protocol of environments that have several, as Atari games; by default that of the run.
      progress: called with the task and acting mode, and the number of ended episodes.
    Returns:
      JSON data: for each task and acting mode success rate and mean return with 95% confidence intervals, mean length,
      human-normalised score in percent and shares of episodes per stage, where they exist.
    """
    if episodes is not None and episodes < 1:
        raise UserError(f"episodes is {episodes}: it must be at least 1")
    if success_threshold is not None and not math.isfinite(success_threshold):
        raise UserError(f"success_threshold is {success_threshold}: it must be finite")
    if video is not None:
        check_film_path(Path(video))
    directory = Path(run_dir)
    config = load_config(directory)
    enable_compilation_cache()
    envs = evaluation_envs(make_envs(config.env_ids, config.env_settings), protocol)
    if episodes is None:
        episodes = 10 if isinstance(envs[0], HostEnvironment) else 200
    restored = restore_actor(config, envs, Checkpoints(directory / "checkpoints"), checkpoint)
    actor, key = restored.state, jax.random.key(seed)
    report: dict[str, Any] = {
        "run": str(directory),
        "checkpoint_steps": restored.meta["step"],
        "skipped_checkpoints": restored.skipped,
        "episodes": episodes,
        "tasks": {},
    }
    if settings := protocol_settings(envs):
        report["protocol"] = settings
    tasks = list_tasks(config.env_ids, envs)
    threshold = config.success_threshold if success_threshold is None else success_threshold
    rules = success_rules([task.spec for task in tasks], threshold)
    by_mode: dict[str, list[TaskResults]] = {mode: [] for mode in ACTING_MODES}
    for index, (task, rule) in enumerate(zip(tasks, rules, strict=True)):
        for mode, greedy in ACTING_MODES.items():
            results = run_episodes(
                actor, task.env, episodes, jax.random.fold_in(key, index), task=task.index_in_env, greedy=greedy,
                progress=partial(progress, f"{task.name}, {mode}") if progress else None,
            )  # fmt: skip
            by_mode[mode].append(TaskResults(task, results, rule.classify(results.episode_return, results.success)))
        report["tasks"][task.name] = {mode: _summarize(results[-1:]) for mode, results in by_mode.items()}
    if len(tasks) > 1:
        report["all_tasks"] = {mode: _summarize(results) for mode, results in by_mode.items()}
    if video is not None:
        films = (record_frames(actor, task.env, key, video_episodes, task.index_in_env) for task in tasks)
        save_film(Path(video), [frame for frames in films for frame in frames])
        report["video"] = str(video)
    return report


class TaskResults(NamedTuple):
    """E episodes of a task in one acting mode."""

    task: Task
    results: EpisodeResults
    successes: np.ndarray  # [E] 1, 0 or UNKNOWN_SUCCESS


def _summarize(tasks: list[TaskResults]) -> dict[str, Any]:
    """Summarize equally many episodes of each task. Tasks of unknown success do not count in the success rate."""
    known = [each.successes == 1 for each in tasks if success_rate(each.successes) is not None]
    returns = np.concatenate([each.results.episode_return for each in tasks])
    lengths = np.concatenate([each.results.length for each in tasks])
    summary: dict[str, Any] = {
        "success_rate": rate_interval(np.concatenate(known))._asdict() if known else None,
        "return": mean_interval(returns)._asdict(),
        "length_mean": float(np.mean(lengths)),
    }
    percents = [
        human_normalized(float(np.mean(each.results.episode_return)), references)
        for each in tasks
        if (references := each.task.spec.reference_scores) is not None
    ]
    if percents and len(percents) == len(tasks):
        summary["human_normalized"] = float(np.mean(percents))
    if stages := _stages(tasks):
        summary["stages"] = stages
    return summary


def _stages(tasks: list[TaskResults]) -> dict[str, float]:
    """Return the share of episodes that reached each stage, among those of the tasks that have it."""
    reached: dict[str, list[np.ndarray]] = {}
    for task, results, _ in tasks:
        if results.stages_reached is not None:
            for stage, episodes in zip(task.stages, results.stages_reached.T, strict=True):
                reached.setdefault(stage, []).append(episodes)
    return {stage: float(np.mean(np.concatenate(parts))) for stage, parts in reached.items()}
