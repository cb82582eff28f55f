"""Small configurations, random batches with episode boundaries inside, and slow NumPy networks to compare with."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.agent.learner import Learner
from byol_explore.agent.state import Batch, LearnerState, UpdateOutput
from byol_explore.config.config import Config, embedding_size
from byol_explore.config.sections import CuriosityConfig, NetworkConfig, OptimizerConfig, RuntimeConfig
from byol_explore.curiosity.method import BuildContext
from byol_explore.envs.interface import EnvSpec
from byol_explore.networks.encoders import make_encoder
from byol_explore.networks.episodic_memory import NO_MEMORY, EpisodicMemory
from byol_explore.networks.layers import ObservationNormalizer
from byol_explore.networks.representation import Actor, RepresentationOutput, make_actor
from byol_explore.runtime.base import EpisodeStats, RolloutStats
from byol_explore.spaces import ActionSpec, ArraySpace, Grid, Image, Tokens, Vector
from byol_explore.types import Action, Array, Policy, PyTree, Trajectory

# These tests spend most of their time on compilation, which takes less than half without optimisation.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})

TIME, BATCH = 7, 3
WORDS = 9  # in the vocabulary of instructions

ACTIONS = {
    "discrete": ActionSpec((4,)),
    "continuous": ActionSpec((), 2),
    "hybrid": ActionSpec((3, 2), 2),
}
OBSERVATIONS: dict[str, PyTree] = {
    "grid": Grid(4, 3, (16, 16)),
    "vector": Vector(6),
    "image": Image(9, 8, 1),
    "tokens": Tokens(4, WORDS),
    "hard-eight": {
        "rgb": Image(9, 8, 3),
        "hand_force": Vector(1),
        "hand_is_holding": Vector(1),
        "hand_distance": Vector(1),
        "instruction": Tokens(4, WORDS),
    },
    "dict": {"rgb": Image(9, 8, 3), "arm/joints": Vector(5)},
    "minigrid": {"image": Grid(4, 3, (11, 6, 4)), "direction": Vector(4), "mission": Tokens(4, WORDS)},
}
SENSES = ("hand_force", "hand_is_holding", "hand_distance", "instruction")  # entries that only the core reads

# The first environment ends two short episodes, the second starts with an episode, the third stays inside one.
IS_FIRST = np.zeros((TIME, BATCH), bool)
IS_FIRST[[2, 4], 0] = True
IS_FIRST[[0, 5], 1] = True


# Configurations


def small_network(core: str = "gru") -> NetworkConfig:
    return NetworkConfig(
        encoder_hidden=(10,), cell_embedding_size=3, embedding_size=8, core=core, belief_size=6, policy_hidden=(9,),
        value_hidden=(9,), predictor_hidden=(9,), action_embedding_size=5, action_bins=4,
    )  # fmt: skip


def network_of(observation: str, core: str = "gru") -> NetworkConfig:
    """Configure a small network for observations of this name; those of Hard-Eight are read as in the paper."""
    network = small_network(core)
    if observation != "hard-eight":
        return network
    return dataclasses.replace(
        network, encoder="hard-eight", core_inputs=SENSES, use_prev_reward=True, core_mix_size=16
    )


# For comparisons up to rounding. Adam divides gradients by their size, so the rounding of a gradient close to 0 moves
# its parameter by up to the learning rate; Adam's averages show whether gradients agree.
SMALL_STEPS = OptimizerConfig(learning_rate=1e-6, dual_learning_rate=1e-6)


def small_config(method: str = "byol-explore", *, core: str = "gru", **curiosity: Any) -> Config:
    return Config(
        method=method,
        network=small_network(core),
        curiosity=CuriosityConfig(**{"horizon": 3, **curiosity}),
        runtime=RuntimeConfig(num_envs=BATCH, batch_size=BATCH, sequence_length=TIME),
    )


def materials_for(config: Config, spec: EnvSpec) -> BuildContext:
    """Return the arguments of `IntrinsicMethod.create`."""
    size = embedding_size(config)
    return BuildContext(
        spec.observation, spec.action, config.network, config.curiosity, size,
        lambda key: make_encoder(config.network, spec, key, size),
    )  # fmt: skip


def update_of(learner: Learner) -> Callable[[LearnerState, Trajectory], tuple[LearnerState, UpdateOutput]]:
    """Return the compiled learner step from a trajectory."""
    return jit(lambda state, trajectory: learner.update(state, Batch(trajectory)))


def make_spec(observation: str = "grid", action: str = "discrete") -> EnvSpec:
    return EnvSpec("test", OBSERVATIONS[observation], ACTIONS[action], max_steps=10)


def make(constructor: Callable[[Array], Any], seed: int = 0) -> Any:
    """Make a module and fill its arrays with NumPy noise, so that nothing is compiled and no bias is zero."""
    rng = np.random.default_rng(seed)

    def fill(x: jax.ShapeDtypeStruct) -> Array:
        fan_in = np.prod(x.shape[:-1]) if len(x.shape) > 1 else 4
        return jnp.asarray(rng.normal(size=x.shape) / np.sqrt(fan_in), x.dtype)

    return jax.tree.map(fill, jax.eval_shape(constructor, jax.random.key(0)))


def small_actor(
    spec: EnvSpec, core: str = "gru", *, apart: bool = False, seed: int = 0, network: NetworkConfig | None = None,
    recall: EpisodicMemory = NO_MEMORY,
) -> Actor:  # fmt: skip
    """Make an actor with noise in all networks and a normalizer updated by other observations."""
    network = small_network(core) if network is None else network
    actor = make(lambda key: make_actor(network, spec, key, own_representation=apart, episodic_memory=recall), seed)
    fresh = ObservationNormalizer(spec.observation, normalizes=network.normalize_vectors)
    seen = jax.tree.map(lambda x: 2.0 * x + 0.5, random_observation(np.random.default_rng(seed), spec, (40,)))
    return eqx.tree_at(lambda x: x.obs_normalizer, actor, fresh.update(seen))


# Random data


def random_array(rng: np.random.Generator, lead: tuple[int, ...], like: ArraySpace) -> Array:
    shape = (*lead, *like.shape)
    if isinstance(like, Vector):
        return jnp.asarray(rng.normal(size=shape), like.dtype)
    high = {Image: lambda: 256, Grid: lambda: like.symbols_per_channel, Tokens: lambda: like.vocab_size}[type(like)]()
    return jnp.asarray(rng.integers(0, high, shape), like.dtype)


def random_observation(rng: np.random.Generator, spec: EnvSpec, lead: tuple[int, ...]) -> PyTree:
    return jax.tree.map(lambda like: random_array(rng, lead, like), spec.observation)


def random_action(rng: np.random.Generator, spec: ActionSpec, lead: tuple[int, ...]) -> Action:
    discrete = [rng.integers(0, n, lead) for n in spec.discrete]
    return Action(
        jnp.asarray(np.stack(discrete, -1) if discrete else np.zeros((*lead, 0)), jnp.int32),
        jnp.asarray(0.7 * rng.normal(size=(*lead, spec.continuous)), jnp.float32),
    )


def random_policy(rng: np.random.Generator, spec: ActionSpec, lead: tuple[int, ...]) -> Policy:
    def normal(n: int) -> Array:
        return jnp.asarray(rng.normal(size=(*lead, n)), jnp.float32)

    stddev = jnp.asarray(rng.uniform(0.5, 1.5, (*lead, spec.continuous)), jnp.float32)
    return Policy(tuple(normal(n) for n in spec.discrete), normal(spec.continuous), stddev)


def shaken(tree: PyTree, seed: int = 0, scale: float = 0.3) -> PyTree:
    """Add noise to every float, so that no bias is zero and no state is the initial one."""
    rng = np.random.default_rng(seed)

    def shake(x: Array) -> Array:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return x
        return jnp.asarray(np.asarray(x) + scale * rng.normal(size=x.shape), x.dtype)

    return jax.tree.map(shake, tree)


def make_trajectory(spec: EnvSpec, actor: Actor, seed: int = 0, is_first: np.ndarray = IS_FIRST) -> Trajectory:
    """Make a random trajectory; rewards and actions of dummy transitions, which must be masked, are random too."""
    rng = np.random.default_rng(seed)
    lead = (TIME - 1, BATCH)
    ends = np.concatenate([is_first[2:], np.zeros((1, BATCH), bool)])
    recurrent_state = shaken(actor.initial_state(spec, BATCH), seed + 1, 1.0)
    return Trajectory(
        observation=random_observation(rng, spec, (TIME, BATCH)),
        is_first=jnp.asarray(is_first),
        action=random_action(rng, spec.action, lead),
        reward=jnp.asarray(rng.normal(size=lead), jnp.float32),
        discount=jnp.asarray(~ends, jnp.float32),
        behaviour_policy=random_policy(rng, spec.action, lead),
        task_id=jnp.zeros((TIME, BATCH), jnp.int32),
        initial_state=recurrent_state._replace(prev_action=random_action(rng, spec.action, (BATCH,))),
    )


def steps_of(places: np.ndarray, reward: np.ndarray | None = None, task: np.ndarray | None = None) -> RolloutStats:
    """Return statistics of steps [T, E] that lead to positions [T, E, P] and end no episode."""
    shape = places.shape[:2]
    nothing, tasks = np.zeros(shape), np.zeros(shape, int) if task is None else task
    episodes = EpisodeStats(nothing > 0, nothing, nothing.astype(int), nothing.astype(np.int8))
    return RolloutStats(np.arange(shape[1]), tasks, episodes, places, nothing if reward is None else reward)


def permute_environments(trajectory: Trajectory, order: list[int]) -> Trajectory:
    timed = jax.tree.map(lambda x: np.asarray(x)[:, order], trajectory._replace(initial_state=None))
    return timed._replace(initial_state=jax.tree.map(lambda x: np.asarray(x)[order], trajectory.initial_state))


def replace_observations(spec: EnvSpec, trajectory: Trajectory, where: np.ndarray, seed: int = 99) -> Trajectory:
    """Replace the observations where the mask [T, B] is True by random ones."""
    rng = np.random.default_rng(seed)

    def other(like: ArraySpace, x: Array) -> np.ndarray:
        fresh = random_array(rng, x.shape[:2], like)
        return np.where(where.reshape(*where.shape, *[1] * (x.ndim - 2)), fresh, x)

    return trajectory._replace(observation=jax.tree.map(other, spec.observation, trajectory.observation))


@jit
def call(module: Callable[..., Any], *inputs: Any) -> Any:
    """Call a module, compiled once per shape."""
    return module(*inputs)


@jit
def unroll(actor: Actor, trajectory: Trajectory) -> RepresentationOutput:
    """Return the outputs of an actor's policy for a trajectory, from its stored state."""
    return actor.representation.unroll(
        actor.normalize(trajectory).sequence, trajectory.previous, trajectory.initial_state.policy_core
    )


