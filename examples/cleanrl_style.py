"""PPO in one file, in the style of CleanRL. The six lines that add curiosity are marked with "curiosity".

    python examples/cleanrl_style.py --env-id MountainCar-v0 --total-steps 200000

The intrinsic reward is added before advantages are computed, so earlier steps get credit for it. The curiosity gets the
true last observation of every episode, though the environments have been reset by then (SAME_STEP).
"""

import argparse
from typing import Any, NamedTuple

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
from gymnasium.vector import AutoresetMode

import byol_explore.dropin.autoreset  # curiosity

GAMMA, LAMBDA, CLIP, MIXING = 0.99, 0.95, 0.2, 0.1
EPOCHS, MINIBATCHES, LEARNING_RATE, ENTROPY = 4, 4, 2.5e-4, 0.01


class Agent(eqx.Module):
    actor: eqx.nn.MLP
    critic: eqx.nn.MLP

    def __init__(self, features: int, actions: int, key: jax.Array) -> None:
        keys = jax.random.split(key)
        self.actor = eqx.nn.MLP(features, actions, 64, 2, jnp.tanh, key=keys[0])
        self.critic = eqx.nn.MLP(features, "scalar", 64, 2, jnp.tanh, key=keys[1])


class Batch(NamedTuple):
    obs: Any  # [n, features]
    action: Any
    log_prob: Any
    advantage: Any
    target: Any


@eqx.filter_jit
def act(agent: Agent, obs: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    logits = jax.nn.log_softmax(jax.vmap(agent.actor)(obs))
    action = jax.random.categorical(key, logits)
    return action, jnp.take_along_axis(logits, action[:, None], 1)[:, 0], jax.vmap(agent.critic)(obs)


def loss(agent: Agent, batch: Batch) -> jax.Array:
    logits = jax.nn.log_softmax(jax.vmap(agent.actor)(batch.obs))
    ratio = jnp.exp(jnp.take_along_axis(logits, batch.action[:, None], 1)[:, 0] - batch.log_prob)
    advantage = (batch.advantage - batch.advantage.mean()) / (batch.advantage.std() + 1e-8)
    policy = -jnp.mean(jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage))
    entropy = -jnp.mean(jnp.sum(jnp.exp(logits) * logits, axis=1))
    return policy + 0.5 * jnp.mean(jnp.square(jax.vmap(agent.critic)(batch.obs) - batch.target)) - ENTROPY * entropy


OPTIMIZER = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(LEARNING_RATE, eps=1e-5))


@eqx.filter_jit
def update(agent: Agent, optimizer: Any, batch: Batch) -> tuple[Agent, Any]:
    updates, optimizer = OPTIMIZER.update(eqx.filter_grad(loss)(agent, batch), optimizer)
    return eqx.apply_updates(agent, updates), optimizer


def advantages(rewards: np.ndarray, values: np.ndarray, bootstraps: np.ndarray, dones: np.ndarray) -> np.ndarray:
    """Compute GAE; `bootstraps` are the values of the next observations, 0 where an episode terminated."""
    result, last = np.zeros_like(rewards), np.zeros(rewards.shape[1])
    for t in reversed(range(len(rewards))):
        last = result[t] = rewards[t] + GAMMA * bootstraps[t] - values[t] + GAMMA * LAMBDA * ~dones[t] * last
    return result


def train(env_id: str, total_steps: int, num_envs: int = 8, num_steps: int = 128, seed: int = 0) -> dict[str, Any]:
    """Train. Returns the curiosity's metrics of the last rollout, and the returns of all episodes."""
    envs = gymnasium.make_vec(env_id, num_envs, "sync", vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP})
    envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(envs)
    spaces, rng = (envs.single_observation_space, envs.single_action_space), np.random.default_rng(seed)
    curiosity = byol_explore.Curiosity(*spaces, num_envs=num_envs, seed=seed)  # curiosity
    adapter = byol_explore.dropin.autoreset.SameStep()  # curiosity
    agent = Agent(spaces[0].shape[0], int(spaces[1].n), jax.random.key(seed))
    optimizer, key = OPTIMIZER.init(eqx.filter(agent, eqx.is_array)), jax.random.key(seed + 1)
    metrics, returns = {}, []
    obs, _ = envs.reset(seed=seed)
    for _ in range(max(1, total_steps // (num_envs * num_steps))):
        steps, outputs = [], []
        rewards = np.zeros((num_steps, num_envs), np.float32)
        for t in range(num_steps):
            key, action_key = jax.random.split(key)
            action, log_prob, value = map(np.asarray, act(agent, obs, action_key))
            result = envs.step(action)
            steps.append(adapter.convert(obs, action, *result))  # curiosity
            outputs.append((log_prob, value))
            obs, rewards[t], _, _, infos = result
            if "episode" in infos:
                returns += infos["episode"]["r"][infos["_episode"]].tolist()
        rollout = byol_explore.dropin.autoreset.stack_steps(steps)  # [T, B, ...] by name
        intrinsic, metrics = curiosity.learn(**rollout)  # curiosity
        rewards += MIXING * intrinsic  # curiosity
        log_prob, value = map(np.stack, zip(*outputs, strict=True))
        after = np.asarray(jax.vmap(jax.vmap(agent.critic))(rollout["next_obs"])) * ~rollout["terminations"]
        advantage = advantages(rewards, value, after, rollout["terminations"] | rollout["truncations"])
        batch = Batch(rollout["obs"], rollout["actions"], log_prob, advantage, advantage + value)
        batch = Batch(*(np.reshape(x, (num_steps * num_envs, *x.shape[2:])) for x in batch))
        for _ in range(EPOCHS):
            for chosen in np.array_split(rng.permutation(num_steps * num_envs), MINIBATCHES):
                agent, optimizer = update(agent, optimizer, Batch(*(x[chosen] for x in batch)))
    envs.close()
    return {**metrics, "returns": returns}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="PPO with curiosity")
    parser.add_argument("--env-id", default="MountainCar-v0")
    parser.add_argument("--total-steps", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    results = train(arguments.env_id, arguments.total_steps, seed=arguments.seed)
    print(f"{len(results['returns'])} episodes, mean return of the last 20: {np.mean(results['returns'][-20:]):.1f}")
