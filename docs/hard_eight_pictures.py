"""Draw the pictures and films of docs/hard-eight.md: experts solve all eight tasks, in three views.

python docs/hard_eight_pictures.py docs/hard-eight

A picture has rows for the start, the middle and the end of an episode, and columns for the agent's observation (96 by
72 pixels, enlarged), the view over its shoulder and the plan. A film shows the same views of the whole episode, at a
higher speed.
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

from byol_explore.envs.families import RESOLUTIONS
from byol_explore.envs.hard_eight import experts
from byol_explore.envs.hard_eight import views as views_module
from byol_explore.envs.hard_eight.env import HardEight, HardEightState
from byol_explore.envs.hard_eight.levels import sample_level
from byol_explore.envs.hard_eight.tasks import TASKS
from byol_explore.envs.hard_eight.world import Level, World, init_world
from byol_explore.evaluation.films import save_film
from byol_explore.types import Array

ENV = HardEight("all")
OBSERVATION = (72, 96)  # height and width in pixels
PICTURE_SCALE, FILM_SCALE = 3, 2  # pixels per pixel of the observation
GAP, BACKGROUND = 6, 250  # pixels between views, and their grey
FRAME_TIME = 100  # milliseconds per step
SEEDS = 16  # episodes, of which the one of median length is shown
MAX_FRAMES = 26  # of a film, to stay under 400 kB


@dataclass(frozen=True)
class Pictures:
    """Draw pictures and films of Hard-Eight's experts."""

    directory: tyro.conf.Positional[Path]
    """Directory of the pictures and films."""
    tasks: tuple[str, ...] = TASKS
    """Tasks to draw."""


class Episode(NamedTuple):
    """An episode that an expert solved."""

    level: Level
    worlds: list[World]  # before each action, and after the last


def main(command: Pictures) -> None:
    command.directory.mkdir(parents=True, exist_ok=True)
    for task in command.tasks:
        episode = solved_episode(task)
        name = command.directory / task
        save_picture(name.with_suffix(".png"), np.concatenate(
            [row(episode.level, world, PICTURE_SCALE) for world in key_worlds(episode)]))  # fmt: skip
        stride = -(-len(episode.worlds) // MAX_FRAMES)
        worlds = [*episode.worlds[:-1:stride], episode.worlds[-1]]
        film = [row(episode.level, world, FILM_SCALE) for world in worlds]
        save_film(name.with_suffix(".gif"), [*film, *[film[-1]] * 8], FRAME_TIME * stride)
        size = sum(name.with_suffix(kind).stat().st_size for kind in (".png", ".gif"))
        print(f"{task}: {len(episode.worlds) - 1} actions, {size / 1000:.0f} kB")
        if task == "drawbridge":
            save_picture(command.directory / "resolutions.png", resolutions(episode))


def solved_episode(task: str) -> Episode:
    """Return the episode of median length of those that the expert solves."""
    keys = jax.random.split(jax.random.key(1), SEEDS)
    level, worlds, ends = jax.tree.map(np.asarray, play(jnp.asarray(TASKS.index(task)), keys))
    by_length = sorted((int(ends[:, index].argmax()), index) for index in range(SEEDS) if ends[:, index].any())
    if not by_length:
        sys.exit(f"error: the expert of {task} solves none of {SEEDS} levels")
    length, chosen = by_length[len(by_length) // 2]
    chosen_worlds = [
        jax.tree.map(lambda x, now=now: x[now, chosen], worlds) for now in range(min(length + 2, len(ends)))
    ]
    return Episode(jax.tree.map(lambda x: x[chosen], level), chosen_worlds)


@jax.jit
def play(task: Array, keys: Array) -> tuple[Level, World, Array]:
    """Play with experts; return levels [B], worlds before each action [T, B] and whether an action solved it [T, B]."""

    def start(key: Array) -> HardEightState:
        level = sample_level(task, key)
        return HardEightState(level, init_world(level), jnp.zeros((), jnp.int32), jnp.zeros((len(ENV.stages),), bool))

    def step(states: HardEightState, _: None) -> tuple[HardEightState, tuple[World, Array]]:
        repeat = ENV.settings.action_repeat
        after, timestep = jax.vmap(lambda s: ENV.step(s, experts.act(s.level, s.world, repeat)))(states)
        return after, (states.world, timestep.success == 1)

    states = jax.vmap(start)(keys)
    _, (worlds, ends) = jax.lax.scan(step, states, length=ENV.spec.max_steps)
    return states.level, worlds, ends


def key_worlds(episode: Episode) -> list[World]:
    """Return the start; the first object in hand, or a third; halfway from an open door to the end, or near the end."""
    count = len(episode.worlds)
    held = [int(world.hand.held) >= 0 for world in episode.worlds]
    is_open = [bool(world.door_open.any()) for world in episode.worlds]
    middle = min(held.index(True) + 3, count - 1) if any(held) else count // 3
    last = (is_open.index(True) + count - 1) // 2 if any(is_open) else count - 4
    return [episode.worlds[0], episode.worlds[middle], episode.worlds[max(last, 0)]]


def row(level: Level, world: World, scale: int) -> np.ndarray:
    """Draw three views side by side, with a margin below."""
    first_person, behind, above = map(
        np.asarray, render_views(level, world, (OBSERVATION[0] * scale, OBSERVATION[1] * scale))
    )
    between = np.full((first_person.shape[0] * scale, GAP, 3), BACKGROUND, np.uint8)
    views = np.concatenate([enlarge(first_person, scale), between, behind, between, above], axis=1)
    return np.concatenate([views, np.full((GAP, views.shape[1], 3), BACKGROUND, np.uint8)])


@partial(jax.jit, static_argnames="size")
def render_views(level: Level, world: World, size: tuple[int, int]) -> tuple[Array, Array, Array]:
    others = views_module.over_the_shoulder(level, world, size), views_module.top_down(level, world, size)
    return views_module.first_person(level, world, OBSERVATION), *others


def resolutions(episode: Episode) -> np.ndarray:
    """Draw the first observation at all resolutions, at the same size."""
    world = episode.worlds[0]
    pictures = []
    for resolution in RESOLUTIONS:
        width, height = map(int, resolution.split("x"))
        picture = np.asarray(
            jax.jit(views_module.first_person, static_argnums=2)(episode.level, world, (height, width))
        )
        pictures += [enlarge(picture, 288 // width), np.full((216, GAP, 3), BACKGROUND, np.uint8)]
    return np.concatenate(pictures[:-1], axis=1)


def enlarge(picture: np.ndarray, scale: int) -> np.ndarray:
    return picture.repeat(scale, axis=0).repeat(scale, axis=1)


def save_picture(path: Path, picture: np.ndarray) -> None:
    Image.fromarray(picture).save(path, optimize=True)


if __name__ == "__main__":
    main(tyro.cli(Pictures))
