"""Measure the speed of Hard-Eight: rendering, physics and compilation, per core and on all cores, and a naive renderer.

python benchmarks/hard_eight.py --json hard_eight.json

Figures per core are per CPU-second of a process with one core. Figures of all cores are per second of wall time and
need an idle machine.
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

from byol_explore.envs.families import RESOLUTIONS
from byol_explore.envs.hard_eight.env import HardEight
from byol_explore.envs.hard_eight.levels import sample_level
from byol_explore.envs.hard_eight.physics import tick
from byol_explore.envs.hard_eight.raycaster import Camera, Scene, render
from byol_explore.envs.hard_eight.tasks import TASKS
from byol_explore.envs.hard_eight.views import first_person_camera, make_scene
from byol_explore.envs.hard_eight.world import Control, Level, World, init_world
from byol_explore.envs.vector import AutoReset
from byol_explore.types import Action, Array

MOVABLE = 12  # boxes with a yaw and edges
TICKS = 16  # of physics per call


@dataclass(frozen=True)
class Arguments:
    """Measure Hard-Eight."""

    batch: int = 64
    """Worlds per batch."""
    boxes: int = 42
    """Boxes per scene."""
    seconds: float = 5.0
    """Seconds per contestant."""
    rounds: int = 5
    """Rounds in which each contestant runs in turn; medians are reported."""
    compilations: int = 3
    """Compilations of one task and of all tasks; medians are reported. 0 to skip."""
    json: Path | None = None
    """File to write the figures to."""


class Cost(NamedTuple):
    """Time of a number of frames or steps."""

    count: int
    cpu: float  # seconds of all threads
    wall: float  # seconds


Contestant = Callable[[], int]  # runs once and returns the number of frames or steps


def scenes(batch: int, boxes: int) -> tuple[Scene, Camera]:
    """Return random scenes with boxes on all sides of the camera."""
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


def frame_contestant(draw_one: Callable[..., Array], seen: tuple[Any, ...], resolution: str) -> Contestant:
    width, height = map(int, resolution.split("x"))
    program = jax.jit(jax.vmap(lambda *each: draw_one(*each, height, width)))

    def run_once() -> int:
        return jax.block_until_ready(program(*seen)).shape[0]

    return run_once


def worlds(batch: int) -> tuple[Level, World]:
    """Return levels and initial worlds of all tasks in turn."""

    def one(number: Array, key: Array) -> tuple[Level, World]:
        level = sample_level(number, key)
        return level, init_world(level)

    return jax.jit(jax.vmap(one))(jnp.arange(batch) % len(TASKS), jax.random.split(jax.random.key(0), batch))


def physics_contestant(level: Level, world: World) -> Contestant:
    """Return a contestant that runs ticks of 1/15 s with random controls; an action lasts three ticks."""
    batch = level.task.shape[0]

    @jax.jit
    def run(level: Level, world: World, key: Array) -> World:
        def step(world: World, key: Array) -> tuple[World, None]:
            numbers = jax.random.uniform(key, (9, batch), minval=-1.0, maxval=1.0)
            control = Control(*numbers[:8], grip=numbers[8] > -0.5)
            return jax.vmap(tick)(level, world, control)[0], None

        return jax.lax.scan(step, world, jax.random.split(key, TICKS))[0]

    state = [world, jax.random.key(0)]

    def run_once() -> int:
        state[1], key = jax.random.split(state[1])
        state[0] = jax.block_until_ready(run(level, state[0], key))
        return batch * TICKS

    return run_once


def make_contestants(arguments: Arguments) -> dict[str, Contestant]:
    seen = scenes(arguments.batch, arguments.boxes)
    level, world = worlds(arguments.batch)
    result = {f"frames_{resolution}": frame_contestant(render, seen, resolution) for resolution in RESOLUTIONS}
    check_same(*seen)
    result["naive_frames_96x72"] = frame_contestant(naive_renderer.render, seen, "96x72")
    result["level_frames_96x72"] = frame_contestant(render_level, (level, world), "96x72")
    result["physics_steps"] = physics_contestant(level, world)
    return result


def render_level(level: Level, world: World, height: int, width: int) -> Array:
    """Render first-person images with every slot of a level filled."""
    return render(make_scene(level, world), first_person_camera(world.agent), height, width)


def check_same(scene: Scene, camera: Camera) -> None:
    first = jax.tree.map(lambda x: x[0], (scene, camera))
    ours, naive = (np.asarray(each(*first, 24, 32), int) for each in (render, naive_renderer.render))
    share = float(np.mean(np.abs(ours - naive).max(-1) > 2))
    if share > 0.01:
        sys.exit(f"not the same picture: {share:.1%} of the pixels differ between the two renderers")


def measure_costs(arguments: Arguments) -> dict[str, list[Cost]]:
    """Measure each contestant once per round, in turn."""
    runs = make_contestants(arguments)
    for run in runs.values():
        run()  # compiles
    result: dict[str, list[Cost]] = {name: [] for name in runs}
    for _ in range(arguments.rounds):
        for name, run in runs.items():
            result[name].append(measure_cost(run, arguments.seconds / arguments.rounds))
    return result


def measure_cost(run: Contestant, seconds: float) -> Cost:
    count, cpu, wall = 0, time.process_time(), time.perf_counter()
    while not count or time.perf_counter() - wall < seconds:
        count += run()
    return Cost(count, time.process_time() - cpu, time.perf_counter() - wall)


def compile_seconds(task: str, batch: int) -> float:
    """Return CPU-seconds to trace and compile a step of a batch with auto-reset."""
    began = time.process_time()
    envs = AutoReset(HardEight(task), batch)
    shapes = jax.eval_shape(envs.reset, jax.eval_shape(lambda: jax.random.split(jax.random.key(0), batch)))
    action = Action(jnp.zeros((batch, 1), jnp.int32), jnp.zeros((batch, 8)))
    jax.jit(envs.step).lower(shapes[0], action).compile()
    return time.process_time() - began


def measure_compilations(arguments: Arguments) -> dict[str, list[float]]:
    """Measure one task and all tasks in turn, without a compilation cache."""
    jax.config.update("jax_enable_compilation_cache", False)
    result: dict[str, list[float]] = {"wall-sensor": [], "all": []}
    for _ in range(arguments.compilations):
        for task, seconds in result.items():
            jax.clear_caches()
            seconds.append(compile_seconds(task, arguments.batch))
    return result


def run_on(cores: set[int], function: Callable[[Arguments], Any], arguments: Arguments) -> Any:
    """Return the result of a function in a new process on these cores only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            return pool.submit(function, arguments).result()
    finally:
        os.sched_setaffinity(0, before)


