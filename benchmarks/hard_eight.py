"""Speed of Hard-Eight: pictures and physics, per core and on all of them, a naive renderer, and compilation.

python benchmarks/hard_eight.py --json hard_eight.json

Figures per core are per CPU-second of a process that has one core; those of the whole machine are per second, and mean
something only if nothing else runs.
"""

import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import naive_renderer
import numpy as np
import tyro
from figures import show

from byol_explore.envs.base import AutoReset
from byol_explore.envs.worlds.hard_eight.controls import Control
from byol_explore.envs.worlds.hard_eight.layouts import draw
from byol_explore.envs.worlds.hard_eight.rendering import Camera, Scene, render
from byol_explore.envs.worlds.hard_eight.scenes import scene_of, through_the_eyes
from byol_explore.envs.worlds.hard_eight.settings import RESOLUTIONS, TASKS
from byol_explore.envs.worlds.hard_eight.spec import HardEight
from byol_explore.envs.worlds.hard_eight.ticking import tick
from byol_explore.envs.worlds.hard_eight.world import Level, World, begin
from byol_explore.types import Action, Array

MOVABLE = 12  # of the boxes: they are turned, and have edges
TICKS = 16  # of physics at a time


@dataclass(frozen=True)
class Arguments:
    """Measure Hard-Eight."""

    batch: int = 64
    """Worlds at a time."""
    boxes: int = 42
    """Of a scene."""
    seconds: float = 5.0
    """How long each contestant runs."""
    rounds: int = 5
    """In which all contestants take turns; the medians count."""
    compilations: int = 3
    """How often one task and all of them are compiled; the medians count. 0: not at all."""
    json: Path | None = None
    """Also write the figures here."""


class Cost(NamedTuple):
    """What a number of frames or steps took."""

    count: int
    cpu: float  # seconds of all threads
    wall: float  # seconds


Contestant = Callable[[], int]  # does something, and says how much of it


def scenes(batch: int, boxes: int) -> tuple[Scene, Camera]:
    """Boxes all around, seen from their midst."""
    rng = np.random.default_rng(0)
    is_movable = np.arange(boxes) >= boxes - MOVABLE
    rgb = rng.uniform(60, 255, (batch, boxes, 3))
    parts = (
        rng.uniform(-6, 6, (batch, 3, boxes)), rng.uniform(0.1, 1.0, (batch, 3, boxes)),
        is_movable * rng.uniform(-3, 3, (batch, boxes)), np.zeros((batch, 3, 0)), np.zeros((batch, 0)), rgb,
        rng.choice([0.0, 0.4], (batch, boxes)), rng.choice([0.0, 0.25], (batch, boxes)), 0.5 * rgb[:, is_movable],
    )  # fmt: skip
    eyes = rng.uniform(-1, 1, (batch, 3)), rng.uniform(-3, 3, batch), rng.uniform(-0.5, 0.5, batch)
    return Scene(*[jnp.asarray(part, jnp.float32) for part in parts]), Camera(
        *[jnp.asarray(e, jnp.float32) for e in eyes]
    )


def frames(draw_one: Callable[..., Array], seen: tuple[Any, ...], resolution: str) -> Contestant:
    width, height = map(int, resolution.split("x"))
    program = jax.jit(jax.vmap(lambda *each: draw_one(*each, height, width)))

    def some() -> int:
        return jax.block_until_ready(program(*seen)).shape[0]

    return some


def worlds(batch: int) -> tuple[Level, World]:
    """Levels of all tasks."""

    def one(number: Array, key: Array) -> tuple[Level, World]:
        level = draw(number, key)
        return level, begin(level)

    return jax.jit(jax.vmap(one))(jnp.arange(batch) % len(TASKS), jax.random.split(jax.random.key(0), batch))


def physics(level: Level, world: World) -> Contestant:
    """Ticks of a fifteenth of a second under random controls; an action lasts three of them."""
    batch = level.task.shape[0]

    @jax.jit
    def run(level: Level, world: World, key: Array) -> World:
        def step(world: World, key: Array) -> tuple[World, None]:
            numbers = jax.random.uniform(key, (9, batch), minval=-1.0, maxval=1.0)
            control = Control(*numbers[:8], grip=numbers[8] > -0.5)
            return jax.vmap(tick)(level, world, control)[0], None

        return jax.lax.scan(step, world, jax.random.split(key, TICKS))[0]

    state = [world, jax.random.key(0)]

    def some() -> int:
        state[1], key = jax.random.split(state[1])
        state[0] = jax.block_until_ready(run(level, state[0], key))
        return batch * TICKS

    return some


