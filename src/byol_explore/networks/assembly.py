"""The agent's networks put together from a configuration."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from byol_explore.config import NetworkConfig
from byol_explore.envs.base import EnvSpec
from byol_explore.errors import UserError, unknown
from byol_explore.networks.cores import CORES, Core, closed_loop, reset_where
from byol_explore.networks.dict_encoder import DictEncoder
from byol_explore.networks.encoders import AtariEncoder, GridEncoder, HardEightEncoder, ImageEncoder, VectorEncoder
from byol_explore.networks.heads import PolicyHead
from byol_explore.networks.inputs import HARD_EIGHT_ENTRIES, ActionInputs, HardEightInputs, Inputs
from byol_explore.networks.layers import MLP
from byol_explore.types import Action, Array, Encoder, Memory, PyTree, Trajectory

ENCODERS = ("auto", "grid", "vector", "image", "atari", "hard-eight", "dict")

SMALLEST_IMAGE = 32  # pixels; what is smaller and has two channels is a grid of symbols


class View(NamedTuple):
    """A trajectory seen through a representation."""

    embedding: Array  # [T, B, N]
    state: PyTree  # [T, B, ...] of the core
    belief: Array  # [T, B, M]


class Representation(eqx.Module):
    """Encoder and closed-loop core: b_t = h_c(b_{t-1}, a_{t-1}, f(o_t)) (section 3.2 i)."""

    encoder: Encoder
    inputs: Inputs
    core: Core

    def embed(self, observation: PyTree) -> Array:
        """All [T, B] observations encoded in one call."""
        lead = jax.tree.leaves(observation)[0].shape[:2]
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), observation)
        embedding = self.encoder(flat)
        return embedding.reshape(*lead, -1)

    def unroll(self, trajectory: Trajectory, state: PyTree) -> View:
        """Along a trajectory, from the actor's stored state."""
        action, reward = jax.tree.map(
            lambda first, rest: jnp.concatenate([first[None], rest]),
            (trajectory.memory.action, trajectory.memory.reward),
            (trajectory.action, trajectory.reward),
        )
        embedding = self.embed(trajectory.observation)
        projected = self.inputs(embedding, trajectory.observation, action, reward, trajectory.is_first)
        states = closed_loop(self.core, projected, trajectory.is_first, state)
        return View(embedding, states, self.core.belief(states))

    def step(self, state: PyTree, observation: PyTree, action: Action, reward: Array, is_first: Array) -> PyTree:
        """One observation [B, ...] further."""
        embedding = self.encoder(observation)
        projected = self.inputs(embedding, observation, action, reward, is_first)
        return self.core.step(reset_where(self.core, is_first, state), projected)


class Actor(eqx.Module):
    """What acting needs of the networks: the learner copies it from the online networks every few steps."""

    representation: Representation
    policy: PolicyHead
    world: Representation | None  # the curiosity's own representation, when it does not share the policy's

    def initial_memory(self, spec: EnvSpec, batch: int) -> Memory:
        zero = jax.tree.map(lambda x: jnp.broadcast_to(x, (batch, *x.shape)), spec.action.zero())
        return Memory(
            core=self.representation.core.initial_state((batch,)),
            world=() if self.world is None else self.world.core.initial_state((batch,)),
            action=zero,
            reward=jnp.zeros((batch,)),
        )


class Networks(eqx.Module):
    """All that gradients train, but for the dual variables."""

    actor: Actor
    value: MLP  # its outputs, one per task, are in PopArt's normalised units
    curiosity: Any  # a curiosity.base.Curiosity


def make_encoder(config: NetworkConfig, spec: EnvSpec, key: Array, size: int | None = None) -> Encoder:
    """The encoder that the configuration names, or the one that fits the observations ("auto")."""
    shape: Any = getattr(spec.observation, "shape", None)
    size = config.embedding_size if size is None else size
    match encoder_name(config, spec):
        case "grid":
            return GridEncoder(shape, config.encoder_hidden, size, key, width=config.cell_size)
        case "vector":
            return VectorEncoder(math.prod(shape), config.encoder_hidden, size, key)
        case "image":
            return ImageEncoder(shape, size, key)
        case "atari":
            return AtariEncoder(shape, size, key)
        case "hard-eight":
            return HardEightEncoder(spec.observation["rgb"].shape, size, key)
        case "dict":
            return DictEncoder(spec.observation, config.encoder_hidden, size, key, image=ImageEncoder)
    raise unknown("encoder", config.encoder, list(ENCODERS))


def encoder_name(config: NetworkConfig, spec: EnvSpec) -> str:
    """Name of the encoder that is used: the configuration's, if it fits the observations, or for "auto" what fits."""
    kind, fitting = config.encoder, encoder_for(spec)
    others = {"image": ["atari", "vector"], "grid": ["vector"]}.get(fitting, [])
    if kind == "auto":
        return fitting
    if kind in ENCODERS and kind not in (fitting, *others):
        accepted = " or ".join(repr(name) for name in (fitting, *others))
        raise UserError(f"network.encoder {kind!r} does not fit the observations of {spec.name!r}: choose {accepted}")
    return kind


def encoder_for(spec: EnvSpec) -> str:
    """Name of the encoder that fits an environment's observations."""
    observation = spec.observation
    if isinstance(observation, dict):
        return "hard-eight" if observation.keys() >= HARD_EIGHT_ENTRIES else "dict"
    shape, dtype = getattr(observation, "shape", None), getattr(observation, "dtype", None)
    if shape is not None and len(shape) == 1:
        return "vector"
    if shape is not None and len(shape) == 3 and dtype == jnp.uint8:
        return "grid" if shape[2] == 2 and max(shape) < SMALLEST_IMAGE else "image"
    raise UserError(f"no encoder fits the observations of {spec.name!r}: {observation}")


def make_representation(
    config: NetworkConfig, spec: EnvSpec, key: Array, encoder_size: int | None = None
) -> Representation:
    if config.core not in CORES:
        raise unknown("core", config.core, list(CORES))
    encoder_key, inputs_key, core_key = jax.random.split(key, 3)
    size = config.embedding_size if encoder_size is None else encoder_size
    core = CORES[config.core](config.belief_size, core_key)
    inputs = HardEightInputs if encoder_for(spec) == "hard-eight" else ActionInputs
    return Representation(
        encoder=make_encoder(config, spec, encoder_key, size),
        inputs=inputs(
            size, core.gates, spec.action, inputs_key, action_size=config.action_size, bins=config.action_bins
        ),
        core=core,
    )


def make_actor(config: NetworkConfig, spec: EnvSpec, key: Array, *, own_world: bool, world_size: int | None) -> Actor:
    representation, policy, world = jax.random.split(key, 3)
    return Actor(
        representation=make_representation(config, spec, representation),
        policy=PolicyHead(config.belief_size, config.policy_hidden, spec.action, policy),
        world=make_representation(config, spec, world, world_size) if own_world else None,
    )
