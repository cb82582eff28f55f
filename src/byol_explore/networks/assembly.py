"""The agent's networks put together from a configuration."""

from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp

from byol_explore.errors import unknown
from byol_explore.networks.choosing import make_encoder, sensed_entries
from byol_explore.networks.cores import CORES, Core, closed_loop, reset_where
from byol_explore.networks.heads import PolicyHead
from byol_explore.networks.inputs import ActionInputs, Inputs, SenseInputs
from byol_explore.networks.layers import MLP
from byol_explore.networks.normalizing import ObservationNormalizer
from byol_explore.networks.recall import NOTHING, Recall
from byol_explore.ops.batches import flat, timed
from byol_explore.settings.parts import NetworkConfig
from byol_explore.spaces import Interface
from byol_explore.types import Action, Array, Before, Encoder, Memory, PyTree, Sequence, Trajectory


class View(NamedTuple):
    """A sequence seen through a representation."""

    embedding: Array  # [T, B, N]
    state: PyTree  # [T, B, ...] of the core
    belief: Array  # [T, B, M]
    episode: PyTree = ()  # [B, ...] what was remembered of the episode under way before the first observation


class Representation(eqx.Module):
    """Encoder and closed-loop core: b_t = h_c(b_{t-1}, a_{t-1}, f(o_t)) (section 3.2 i)."""

    encoder: Encoder
    inputs: Inputs
    core: Core

    def embed(self, observation: PyTree) -> Array:
        """All [T, B] observations encoded in one call."""
        steps = jax.tree.leaves(observation)[0].shape[0]
        return timed(self.encoder(jax.tree.map(flat, observation)), steps)

    def unroll(self, sequence: Sequence, before: Before, state: PyTree) -> View:
        """Along a sequence, from the core's state before its first observation."""
        embedding = self.embed(sequence.observation)
        projected = self.inputs(embedding, sequence.observation, before.action, before.reward, sequence.is_first)
        states = closed_loop(self.core, projected, sequence.is_first, state)
        return View(embedding, states, self.core.belief(states))

    def step(
        self, state: PyTree, observation: PyTree, action: Action, reward: Array, is_first: Array
    ) -> tuple[PyTree, Array]:
        """One observation [B, ...] further: the core's state, and the embedding [B, N]."""
        embedding = self.encoder(observation)
        projected = self.inputs(embedding, observation, action, reward, is_first)
        return self.core.step(reset_where(self.core, is_first, state), projected), embedding


class Actor(eqx.Module):
    """What acting needs of the networks: the learner copies it from the online networks every few steps."""

    normalizer: ObservationNormalizer  # what every other part sees has gone through it
    representation: Representation
    policy: PolicyHead
    curious: Representation | None  # the curiosity's own representation, when it does not share the policy's
    recall: Recall = eqx.field(static=True, default=NOTHING)  # how the curiosity remembers episodes

    @property
    def curious_encoder(self) -> Encoder:
        """The encoder that the curiosity reads: its own, or the policy's when they share."""
        return self.representation.encoder if self.curious is None else self.curious.encoder

    def having_seen(self, observation: PyTree) -> Self:
        """With these observations in the statistics of vectors."""
        return eqx.tree_at(lambda actor: actor.normalizer, self, self.normalizer.moved(observation))

    def normalized(self, trajectory: Trajectory) -> Trajectory:
        """A trajectory as the networks see it."""
        return trajectory._replace(observation=self.normalizer(trajectory.observation))

    def initial_memory(self, spec: Interface, batch: int) -> Memory:
        zero = jax.tree.map(lambda x: jnp.broadcast_to(x, (batch, *x.shape)), spec.action.zero())
        return Memory(
            core=self.representation.core.initial_state((batch,)),
            curious=() if self.curious is None else self.curious.core.initial_state((batch,)),
            action=zero,
            reward=jnp.zeros((batch,)),
            episode=self.recall.blank(batch),
        )


class Networks(eqx.Module):
    """All that gradients train, but for the dual variables."""

    actor: Actor
    value: MLP  # its outputs, one per task, are in PopArt's normalised units
    curiosity: Any  # a curiosity.base.Curiosity


def make_inputs(config: NetworkConfig, spec: Interface, size: int, gates: int, key: Array) -> Inputs:
    """What the core reads: embedding and action, and what the configuration names besides."""
    shared: dict[str, Any] = {"action_size": config.action_size, "bins": config.action_bins}
    senses = sensed_entries(config, spec)
    if not senses and not config.reads_reward and config.mix_size is None:
        return ActionInputs(size, gates, spec.action, key, **shared)
    return SenseInputs(
        size, gates, spec.action, key, **shared, senses=senses, sense_size=config.sense_size,
        reads_reward=config.reads_reward, mix_size=config.mix_size,
    )  # fmt: skip


def make_representation(
    config: NetworkConfig, spec: Interface, key: Array, encoder_size: int | None = None
) -> Representation:
    if config.core not in CORES:
        raise unknown("core", config.core, list(CORES))
    encoder_key, inputs_key, core_key = jax.random.split(key, 3)
    size = config.embedding_size if encoder_size is None else encoder_size
    core = CORES[config.core](config.belief_size, core_key)
    return Representation(
        encoder=make_encoder(config, spec, encoder_key, size),
        inputs=make_inputs(config, spec, size, core.gates, inputs_key),
        core=core,
    )


def make_actor(
    config: NetworkConfig, spec: Interface, key: Array, *, apart: bool, apart_size: int | None, recall: Recall = NOTHING
) -> Actor:
    representation, policy, curious = jax.random.split(key, 3)
    return Actor(
        normalizer=ObservationNormalizer(spec.observation, normalizes=config.normalize_vectors),
        representation=make_representation(config, spec, representation),
        policy=PolicyHead(config.belief_size, config.policy_hidden, spec.action, policy),
        curious=make_representation(config, spec, curious, apart_size) if apart else None,
        recall=recall,
    )
