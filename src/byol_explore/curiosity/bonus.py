"""Intrinsic rewards for training loops that are one jitted function: `Bonus`.

    bonus = byol_explore.Bonus(spaces.Vector(4), spaces.ActionSpec((2,)), num_envs=64)
    state = bonus.init(key, obs, last_obs)
    state, curious = bonus.update(state, byol_explore.Transition(obs, action, done, next_obs))
    curious.reward  # [T, N], to be added to the rewards before returns are computed

A `Bonus` is static and hashable: close over it, or pass it as a static argument. Everything that changes is one pytree,
`BonusState`, and all methods are pure functions of it. `byol_explore.Curiosity` is a class that holds such a state for
loops outside jit; networks, losses, uncertainties and statistics of both are those of `MethodLearner`.

Two positions in the stream of transitions are kept, each with recurrent state: `update` continues where the latest
`update` ended; `rewards` and `step` continue where the latest call of any kind ended. So a loop may call `step` during
a rollout and then `update` with the same rollout. Predictions of `update` and `rewards` start at their first
transition, those of `step` at the latest `update`, `rewards` or episode start.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp

from byol_explore.curiosity.inputs import Transition, TransitionReader
from byol_explore.curiosity.method_learner import (
    MethodLearner,
    MethodLearnerConfig,
    MethodLearnerState,
    StreamState,
    learn_sequences,
    make_config,
)
from byol_explore.curiosity.stream import PackedStream, StreamPosition, cut_sequences, pack_stream
from byol_explore.errors import UserError
from byol_explore.networks.encoders import select_encoders
from byol_explore.ops.arrays import masked_mean
from byol_explore.registry import METHODS
from byol_explore.types import Array, PyTree, SequenceBatch
from byol_explore.utils.validation import NonNegative, Positive

Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True)
class BonusConfig(MethodLearnerConfig):
    """Settings of a `Bonus`: network, method, optimizer, and how a rollout becomes learner steps."""

    sequence_length: Positive[int] = 32
    """Transitions of the sequences that a rollout is cut into, approximately: they have equal lengths."""
    minibatches: Positive[int] = 1
    """Learner steps per epoch; sequences are dealt to them in random order."""
    max_episode_ends: NonNegative[int] = 4
    """Episode ends per environment and rollout whose last transition is rewarded; further ones are masked and counted
    in the metrics. Each adds a slot to the stream, so also to the costs."""


class BonusStream(NamedTuple):
    """Where the streams of N environments continue."""

    memory: StreamState  # [N, ...] recurrent state, previous action and episodic memory
    position: StreamPosition  # [N, ...] next observation


class BonusState(NamedTuple):
    """Everything that changes, as one pytree."""

    learner: MethodLearnerState  # networks, optimizer and statistics
    update_stream: BonusStream  # where `update` continues
    step_stream: BonusStream  # where `rewards` and `step` continue
    predictions: PyTree  # the method's carry from step to step, such as pending predictions
    key: Array  # of the order of sequences


class BonusOutput(NamedTuple):
    """Rewards of a rollout."""

    reward: Array  # [T, N] float32, normalised and perhaps clipped; 0 where masked
    uncertainty: Array  # [T, N] float32, raw; 0 where masked
    metrics: dict[str, Array]  # scalars, and "prediction_error" [K]


def _with_32_bits(method: Method) -> Method:
    """Compute with 32 bits, also if the caller has enabled 64 (`jax_enable_x64`)."""

    def narrow(x: Any) -> Any:
        if not isinstance(x, jax.Array) or jnp.issubdtype(x.dtype, jax.dtypes.prng_key) or x.dtype.itemsize < 8:
            return x
        return x.astype({"f": jnp.float32, "i": jnp.int32, "u": jnp.uint32}[x.dtype.kind])

    @wraps(method)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
            return method(*args, **kwargs)
        args, kwargs = jax.tree.map(narrow, (args, kwargs))
        with jax.enable_x64(False):
            return method(*args, **kwargs)

    return cast(Method, wrapped)


class Bonus:
    """Intrinsic rewards for the transitions of `num_envs` environments, inside jit.

    Actions of a Gymnasium space are native ones. Those of an `ActionSpec` are [T, N] or [T, N, D] whole numbers if it
    is discrete, [T, N, C] numbers from -1 to 1 if it is continuous, or an `Action` of both.

    >>> import jax, byol_explore
    >>> from byol_explore import spaces
    >>> bonus = byol_explore.Bonus(spaces.Vector(4), spaces.ActionSpec((2,)), num_envs=3, method="rnd")
    >>> obs = jax.random.normal(jax.random.key(0), (9, 3, 4))  # nine observations of three environments
    >>> state = jax.jit(bonus.init)(jax.random.key(1), obs.reshape(-1, 4), obs[0])
    >>> action, done = jax.numpy.zeros((8, 3), int), jax.numpy.zeros((8, 3), bool)
    >>> rollout = byol_explore.Transition(obs[:-1], action, done, next_obs=obs[1:])
    >>> state, curious = jax.jit(bonus.update)(state, rollout)
    >>> curious.reward.shape, int(curious.metrics["transitions"])
    ((8, 3), 24)

    Args:
      observation_space: a space of Gymnasium, or of `byol_explore.spaces`, of one environment.
      action_space: a space of Gymnasium, or an `ActionSpec`.
      num_envs: N, environments per step.
      method: byol-explore, byol-hindsight, rnd, icm, e3b, noveld, disagreement, counts, re3, ngu, none, or an import
        path.
      config: a BonusConfig, or changes of the defaults, such as {"curiosity": {"horizon": 8}, "epochs": 2}.
    """

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        num_envs: int,
        method: str = "byol-explore",
        config: BonusConfig | Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(num_envs, int) or isinstance(num_envs, bool) or num_envs < 1:
            raise UserError(f"num_envs is {num_envs!r}: it must be a whole number of at least 1")
        METHODS.check(method)
        self.num_envs, self.method, self.config = num_envs, method, make_config(config, BonusConfig(), "config")
        self.reader = TransitionReader(observation_space, action_space, num_envs)
        self.learner = MethodLearner(self.reader.spec, method, self.config)
        select_encoders(self.config.network, self.reader.spec)  # raises an error if no encoder reads the observations

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Bonus) and (self.reader, self.learner) == (other.reader, other.learner)

    def __hash__(self) -> int:
        return hash((self.reader, self.learner))

    def __repr__(self) -> str:
        return f"Bonus({self.reader.spec.observation}, {self.reader.spec.action}, {self.num_envs}, {self.method!r})"

    @_with_32_bits
    def init(self, key: Array, obs: PyTree, last_obs: PyTree) -> BonusState:
        """Return the state before the first transition.

        Args:
          key: random key of the initial parameters and of the order of sequences.
          obs: [n, ...] observations that differ from each other, such as those of a random policy. Encoders are centred
            on them.
          last_obs: [N, ...] observations that the streams begin with.
        """
        shape = jnp.shape(jax.tree.leaves(obs)[0])[:1] if jax.tree.leaves(obs) else ()
        init_key, order_key = jax.random.split(key)
        learner = self.learner.init(init_key, self.reader.observation(obs, "obs", shape or (1,)))
        position = StreamPosition(
            jnp.ones(self.num_envs, bool), self.reader.observation(last_obs, "last_obs", (self.num_envs,))
        )
        stream = BonusStream(self.learner.init_stream(learner, self.num_envs), position)
        predictions = self.learner.init_carry(learner, self.num_envs)
        # Copies, because a state that is donated must not hold a buffer twice.
        return BonusState(learner, stream, jax.tree.map(jnp.copy, stream), predictions, order_key)

    @_with_32_bits
    def update(
        self, state: BonusState, rollout: Transition, last_obs: PyTree | None = None
    ) -> tuple[BonusState, BonusOutput]:
        """Compute the intrinsic rewards of a rollout, then learn from it.

        The running statistics are updated with the uncertainties of the rollout first, and rewards normalised by them.
        Uncertainties are those of the parameters before the update.

        Args:
          state: returned by `init`, or by another method.
          rollout: [T, N, ...] transitions that follow those of the latest `update`.
          last_obs: [N, ...] observations after the rollout, needed if `rollout.next_obs` is None.
        Returns:
          The new state, and BonusOutput with rewards [T, N]. Its metrics count what was masked:
          `masked_episode_ends` (without `next_obs` all of them, else those beyond `max_episode_ends`),
          `nonfinite_transitions` (from or to an observation with NaN or infinity). They also count
          `stream_discontinuities` (observations that are not the `next_obs` before, though no episode ended),
          `actions_out_of_range`, and `skipped_updates` (learner steps without a transition, or with a loss or gradient
          that is not finite; they change nothing).
        """
        packed, sequences, counts = self._read(state.update_stream, rollout, last_obs)
        learner, stream = state.learner, state.update_stream
        no_predictions = self.learner.init_carry(learner, self.num_envs)
        starts, memory, _, uncertainty = self._unroll(learner, stream.memory, no_predictions, sequences)
        valid = packed.sequence.valid
        uncertainty = uncertainty[: len(valid)]
        normalizer, reward = self.learner.update_and_normalize(
            learner.reward_normalizer, uncertainty, valid, self.config.minibatches
        )
        key, order_key = jax.random.split(state.key)
        learner, metrics = learn_sequences(
            self.learner, learner._replace(reward_normalizer=normalizer), starts, sequences, order_key,
            self.config.minibatches,
        )  # fmt: skip
        here = BonusStream(memory, packed.after)
        output = self._output(learner, packed, uncertainty, reward, {**counts, **metrics})
        return BonusState(learner, here, here, no_predictions, key), output

    @_with_32_bits
    def rewards(
        self, state: BonusState, rollout: Transition, last_obs: PyTree | None = None
    ) -> tuple[BonusState, BonusOutput]:
        """Compute the intrinsic rewards of a rollout without learning; they are 0 before the first `update`.

        Args:
          state: returned by any method.
          rollout: [T, N, ...] transitions that follow those of the latest call.
          last_obs: [N, ...] observations after the rollout, needed if `rollout.next_obs` is None.
        Returns:
          The new state, in which only the position of `rewards` and `step` has moved, and BonusOutput.
        """
        no_predictions = self.learner.init_carry(state.learner, self.num_envs)
        state, output = self._reward(state, rollout, last_obs, no_predictions)
        return state._replace(predictions=no_predictions), output

    @_with_32_bits
    def step(
        self, state: BonusState, transition: Transition, last_obs: PyTree | None = None
    ) -> tuple[BonusState, Array]:
        """Compute the intrinsic rewards of one step of all environments, within a rollout; 0 before the first `update`.

        Args:
          state: returned by any method.
          transition: [N, ...] without the axis of time.
          last_obs: [N, ...] observations after the step, needed if `transition.next_obs` is None.
        Returns:
          The new state, in which only the position of `rewards` and `step` has moved, and rewards [N].
        """
        if isinstance(transition, Transition) and jnp.shape(transition.done) != (self.num_envs,):
            raise UserError(
                f"done is of shape {jnp.shape(transition.done)}: it must be ({self.num_envs},), of all environments "
                "(num_envs)"
            )
        rollout = jax.tree.map(lambda x: jnp.asarray(x)[None], transition)
        state, output = self._reward(state, rollout, last_obs, state.predictions)
        return state, output.reward[0]

    @_with_32_bits
    def reset(self, state: BonusState, mask: Array) -> BonusState:
        """Report that environments were reset by hand: their next observations begin new episodes.

        Args:
          state: returned by any method.
          mask: [N] bool, environments that were reset.
        """
        mask = jnp.asarray(mask)
        if mask.shape != (self.num_envs,):
            raise UserError(f"mask is of shape {mask.shape}: it must be ({self.num_envs},), of all environments")

        def restart(stream: BonusStream) -> BonusStream:
            return stream._replace(
                position=stream.position._replace(is_first=stream.position.is_first | mask.astype(bool))
            )

        return state._replace(update_stream=restart(state.update_stream), step_stream=restart(state.step_stream))

    def _read(
        self, stream: BonusStream, rollout: Transition, last_obs: PyTree | None
    ) -> tuple[PackedStream, SequenceBatch, dict[str, Array]]:
        """Check a rollout, and return its stream, the sequences [chunks, steps + 1, N] of it, and counts."""
        read, last = self.reader.rollout(rollout, last_obs)
        packed = pack_stream(read, stream.position, self.config.max_episode_ends, last)
        longest = len(packed.sequence.is_first) - 1
        count = max(1, round(longest / self.config.sequence_length))
        counts = {**packed.counts, "actions_out_of_range": self.reader.out_of_range(read.action)}
        return packed, cut_sequences(packed.sequence, -(-longest // count), count), counts

    def _unroll(
        self, learner: MethodLearnerState, memory: StreamState, predictions: PyTree, sequences: SequenceBatch
    ) -> tuple[StreamState, StreamState, PyTree, Array]:
        """Compute uncertainties, sequence by sequence.

        Returns:
          Stream states before each sequence [chunks, N, ...] and after the last [N, ...], the method's carry after it,
          and uncertainties [chunks * steps, N].
        """

        def advance(carry: tuple[StreamState, PyTree], sequence: SequenceBatch) -> tuple[Any, Any]:
            memory, predictions = carry
            after, predictions, uncertainty = self.learner.stream_uncertainty(learner, memory, predictions, sequence)
            return (after, predictions), (memory, uncertainty)

        (memory, predictions), (starts, uncertainty) = jax.lax.scan(advance, (memory, predictions), sequences)
        return starts, memory, predictions, uncertainty.reshape(-1, self.num_envs)

    def _reward(
        self, state: BonusState, rollout: Transition, last_obs: PyTree | None, predictions: PyTree
    ) -> tuple[BonusState, BonusOutput]:
        packed, sequences, counts = self._read(state.step_stream, rollout, last_obs)
        learner, stream = state.learner, state.step_stream
        _, memory, predictions, uncertainty = self._unroll(learner, stream.memory, predictions, sequences)
        valid = packed.sequence.valid & (learner.reward_normalizer.uncertainty.num_updates > 0)
        uncertainty = uncertainty[: len(valid)]
        reward = self.learner.normalize(learner.reward_normalizer, uncertainty, valid)
        output = self._output(learner, packed, uncertainty, reward, counts)
        return state._replace(step_stream=BonusStream(memory, packed.after), predictions=predictions), output

    def _output(
        self, learner: MethodLearnerState, packed: PackedStream, uncertainty: Array, reward: Array, counts: Any
    ) -> BonusOutput:
        """Return rewards and uncertainties by step from those by slot, and metrics."""
        valid, uncertainty, reward = (
            jnp.take_along_axis(x, packed.row, axis=0) for x in (packed.sequence.valid, uncertainty, reward)
        )
        uncertainty, reward = jax.lax.stop_gradient((jnp.where(valid, uncertainty, 0.0), reward))
        metrics = {
            "transitions": jnp.sum(valid),
            "uncertainty": masked_mean(uncertainty, valid),
            "intrinsic_reward": masked_mean(reward, valid),
            "intrinsic_nonzero_fraction": masked_mean(jnp.where(reward > 0, 1.0, 0.0), valid),
            "uncertainty_running_std": self.learner.uncertainty_std(learner.reward_normalizer),
        }
        return BonusOutput(reward, uncertainty, {**metrics, **counts})
