"""The network tree: representation (encoder and core), policy head, actor, and everything that gradients train.

`Actor` is the part that acting needs. `Networks` adds the value head and the curiosity method; the learner trains it.
"""

from typing import Any, NamedTuple, Self, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Float

from byol_explore.config.sections import NetworkConfig, OptimizerConfig
from byol_explore.errors import unknown_name
from byol_explore.networks.core_inputs import CoreInputs
from byol_explore.networks.cores import CORES, Core, closed_loop, reset_where
from byol_explore.networks.encoders import ObservationEncoder, make_encoder
from byol_explore.networks.episodic_memory import NO_MEMORY, EpisodicMemory
from byol_explore.networks.layers import MLP, ObservationNormalizer
from byol_explore.ops.arrays import merge_time_batch, split_time_batch
from byol_explore.spaces import ActionSpec, HasSpaces
from byol_explore.types import (
    Action,
    Array,
    Encoder,
    Policy,
    PreviousStep,
    PyTree,
    RecurrentState,
    SequenceBatch,
    Trajectory,
)


class PolicyHead(eqx.Module):
    """Map a belief to the distribution of a hybrid action.

    All components share the hidden layers; each is a linear projection of the last one.

    Args:
      inputs: M, length of the belief.
      hidden: sizes of the hidden layers.
      spec: action space with D discrete components and C continuous dimensions.
      scale: factor of the last layer's initial weights.
      min_stddev: added to the standard deviation of continuous dimensions.
    """

    mlp: MLP
    spec: ActionSpec = eqx.field(static=True)
    min_stddev: float = eqx.field(static=True)

    def __init__(
        self, inputs: int, hidden: tuple[int, ...], spec: ActionSpec, key: Array, *,
        scale: float = 1.0, min_stddev: float = 1e-3,
    ) -> None:  # fmt: skip
        outputs = sum(spec.discrete) + 2 * spec.continuous
        self.mlp = MLP(inputs, hidden, outputs, key, scale=scale)
        self.spec, self.min_stddev = spec, min_stddev

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Policy:
        """Return a Policy: logits [..., n_i] per discrete component, mean and standard deviation [..., C]."""
        y = self.mlp(x)
        logits, start = [], 0
        for categories in self.spec.discrete:
            logits.append(y[..., start : start + categories])
            start += categories
        mean, spread = jnp.split(y[..., start:], 2, axis=-1)
        # softplus(0.54) = 1: a fresh policy spans the bounds.
        return Policy(tuple(logits), mean, jax.nn.softplus(spread + 0.54) + self.min_stddev)


class RepresentationOutput(NamedTuple):
    """Embeddings and beliefs of a batch of sequences."""

    embedding: Array  # [T, B, N]
    core_state: PyTree  # [T, B, ...] recurrent state after o_t
    belief: Array  # [T, B, M]
    episodic_memory: PyTree = ()  # [B, ...] memory of the current episode before the first observation


class Representation(eqx.Module):
    """Encoder and closed-loop core: b_t = h_c(b_{t-1}, a_{t-1}, f(o_t)) (section 3.2 i)."""

    encoder: ObservationEncoder
    inputs: CoreInputs
    core: Core

    def embed(self, observation: PyTree) -> Array:
        """Encode observations [T, B, ...] in one call. Returns embeddings [T, B, N]."""
        steps = jax.tree.leaves(observation)[0].shape[0]
        return split_time_batch(self.encoder(jax.tree.map(merge_time_batch, observation)), steps)

    def unroll(self, sequence: SequenceBatch, previous: PreviousStep, state: PyTree) -> RepresentationOutput:
        """Embed sequences and run the closed-loop core along them.

        Args:
          sequence: observations [T, B, ...] and `is_first` [T, B]; the core is reset where `is_first` is True.
          previous: action and reward [T, B] before each observation.
          state: [B, ...] recurrent state before the first observation.
        Returns:
          RepresentationOutput without episodic memory.
        """
        embedding = self.embed(sequence.observation)
        projected = self.inputs(embedding, sequence.observation, previous.action, previous.reward, sequence.is_first)
        states = closed_loop(self.core, projected, sequence.is_first, state)
        return RepresentationOutput(embedding, states, self.core.belief(states))

    def step(
        self, state: PyTree, observation: PyTree, action: Action, reward: Array, is_first: Array
    ) -> tuple[PyTree, Array]:
        """Advance the core by one observation.

        Args:
          state: [B, ...] recurrent state before the observation.
          observation: [B, ...] o_t.
          action: [B, ...] a_{t-1}.
          reward: [B] r_{t-1}.
          is_first: [B] True where o_t begins an episode.
        Returns:
          Recurrent state [B, ...] after o_t, and the embedding f(o_t) [B, N].
        """
        embedding = self.encoder(observation)
        projected = self.inputs(embedding, observation, action, reward, is_first)
        return self.core.step(reset_where(self.core, is_first, state), projected), embedding


