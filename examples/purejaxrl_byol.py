"""PPO inside one jitted function, in one file, with curiosity as a switch, on rooms behind closed doors.

    python examples/purejaxrl_byol.py                       # with byol-explore
    python examples/purejaxrl_byol.py --bonus none          # PPO alone
    python examples/purejaxrl_byol.py --bonus rnd --seeds 4 # four runs at once

Acting, curiosity and learning are one program: a scan over updates, mapped over seeds. The lines that curiosity needs
are marked. The intrinsic reward is added before advantages are computed, so earlier steps get credit for it.
"""

import argparse
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

import byol_explore

GAMMA, LAMBDA, CLIP, ENTROPY = 0.99, 0.95, 0.2, 0.01
EPOCHS, MINIBATCHES, LEARNING_RATE, MAX_GRAD_NORM = 4, 8, 5e-4, 0.5


class Agent(NamedTuple):
    """Layers (weight, bias) of two small networks."""

    actor: Any
    critic: Any

    def __call__(self, obs: jax.Array, symbols: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
        """Return logits [..., actions] and values [...] of grids [..., H, W, channels] of symbols."""
        channels = [jax.nn.one_hot(obs[..., channel], count) for channel, count in enumerate(symbols)]
        scale = (sum(symbols) / len(symbols)) ** 0.5  # few of the inputs are 1: give them a mean square of 1
        flat = scale * jnp.concatenate(channels, axis=-1).reshape(*obs.shape[:-3], -1)
        return mlp(self.actor, flat), mlp(self.critic, flat)[..., 0]


def init_mlp(key: jax.Array, inputs: int, outputs: int, scale: float) -> list[tuple[jax.Array, jax.Array]]:
    layers = ((inputs, 128), 1.0), ((128, 128), 1.0), ((128, outputs), scale)
    return [(jax.nn.initializers.lecun_normal()(key, shape) * gain, jnp.zeros(shape[1])) for shape, gain in layers]


def mlp(layers: list[tuple[jax.Array, jax.Array]], x: jax.Array) -> jax.Array:
    for weight, bias in layers[:-1]:
        x = jax.nn.tanh(x @ weight + bias)
    return x @ layers[-1][0] + layers[-1][1]


class Step(NamedTuple):
    obs: Any  # all [T, N, ...]
    action: Any
    log_prob: Any
    value: Any
    reward: Any
    discount: Any  # 0 where the episode terminated
    done: Any
    next_obs: Any  # the true last observation where the episode ended


class Runner(NamedTuple):
    """Everything that changes, as one pytree."""

    agent: Any
    opt_state: Any
    envs: Any
    obs: Any  # [N, ...]
    bonus: Any  # curiosity
    key: Any


def make_train(args: argparse.Namespace) -> tuple[Any, Any]:
    """Return init(key) -> Runner, and update(Runner, None) -> (Runner, metrics), a step of `jax.lax.scan`."""
    env = byol_explore.make_env(args.env)
    grid, actions = env.spec.observation, env.spec.action.discrete[0]
    optimizer = optax.chain(optax.clip_by_global_norm(MAX_GRAD_NORM), optax.adam(LEARNING_RATE, eps=1e-5))
    config = {"minibatches": MINIBATCHES, "max_episode_ends": args.num_steps // 8}  # curiosity
    bonus = byol_explore.Bonus(grid, env.spec.action, args.num_envs, args.bonus, config)  # curiosity
    reset, symbols = jax.vmap(env.reset), grid.symbols_per_channel

    def step_envs(state: Any, action: jax.Array, key: jax.Array) -> tuple[Any, Any, Any]:
        """Step all environments and reset those whose episode ended. Also returns the time step before the reset."""
        after = jax.vmap(env.step)(state, byol_explore.Action(action[:, None], jnp.zeros((args.num_envs, 0))))
        fresh = reset(jax.random.split(key, args.num_envs))
        ended = after[1].is_last

        def select(new: jax.Array, old: jax.Array) -> jax.Array:
            return jnp.where(ended.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        state, first = jax.tree.map(select, fresh, after)
        return state, first.observation, after[1]

    def init(key: jax.Array) -> Runner:
        key, agent_key, env_key, bonus_key, warm_key = jax.random.split(key, 5)
        inputs = grid.height * grid.width * sum(symbols)
        agent = Agent(init_mlp(agent_key, inputs, actions, 0.01), init_mlp(agent_key, inputs, 1, 1.0))
        envs, first = reset(jax.random.split(env_key, args.num_envs))

        def random_step(carry: Any, key: jax.Array) -> tuple[Any, Any]:
            action = jax.random.randint(key, (args.num_envs,), 0, actions)
            return step_envs(carry, action, key)[:2]

        _, seen = jax.lax.scan(random_step, envs, jax.random.split(warm_key, 32))  # curiosity
        seen = seen.reshape(-1, *seen.shape[2:])  # curiosity
        state = bonus.init(bonus_key, seen, first.observation)  # curiosity
        return Runner(agent, optimizer.init(agent), envs, first.observation, state, key)

    def env_step(runner: Runner, _: None) -> tuple[Runner, Step]:
        key, act_key, env_key = jax.random.split(runner.key, 3)
        logits, value = runner.agent(runner.obs, symbols)
        action = jax.random.categorical(act_key, logits)
        envs, obs, after = step_envs(runner.envs, action, env_key)
        step = Step(
            runner.obs, action, log_prob_of(logits, action), value, after.reward, after.discount, after.is_last,
            after.observation,
        )  # fmt: skip
        return runner._replace(envs=envs, obs=obs, key=key), step

    def loss(agent: Any, batch: tuple[Step, Any, Any]) -> jax.Array:
        step, advantage, target = batch
        logits, value = agent(step.obs, symbols)
        ratio = jnp.exp(log_prob_of(logits, step.action) - step.log_prob)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1.0 - CLIP, 1.0 + CLIP) * advantage)
        entropy = -jnp.sum(jax.nn.softmax(logits) * jax.nn.log_softmax(logits), axis=-1)
        return -gain.mean() + 0.5 * jnp.square(value - target).mean() - ENTROPY * entropy.mean()

    def learn(state: tuple[Any, Any], batch: Any) -> tuple[tuple[Any, Any], None]:
        agent, opt_state = state
        direction, opt_state = optimizer.update(jax.grad(loss)(agent, batch), opt_state)
        return (optax.apply_updates(agent, direction), opt_state), None

    def update(runner: Runner, _: None) -> tuple[Runner, dict[str, jax.Array]]:
        runner, steps = jax.lax.scan(env_step, runner, None, args.num_steps)
        rollout = byol_explore.Transition(steps.obs, steps.action, steps.done, steps.next_obs)  # curiosity
        state, curious = bonus.update(runner.bonus, rollout)  # curiosity
        reward = steps.reward + args.mixing * curious.reward  # curiosity
        _, next_value = runner.agent(steps.next_obs, symbols)
        advantage = advantages(reward, steps.value, steps.discount * next_value, steps.done)
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (steps, advantage, advantage + steps.value))
        key, *keys = jax.random.split(runner.key, EPOCHS + 1)
        learned = runner.agent, runner.opt_state
        for epoch_key in keys:
            order = jax.random.permutation(epoch_key, advantage.size)
            batches = jax.tree.map(lambda x, order=order: x[order].reshape(MINIBATCHES, -1, *x.shape[1:]), flat)
            learned, _ = jax.lax.scan(learn, learned, batches)
        ended = jnp.maximum(steps.done.sum(), 1)
        metrics = {
            "success": jnp.sum(steps.reward > 0) / ended,
            "intrinsic": curious.reward.mean(),  # curiosity
            "masked": curious.metrics["masked_episode_ends"],  # curiosity
        }
        return runner._replace(agent=learned[0], opt_state=learned[1], bonus=state, key=key), metrics

    return init, update


