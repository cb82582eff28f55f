"""Films of a fifth of their size: fewer frames and colours, in a format that says only what changes between frames."""

import io

import numpy as np
from PIL import Image, ImageSequence

from byol_explore.report.series import evenly

MOST_FRAMES = 60  # a film of an episode has up to 161
MOST_PIXELS = 200_000_000  # of all frames before that: ten times what a film has
COLOURS = 64  # grid worlds and most games have fewer; what is blurred is the lettering


def short_film(data: bytes) -> bytes:
    """The film as an animated WebP that lasts as long, with its first and its last frame; an OSError if it is none."""
    with Image.open(io.BytesIO(data)) as film:
        count = getattr(film, "n_frames", 1)
        if count * film.width * film.height > MOST_PIXELS:
            raise ValueError(f"a film of {count:,} frames of {film.width:,} x {film.height:,} is too large")
        kept, pictures, times = evenly(count, MOST_FRAMES), [], []
        for index, frame in enumerate(ImageSequence.Iterator(film)):
            if index in kept:
                pictures.append(frame.convert("RGB"))
            times.append(frame.info.get("duration", 0))
    durations = np.add.reduceat(times, kept).tolist()
    sheet = Image.fromarray(np.concatenate([np.asarray(picture) for picture in pictures]))
    palette = sheet.quantize(COLOURS, dither=Image.Dither.NONE)  # one for all: flicker would cost space and calm
    first, *others = (picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures)
    file = io.BytesIO()
    first.convert("RGB").save(
        file, "webp", save_all=True, append_images=[other.convert("RGB") for other in others], duration=durations,
        loop=0, lossless=True, minimize_size=True, method=4,
    )  # fmt: skip
    return file.getvalue()
