"""Films of a run: an episode of each task before and after training, with the intrinsic reward under the pictures."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from PIL import Image, ImageDraw

from byol_explore.envs.tasks import list_tasks
from byol_explore.errors import UserError
from byol_explore.evaluation.recording import record
from byol_explore.evaluation.rules import evaluation_envs
from byol_explore.learner_state import LearnerState
from byol_explore.playing.film_files import save_film
from byol_explore.run.checkpoint import Checkpoints
from byol_explore.run.directory import load_config
from byol_explore.runtime.choosing import make_runtime, on_one_device, training_envs
from byol_explore.runtime.compilation import enable_compilation_cache
from byol_explore.settings.config import file_name
from byol_explore.types import Array, Trajectory

STEPS = 160  # that are played; a film ends with the first episode in them
WIDTH, HEIGHT = 248, 120  # pixels of a picture, at least: one that is wide, of several views, is shown wider
STRIP = 34  # height of what is drawn under it
MILLISECONDS = 90

_INK, _BAR, _NOW, _PAPER = (60, 64, 72), (150, 180, 215), (214, 96, 30), (250, 250, 248)


class Film(NamedTuple):
    """Which agent is filmed."""

    name: str  # before or after
    caption: str
    state: LearnerState


def film_run(run_dir: Path | str, *, say: Callable[[str], None] = lambda text: None) -> list[Path]:
    """Write films/<task>-before.gif and -after.gif of a run; the agent before is made again from the run's seed."""
    directory = Path(run_dir)
    config = on_one_device(load_config(directory))
    checkpoints = Checkpoints(directory / "checkpoints")
    if not checkpoints.steps():
        raise UserError(f"{directory} has no checkpoint to film: train it first")
    enable_compilation_cache()
    envs = training_envs(config)
    runtime, envs = make_runtime(config, envs), evaluation_envs(envs)  # the first as the run was begun
    try:
        before = runtime.init_learner(config.seed)
    finally:
        runtime.close()
    after = checkpoints.restore(before, part="learner")
    films = [Film("before", "before training", before),
             Film("after", f"after {after.meta['step']:,} steps", after.state)]  # fmt: skip
    judge = jax.jit(runtime.learner.intrinsic_reward)
    paths = []
    for index, task in enumerate(list_tasks(config.env_ids, envs)):
        for film in films:
            key = jax.random.fold_in(jax.random.key(config.seed), index)
            frames, trajectory = record(film.state.acting, task.env, key, STEPS, index, task.number)
            paths.append(film_path(directory, task.name, film.name))
            save_film(paths[-1], one_episode(film, frames, trajectory, judge), MILLISECONDS)
            say(f"wrote {paths[-1]}")
    return paths


def film_path(directory: Path, task: str, when: str) -> Path:
    return directory / "films" / f"{file_name(task)}-{when}.gif"


def one_episode(
    film: Film, frames: list[np.ndarray], trajectory: Trajectory, judge: Callable[[LearnerState, Trajectory], Array]
) -> list[np.ndarray]:
    """The first episode of a recording, with what each of its steps was worth."""
    starts = np.flatnonzero(trajectory.is_first[1:, 0])
    length = int(starts[0]) if starts.size else len(frames) - 1  # steps; the last observation has a picture too
    rewards = np.asarray(judge(film.state, trajectory))[:length, 0]
    return [_drawn(frame, rewards, now, film.caption) for now, frame in enumerate(frames[: length + 1])]


def _drawn(frame: np.ndarray, rewards: np.ndarray, now: int, caption: str) -> np.ndarray:
    """A picture, and under it the rewards of the steps up to now."""
    width = max(WIDTH, round(HEIGHT * frame.shape[1] / frame.shape[0]))
    height = round(width * frame.shape[0] / frame.shape[1])
    canvas = Image.new("RGB", (width, height + STRIP + 12), _PAPER)
    canvas.paste(Image.fromarray(frame).resize((width, height), Image.Resampling.BOX))
    draw = ImageDraw.Draw(canvas)
    draw.text((3, height + 1), f"{caption}, step {now}; intrinsic reward:", fill=_INK)
    bottom, highest, step = height + STRIP + 11, max(float(np.max(rewards, initial=0.0)), 1e-6), width / STEPS
    for index, reward in enumerate(rewards[:now]):
        left, top = index * step, bottom - (STRIP - 4) * max(float(reward), 0.0) / highest
        draw.rectangle((left, top, left + max(step - 0.5, 1.0), bottom), fill=_NOW if index == now - 1 else _BAR)
    return np.asarray(canvas)
