"""Films as files, whose kind is what the name ends with."""

import subprocess
from pathlib import Path

import numpy as np
from PIL import Image

from byol_explore.errors import UserError, one_line
from byol_explore.extras import needed_by

ENDINGS = (".gif", ".webp", ".mp4")


def check_film_path(path: Path) -> None:
    """A UserError unless a film can be written under that name."""
    if path.suffix.lower() not in ENDINGS:
        raise UserError(f"{path} does not end like a film: choose from {', '.join(ENDINGS)}")
    if path.is_dir():
        raise UserError(f"{path} is a directory: a film needs a name in it")
    if path.suffix.lower() == ".mp4":
        with needed_by(f"a film called {path.name}"):
            import imageio_ffmpeg  # noqa: F401


def save_film(path: Path, frames: list[np.ndarray], milliseconds: int = 80) -> None:
    """A film, endless where its kind can be; frames of several tasks are brought to one size."""
    check_film_path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() == ".mp4":
        _save_mp4(path, _of_one_size(frames, multiple=2), milliseconds)
        return
    images = [Image.fromarray(frame) for frame in _of_one_size(frames)]
    if path.suffix.lower() == ".gif":
        images = [image.quantize(64, Image.Quantize.MAXCOVERAGE) for image in images]  # keeps what is small
    images[0].save(path, save_all=True, append_images=images[1:], duration=milliseconds, loop=0)


def _of_one_size(frames: list[np.ndarray], multiple: int = 1) -> list[np.ndarray]:
    """With black to the right and below where there is nothing, each side a multiple of a number."""
    height, width = (-(-max(frame.shape[axis] for frame in frames) // multiple) * multiple for axis in (0, 1))
    return [np.pad(frame, ((0, height - frame.shape[0]), (0, width - frame.shape[1]), (0, 0))) for frame in frames]


def _save_mp4(path: Path, frames: list[np.ndarray], milliseconds: int) -> None:
    from imageio_ffmpeg import get_ffmpeg_exe

    height, width, _ = frames[0].shape
    read = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(1000 / milliseconds), "-i", "-"]
    write = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "18", "-y", str(path.absolute())]
    pictures = b"".join(frame.tobytes() for frame in frames)
    done = subprocess.run(
        [get_ffmpeg_exe(), "-loglevel", "error", *read, *write], input=pictures, capture_output=True, check=False
    )
    if done.returncode:
        raise UserError(f"{path} could not be written: {one_line(done.stderr.decode(errors='replace'))}")
