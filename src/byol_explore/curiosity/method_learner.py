"""An intrinsic method with its own representation and optimizer: uncertainties of sequences, and learner steps.

A `MethodLearner` is static and hashable, and its methods are pure functions of a `MethodLearnerState`. It reads nothing
of an agent: no policy, no reward. `Bonus` (functional) and `byol_explore.Curiosity` (a class that holds the state) make
sequences of transitions and share everything else here.

    learner = MethodLearner(Spaces(Vector(4), ActionSpec(discrete=(2,))))
    state = learner.init(key, observations)  # [n, ...] that differ: encoders are centred on them
    stream, carry = learner.init_stream(state, batch), learner.init_carry(state, batch)
    next_stream, carry, uncertainty = learner.stream_uncertainty(state, stream, carry, sequence)
    normalizer, reward = learner.update_and_normalize(state.reward_normalizer, uncertainty, sequence.valid)
    state = state._replace(reward_normalizer=normalizer)
    state, metrics = learner.update(state, stream, sequence)  # from the stream state before the sequence

Consecutive sequences of a stream overlap by one observation: the last observation of one is the first of the next. The
stream state is handed from one to the next, and is reset inside where an episode begins.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from byol_explore.config.overrides import override
from byol_explore.config.sections import AUTO, CuriosityConfig, NetworkConfig, OptimizerConfig
from byol_explore.curiosity.method import (
    BuildContext,
    IntrinsicMethod,
    MethodOutput,
    advance_state,
    compute_output,
    health_metrics,
)
from byol_explore.errors import UserError
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
from byol_explore.ops.arrays import masked_mean, where_batch
from byol_explore.registry import ENCODERS, METHODS
from byol_explore.spaces import HasSpaces
from byol_explore.types import Action, Array, PreviousStep, PyTree, SequenceBatch
from byol_explore.utils.validation import Positive, validate


@dataclass(frozen=True)
class MethodLearnerConfig:
    """Networks, method and optimizer, as in the trainer."""

    network: NetworkConfig = field(default_factory=NetworkConfig)
    curiosity: CuriosityConfig = field(default_factory=CuriosityConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    epochs: Positive[int] = 1
    """Passes over the sequences of a rollout."""


_Config = TypeVar("_Config", bound=MethodLearnerConfig)


def make_config(given: Any, default: _Config, what: str) -> _Config:
    """Check a configuration, or apply changes such as {"curiosity": {"horizon": 8}, "epochs": 2} to the default one.

    Args:
      given: a configuration of the default's class, a dict of changes, or None.
      default: configuration without changes.
      what: name of the argument, in messages.
    """
    if not isinstance(given, type(default) | Mapping | None):
        raise UserError(f"{what} is {given!r}: it must be a dict of settings, or None")
    changes: Any = given or {}
    config = override(default, dict(changes)) if isinstance(changes, Mapping) else changes
    validate(config)
    ENCODERS.check(config.network.encoder, AUTO)
    if config.network.use_prev_reward:
        raise UserError(
            "network.use_prev_reward is True: it must be False, because curiosity for other loops is not given "
            "extrinsic rewards"
        )
    return config


class MethodNetworks(eqx.Module):
    """Everything that gradients train."""

    representation: Representation
    method: IntrinsicMethod


class MethodLearnerState(NamedTuple):
    """Everything that learning changes, as one pytree."""

    networks: MethodNetworks
    obs_normalizer: ObservationNormalizer
    method_state: PyTree  # such as a target encoder or counts
    opt_state: optax.OptState
    reward_normalizer: rewards.RewardNormalizer


class StreamState(NamedTuple):
    """State of B streams between two sequences."""

    core: PyTree  # [B, ...] recurrent state before the next observation
    prev_action: Action  # [B, ...] the action that leads to it
    episodic_memory: PyTree = ()  # [B, ...] the method's memory of the current episode


class MethodLearner:
    """Computes uncertainties by one method, and trains it. Equal instances share their compiled programs.

    Args:
      spec: observation and action space.
      method: name or import path of an intrinsic method.
      config: networks, method and optimizer.
    """

    def __init__(
        self, spec: HasSpaces, method: str = "byol-explore", config: MethodLearnerConfig | None = None
    ) -> None:
        self.spec, self.method, self.config = spec, METHODS.get(method), config or MethodLearnerConfig()
        network, curiosity, optimizer = self.config.network, self.config.curiosity, self.config.optimizer
        self.optimizer, self.learning_rate = make_optimizer(optimizer), optimizer.learning_rate
        own_size, prioritize = curiosity.embedding_size, curiosity.prioritize
        self.embedding_size = network.embedding_size if own_size is None else own_size
        self.episodic_memory = self.method.episodic_memory(self.embedding_size)
        self.prioritizes = self.method.prioritized_by_default if prioritize is None else prioritize
        self._identity = repr(spec.observation), spec.action, self.method, self.config  # a dict of spaces has no hash

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, MethodLearner) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def init(self, key: Array, observation: PyTree) -> MethodLearnerState:
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
        networks = MethodNetworks(representation, method)
        method_state = method.init_state(context, representation.encoder, state_key)
        opt_state = self.optimizer.init(networks)  # pyright: ignore[reportArgumentType]
        return MethodLearnerState(networks, normalizer, method_state, opt_state, rewards.init_normalizer())

    def init_stream(self, state: MethodLearnerState, batch: int) -> StreamState:
        """Return the state of `batch` streams before their first observation."""
        zero = jax.tree.map(lambda x: jnp.broadcast_to(x, (batch, *x.shape)), self.spec.action.zero())
        core = state.networks.representation.core.initial_state((batch,))
        return StreamState(core, zero, self.episodic_memory.init(batch))

    def init_carry(self, state: MethodLearnerState, batch: int) -> PyTree:
        """Return the carry of the method (such as pending predictions) before the first sequence of streams."""
        return state.networks.method.init_carry(batch)

    def forward(
        self, networks: MethodNetworks, state: MethodLearnerState, stream: StreamState, sequence: SequenceBatch
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
        self, state: MethodLearnerState, stream: StreamState, carry: PyTree, sequence: SequenceBatch
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
        self, state: MethodLearnerState, stream: StreamState, sequence: SequenceBatch
    ) -> tuple[MethodLearnerState, dict[str, Array]]:
        """Take one learner step.

        Args:
          state: parameters and statistics.
          stream: [B, ...] stream state before the sequences.
          sequence: [T, B, ...] raw observations, and actions [T-1, B, ...].
        Returns:
          The new state, whose reward normalizer is unchanged, and metrics by name.
        """

        def loss(networks: MethodNetworks) -> tuple[Array, tuple[RepresentationOutput, SequenceBatch, MethodOutput]]:
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


def learn_sequences(
    learner: MethodLearner, state: MethodLearnerState, starts: StreamState, sequences: SequenceBatch, key: Array,
    minibatches: int,
) -> tuple[MethodLearnerState, dict[str, Array]]:  # fmt: skip
    """Perform all learner steps of a rollout, inside jit: `epochs` passes, each in minibatches of whole sequences.

    A learner step is skipped if its minibatch has no transition, or if its loss or gradient is not finite.

    Args:
      learner: method, networks and settings.
      state: parameters and statistics.
      starts: [chunks, B, ...] stream states before the sequences.
      sequences: [chunks, T, B, ...] with padding.
      key: random key of the order of sequences.
      minibatches: learner steps per epoch.
    Returns:
      The new state; and metrics, averaged over the steps, with the number of `skipped_updates`.
    """
    starts, merged = _merge_chunks(starts, 1), _merge_chunks(sequences, 2)

    def one_step(state: MethodLearnerState, chosen: tuple[Array, Array] | None) -> tuple[MethodLearnerState, Any]:
        before, batch = (starts, merged) if chosen is None else _minibatch(starts, merged, *chosen)
        after, metrics = learner.update(state, before, batch)
        is_finite = jnp.isfinite(metrics["loss_curiosity"]) & jnp.isfinite(metrics["grad_norm"])
        applied = is_finite & jnp.any(batch.valid)
        return jax.tree.map(lambda new, old: jnp.where(applied, new, old), after, state), (metrics, applied)

    epochs = learner.config.epochs
    if minibatches == 1:  # the order does not matter
        state, (metrics, applied) = jax.lax.scan(lambda state, _: one_step(state, None), state, length=epochs)
    else:
        used = merged.observed[1]  # [n] sequences with a transition
        chosen = jax.vmap(lambda key: _deal(key, used, minibatches))(jax.random.split(key, epochs))
        chosen = jax.tree.map(lambda x: x.reshape(-1, x.shape[-1]), chosen)  # [epochs * minibatches, size]
        state, (metrics, applied) = jax.lax.scan(one_step, state, chosen)
    means = {
        name: jax.vmap(masked_mean, (-1, None))(x.reshape(len(x), -1), applied).reshape(x.shape[1:])
        for name, x in metrics.items()
    }
    return state, {**means, "skipped_updates": jnp.sum(~applied)}


def _merge_chunks(tree: PyTree, axis: int) -> PyTree:
    """Merge axis 0 of arrays into the axis of streams: [chunks, ..., B, ...] to [..., B * chunks, ...]."""
    # Streams may be spread over devices, and only the outer one of two merged axes stays spread.

    def merge(x: Array) -> Array:
        x = jnp.moveaxis(x, 0, axis)
        return x.reshape(*x.shape[: axis - 1], x.shape[axis - 1] * x.shape[axis], *x.shape[axis + 1 :])

    return jax.tree.map(merge, tree)


def _deal(key: Array, used: Array, minibatches: int) -> tuple[Array, Array]:
    """Deal sequences to minibatches in random order, those with transitions evenly.

    Args:
      key: random key.
      used: [n] sequences that have a transition.
      minibatches: M.
    Returns:
      Indices [M, ceil(n / M)] of sequences, and the mask of those that exist.
    """
    count = len(used)
    size = -(-count // minibatches)
    order = jnp.argsort(jnp.where(used, jax.random.uniform(key, (count,)), 2.0))
    order = jnp.pad(order, (0, minibatches * size - count)).reshape(size, minibatches)
    exists = jnp.arange(minibatches * size).reshape(size, minibatches) < count
    return order.T, exists.T


def _minibatch(
    starts: StreamState, sequences: SequenceBatch, chosen: Array, exists: Array
) -> tuple[StreamState, SequenceBatch]:
    """Return the chosen sequences [T, n, ...] and the stream states before them; padding where `exists` is False."""
    picked = jax.tree.map(lambda x: x[:, chosen], sequences)
    picked = picked._replace(is_first=picked.is_first | ~exists, padding=picked.padding | ~exists)
    return jax.tree.map(lambda x: x[chosen], starts), picked
