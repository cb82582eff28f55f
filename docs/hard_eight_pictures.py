"""The pictures and films of docs/hard-eight.md: experts at work on all eight tasks, in three views.

python docs/hard_eight_pictures.py docs/hard-eight

A picture has a row each for the start, the middle and the end of an episode, and a column each for what the agent sees
(96 by 72 pixels, enlarged), the view over its shoulder and the plan. A film shows the same views of the whole episode,
faster than it was played.
"""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from PIL import Image

from byol_explore.envs.worlds.hard_eight import experts, views
from byol_explore.envs.worlds.hard_eight.layouts import draw
from byol_explore.envs.worlds.hard_eight.settings import RESOLUTIONS, TASKS
from byol_explore.envs.worlds.hard_eight.spec import Episode, HardEight
from byol_explore.envs.worlds.hard_eight.world import Level, World, begin
from byol_explore.playing.film_files import save_film
from byol_explore.types import Array

ENV = HardEight("all")
SEEN = (72, 96)  # what the agent sees
LARGE, SMALL = 3, 2  # pixels of a picture and of a film for one that the agent sees
GAP, PAPER = 6, 250  # between views, and its grey
MILLISECONDS = 100
SEEDS = 16  # of which one is shown whose length is in the middle
LONGEST = 26  # frames of a film, which keeps it well under 400 kB


@dataclass(frozen=True)
class Pictures:
    """Draw pictures and films of Hard-Eight's experts."""

    directory: tyro.conf.Positional[Path]
    """Where they go."""
    tasks: tuple[str, ...] = TASKS
    """Of which tasks."""


class Played(NamedTuple):
    """An episode that an expert has solved."""

    level: Level
    worlds: list[World]  # before each action, and after the last


def main(command: Pictures) -> None:
    command.directory.mkdir(parents=True, exist_ok=True)
    for task in command.tasks:
        played = solved(task)
        name = command.directory / task
        save_picture(name.with_suffix(".png"), np.concatenate(
            [row(played.level, world, LARGE) for world in moments(played)]))  # fmt: skip
        stride = -(-len(played.worlds) // LONGEST)
        shown = [*played.worlds[:-1:stride], played.worlds[-1]]
        film = [row(played.level, world, SMALL) for world in shown]
        save_film(name.with_suffix(".gif"), [*film, *[film[-1]] * 8], MILLISECONDS * stride)
        size = sum(name.with_suffix(kind).stat().st_size for kind in (".png", ".gif"))
        print(f"{task}: {len(played.worlds) - 1} actions, {size / 1000:.0f} kB")
        if task == "drawbridge":
            save_picture(command.directory / "resolutions.png", resolutions(played))


def solved(task: str) -> Played:
    """One of a few episodes of a task that its expert has solved, neither the shortest nor the longest."""
    keys = jax.random.split(jax.random.key(1), SEEDS)
    level, worlds, ends = jax.tree.map(np.asarray, play(jnp.asarray(TASKS.index(task)), keys))
    by_length = sorted((int(ends[:, index].argmax()), index) for index in range(SEEDS) if ends[:, index].any())
    if not by_length:
        sys.exit(f"error: the expert of {task} has solved none of {SEEDS} levels")
    length, chosen = by_length[len(by_length) // 2]
    seen = [jax.tree.map(lambda x, now=now: x[now, chosen], worlds) for now in range(min(length + 2, len(ends)))]
    return Played(jax.tree.map(lambda x: x[chosen], level), seen)


@jax.jit
def play(task: Array, keys: Array) -> tuple[Level, World, Array]:
    """Levels [B], their worlds before each action [T, B], and which actions solved them."""

    def start(key: Array) -> Episode:
        level = draw(task, key)
        return Episode(level, begin(level), jnp.zeros((), jnp.int32), jnp.zeros((len(ENV.stages),), bool))

    def step(states: Episode, _: None) -> tuple[Episode, tuple[World, Array]]:
        repeat = ENV.settings.action_repeat
        after, timestep = jax.vmap(lambda s: ENV.step(s, experts.act(s.level, s.world, repeat)))(states)
        return after, (states.world, timestep.success == 1)

    states = jax.vmap(start)(keys)
    _, (worlds, ends) = jax.lax.scan(step, states, length=ENV.spec.max_steps)
    return states.level, worlds, ends


def moments(played: Played) -> list[World]:
    """The start; when something has been taken, or a third has passed; on the way from an open door, or the end."""
    count = len(played.worlds)
    held = [int(world.hand.held) >= 0 for world in played.worlds]
    is_open = [bool(world.is_open.any()) for world in played.worlds]
    middle = min(held.index(True) + 3, count - 1) if any(held) else count // 3
    last = (is_open.index(True) + count - 1) // 2 if any(is_open) else count - 4
    return [played.worlds[0], played.worlds[middle], played.worlds[max(last, 0)]]


def row(level: Level, world: World, scale: int) -> np.ndarray:
    """Three views side by side, with a margin below."""
    seen, behind, above = map(np.asarray, three(level, world, (SEEN[0] * scale, SEEN[1] * scale)))
    between = np.full((seen.shape[0] * scale, GAP, 3), PAPER, np.uint8)
    views = np.concatenate([enlarged(seen, scale), between, behind, between, above], axis=1)
    return np.concatenate([views, np.full((GAP, views.shape[1], 3), PAPER, np.uint8)])


@partial(jax.jit, static_argnames="size")
def three(level: Level, world: World, size: tuple[int, int]) -> tuple[Array, Array, Array]:
    shown = views.over_the_shoulder(level, world, size), views.from_above(level, world, size)
    return views.first_person(level, world, SEEN), *shown


def resolutions(played: Played) -> np.ndarray:
    """What the agent sees at each of them, of one size."""
    seen = played.worlds[0]
    pictures = []
    for resolution in RESOLUTIONS:
        width, height = map(int, resolution.split("x"))
        picture = np.asarray(jax.jit(views.first_person, static_argnums=2)(played.level, seen, (height, width)))
        pictures += [enlarged(picture, 288 // width), np.full((216, GAP, 3), PAPER, np.uint8)]
    return np.concatenate(pictures[:-1], axis=1)


def enlarged(picture: np.ndarray, scale: int) -> np.ndarray:
    return picture.repeat(scale, axis=0).repeat(scale, axis=1)


def save_picture(path: Path, picture: np.ndarray) -> None:
    Image.fromarray(picture).save(path, optimize=True)


if __name__ == "__main__":
    main(tyro.cli(Pictures))
