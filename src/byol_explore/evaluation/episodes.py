"""Episodes from a checkpoint: success and return, and a film of them."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.agent import act
from byol_explore.checkpoint import Checkpoints, Restored
from byol_explore.compilation import enable_compilation_cache
from byol_explore.config import Config
from byol_explore.envs.base import AutoReset, Environment
from byol_explore.envs.registry import make_envs
from byol_explore.errors import UserError, unknown
from byol_explore.evaluation.statistics import mean_interval, rate_interval
from byol_explore.learner import Learner
from byol_explore.networks.assembly import Actor
from byol_explore.training import load_config
from byol_explore.types import Array


class Results(NamedTuple):
    episode_return: np.ndarray  # [E]
    length: np.ndarray  # [E]


def evaluate(
    run_dir: Path | str,
    *,
    episodes: int = 200,
    checkpoint: str = "last",
    seed: int = 0,
    gif: Path | str | None = None,
    gif_episodes: int = 3,
) -> dict[str, Any]:
    """Greedy and sampled episodes of a run's target policy, per task, with 95% confidence intervals."""
    if episodes < 1:
        raise UserError(f"episodes is {episodes}: it must be at least 1")
    directory = Path(run_dir)
    config = load_config(directory)
    enable_compilation_cache()
    envs = make_envs(config.env_ids)
    restored = _restore(config, envs, Checkpoints(directory / "checkpoints"), checkpoint)
    actor, key = restored.state, jax.random.key(seed)
    report: dict[str, Any] = {
        "run": str(directory),
        "checkpoint_steps": restored.meta["step"],
        "damaged_checkpoints": restored.damaged,
        "episodes": episodes,
        "tasks": {},
    }
    for index, env in enumerate(envs):
        report["tasks"][env.spec.name] = {
            mode: _summarize(run_episodes(actor, env, episodes, jax.random.fold_in(key, index), greedy), env)
            for mode, greedy in (("greedy", True), ("sampled", False))
        }
    if gif is not None:
        save_gif(Path(gif), [frame for env in envs for frame in film(actor, env, key, gif_episodes)])
        report["gif"] = str(gif)
    return report


def run_episodes(actor: Actor, env: Environment, episodes: int, key: Array, greedy: bool) -> Results:
    """One whole episode in each of `episodes` environments, so that short episodes count no more than long ones."""
    batch = AutoReset(env, episodes)

    @jax.jit
    def run(actor: Actor, key: Array) -> tuple[Array, Array]:
        reset_key, act_key = jax.random.split(key)
        states, timestep = batch.reset(jax.random.split(reset_key, episodes))
        memory = actor.initial_memory(env.spec, episodes)
        totals = (jnp.zeros((episodes,)), jnp.zeros((episodes,), jnp.int32), jnp.zeros((episodes,), bool))

        def step(carry: Any, key: Array) -> tuple[Any, None]:
            states, timestep, memory, (total, length, done) = carry
            memory, _, action = act(actor, memory, timestep, key, greedy=greedy)
            states, timestep = batch.step(states, action)
            total = jnp.where(done, total, total + timestep.reward)
            length = jnp.where(done, length, length + 1)
            return (states, timestep, memory, (total, length, done | timestep.is_last)), None

        carry = (states, timestep, memory, totals)
        (_, _, _, (total, length, _)), _ = jax.lax.scan(step, carry, jax.random.split(act_key, env.spec.max_steps))
        return total, length

    return Results(*map(np.asarray, run(actor, key)))


def film(actor: Actor, env: Environment, key: Array, episodes: int) -> list[np.ndarray]:
    """Pictures of sampled episodes, one after the other."""
    batch = AutoReset(env, 1)
    step = jax.jit(batch.step)
    choose = jax.jit(act)
    reset_key, key = jax.random.split(key)
    states, timestep = jax.jit(batch.reset)(jax.random.split(reset_key, 1))
    memory = actor.initial_memory(env.spec, 1)
    frames, ended = [], 0
    while True:
        frames.append(env.render(jax.tree.map(lambda x: x[0], jax.device_get(states.world))))
        ended += bool(timestep.is_last[0])
        if ended == episodes:
            return frames
        key, act_key = jax.random.split(key)
        memory, _, action = choose(actor, memory, timestep, act_key)
        states, timestep = step(states, action)


def save_gif(path: Path, frames: list[np.ndarray], milliseconds: int = 80) -> None:
    """An endless GIF; frames of several tasks are brought to one size."""
    from PIL import Image

    height, width = (max(frame.shape[axis] for frame in frames) for axis in (0, 1))
    images = []
    for frame in frames:
        canvas = np.zeros((height, width, 3), np.uint8)
        canvas[: frame.shape[0], : frame.shape[1]] = frame
        images.append(Image.fromarray(canvas).quantize(64))
    path.parent.mkdir(parents=True, exist_ok=True)
    images[0].save(path, format="GIF", save_all=True, append_images=images[1:], duration=milliseconds, loop=0)


def _restore(config: Config, envs: list[Environment], checkpoints: Checkpoints, which: str) -> Restored:
    """The target policy of a checkpoint; on how many devices it was trained does not matter."""
    known = checkpoints.steps()
    if which == "last":
        step = None
    elif which == "best":
        step = checkpoints.best_step()
    elif which.isdigit() and int(which) in known:
        step = int(which)
    else:
        raise unknown("checkpoint", which, ["last", "best", *map(str, known)])
    learner = jax.eval_shape(Learner(config, envs[0].spec, len(envs)).init, jax.random.key(0))
    return checkpoints.restore(learner.acting, step=step, part="learner.acting")


def _summarize(results: Results, env: Environment) -> dict[str, Any]:
    success = results.episode_return > env.spec.success_above
    return {
        "success_rate": rate_interval(success)._asdict(),
        "return": mean_interval(results.episode_return)._asdict(),
        "length_mean": float(np.mean(results.length)),
    }
