"""The protocol of intrinsic methods, checks of what they return, and metrics of their health.

A method reads sequences of observations and actions, and nothing of the agent that chose the actions. The method itself
is an Equinox module: gradients train it. Its state is a pytree that gradients do not train (a target network, counts,
running statistics): `init_state` makes it, and `update_state` may change it after every learner step.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from byol_explore.config.sections import CuriosityConfig, NetworkConfig
from byol_explore.errors import UserError, missing_method
from byol_explore.networks.episodic_memory import NO_MEMORY, EpisodicMemory
from byol_explore.networks.layers import trainable
from byol_explore.networks.representation import RepresentationOutput
from byol_explore.ops import world_model
from byol_explore.ops.arrays import masked_mean
from byol_explore.spaces import ActionSpec
from byol_explore.types import Array, Encoder, PyTree, SequenceBatch


class MethodOutput(NamedTuple):
    """Loss and uncertainties of a batch of sequences."""

    loss: Array  # [] to be minimised
    uncertainty: Array  # [T-1, B] raw, of each transition; no gradient flows through it
    metrics: dict[str, Array]  # "prediction_error" [K] by horizon; if absent, it is the mean uncertainty


class BuildContext(NamedTuple):
    """Everything that a method may be built from."""

    observation: PyTree  # space of one observation
    action: ActionSpec
    network: NetworkConfig
    config: CuriosityConfig
    embedding_size: int  # N of the representation that the method reads
    make_encoder: Callable[[Array], Encoder]  # from a key; the encoder has random weights and is centred
    epochs: int = 1  # passes over every sequence


class IntrinsicMethod(eqx.Module):
    """Base class of methods. Class variables describe a method, so that no other code asks for its name."""

    prioritized_by_default: ClassVar[bool] = False  # default of `curiosity.prioritize`
    uses_representation: ClassVar[bool] = True  # if False, it reads observations through its own networks
    scale_invariant_loss: ClassVar[bool] = False  # the loss does not depend on the length of embeddings
    has_reward: ClassVar[bool] = True  # if False, the uncertainty is always 0
    # Predicts embeddings of an encoder that gradients do not train. `update_state` must then accept a batch without
    # arrays: the doctor calls it so to measure how far one update moves the target.
    has_target_encoder: ClassVar[bool] = False
    has_ema_target: ClassVar[bool] = False  # that encoder follows the representation's by `curiosity.target_decay`
    uses_batch_negatives: ClassVar[bool] = False  # the loss of a transition depends on other batch elements
    config_fields: ClassVar[tuple[str, ...]] = ("prioritize",)  # fields of `CuriosityConfig` that it reads

    @classmethod
    def create(cls, context: BuildContext, key: Array) -> Self:
        """Build the method. A method without fields, that has nothing to train, need not define this.

        Args:
          context: spaces, settings and sizes.
          key: random key of the initial parameters.
        """
        if fields(cls):
            raise missing_method("method", cls, "create")
        return cls()

    @classmethod
    def episodic_memory(cls, embedding_size: int) -> EpisodicMemory:
        """Return the rules of the method's memory of an episode; `view.episodic_memory` is its state.

        Args:
          embedding_size: N, length of the embeddings that are remembered.
        """
        return NO_MEMORY

    def init_state(self, context: BuildContext, encoder: Encoder, key: Array) -> PyTree:
        """Return the state before the first learner step.

        Args:
          context: spaces, settings and sizes.
          encoder: online encoder of the representation that the method reads.
          key: random key, other than that of `create`.
        """
        return ()

    def __call__(self, state: PyTree, view: RepresentationOutput, sequence: SequenceBatch) -> MethodOutput:
        """Compute the loss and the uncertainties of a batch of sequences.

        Args:
          state: made by `init_state` or `update_state`.
          view: embeddings [T, B, N] and beliefs [T, B, M] of the sequences.
          sequence: observations [T, B, ...], actions [T-1, B, ...] and episode starts [T, B].
        Returns:
          MethodOutput with uncertainties [T-1, B].
        """
        raise missing_method("method", type(self), "__call__")

    def init_carry(self, batch: int) -> PyTree:
        """Return the carry of `stream_uncertainty` before the first of `batch` sequences side by side."""
        return ()

    def stream_uncertainty(
        self, state: PyTree, carry: PyTree, view: RepresentationOutput, sequence: SequenceBatch
    ) -> tuple[PyTree, Array]:
        """Compute uncertainties of sequences that continue streams, as if each stream were one sequence.

        A method whose uncertainties depend on more than one transition overrides this and `init_carry`. Nothing is
        trained here.

        Args:
          state: made by `init_state` or `update_state`.
          carry: returned for the sequences before, or by `init_carry`.
          view: embeddings [T, B, N] and beliefs [T, B, M] of the sequences.
          sequence: observations [T, B, ...], actions [T-1, B, ...] and episode starts [T, B].
        Returns:
          The carry for the sequences that follow, and uncertainties [T-1, B].
        """
        return carry, self(state, view, sequence).uncertainty

    def update_state(self, state: PyTree, encoder: Encoder, sequence: SequenceBatch) -> PyTree:
        """Return the state after a learner step, with the same structure, shapes and dtypes.

        Args:
          state: before the learner step.
          encoder: online encoder after it.
          sequence: the sequences that were learned from, [T, B, ...].
        """
        return state

    def target_encoder(self, state: PyTree) -> Encoder:
        """Return the target encoder of a method that has one: the state, unless the state holds more."""
        return state


def compute_output(
    method: IntrinsicMethod, state: PyTree, view: RepresentationOutput, sequence: SequenceBatch
) -> MethodOutput:
    """Call a method. Raise a UserError if its output has another type or other shapes than it should.

    Args:
      method: the method.
      state: its state.
      view: embeddings [T, B, N] and beliefs [T, B, M] of the sequences.
      sequence: observations [T, B, ...], actions [T-1, B, ...] and episode starts [T, B].
    Returns:
      MethodOutput with uncertainties [T-1, B] and the metric "prediction_error".
    """
    output, name = method(state, view, sequence), type(method).__name__
    if not isinstance(output, MethodOutput):
        raise UserError(f"method {name} returns a {type(output).__name__}: it must return a MethodOutput")
    expected = {"a loss": (output.loss, ()), "an uncertainty": (output.uncertainty, sequence.valid.shape)}
    for what, (array, shape) in expected.items():
        if array.shape != shape:
            raise UserError(f"method {name} returns {what} of shape {array.shape}: it must be {shape}")
    mean = masked_mean(output.uncertainty, sequence.valid)
    return output._replace(metrics={"prediction_error": mean[None], **output.metrics})


def advance_state(method: IntrinsicMethod, state: PyTree, encoder: Encoder, sequence: SequenceBatch) -> PyTree:
    """Call `update_state`. Raise a UserError if the new state differs in structure, shapes or dtypes."""
    after = method.update_state(state, encoder, sequence)
    old, new = (jax.tree.flatten(jax.tree.map(lambda x: f"{x.dtype}{x.shape}", tree)) for tree in (state, after))
    if new != old:
        name = type(method).__name__
        raise UserError(f"method {name}: update_state returns other structures, shapes or dtypes than init_state")
    return after


# A normally distributed reward that is divided by its standard deviation and clipped at its mean is 0.4 on average. All
# clipped runs had 0.3 to 0.4 once their statistics fitted. With a deviation ten times too large, a tenth remains.
MIN_ACTIVE_REWARD = 0.04


def prediction_error_growth(errors: Sequence[float]) -> float | None:
    """Divide the error of the longest horizon by that of the shortest; None if fewer than two are known.

    Args:
      errors: [K] mean prediction errors by horizon.
    """
    # A world model that has learned is less certain of what lies further ahead. Embeddings that have collapsed are
    # equally easy to predict at every horizon. An error of exactly 0 means that all episodes are shorter than k.
    known = [error for error in errors if error > 0.0]
    return known[-1] / known[0] if len(known) > 1 else None


def health_metrics(
    method: IntrinsicMethod, state: PyTree, encoder: Encoder, embedding: Array, observed: Array | None = None
) -> dict[str, Array]:
    """Measure how much embeddings differ, and how far the target encoder is from the online one.

    embedding_spread = 1 - |mean of f / |f||^2:  0 if all embeddings have one direction, near 1 if they are spread out.

    Args:
      method: the method.
      state: its state.
      encoder: online encoder.
      embedding: [T, B, N].
      observed: [T, B] False for padding; None without padding.
    """
    unit = world_model.l2_normalize(embedding)
    mask = jnp.ones(unit.shape[:-1], bool) if observed is None else observed
    mean = jax.vmap(masked_mean, (-1, None))(unit, mask)
    metrics = {"embedding_spread": 1.0 - jnp.sum(jnp.square(mean))}
    if method.has_target_encoder and method.uses_representation:
        difference = jax.tree.map(jnp.subtract, method.target_encoder(state), encoder)
        distance = optax.tree.norm(trainable(difference)) / optax.tree.norm(trainable(encoder))
        metrics["target_relative_distance"] = distance
    return jax.tree.map(jax.lax.stop_gradient, metrics)


class NoCuriosity(IntrinsicMethod):
    """No loss and no uncertainty."""

    has_reward = False
    config_fields = ()

    def __call__(self, state: tuple[()], view: RepresentationOutput, sequence: SequenceBatch) -> MethodOutput:
        return MethodOutput(jnp.zeros(()), jnp.zeros(sequence.valid.shape), {})
