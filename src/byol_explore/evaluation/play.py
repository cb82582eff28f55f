"""Whole episodes with an actor, in environments inside and outside jit."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.agent import Player, Situation, turn
from byol_explore.envs.base import AutoReset, Environment
from byol_explore.envs.host import AnyEnvironment, HostEnvironment
from byol_explore.networks.assembly import Actor
from byol_explore.types import UNSAID, Array

AT_ONCE = 64  # host environments


class Interrupted(Exception):
    """Episodes were given up because somebody asked for it."""


class Results(NamedTuple):
    episode_return: np.ndarray  # [E]
    length: np.ndarray  # [E]
    success: np.ndarray  # [E] 1 or 0 as the environment says, UNSAID where the return must tell


def play(
    actor: Actor, env: AnyEnvironment, episodes: int, key: Array, *, greedy: bool = False,
    progress: Callable[[int], None] | None = None, should_stop: Callable[[], bool] = lambda: False,
) -> Results:  # fmt: skip
    """One whole episode in each of `episodes` environments, so that short episodes count no more than long ones.

    Of environments outside jit, `progress` hears how many have ended, and `should_stop` may ask for an end.
    """
    if not isinstance(env, HostEnvironment):
        return _play_inside(actor, env, episodes, key, greedy)
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
    return Results(*(np.concatenate(field) for field in zip(*parts, strict=True)))


def _play_outside(
    actor: Actor, env: HostEnvironment, episodes: int, key: Array, greedy: bool, progress: Callable[[int], Any]
) -> Results:
    batch = env.batch(episodes, int(jax.random.bits(key) >> 2))
    try:
        player = Player(batch, env.spec, key)
        player.begin(actor)
        total, length, done = np.zeros(episodes), np.zeros(episodes, int), np.zeros(episodes, bool)
        success = np.full(episodes, UNSAID, np.int8)
        for _ in range(env.spec.max_steps):
            player.turn(actor, greedy=greedy)
            timestep = player.timestep
            total += np.where(done, 0.0, timestep.reward)
            length += ~done
            success = np.where(timestep.is_last & ~done, timestep.with_success().success, success)
            done |= timestep.is_last
            progress(int(np.sum(done)))
            if np.all(done):
                break
        return Results(total, length, success)
    finally:
        batch.close()


def _play_inside(actor: Actor, env: Environment, episodes: int, key: Array, greedy: bool) -> Results:
    batch = AutoReset(env, episodes)

    @jax.jit
    def run(actor: Actor, key: Array) -> tuple[Array, Array, Array]:
        reset_key, act_key = jax.random.split(key)
        states, timestep = batch.reset(jax.random.split(reset_key, episodes))
        start = Situation(states, timestep, actor.initial_memory(env.spec, episodes))
        nobody = jnp.zeros((episodes,), bool)
        totals = (nobody.astype(jnp.float32), nobody.astype(jnp.int32), jnp.full_like(nobody, UNSAID, jnp.int8), nobody)

        def step(carry: Any, key: Array) -> tuple[Any, None]:
            at, (total, length, success, done) = carry
            at, _, _ = turn(actor, batch, at, key, greedy=greedy)
            timestep = at.timestep
            total = jnp.where(done, total, total + timestep.reward)
            length = jnp.where(done, length, length + 1)
            success = jnp.where(timestep.is_last & ~done, timestep.success, success)
            return (at, (total, length, success, done | timestep.is_last)), None

        (_, (*results, _)), _ = jax.lax.scan(step, (start, totals), jax.random.split(act_key, env.spec.max_steps))
        return tuple(results)

    return Results(*map(np.asarray, run(actor, key)))
