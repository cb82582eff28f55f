"""`byol_explore.Curiosity`: rewards for exploring, in anybody's loop.

    curiosity = byol_explore.Curiosity(observation_space, action_space, num_envs=8)
    intrinsic, metrics = curiosity.learn(obs, actions, next_obs, terminations, truncations)

Arrays are [T, B, ...]: T steps of B environments, in order. `next_obs` is what each step led to, also at the end of an
episode: the true last observation, not the next episode's first. `learn` pays for a rollout and learns from it,
`reward` pays for a rollout, `step` for one step of all environments at once.

Two places in the stream are kept, with a recurrent state each: `learn` goes on where the latest `learn` ended; `reward`
and `step` go on where the latest call of any kind ended. So a loop may ask `step` all along a rollout, and then learn
from the same rollout.

`learn` and `reward` open their prediction windows at their first transition, `step` opens one at the latest `learn`,
`reward` or episode start. What a method remembers of an episode goes on through all of them, as recurrent state does.
A method that contrasts environments (byol-hindsight) contrasts those of a step, and in rollouts those of a slot.
`learn` takes the uncertainties of its rollout into the running statistics and then pays by them; `reward` and `step`
pay by statistics as they stand, and nothing before the first `learn`, when there are none. Networks begin with the
first `learn`: encoders are centred on what it shows (`networks/centering.py`).
"""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
import numpy as np

from byol_explore.curiosity.bonus import Bonus, BonusMemory, BonusState
from byol_explore.dropin import saving
from byol_explore.dropin.arrays import are_texts, like, to_numpy
from byol_explore.dropin.learning import follow, learn_from, pay_for
from byol_explore.dropin.reading import Reader, Transitions, read_flags
from byol_explore.dropin.records import Record, Sample, noted
from byol_explore.dropin.settings import Settings, make_settings
from byol_explore.dropin.stream import Place, Stream, beginning, make_stream
from byol_explore.errors import UserError
from byol_explore.registries import METHODS
from byol_explore.types import PyTree

FIRST_LOOK = 2048  # observations at most that encoders are centred on
_init = jax.jit(Bonus.init, static_argnums=0)


class Progress(NamedTuple):
    """All that changes."""

    state: BonusState | None  # None before the first learn
    learned: tuple[Place, BonusMemory | None]  # where learn goes on
    paid: tuple[Place, BonusMemory | None]  # where reward and step go on
    carry: PyTree  # of the method along steps
    record: Record


