"""Whole episodes with an actor, in environments inside and outside jit."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.agent import Player, Situation, turn
from byol_explore.envs.base import AutoReset, Environment, KeptTasks
from byol_explore.envs.host import AnyEnvironment, HostEnvironment, reached_in
from byol_explore.networks.assembly import Actor
from byol_explore.types import UNSAID, AnyArray, Array

AT_ONCE = 64  # host environments


class Interrupted(Exception):
    """Episodes were given up because somebody asked for it."""


class Results(NamedTuple):
    episode_return: AnyArray  # [E]
    length: AnyArray  # [E]
    success: AnyArray  # [E] 1 or 0 as the environment says, UNSAID where the return must tell
    reached: AnyArray | None = None  # [E, stages] bool; None where there are none


def play(
    actor: Actor, env: AnyEnvironment, episodes: int, key: Array, *, task: int | None = None, greedy: bool = False,
    progress: Callable[[int], None] | None = None, should_stop: Callable[[], bool] = lambda: False,
) -> Results:  # fmt: skip
    """One whole episode in each of `episodes` environments, so that short episodes count no more than long ones.

    In a world with several tasks all are of the one with the number `task`. Of environments outside jit, `progress`
    hears how many have ended, and `should_stop` may ask for an end.
    """
    if not isinstance(env, HostEnvironment):
        number = None if task is None else jnp.asarray(task, jnp.int32)
        results = _play_inside(actor, key, number, env=env, episodes=episodes, greedy=greedy)
        return jax.tree.map(np.asarray, results)
    parts: list[Results] = []
    while (done := sum(len(part.length) for part in parts)) < episodes:
        key, part_key = jax.random.split(key)
        count = min(AT_ONCE, episodes - done)

        def tell(ended: int, before: int = done) -> None:
            if should_stop():
                raise Interrupted
            if progress is not None:
                progress(before + ended)

        parts.append(_play_outside(actor, env, count, part_key, greedy, tell))
    return jax.tree.map(lambda *fields: np.concatenate(fields), *parts)


def _play_outside(
    actor: Actor, env: HostEnvironment, episodes: int, key: Array, greedy: bool, progress: Callable[[int], Any]
) -> Results:
    batch = env.batch(episodes, int(jax.random.bits(key) >> 2))
    try:
        player = Player(batch, env.spec, key)
        player.begin(actor)
        total, length, done = np.zeros(episodes), np.zeros(episodes, int), np.zeros(episodes, bool)
        success, reached = np.full(episodes, UNSAID, np.int8), None
        for _ in range(env.spec.max_steps):
            player.turn(actor, greedy=greedy)
            timestep, now = player.timestep, reached_in(batch)
            total += np.where(done, 0.0, timestep.reward)
            length += ~done
            success = np.where(timestep.is_last & ~done, timestep.with_success().success, success)
            if now is not None:
                reached = now.copy() if reached is None else np.where(done[:, None], reached, now)
            done |= timestep.is_last
            progress(int(np.sum(done)))
            if np.all(done):
                break
        return Results(total, length, success, reached)
    finally:
        batch.close()


@partial(jax.jit, static_argnames=("env", "episodes", "greedy"))
def _play_inside(
    actor: Actor, key: Array, task: Array | None, *, env: Environment, episodes: int, greedy: bool
) -> Results:
    """One program for all tasks of a world, and for every time that they are played."""
    batch = AutoReset(env, episodes) if task is None else KeptTasks(env, jnp.broadcast_to(task, (episodes,)))
    reset_key, act_key = jax.random.split(key)
    states, timestep = batch.reset(jax.random.split(reset_key, episodes))
    start = Situation(states, timestep, actor.initial_memory(env.spec, episodes))
    nobody = jnp.zeros((episodes,), bool)
    unsaid = jnp.full_like(nobody, UNSAID, jnp.int8)
    nothing = Results(nobody.astype(jnp.float32), nobody.astype(jnp.int32), unsaid, batch.reached(states))

    def step(carry: Any, key: Array) -> tuple[Any, None]:
        at, done, before = carry
        at, _, _ = turn(actor, batch, at, key, greedy=greedy)
        timestep = at.timestep
        success = jnp.where(timestep.is_last, timestep.success, before.success)
        now = Results(before.episode_return + timestep.reward, before.length + 1, success, batch.reached(at.envs))
        results = jax.tree.map(lambda old, new: jnp.where(_beside(done, new), old, new), before, now)
        return (at, done | timestep.is_last, results), None

    keys = jax.random.split(act_key, env.spec.max_steps)
    return jax.lax.scan(step, (start, nobody, nothing), keys)[0][2]


def _beside(mask: Array, array: Array) -> Array:
    """A mask [E] with as many axes as an array [E, ...]."""
    return mask.reshape(-1, *[1] * (array.ndim - 1))