# Comparisons


def leaves_with_names(tree: PyTree) -> dict[str, np.ndarray]:
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def assert_trees_close(actual: PyTree, expected: PyTree, rtol: float = 1e-5, atol: float = 1e-5) -> None:
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for name, leaf in leaves_with_names(actual).items():
        np.testing.assert_allclose(leaf, leaves_with_names(expected)[name], rtol=rtol, atol=atol, err_msg=name)


def largest(tree: PyTree) -> float:
    """Return the largest absolute value in a tree."""
    return max((float(np.max(np.abs(leaf), initial=0.0)) for leaf in jax.tree.leaves(tree)), default=0.0)


def parameter_count(tree: PyTree) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


# Slow networks in double precision, with the parameters of the tested module


def numpy_linear(layer: Any, x: np.ndarray) -> np.ndarray:
    y = np.asarray(x, np.float64) @ np.asarray(layer.weight, np.float64)
    return y if layer.bias is None else y + np.asarray(layer.bias, np.float64)


def numpy_mlp(mlp: Any, x: np.ndarray) -> np.ndarray:
    for layer in mlp.layers[:-1]:
        x = np.maximum(numpy_linear(layer, x), 0.0)
    return numpy_linear(mlp.layers[-1], x)


def numpy_standardize(x: np.ndarray) -> np.ndarray:
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5)


