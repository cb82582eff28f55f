"""Intrinsic rewards for streams of transitions of any agent: a method with its own representation and optimizer.

A `Bonus` is static and hashable, and its methods are pure functions of a `BonusState`, so they can be jitted, vmapped
and saved. It reads nothing of an agent: no policy, no reward. `byol_explore.Curiosity` is a class that holds the state.

    bonus = Bonus(Spaces(Vector(4), ActionSpec(discrete=(2,))))
    state = bonus.init(key, observations)  # [n, ...] that differ: encoders are centred on them
    stream, carry = bonus.init_stream(state, batch), bonus.init_carry(state, batch)
    next_stream, carry, uncertainty = bonus.stream_uncertainty(state, stream, carry, sequence)
    normalizer, reward = bonus.update_and_normalize(state.reward_normalizer, uncertainty, sequence.valid)
    state = state._replace(reward_normalizer=normalizer)
    state, metrics = bonus.update(state, stream, sequence)  # from the stream state before the sequence

Consecutive sequences of a stream overlap by one observation: the last observation of one is the first of the next. The
stream state is handed from one to the next, and is reset inside where an episode begins.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from byol_explore.config.sections import CuriosityConfig, NetworkConfig, OptimizerConfig
from byol_explore.curiosity.method import (
    BuildContext,
    IntrinsicMethod,
    MethodOutput,
    advance_state,
    compute_output,
    health_metrics,
)
from byol_explore.networks.centering import center_encoders
from byol_explore.networks.encoders import make_encoder
from byol_explore.networks.layers import ObservationNormalizer
from byol_explore.networks.representation import (
    Representation,
    RepresentationOutput,
    apply_direction,
    make_optimizer,
    make_representation,
)
from byol_explore.ops import rewards
from byol_explore.ops.arrays import where_batch
from byol_explore.registry import METHODS
from byol_explore.spaces import HasSpaces
from byol_explore.types import Action, Array, PreviousStep, PyTree, SequenceBatch
from byol_explore.utils.validation import Positive


@dataclass(frozen=True)
class BonusConfig:
    """Networks, method and optimizer, as in the trainer."""

    network: NetworkConfig = field(default_factory=NetworkConfig)
    curiosity: CuriosityConfig = field(default_factory=CuriosityConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    epochs: Positive[int] = 1
    """Passes over the sequences of a rollout."""


class BonusNetworks(eqx.Module):
    """Everything that gradients train."""

    representation: Representation
    method: IntrinsicMethod


class BonusState(NamedTuple):
    """Everything that learning changes, as one pytree."""

    networks: BonusNetworks
    obs_normalizer: ObservationNormalizer
    method_state: PyTree  # such as a target encoder or counts
    opt_state: optax.OptState
    reward_normalizer: rewards.RewardNormalizer


class StreamState(NamedTuple):
    """State of B streams between two sequences."""

    core: PyTree  # [B, ...] recurrent state before the next observation
    prev_action: Action  # [B, ...] the action that leads to it
    episodic_memory: PyTree = ()  # [B, ...] the method's memory of the current episode


class Bonus:
    """Intrinsic rewards by one method. Equal instances share their compiled programs.

    Args:
      spec: observation and action space.
      method: name or import path of an intrinsic method.
      config: networks, method and optimizer.
    """

    def __init__(self, spec: HasSpaces, method: str = "byol-explore", config: BonusConfig | None = None) -> None:
        self.spec, self.method, self.config = spec, METHODS.get(method), config or BonusConfig()
        network, curiosity, optimizer = self.config.network, self.config.curiosity, self.config.optimizer
        self.optimizer, self.learning_rate = make_optimizer(optimizer), optimizer.learning_rate
        own_size, prioritize = curiosity.embedding_size, curiosity.prioritize
        self.embedding_size = network.embedding_size if own_size is None else own_size
        self.episodic_memory = self.method.episodic_memory(self.embedding_size)
        self.prioritizes = self.method.prioritized_by_default if prioritize is None else prioritize
        self._identity = repr(spec.observation), spec.action, self.method, self.config  # a dict of spaces has no hash

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Bonus) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def init(self, key: Array, observation: PyTree) -> BonusState:
        """Initialise networks and statistics.

        Args:
          key: random key.
          observation: [n, ...] raw observations, on which encoders are centred; they should differ from each other.
        """
        config, spec, size = self.config, self.spec, self.embedding_size
        representation_key, method_key, state_key = jax.random.split(key, 3)
        normalizer = ObservationNormalizer(spec.observation, normalizes=config.network.normalize_vectors)
        normalizer = normalizer.update(observation)
        normalized = normalizer(observation)

        def center(tree: PyTree) -> PyTree:
            if not config.network.center_encoders:
                return tree
            return center_encoders(tree, normalized, scaled=self.method.scale_invariant_loss)

        representation = center(make_representation(config.network, spec, representation_key, size))
        context = BuildContext(
            spec.observation, spec.action, config.network, config.curiosity, size,
            lambda key: center(make_encoder(config.network, spec, key, size)),
            config.epochs,
        )  # fmt: skip
        method = self.method.create(context, method_key)
        networks = BonusNetworks(representation, method)
        method_state = method.init_state(context, representation.encoder, state_key)
        opt_state = self.optimizer.init(networks)  # pyright: ignore[reportArgumentType]
        return BonusState(networks, normalizer, method_state, opt_state, rewards.init_normalizer())

    def init_stream(self, state: BonusState, batch: int) -> StreamState:
        """Return the state of `batch` streams before their first observation."""
        zero = jax.tree.map(lambda x: jnp.broadcast_to(x, (batch, *x.shape)), self.spec.action.zero())
        core = state.networks.representation.core.initial_state((batch,))
        return StreamState(core, zero, self.episodic_memory.init(batch))

    def init_carry(self, state: BonusState, batch: int) -> PyTree:
        """Return the carry of the method (such as pending predictions) before the first sequence of streams."""
        return state.networks.method.init_carry(batch)

    def forward(
        self, networks: BonusNetworks, state: BonusState, stream: StreamState, sequence: SequenceBatch
    ) -> tuple[RepresentationOutput, SequenceBatch]:
        """Normalise sequences and pass them through the representation.

        Args:
          networks: those of the state, or others in their place to differentiate by.
          state: statistics of observations.
          stream: [B, ...] stream state before the sequences.
          sequence: [T, B, ...] raw observations, and actions [T-1, B, ...].
        Returns:
          RepresentationOutput [T, B, ...], and the sequences with normalised observations.
        """
        raw = sequence.observation
        sequence = sequence._replace(observation=state.obs_normalizer(raw), raw_observation=raw)
        representation, episodic_memory = networks.representation, stream.episodic_memory
        if not self.method.uses_representation:  # spend no time on the core: its state stays
            states = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(sequence.is_first), *x.shape)), stream.core)
            embedding = representation.embed(sequence.observation)
            belief = representation.core.belief(states)
            return RepresentationOutput(embedding, states, belief, episodic_memory), sequence
        action = jax.tree.map(lambda one, rest: jnp.concatenate([one[None], rest]), stream.prev_action, sequence.action)
        previous = PreviousStep(action, jnp.zeros(sequence.is_first.shape))
        view = representation.unroll(sequence, previous, stream.core)
        return view._replace(episodic_memory=episodic_memory), sequence

    def stream_uncertainty(
        self, state: BonusState, stream: StreamState, carry: PyTree, sequence: SequenceBatch
    ) -> tuple[StreamState, PyTree, Array]:
        """Compute the uncertainties of sequences that continue streams, as if each stream were one sequence.

        Args:
          state: parameters and statistics.
          stream: [B, ...] stream state before the sequences.
          carry: of the method, before the sequences.
          sequence: [T, B, ...] raw observations, and actions [T-1, B, ...].
        Returns:
          Stream state and carry for the sequences that follow, and uncertainties [T-1, B].
        """
        view, normalized = self.forward(state.networks, state, stream, sequence)
        carry, uncertainty = state.networks.method.stream_uncertainty(state.method_state, carry, view, normalized)
        memory, _ = self.episodic_memory.unroll(stream.episodic_memory, view.embedding, normalized)
        # The next sequences begin with the last observations of these: continue from the step before.
        count = jnp.sum(sequence.observed[1:], axis=0)  # [B] transitions
        last = (jnp.maximum(count - 1, 0), jnp.arange(len(count)))
        core, action = jax.tree.map(lambda x: x[last], (view.core_state, sequence.action))
        return where_batch(count > 0, StreamState(core, action, memory), stream), carry, uncertainty

    def update_and_normalize(
        self, normalizer: rewards.RewardNormalizer, uncertainty: Array, valid: Array, batches: Array | int = 1
    ) -> tuple[rewards.RewardNormalizer, Array]:
        """Update the running statistics with uncertainties, then normalise by them (section 3.3).

        Args:
          normalizer: running statistics.
          uncertainty: [S, B].
          valid: [S, B].
          batches: number of batches that these count as.
        Returns:
          The new statistics, and rewards [S, B], 0 where invalid.
        """
        decay = self.config.curiosity.normalizer_decay
        return rewards.update_and_normalize(normalizer, uncertainty, valid, decay, self.prioritizes, batches)

    def normalize(self, normalizer: rewards.RewardNormalizer, uncertainty: Array, valid: Array) -> Array:
        """Normalise uncertainties [S, B] to rewards, by statistics that have been updated at least once."""
        decay = self.config.curiosity.normalizer_decay
        return rewards.normalize(normalizer, uncertainty, valid, decay, self.prioritizes)

    def uncertainty_std(self, normalizer: rewards.RewardNormalizer) -> Array:
        """Return the running standard deviation that uncertainties are divided by."""
        return rewards.bias_corrected_std(normalizer.uncertainty, self.config.curiosity.normalizer_decay)

    def update(
        self, state: BonusState, stream: StreamState, sequence: SequenceBatch
    ) -> tuple[BonusState, dict[str, Array]]:
        """Take one learner step.

        Args:
          state: parameters and statistics.
          stream: [B, ...] stream state before the sequences.
          sequence: [T, B, ...] raw observations, and actions [T-1, B, ...].
        Returns:
          The new state, whose reward normalizer is unchanged, and metrics by name.
        """

        def loss(networks: BonusNetworks) -> tuple[Array, tuple[RepresentationOutput, SequenceBatch, MethodOutput]]:
            view, normalized = self.forward(networks, state, stream, sequence)
            output = compute_output(networks.method, state.method_state, view, normalized)
            return output.loss, (view, normalized, output)

        (_, (view, normalized, output)), gradient = jax.value_and_grad(loss, has_aux=True)(state.networks)
        direction, opt_state = self.optimizer.update(gradient, state.opt_state)
        networks = apply_direction(state.networks, direction, self.learning_rate)
        encoder, observed = networks.representation.encoder, sequence.observed
        after = state._replace(
            networks=networks,
            obs_normalizer=state.obs_normalizer.update(sequence.observation, observed),
            method_state=advance_state(networks.method, state.method_state, encoder, normalized),
            opt_state=opt_state,
        )
        old = state.networks
        health = health_metrics(old.method, state.method_state, old.representation.encoder, view.embedding, observed)
        metrics = {"loss_curiosity": output.loss, "grad_norm": optax.tree.norm(gradient)}
        return after, {**output.metrics, **health, **metrics}
