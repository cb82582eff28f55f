"""Films of a run's agent with the intrinsic reward of each step, and film files."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from PIL import Image, ImageDraw

from byol_explore.agent.state import LearnerState
from byol_explore.config.config import env_dir_name
from byol_explore.envs.interface import list_tasks
from byol_explore.errors import UserError
from byol_explore.evaluation.rollouts import evaluation_envs, record_rollout
from byol_explore.runtime.make import make_runtime, make_training_envs, with_one_device
from byol_explore.storage.checkpoint import Checkpoints, read_networks
from byol_explore.storage.run_directory import load_config
from byol_explore.types import Array, Trajectory
from byol_explore.utils.formatting import one_line
from byol_explore.utils.packages import enable_compilation_cache, require_extra

STEPS = 160  # steps to record; the film ends with the first episode
WIDTH, HEIGHT = 248, 120  # smallest size of a frame in pixels; wide frames with several views are wider
STRIP = 34  # height in pixels of the bar chart below the frame
MILLISECONDS = 90  # per frame
FORMATS = (".gif", ".webp", ".mp4")

_INK, _BAR, _NOW, _PAPER = (60, 64, 72), (150, 180, 215), (214, 96, 30), (250, 250, 248)  # RGB
_FFMPEG_SECONDS = 60.0  # timeout of ffmpeg, plus one second per frame


class FilmSubject(NamedTuple):
    """An agent to film."""

    name: str  # "before" or "after"
    caption: str
    state: LearnerState


def film(run_dir: Path | str, *, say: Callable[[str], None] = lambda text: None) -> list[Path]:
    """Write films/<task>-before.gif and -after.gif of a run.

    The agent before training is initialised again from the run's seed and, if set, from the networks of `init_from`.

    Args:
      run_dir: directory of a run with a checkpoint.
      say: called with a line for each film that was written or is not possible.
    Returns:
      Paths of the films.
    """
    directory = Path(run_dir)
    config = with_one_device(load_config(directory))
    checkpoints = Checkpoints(directory / "checkpoints")
    if not checkpoints.steps():
        raise UserError(f"{directory} has no checkpoint to film: train it first")
    enable_compilation_cache()
    envs = make_training_envs(config)
    # The runtime takes the training environments: the run's encoders were centred on their observations.
    runtime, envs = make_runtime(config, envs), evaluation_envs(envs)
    try:
        before = runtime.init_learner(config.seed)
    finally:
        runtime.close()
    after = checkpoints.restore(before, part="learner")
    subjects = [FilmSubject("after", f"after {after.meta['step']:,} steps", after.state)]
    try:
        if config.init_from:
            before = before._replace(**read_networks(before, Path(config.init_from)))
        subjects.insert(0, FilmSubject("before", "before training", before))
    except UserError as error:  # that run was moved or removed meanwhile
        say(f"no film of the agent before training: {error}")
    compute_rewards = jax.jit(runtime.learner.intrinsic_reward)
    paths = []
    for index, task in enumerate(list_tasks(config.env_ids, envs)):
        key = jax.random.fold_in(jax.random.key(config.seed), index)
        for subject in subjects:
            frames, trajectory = record_rollout(
                subject.state.target_actor, task.env, key, STEPS, index, task.index_in_env
            )
            paths.append(directory / "films" / f"{env_dir_name(task.name)}-{subject.name}.gif")
            save_film(paths[-1], draw_episode(subject, frames, trajectory, compute_rewards), MILLISECONDS)
            say(f"wrote {paths[-1]}")
    return paths


def draw_episode(
    subject: FilmSubject, frames: list[np.ndarray], trajectory: Trajectory,
    compute_rewards: Callable[[LearnerState, Trajectory], Array],
) -> list[np.ndarray]:  # fmt: skip
    """Return the frames of the first episode of a recording, with the intrinsic reward of its steps below.

    Args:
      subject: the agent.
      frames: T frames [H, W, 3] uint8.
      trajectory: [T, 1, ...] the recording.
      compute_rewards: intrinsic rewards [T-1, 1] of a trajectory.
    """
    starts = np.flatnonzero(trajectory.is_first[1:, 0])
    length = int(starts[0]) if starts.size else len(frames) - 1  # steps; the last observation has a frame too
    rewards = np.asarray(compute_rewards(subject.state, trajectory))[:length, 0]
    return [_draw_frame(frame, rewards, now, subject.caption) for now, frame in enumerate(frames[: length + 1])]


def _draw_frame(frame: np.ndarray, rewards: np.ndarray, now: int, caption: str) -> np.ndarray:
    """Return the frame above a bar chart of the rewards of all steps before `now`."""
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


def check_film_path(path: Path) -> None:
    """Raise a UserError unless a film can be written to the path."""
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"{path} has no suffix of a film: choose from {', '.join(FORMATS)}")
    if path.is_dir():
        raise UserError(f"{path} is a directory: add the name of a file")
    if path.suffix.lower() == ".mp4":
        with require_extra(f"a film called {path.name}"):
            import imageio_ffmpeg  # noqa: F401


def save_film(path: Path, frames: list[np.ndarray], milliseconds: int = 80) -> None:
    """Write a film in the format of the path's suffix; GIF and WebP repeat without end.

    Args:
      path: file to write; its directories are made.
      frames: [H, W, 3] uint8 each; they may differ in size, and are padded to the largest.
      milliseconds: time per frame.
    """
    check_film_path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() == ".mp4":
        _save_mp4(path, _pad_frames(frames, multiple=2), milliseconds)
        return
    images = [Image.fromarray(frame) for frame in _pad_frames(frames)]
    if path.suffix.lower() == ".gif":
        images = [image.quantize(64, Image.Quantize.MAXCOVERAGE) for image in images]  # keeps colours of small objects
    images[0].save(path, save_all=True, append_images=images[1:], duration=milliseconds, loop=0)


def _pad_frames(frames: list[np.ndarray], multiple: int = 1) -> list[np.ndarray]:
    """Pad frames with black, right and below, to one size of which each side is a multiple of a number."""
    height, width = (-(-max(frame.shape[axis] for frame in frames) // multiple) * multiple for axis in (0, 1))
    return [np.pad(frame, ((0, height - frame.shape[0]), (0, width - frame.shape[1]), (0, 0))) for frame in frames]


def _save_mp4(path: Path, frames: list[np.ndarray], milliseconds: int) -> None:
    from imageio_ffmpeg import get_ffmpeg_exe

    height, width, _ = frames[0].shape
    source = [
        "-f",
        "rawvideo",
        "-pix_fmt",
        "rgb24",
        "-s",
        f"{width}x{height}",
        "-r",
        str(1000 / milliseconds),
        "-i",
        "-",
    ]
    target = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "18", "-y", str(path.absolute())]
    pixels = b"".join(frame.tobytes() for frame in frames)
    # imageio_ffmpeg.write_frames hides ffmpeg's exit code, so that a full disk would leave half a film.
    try:
        done = subprocess.run(
            [get_ffmpeg_exe(), "-loglevel", "error", *source, *target], input=pixels, capture_output=True, check=False,
            timeout=_FFMPEG_SECONDS + len(frames),
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{path} could not be written: ffmpeg did not end within {error.timeout:.0f} s") from None
    if done.returncode:
        raise UserError(f"{path} could not be written: {one_line(done.stderr.decode(errors='replace'))}")