def numpy_conv(conv: Any, image: np.ndarray) -> np.ndarray:
    """Convolve one image [H, W, c], padded with zeros."""
    height, width, _ = image.shape
    weight, bias = np.asarray(conv.weight, np.float64), np.asarray(conv.bias, np.float64)
    padded = np.zeros((height + 2, width + 2, image.shape[2]))
    padded[1:-1, 1:-1] = image
    out = np.zeros((height, width, weight.shape[3]))
    for y in range(height):
        for x in range(width):
            out[y, x] = bias + sum(padded[y + dy, x + dx] @ weight[dy, dx] for dy in range(3) for dx in range(3))
    return out


def numpy_max_pool(image: np.ndarray) -> np.ndarray:
    """Pool 3 x 3 with stride 2 and "same" padding, split evenly with the odd row and column at the end."""
    starts = []
    for size in image.shape[:2]:
        outputs = -(-size // 2)
        border = max(2 * (outputs - 1) + 3 - size, 0)
        starts.append([2 * i - border // 2 for i in range(outputs)])
    out = np.zeros((len(starts[0]), len(starts[1]), image.shape[2]))
    for i, top in enumerate(starts[0]):
        for j, left in enumerate(starts[1]):
            out[i, j] = image[max(top, 0) : top + 3, max(left, 0) : left + 3].max(axis=(0, 1))
    return out


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def numpy_gru(core: Any, state: np.ndarray, projected: np.ndarray) -> np.ndarray:
    size = state.shape[-1]
    recurrent = numpy_linear(core.recurrent, state)
    r, z = (_sigmoid((projected + recurrent)[..., i * size : (i + 1) * size]) for i in range(2))
    n = np.tanh(projected[..., 2 * size :] + r * recurrent[..., 2 * size :])
    return (1.0 - z) * state + z * n


def numpy_lstm(core: Any, state: tuple[np.ndarray, np.ndarray], projected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    hidden, cell = state
    size = hidden.shape[-1]
    total = projected + numpy_linear(core.recurrent, hidden)
    i, g, f, o = (total[..., j * size : (j + 1) * size] for j in range(4))
    cell = _sigmoid(f + 1.0) * cell + _sigmoid(i) * np.tanh(g)
    return _sigmoid(o) * np.tanh(cell), cell


def numpy_core(core: Any, state: Any, projected: np.ndarray) -> Any:
    """Take one step. The state of a GRU is an array, that of an LSTM a pair."""
    return (numpy_lstm if isinstance(state, tuple) else numpy_gru)(core, state, projected)


def numpy_belief(state: Any) -> np.ndarray:
    return state[0] if isinstance(state, tuple) else state


def numpy_words(reader: Any, text: np.ndarray) -> np.ndarray:
    """Return the output of an LSTM after the words that are not padding."""
    state = np.zeros(reader.core.size), np.zeros(reader.core.size)
    for word in text:
        if word != 0:
            state = numpy_lstm(reader.core, state, numpy_linear(reader.project, np.asarray(reader.words)[word]))
    return state[0]


def numpy_action_rows(embedding: Any, action: Action) -> np.ndarray:
    """Sum of the table rows of one action, looked up one component at a time."""
    tables = np.asarray(embedding.tables, np.float64)
    total, start = np.zeros(tables.shape[1]), 0
    for component, categories in enumerate(embedding.spec.discrete):
        total = total + tables[start + int(action.discrete[component])]
        start += categories
    for value, bins in zip(np.asarray(action.continuous), embedding.bins, strict=True):
        edges = np.linspace(-1.0, 1.0, bins + 1)[1:-1]
        total = total + tables[start + int(np.sum(value >= edges))]
        start += bins
    return total


def at(tree: PyTree, *index: int) -> PyTree:
    """Index every array of a tree, as NumPy."""
    return jax.tree.map(lambda x: np.asarray(x)[index], tree)