def contestants(arguments: Arguments) -> dict[str, Contestant]:
    seen = scenes(arguments.batch, arguments.boxes)
    level, world = worlds(arguments.batch)
    result = {f"frames_{resolution}": frames(render, seen, resolution) for resolution in RESOLUTIONS}
    check_same(*seen)
    result["naive_frames_96x72"] = frames(naive_renderer.render, seen, "96x72")
    result["level_frames_96x72"] = frames(render_level, (level, world), "96x72")
    result["physics_steps"] = physics(level, world)
    return result


def render_level(level: Level, world: World, height: int, width: int) -> Array:
    """What the agent sees, with all that a level has slots for."""
    return render(scene_of(level, world), through_the_eyes(world.agent), height, width)


def check_same(scene: Scene, camera: Camera) -> None:
    first = jax.tree.map(lambda x: x[0], (scene, camera))
    ours, naive = (np.asarray(each(*first, 24, 32), int) for each in (render, naive_renderer.render))
    share = float(np.mean(np.abs(ours - naive).max(-1) > 2))
    if share > 0.01:
        sys.exit(f"not the same picture: {share:.1%} of the pixels differ between the two renderers")


def costs(arguments: Arguments) -> dict[str, list[Cost]]:
    """Of each contestant in each round, one after the other."""
    everybody = contestants(arguments)
    for some in everybody.values():
        some()  # compiles
    result: dict[str, list[Cost]] = {name: [] for name in everybody}
    for _ in range(arguments.rounds):
        for name, some in everybody.items():
            result[name].append(cost(some, arguments.seconds / arguments.rounds))
    return result


def cost(some: Contestant, seconds: float) -> Cost:
    count, cpu, wall = 0, time.process_time(), time.perf_counter()
    while not count or time.perf_counter() - wall < seconds:
        count += some()
    return Cost(count, time.process_time() - cpu, time.perf_counter() - wall)


def compile_seconds(task: str, batch: int) -> float:
    """CPU-seconds until a step of a batch, which begins episodes anew where they end, can run for the first time."""
    began = time.process_time()
    envs = AutoReset(HardEight(task), batch)
    shapes = jax.eval_shape(envs.reset, jax.eval_shape(lambda: jax.random.split(jax.random.key(0), batch)))
    action = Action(jnp.zeros((batch, 1), jnp.int32), jnp.zeros((batch, 8)))
    jax.jit(envs.step).lower(shapes[0], action).compile()
    return time.process_time() - began


def compilations(arguments: Arguments) -> dict[str, list[float]]:
    """Of one task and of all, in turns; nothing comes from a cache."""
    jax.config.update("jax_enable_compilation_cache", False)
    result: dict[str, list[float]] = {"wall-sensor": [], "all": []}
    for _ in range(arguments.compilations):
        for task, seconds in result.items():
            jax.clear_caches()
            seconds.append(compile_seconds(task, arguments.batch))
    return result


def on(cores: set[int], function: Callable[[Arguments], Any], arguments: Arguments) -> Any:
    """What a function returns in a new process that has these cores only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            return pool.submit(function, arguments).result()
    finally:
        os.sched_setaffinity(0, before)


def measure(arguments: Arguments) -> dict[str, float]:
    cores = os.sched_getaffinity(0)
    alone, together = (on(some, costs, arguments) for some in ({min(cores)}, cores))
    figures: dict[str, float] = {"batch": arguments.batch, "boxes": arguments.boxes, "cores": len(cores)}
    for name, seconds in alone.items():
        what, *where = name.rsplit("_", 1) if name[-1].isdigit() else (name,)
        per_core = "_".join([f"{what}_per_core_second", *where])
        figures[per_core] = float(np.median([each.count / each.cpu for each in seconds]))
        figures["_".join([f"{what}_per_second", *where])] = float(
            np.median([each.count / each.wall for each in together[name]])
        )
    ours, naive = (figures[f"{kind}frames_per_core_second_96x72"] for kind in ("", "naive_"))
    figures["ours_over_naive_96x72"] = ours / naive
    if arguments.compilations:
        one, every = (float(np.median(each)) for each in on({min(cores)}, compilations, arguments).values())
        figures |= {"compile_seconds_of_one_task": one, "compile_seconds_of_all": every, "all_over_one": every / one}
    return figures


def main(arguments: Arguments) -> None:
    title = f"Hard-Eight, {arguments.boxes} boxes, {arguments.batch} worlds at a time"
    show(measure(arguments), title, arguments.json)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