class Actor(eqx.Module):
    """The networks that acting needs. Actors get a copy of the learner's every few updates."""

    obs_normalizer: ObservationNormalizer  # applied before every other part
    representation: Representation
    policy_head: PolicyHead
    curiosity_representation: Representation | None  # None if the curiosity shares the policy's representation
    episodic_memory: EpisodicMemory = eqx.field(static=True, default=NO_MEMORY)

    @property
    def curiosity_encoder(self) -> Encoder:
        """The encoder that the curiosity reads: its own, or the policy's if they share."""
        return (self.curiosity_representation or self.representation).encoder

    def update_obs_stats(self, observation: PyTree) -> Self:
        """Add observations [..., *shape] to the statistics of the observation normalizer."""
        return eqx.tree_at(lambda actor: actor.obs_normalizer, self, self.obs_normalizer.update(observation))

    def normalize(self, trajectory: Trajectory) -> Trajectory:
        """Normalise the observations of a trajectory."""
        return trajectory._replace(observation=self.obs_normalizer(trajectory.observation))

    def initial_state(self, spec: HasSpaces, batch: int) -> RecurrentState:
        """Return the recurrent state [B, ...] before the first observation."""
        curious = self.curiosity_representation
        return RecurrentState(
            policy_core=self.representation.core.initial_state((batch,)),
            curiosity_core=() if curious is None else curious.core.initial_state((batch,)),
            prev_action=jax.tree.map(lambda x: jnp.broadcast_to(x, (batch, *x.shape)), spec.action.zero()),
            prev_reward=jnp.zeros((batch,)),
            episodic_memory=self.episodic_memory.init(batch),
        )


class Networks(eqx.Module):
    """Everything that gradients train, except the dual variables."""

    actor: Actor
    value_head: MLP  # one output per task, in PopArt's normalised units
    curiosity: Any  # an IntrinsicMethod


def make_representation(
    config: NetworkConfig, spec: HasSpaces, key: Array, encoder_size: int | None = None
) -> Representation:
    """Build encoder and core. `encoder_size` replaces `config.embedding_size`."""
    if config.core not in CORES:
        raise unknown_name("core", config.core, list(CORES))
    encoder_key, inputs_key, core_key = jax.random.split(key, 3)
    size = config.embedding_size if encoder_size is None else encoder_size
    core = CORES[config.core](config.belief_size, core_key)
    return Representation(
        encoder=make_encoder(config, spec, encoder_key, size),
        inputs=CoreInputs(config, spec, size, core.gate_size, inputs_key),
        core=core,
    )


def make_actor(
    config: NetworkConfig,
    spec: HasSpaces,
    key: Array,
    *,
    own_representation: bool,
    curiosity_size: int | None = None,
    episodic_memory: EpisodicMemory = NO_MEMORY,
) -> Actor:
    """Build an actor.

    Args:
      config: sizes of the networks.
      spec: observation and action space.
      key: random key.
      own_representation: give the curiosity a representation of its own, not the policy's.
      curiosity_size: length of the embeddings of the curiosity's own representation, if not `embedding_size`.
      episodic_memory: memory of the current episode that the curiosity method needs.
    """
    policy_key, head_key, curiosity_key = jax.random.split(key, 3)
    return Actor(
        obs_normalizer=ObservationNormalizer(spec.observation, normalizes=config.normalize_vectors),
        representation=make_representation(config, spec, policy_key),
        policy_head=PolicyHead(config.belief_size, config.policy_hidden, spec.action, head_key),
        curiosity_representation=(
            make_representation(config, spec, curiosity_key, curiosity_size) if own_representation else None
        ),
        episodic_memory=episodic_memory,
    )


_Networks = TypeVar("_Networks")


def make_optimizer(config: OptimizerConfig) -> optax.GradientTransformation:
    """Build Adam's update direction, after clipping by the global norm. The learning rate is not applied."""
    clip = config.max_grad_norm
    # One vector of all parameters: a few large operations instead of a few for each array.
    return optax.flatten(
        optax.chain(
            optax.clip_by_global_norm(clip) if clip > 0 else optax.identity(),
            optax.scale_by_adam(b1=config.b1, b2=config.b2),
        )
    )


def apply_direction(networks: _Networks, direction: PyTree, learning_rate: Array | float) -> _Networks:
    """Move parameters by -learning_rate * direction."""
    return optax.apply_updates(networks, jax.tree.map(lambda x: -learning_rate * x, direction))  # pyright: ignore[reportReturnType, reportArgumentType]