def log_prob_of(logits: jax.Array, action: jax.Array) -> jax.Array:
    return jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], axis=-1)[..., 0]


def advantages(reward: jax.Array, value: jax.Array, next_value: jax.Array, done: jax.Array) -> jax.Array:
    """Return generalised advantage estimates [T, N]; `next_value` is 0 where an episode terminated."""

    def step(later: jax.Array, inputs: Any) -> tuple[jax.Array, jax.Array]:
        delta, ended = inputs
        later = delta + GAMMA * LAMBDA * jnp.where(ended, 0.0, later)
        return later, later

    return jax.lax.scan(step, jnp.zeros(reward.shape[1]), (reward + GAMMA * next_value - value, done), reverse=True)[1]


def train(args: argparse.Namespace) -> list[float]:
    """Train all seeds at once. Prints progress, and returns the share of successful episodes of each at the end."""
    init, update = make_train(args)
    many = jax.jit(jax.vmap(lambda runner: jax.lax.scan(update, runner, None, args.print_every)), donate_argnums=0)
    runner = jax.jit(jax.vmap(init))(jax.random.split(jax.random.key(args.seed), args.seeds))
    success, steps_per_call = jnp.zeros(args.seeds), args.print_every * args.num_steps * args.num_envs
    for call in range(1, max(1, args.total_steps // steps_per_call) + 1):
        runner, metrics = many(runner)
        success = metrics["success"][:, -10:].mean(axis=1)
        shares = " ".join(f"{share:.2f}" for share in success.tolist())
        reward, masked = float(metrics["intrinsic"].mean()), int(metrics["masked"].sum())
        print(f"{call * steps_per_call:>9,} steps  success {shares}  intrinsic {reward:.3f}  masked ends {masked}")
    return success.tolist()


def parse_args(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="rooms-4", help="a grid world inside jit")
    parser.add_argument("--bonus", default="byol-explore", help="an intrinsic method, or none")
    parser.add_argument("--mixing", type=float, default=0.005, help="weight of the intrinsic reward")
    numbers = {"total-steps": 2_000_000, "num-envs": 64, "num-steps": 64, "seeds": 1, "seed": 0, "print-every": 20}
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args(words)


if __name__ == "__main__":
    train(parse_args())
