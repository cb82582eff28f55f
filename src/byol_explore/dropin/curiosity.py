"""`byol_explore.Curiosity`: intrinsic rewards for any training loop.

    curiosity = byol_explore.Curiosity(observation_space, action_space, num_envs=8)
    intrinsic, metrics = curiosity.learn(obs, actions, next_obs, terminations, truncations)

Arrays are [T, B, ...]: T steps of B environments, in order. `next_obs` is the observation after each action, also at
the end of an episode: the true last observation, not the first one of the next episode.

Two positions in the stream of transitions are kept, each with recurrent state: `learn` continues where the latest
`learn` ended; `reward` and `step` continue where the latest call of any kind ended. So a loop may call `step` during a
rollout and then `learn` with the same rollout.

Predictions of `learn` and `reward` start at their first transition, those of `step` at the latest `learn`,
`reward` or episode start. Recurrent state and episodic memory continue through all calls. Negatives of a contrastive
method (byol-hindsight) come from the same step, in rollouts from the same slot.

`learn` first updates the running statistics with the uncertainties of its rollout and then normalises by them; `reward`
and `step` do not update them, and return 0 before the first `learn`. The first `learn` initialises the networks and
centres the encoders on its observations (`networks/centering.py`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
import numpy as np

from byol_explore.curiosity.method_learner import MethodLearner, MethodLearnerState, StreamState, make_config
from byol_explore.curiosity.stream import StreamPosition
from byol_explore.dropin import saving
from byol_explore.dropin.inputs import SpaceReader, Transitions, converter_to, map_arrays, parse_flags, to_numpy
from byol_explore.dropin.learning import (
    CuriositySettings,
    Record,
    Sample,
    learn_rollout,
    record_call,
    stream_uncertainty,
)
from byol_explore.dropin.stream import Stream, make_stream
from byol_explore.errors import UserError
from byol_explore.registry import METHODS
from byol_explore.types import PyTree
from byol_explore.utils.packages import enable_compilation_cache

MAX_INIT_OBSERVATIONS = 2048  # that encoders are centred on
_init = jax.jit(MethodLearner.init, static_argnums=0)
_normalize = jax.jit(MethodLearner.normalize, static_argnums=0)


class CuriosityState(NamedTuple):
    """Everything that changes, as one pytree with the record of calls."""

    state: MethodLearnerState | None  # None before the first learn
    learn_position: tuple[StreamPosition, StreamState | None]  # where learn continues
    reward_position: tuple[StreamPosition, StreamState | None]  # where reward and step continue
    carry: PyTree  # of the method, from step to step
    record: Record


class Curiosity:
    """Intrinsic rewards for the transitions of `num_envs` environments, which the caller steps.

    Args:
      observation_space: a space of Gymnasium, or of `byol_explore.spaces`, of one environment.
      action_space: a space of Gymnasium, or an `ActionSpec`.
      num_envs: B, environments per step.
      method: byol-explore, byol-hindsight, rnd, icm, e3b, noveld, disagreement, counts, re3, ngu, or an import path.
      seed: of the initial parameters and the order of minibatches.
      settings: changes of the defaults, such as {"curiosity": {"horizon": 8}, "epochs": 2}.
      symbol_counts: numbers of symbols per channel of the Boxes of bytes that are grids of symbols and not images, by
        entry: {"image": (11, 6, 4)}, or {"": (11, 6, 4)} if the observation is not a Dict.
    """

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        num_envs: int,
        method: str = "byol-explore",
        *,
        seed: int = 0,
        settings: CuriositySettings | Mapping[str, Any] | None = None,
        symbol_counts: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        for name, value, least in (("num_envs", num_envs, 1), ("seed", seed, 0)):
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or not least <= value < 2**32:
                raise UserError(f"{name} is {value!r}: it must be a whole number of at least {least}, below 2^32")
        METHODS.check(method)
        enable_compilation_cache()  # else every process compiles for many seconds in its first `learn`
        self.num_envs, self.method, self.seed = int(num_envs), method, int(seed)
        self.settings = make_config(settings, CuriositySettings(), "settings")
        self.reader = SpaceReader(observation_space, action_space, symbol_counts)
        self.learner = MethodLearner(self.spec, method, self.settings)
        zeros = jax.tree.map(lambda space: np.zeros((self.num_envs, *space.shape), space.dtype), self.spec.observation)
        start = StreamPosition(np.ones(self.num_envs, bool), zeros), None
        self.progress = CuriosityState(None, start, start, (), Record())
        self.sample: Sample | None = None  # of the latest learn, for the doctor

    @property
    def spec(self) -> Any:
        """Observations and actions as the networks see them: a `byol_explore.spaces.Spaces`."""
        return self.reader.spec

    def learn(
        self, obs: Any, actions: Any, next_obs: Any, terminations: Any, truncations: Any, *, skipped: Any = None
    ) -> tuple[Any, dict[str, Any]]:
        """Compute the intrinsic rewards of a rollout, then learn from it.

        Args:
          obs: [T, B, ...] observations that the actions were chosen from.
          actions: [T, B, ...] actions.
          next_obs: [T, B, ...] observations after the actions, the last one at the end of an episode.
          terminations: [T, B] bool.
          truncations: [T, B] bool.
          skipped: [T, B] bool, steps that only reset an environment; None for none.
        Returns:
          Rewards [T, B], 0 where skipped, in the library of `obs`; and metrics by name.
        """
        transitions = self._read(obs, actions, next_obs, terminations, truncations, skipped)
        position, stream_state = self.progress.learn_position
        stream = make_stream(transitions, position, self.settings.sequence_length)
        if not np.any(stream.length):
            return converter_to(obs)(np.zeros(stream.row.shape, np.float32)), {}
        state = self.progress.state or self._init_networks(stream)
        stream_state = stream_state or self.learner.init_stream(state, self.num_envs)
        seed = [self.seed, self.progress.record.calls]
        learned = learn_rollout(self.learner, self.settings, state, stream_state, stream, seed)
        # `reward` and `step` continue here too, with new predictions.
        end, carry = (stream.after, learned.stream_state), self.learner.init_carry(learned.state, self.num_envs)
        record = record_call(self.progress.record, stream, learned)
        self.progress, self.sample = CuriosityState(learned.state, end, end, carry, record), learned.sample
        return converter_to(obs)(_by_step(stream, learned.reward)), record.metrics

    def reward(
        self, obs: Any, actions: Any, next_obs: Any, terminations: Any, truncations: Any, *, skipped: Any = None
    ) -> Any:
        """Compute the intrinsic rewards of a rollout without learning.

        Args:
          obs: [T, B, ...], as all arguments in the form that `learn` takes.
          actions: [T, B, ...]
          next_obs: [T, B, ...]
          terminations: [T, B]
          truncations: [T, B]
          skipped: [T, B] or None.
        Returns:
          Rewards [T, B] in the library of `obs`.
        """
        transitions = self._read(obs, actions, next_obs, terminations, truncations, skipped)
        return converter_to(obs)(self._compute_rewards(transitions, starts_predictions=True))

    def step(
        self, obs: Any, action: Any, next_obs: Any, terminated: Any, truncated: Any, *, skipped: Any = None
    ) -> Any:
        """Compute the intrinsic rewards of one step of all environments without learning.

        Args:
          obs: [B, ...] observations that the actions were chosen from.
          action: [B, ...] actions.
          next_obs: [B, ...] observations after the actions, the last one at the end of an episode.
          terminated: [B] bool.
          truncated: [B] bool.
          skipped: [B] bool, environments that were only reset; None for none.
        Returns:
          Rewards [B] in the library of `obs`.
        """
        if (shape := to_numpy(terminated).shape) != (self.num_envs,):
            raise UserError(
                f"terminated is of shape {shape}: it must be ({self.num_envs},), of all environments (num_envs)"
            )
        rollout = map_arrays(lambda x: to_numpy(x)[None], (obs, action, next_obs))
        flags = [None if x is None else to_numpy(x)[None] for x in (terminated, truncated, skipped)]
        return converter_to(obs)(self._compute_rewards(self._read(*rollout, *flags), starts_predictions=False)[0])

    def reset(self, mask: Any = None, *, steps_only: bool = False) -> None:
        """Report that environments were reset: their next observations begin new episodes.

        Args:
          mask: [B] bool, environments that were reset; None for all.
          steps_only: for `step` and `reward` only, if the truncations of the coming rollout tell `learn`.
        """
        which = np.ones(self.num_envs, bool) if mask is None else parse_flags(mask, "mask", (self.num_envs,))

        def restart(where: tuple[StreamPosition, StreamState | None]) -> tuple[StreamPosition, StreamState | None]:
            position, stream_state = where
            return position._replace(is_first=position.is_first | which), stream_state

        learned, rewarded = self.progress.learn_position, restart(self.progress.reward_position)
        self.progress = self.progress._replace(
            learn_position=learned if steps_only else restart(learned), reward_position=rewarded
        )

    def save(self, path: str | Path) -> None:
        """Write parameters, statistics, positions and the record of calls to a file, atomically."""
        saving.write(saving.as_path(path, "Curiosity.save"), saving.to_bytes(self))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the curiosity that `save` wrote; it continues exactly where that one stopped."""
        file = saving.as_path(path, "Curiosity.load")
        return cls._restored(*saving.read(file), file)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the content of a saved file, so that libraries that pickle a whole agent keep its curiosity."""
        return _unpickled, (type(self), saving.to_bytes(self))

    @classmethod
    def _restored(cls, arguments: dict[str, Any], arrays: dict[str, Any], path: Path | str) -> Self:
        with saving.readable(path):
            curiosity = cls(**arguments)
            curiosity.progress = saving.restore(curiosity, arrays, path)
        return curiosity

    def state_shapes(self) -> tuple[MethodLearnerState, StreamState, PyTree]:
        """Return the shapes of the state, the stream state and the carry after the first `learn`."""

        def init() -> tuple[MethodLearnerState, StreamState, PyTree]:
            zeros = jax.tree.map(lambda space: np.zeros((1, *space.shape), space.dtype), self.spec.observation)
            state = self.learner.init(jax.random.key(0), zeros)
            return state, self.learner.init_stream(state, self.num_envs), self.learner.init_carry(state, self.num_envs)

        return jax.eval_shape(init)

    def _read(
        self, obs: Any, actions: Any, next_obs: Any, terminations: Any, truncations: Any, skipped: Any
    ) -> Transitions:
        shape = to_numpy(terminations).shape
        if len(shape) != 2 or shape[1] != self.num_envs or not shape[0]:
            raise UserError(
                f"terminations is of shape {shape}: it must be (T, {self.num_envs}), of at least one step of "
                f"{self.num_envs} environments (num_envs)"
            )
        lead = (shape[0], shape[1])
        return Transitions(
            self.reader.observations(obs, "obs", lead),
            self.reader.actions(actions, "actions", lead),
            self.reader.observations(next_obs, "next_obs", lead),
            parse_flags(terminations, "terminations", lead) | parse_flags(truncations, "truncations", lead),
            np.zeros(lead, bool) if skipped is None else parse_flags(skipped, "skipped", lead),
        )

    def _init_networks(self, stream: Stream) -> MethodLearnerState:
        """Initialise the networks and centre their encoders on evenly spaced observations of a stream."""
        observed = np.argwhere(~stream.sequence.padding)  # pyright: ignore[reportOptionalOperand]
        chosen = observed[np.linspace(0, len(observed) - 1, min(len(observed), MAX_INIT_OBSERVATIONS)).astype(int)]
        observation = jax.tree.map(lambda x: x[chosen[:, 0], chosen[:, 1]], stream.sequence.observation)
        return _init(self.learner, jax.random.key(self.seed), observation)

    def _compute_rewards(self, transitions: Transitions, *, starts_predictions: bool) -> np.ndarray:
        """Return rewards [T, B], with new predictions or those pending from the steps before."""
        state, (position, stream_state) = self.progress.state, self.progress.reward_position
        stream = make_stream(transitions, position, self.settings.sequence_length)
        rewards = np.zeros(stream.row.shape, np.float32)
        if not np.any(stream.length):
            return rewards
        carry = self.progress.carry
        if state is not None and stream_state is not None:
            no_predictions = self.learner.init_carry(state, self.num_envs)
            before = no_predictions if starts_predictions else carry
            states, after, uncertainty = stream_uncertainty(self.learner, state, stream_state, before, stream)
            stream_state, carry = states[-1], no_predictions if starts_predictions else after
            valid = np.asarray(stream.sequence.valid)
            rewards = _by_step(
                stream, np.asarray(_normalize(self.learner, state.reward_normalizer, uncertainty, valid))
            )
        self.progress = self.progress._replace(reward_position=(stream.after, stream_state), carry=carry)
        return rewards


def _unpickled(cls: type[Curiosity], content: bytes) -> Curiosity:
    return cls._restored(*saving.from_bytes(content, "a pickle"), "a pickle")


def _by_step(stream: Stream, rewards: np.ndarray) -> np.ndarray:
    """Return rewards [T, B] from those in the slots of a stream; 0 where skipped."""
    env = np.arange(rewards.shape[1])
    return np.where(stream.row >= 0, rewards[np.maximum(stream.row, 0), env], 0.0).astype(np.float32)
