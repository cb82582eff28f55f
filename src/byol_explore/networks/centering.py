"""Data-dependent initialisation: centre every layer of an encoder on warm-up observations.

BYOL-Explore compares directions of embeddings (section 3.2 ii). Observations share a lot: most cells of a grid are
unseen, the background of a game stands still, floor and sky fill a first-person view. An encoder with random weights
and zero biases turns the shared part into one large mean vector, so its embeddings start nearly parallel. Every
prediction is then right from the start, bootstrapping pulls the embeddings closer still, and the intrinsic reward says
nothing about novelty.

Biases that subtract the mean prevent this without changing an equation: each layer keeps only the differences between
observations. They are computed once, from front to back, as in Salimans & Kingma (2016). A layer that supports this has
a method `centered(inputs)`; other parts of an encoder need no change.

Embeddings stay apart as long as the world model learns faster than its targets move. Adam moves every weight by about
the learning rate, whatever its size. In a layer with a thousand non-negative inputs one step therefore shifts all
embeddings together by a good part of the differences between them. The remedy is a last layer with large initial
outputs: the loss ignores the length of embeddings, but the same step turns them less. The core's input weights start
smaller by the same factor, so at the start the core reads embeddings of unit standard deviation.
`ObservationEncoder.initial_std` is that standard deviation; docs/atari.md has the measurements.

Warm-up observations come from random actions, because first observations of episodes are often nearly all alike. They
depend on the seed alone, not on the number of devices or environments.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.envs.host_vector import make_host_vector_env
from byol_explore.envs.interface import HostEnvironment, JitEnvironment
from byol_explore.envs.vector import make_vector_env
from byol_explore.errors import UserError
from byol_explore.networks import cpu_kernels
from byol_explore.networks.encoders import ObservationEncoder
from byol_explore.networks.representation import Representation
from byol_explore.spaces import ActionSpec
from byol_explore.types import Action, Array, Encoder, PyTree, TimeStep

MIN_STD = 1e-3  # lower bound of the divisor: a number that never changes is not scaled up
STEPS = 128  # warm-up steps with random actions
KEEP_EVERY = 8  # steps between two observations that are kept; consecutive ones are nearly equal
# Environments to warm up, rounded up to a multiple of the tasks. Steps outside jit are slow.
NUM_JIT_ENVS, NUM_HOST_ENVS = 128, 32


@runtime_checkable
class SupportsCentering(Protocol):
    """A layer that can subtract the mean of its own outputs."""

    def __call__(self, x: Array) -> Array: ...
    def centered(self, x: Array) -> Any:
        """Return the layer whose outputs for the inputs `x` are zero on average."""
        ...


@runtime_checkable
class SupportsScaling(Protocol):
    """A layer whose outputs can be scaled; the last one must, if the encoder has an `initial_std`."""

    def scale_outputs(self, factor: Array) -> Any:
        """Return the layer whose outputs are multiplied by `factor`, [] or [outputs]."""
        ...


class _CenteringLayer:
    """Stand-in for a layer: centres it on the inputs of its first call and answers with the centred layer."""

    def __init__(self, layer: SupportsCentering, call_order: "list[_CenteringLayer]") -> None:
        self.layer: Any = layer
        self.call_order = call_order

    def __call__(self, x: Array) -> Array:
        self.layer = self.layer.centered(x)
        self.call_order.append(self)
        return self.layer(x)


def center_encoder(encoder: Encoder, observation: PyTree, std: float | None = None) -> Encoder:
    """Centre all layers of an encoder on a batch of observations.

    Each layer is centred on the outputs of the centred layers before it.

    Args:
      encoder: encoder with layers that support centring.
      observation: [n, ...] observations that differ from each other.
      std: standard deviation that each number of the embeddings gets, by scaling the last layer; None leaves it.
    Returns:
      The encoder with new biases, and a new last layer if `std` is given.
    """
    call_order: list[_CenteringLayer] = []
    stand_ins = jax.tree.map(
        lambda node: _CenteringLayer(node, call_order) if isinstance(node, SupportsCentering) else node,
        encoder,
        is_leaf=lambda node: isinstance(node, SupportsCentering),
    )
    # The CPU kernels work on chunks of the batch; each chunk would have a mean of its own.
    with cpu_kernels.disable_cpu_kernels():
        embedding = stand_ins(observation)
    if std is not None:
        last = call_order[-1]
        if not isinstance(last.layer, SupportsScaling):
            raise UserError(
                f"{type(last.layer).__name__}, the last layer of {type(encoder).__name__}, has no method scale_outputs"
                ": add it, or set initial_std to None"
            )
        last.layer = last.layer.scale_outputs(std / jnp.maximum(jnp.std(embedding, axis=0), MIN_STD))
    return jax.tree.map(lambda node: node.layer if isinstance(node, _CenteringLayer) else node, stand_ins)


def center_encoders(tree: PyTree, observation: PyTree, *, scaled: bool = False) -> PyTree:
    """Centre every encoder in a tree of modules.

    Args:
      tree: modules; encoders are found as `ObservationEncoder` or in a `Representation`.
      observation: [n, ...] observations to centre on.
      scaled: also give embeddings the standard deviation `ObservationEncoder.initial_std`, and divide the weights of
        the core that reads them. Only for losses that ignore the length of embeddings.
    Returns:
      The tree with centred encoders.
    """

    def start(node: Any) -> Any:
        if isinstance(node, ObservationEncoder):
            return center_encoder(node, observation, node.initial_std if scaled else None)
        if isinstance(node, Representation):
            std = node.encoder.initial_std if scaled else None
            inputs = node.inputs if std is None else node.inputs.rescale_for_std(std)
            return Representation(start(node.encoder), inputs, node.core)
        return node

    return jax.tree.map(start, tree, is_leaf=lambda node: isinstance(node, ObservationEncoder | Representation))


def warmup_observations_jit(envs: list[JitEnvironment], seed: int) -> PyTree:
    """Play random actions in environments inside jit. Returns observations [n, ...]."""
    return random_observations_jit(tuple(envs), jax.random.key(seed))


@partial(jax.jit, static_argnums=0)
def random_observations_jit(env_kinds: tuple[JitEnvironment, ...], key: Array) -> PyTree:
    """Return the same as `warmup_observations_jit` for a random key, also inside jit."""
    envs = make_vector_env(list(env_kinds), _round_up(NUM_JIT_ENVS, len(env_kinds)), "fixed")
    reset_key, key = jax.random.split(key)

    def step(carry: tuple[PyTree, Array, PyTree], _: None) -> tuple[tuple[PyTree, Array, PyTree], None]:
        states, key, _ = carry
        key, action_key = jax.random.split(key)
        states, timestep = envs.step(states, _random_action(envs.spec.action, envs.num_envs, action_key))
        return (states, key, timestep.observation), None

    def advance(carry: tuple[PyTree, Array, PyTree], _: None) -> tuple[tuple[PyTree, Array, PyTree], PyTree]:
        carry, _ = jax.lax.scan(step, carry, length=KEEP_EVERY)
        return carry, carry[2]

    states, timestep = envs.reset(reset_key)
    _, kept = jax.lax.scan(advance, (states, key, timestep.observation), length=STEPS // KEEP_EVERY)
    kept = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), timestep.observation, kept)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), kept)


def warmup_observations_host(envs: Sequence[HostEnvironment], seed: int) -> PyTree:
    """Play random actions in host environments, then close them. Returns observations [n, ...]."""
    count = _round_up(NUM_HOST_ENVS, len(envs))
    batch, key, spec = make_host_vector_env(envs, count, seed), jax.random.key(seed), envs[0].spec.action
    try:
        kept = [_copy(batch.reset())]
        for index in range(STEPS):
            action = _random_action(spec, count, jax.random.fold_in(key, index))
            timestep = batch.step(jax.device_get(action))
            if (index + 1) % KEEP_EVERY == 0:
                kept.append(_copy(timestep))
        return jax.tree.map(lambda *xs: np.concatenate(xs), *kept)
    finally:
        batch.close()


def _copy(timestep: TimeStep) -> PyTree:
    """Copy the observation: the next step may overwrite its memory."""
    return jax.tree.map(np.array, timestep.observation)


def _round_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


@partial(jax.jit, static_argnums=(0, 1))
def _random_action(spec: ActionSpec, count: int, key: Array) -> Action:
    """Draw actions [count], uniform over categories and over [-1, 1]."""
    discrete_key, continuous_key = jax.random.split(key)
    categories = jnp.asarray(spec.discrete, jnp.int32)
    return Action(
        jax.random.randint(discrete_key, (count, len(spec.discrete)), 0, categories),
        jax.random.uniform(continuous_key, (count, spec.continuous), minval=-1.0, maxval=1.0),
    )