class Curiosity:
    """A curiosity for so many environments, which steps none of them.

    `method` is byol-explore, byol-hindsight, rnd, icm, e3b, noveld, disagreement, counts, re3, ngu, or anybody's own by
    import path. `settings` changes the usual ones: {"curiosity": {"horizon": 8}, "epochs": 2}. `symbols` says which
    Boxes of bytes are grids of symbols, and how many of these there are in each channel: {"image": (11, 6, 4)}, or
    {"": (11, 6, 4)} where the observation is no Dict.
    """

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        num_envs: int,
        method: str = "byol-explore",
        *,
        seed: int = 0,
        settings: Settings | Mapping[str, Any] | None = None,
        symbols: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        for name, value, least in (("num_envs", num_envs, 1), ("seed", seed, 0)):
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or not least <= value < 2**32:
                raise UserError(f"{name} is {value!r}: it must be a whole number of at least {least}, below 2^32")
        METHODS.check(method)
        self.num_envs, self.method, self.seed = int(num_envs), method, int(seed)
        self.settings, self.reader = make_settings(settings), Reader(observation_space, action_space, symbols)
        self.bonus = Bonus(
            self.reader.spec, method, network=self.settings.network, curiosity=self.settings.curiosity,
            optimizer=self.settings.optimizer, epochs=self.settings.epochs,
        )  # fmt: skip
        blank = jax.tree.map(lambda kind: np.zeros((self.num_envs, *kind.shape), kind.dtype), self.spec.observation)
        place = beginning(blank)
        self.progress = Progress(None, (place, None), (place, None), (), Record())
        self.sample: Sample | None = None  # of the latest learn, for the doctor

    @property
    def spec(self) -> Any:
        """What is seen and done, in the package's own terms."""
        return self.reader.spec

    def learn(
        self, obs: Any, actions: Any, next_obs: Any, terminations: Any, truncations: Any, *, skipped: Any = None
    ) -> tuple[Any, dict[str, Any]]:
        """Intrinsic rewards [T, B] of a rollout, which is then learned from, and metrics.

        `skipped` [T, B] marks steps in which an environment did nothing but reset itself.
        """
        transitions = self._read(obs, actions, next_obs, terminations, truncations, skipped)
        place, memory = self.progress.learned
        stream = make_stream(transitions, place, self.settings.sequence_length)
        if not np.any(stream.length):
            return like(obs)(np.zeros(stream.slot.shape, np.float32)), {}
        if (state := self.progress.state) is None:
            state, memory = self._begin(stream)
        assert memory is not None
        learned = learn_from(
            self.bonus, self.settings, state, memory, stream, [self.seed, self.progress.record.calls]
        )  # fmt: skip
        here, record = (stream.after, learned.memory), noted(self.progress.record, stream, learned)
        carry = self.bonus.opened(learned.state, self.num_envs)
        self.progress, self.sample = Progress(learned.state, here, here, carry, record), learned.sample
        return like(obs)(_by_step(stream, learned.reward)), record.metrics

    def reward(
        self, obs: Any, actions: Any, next_obs: Any, terminations: Any, truncations: Any, *, skipped: Any = None
    ) -> Any:
        """Intrinsic rewards [T, B] of a rollout, by what has been learned so far."""
        transitions = self._read(obs, actions, next_obs, terminations, truncations, skipped)
        rewards = self._pay(transitions, opens=True)
        return like(obs)(rewards)

    def step(
        self, obs: Any, action: Any, next_obs: Any, terminated: Any, truncated: Any, *, skipped: Any = None
    ) -> Any:
        """Intrinsic rewards [B] of one step of all environments, at once."""
        if (shape := to_numpy(terminated).shape) != (self.num_envs,):
            raise UserError(
                f"terminated is of shape {shape}: it must be ({self.num_envs},), of all environments (num_envs)"
            )
        rollout = _in_front(obs), _in_front(action), _in_front(next_obs)
        flags = [None if x is None else to_numpy(x)[None] for x in (terminated, truncated, skipped)]
        return like(obs)(self._pay(self._read(*rollout, *flags), opens=False)[0])

    def reset(self, mask: Any = None, *, of_steps: bool = False) -> None:
        """Say that all environments were reset, or those in a mask [B]: their next observations begin new episodes.

        With `of_steps` only `step` and `reward` hear of it, and `learn` is told by the truncations of its rollout.
        """
        which = np.ones(self.num_envs, bool) if mask is None else read_flags(mask, "mask", (self.num_envs,))

        def anew(where: tuple[Place, BonusMemory | None]) -> tuple[Place, BonusMemory | None]:
            place, memory = where
            return place._replace(begins=place.begins | which), memory

        learned, paid = self.progress.learned, anew(self.progress.paid)
        self.progress = self.progress._replace(learned=learned if of_steps else anew(learned), paid=paid)

    def save(self, path: str | Path) -> None:
        """Write all of it to a file, which is there as a whole or not at all."""
        saving.write(saving.as_path(path, "Curiosity.save"), saving.pack(self))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """What `save` wrote, to go on as if nothing had happened."""
        file = saving.as_path(path, "Curiosity.load")
        return cls._made(*saving.read(file), file)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as it is saved, so that whoever pickles an agent and all that it has keeps its curiosity."""
        return _unpickled, (type(self), saving.pack(self))

    @classmethod
    def _made(cls, description: dict[str, Any], arrays: dict[str, Any], path: Path | str) -> Self:
        curiosity = cls(**description)
        curiosity.progress = saving.restore(curiosity, arrays, path)
        return curiosity

    def template(self) -> tuple[BonusState, BonusMemory, PyTree]:
        """Shapes of the state, the memory and the carry that networks have once they have begun."""

        def begin() -> tuple[BonusState, BonusMemory, PyTree]:
            blank = jax.tree.map(lambda kind: np.zeros((1, *kind.shape), kind.dtype), self.spec.observation)
            state = self.bonus.init(jax.random.key(0), blank)
            return state, self.bonus.initial_memory(state, self.num_envs), self.bonus.opened(state, self.num_envs)

        return jax.eval_shape(begin)

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
        over = [read_flags(terminations, "terminations", lead), read_flags(truncations, "truncations", lead)]
        return Transitions(
            self.reader.observations(obs, "obs", lead),
            self.reader.actions(actions, "actions", lead),
            self.reader.observations(next_obs, "next_obs", lead),
            over[0] | over[1],
            np.zeros(lead, bool) if skipped is None else read_flags(skipped, "skipped", lead),
        )

    def _begin(self, stream: Stream) -> tuple[BonusState, BonusMemory]:
        """Networks, centred on observations of a stream that are as far apart as can be."""
        seen = np.argwhere(~stream.sequence.filling)  # pyright: ignore[reportOptionalOperand]
        few = seen[np.linspace(0, len(seen) - 1, min(len(seen), FIRST_LOOK)).astype(int)]
        observation = jax.tree.map(lambda x: x[few[:, 0], few[:, 1]], stream.sequence.observation)
        state = _init(self.bonus, jax.random.key(self.seed), observation)
        return state, self.bonus.initial_memory(state, self.num_envs)

    def _pay(self, transitions: Transitions, *, opens: bool) -> np.ndarray:
        """[T, B] by statistics as they stand; the windows are new ones, or those that steps have opened."""
        state, (place, memory) = self.progress.state, self.progress.paid
        stream = make_stream(transitions, place, self.settings.sequence_length)
        rewards = np.zeros(stream.slot.shape, np.float32)
        if not np.any(stream.length):
            return rewards
        carry = self.progress.carry
        if state is not None and memory is not None:
            before = self.bonus.opened(state, self.num_envs) if opens else carry
            walk = follow(self.bonus, state, memory, before, stream)
            memory, carry = walk.memories[-1], self.bonus.opened(state, self.num_envs) if opens else walk.carry
            rewards = _by_step(stream, pay_for(self.bonus, state, walk.uncertainty, stream))
        self.progress = self.progress._replace(paid=(stream.after, memory), carry=carry)
        return rewards


def _unpickled(cls: type[Curiosity], content: bytes) -> Curiosity:
    return cls._made(*saving.unpack(io.BytesIO(content), "a pickle"), "a pickle")


def _in_front(tree: Any) -> Any:
    """With an axis of time, of length 1, in front of every array; they are NumPy's from now on."""
    if isinstance(tree, Mapping):
        return {key: _in_front(part) for key, part in tree.items()}
    if are_texts(tree):
        return np.array(tree, object)[None]
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*map(_in_front, tree))
    return tuple(map(_in_front, tree)) if isinstance(tree, tuple) else to_numpy(tree)[None]


def _by_step(stream: Stream, rewards: np.ndarray) -> np.ndarray:
    """[T, B] of rewards in the slots of a stream; 0 for what was skipped."""
    env = np.arange(rewards.shape[1])
    return np.where(stream.slot >= 0, rewards[np.maximum(stream.slot, 0), env], 0.0).astype(np.float32)