def measure(arguments: Arguments) -> dict[str, float]:
    cores = os.sched_getaffinity(0)
    alone, together = (run_on(used, measure_costs, arguments) for used in ({min(cores)}, cores))
    figures: dict[str, float] = {"batch": arguments.batch, "boxes": arguments.boxes, "cores": len(cores)}
    for name, seconds in alone.items():
        kind, *resolution = name.rsplit("_", 1) if name[-1].isdigit() else (name,)
        per_core = "_".join([f"{kind}_per_core_second", *resolution])
        figures[per_core] = float(np.median([each.count / each.cpu for each in seconds]))
        figures["_".join([f"{kind}_per_second", *resolution])] = float(
            np.median([each.count / each.wall for each in together[name]])
        )
    ours, naive = (figures[f"{renderer}frames_per_core_second_96x72"] for renderer in ("", "naive_"))
    figures["ours_over_naive_96x72"] = ours / naive
    if arguments.compilations:
        one, every = (float(np.median(each)) for each in run_on({min(cores)}, measure_compilations, arguments).values())
        figures |= {"compile_seconds_of_one_task": one, "compile_seconds_of_all": every, "all_over_one": every / one}
    return figures


def main(arguments: Arguments) -> None:
    title = f"Hard-Eight, {arguments.boxes} boxes, {arguments.batch} worlds at a time"
    show(measure(arguments), title, arguments.json)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
