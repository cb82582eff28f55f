"""Curiosity for streams of any agent: a method with a representation, an optimizer and reward statistics of its own.

Nothing of an agent is read: no policy, no reward, no memory but the one that is kept here. It is all pure, so it can be
jitted, vmapped and saved like any other JAX program; `byol_explore.Curiosity` keeps its state for those who would
rather not.

    bonus = Bonus(Spaces(Vector(4), ActionSpec(discrete=(2,))))
    state = bonus.init(key, observations)  # [n, ...] that differ: encoders are centred on them
    memory, carry = bonus.initial_memory(state, batch), bonus.opened(state, batch)
    memory, carry, uncertainty = bonus.follow(state, memory, carry, sequence)
    normalizer, reward = bonus.judge(state.rewards, uncertainty, sequence.valid)
    state, metrics = bonus.update(state._replace(rewards=normalizer), before, sequence)  # from the memory before

Sequences overlap by one observation, as those of a rollout that is cut do: the last observation of one is the first of
the next, and the memory goes from one to the other. Where an episode begins it is forgotten.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from byol_explore.curiosity.base import Curiosity, CuriosityOutput, Materials, ask, move
from byol_explore.curiosity.vitals import vitals
from byol_explore.networks.assembly import Representation, View, make_representation
from byol_explore.networks.centering import with_centered_encoders
from byol_explore.networks.choosing import make_encoder
from byol_explore.networks.normalizing import ObservationNormalizer
from byol_explore.networks.optimizing import descend, make_optimizer
from byol_explore.networks.recall import where
from byol_explore.ops import moments
from byol_explore.registries import METHODS
from byol_explore.settings.parts import CuriosityConfig, NetworkConfig, OptimizerConfig
from byol_explore.spaces import Interface
from byol_explore.types import Action, Array, Before, PyTree, Sequence


class Trained(eqx.Module):
    """What gradients train."""

    representation: Representation
    method: Curiosity


class BonusState(NamedTuple):
    networks: Trained
    observations: ObservationNormalizer
    method: PyTree  # the method's state: a target encoder, counts, whatever it keeps
    optimizer: optax.OptState
    rewards: moments.Normalizer


class BonusMemory(NamedTuple):
    """What goes from a sequence to the one that follows it."""

    core: PyTree  # [B, ...] recurrent state before the first observation
    action: Action  # [B, ...] that led there
    episode: PyTree = ()  # [B, ...] what the method remembers of the episode under way


class Bonus:
    """Builds, asks and updates a `BonusState`; holds no state of its own. Equal ones share their compiled programs."""

    def __init__(
        self,
        spec: Interface,
        method: str = "byol-explore",
        *,
        network: NetworkConfig | None = None,
        curiosity: CuriosityConfig | None = None,
        optimizer: OptimizerConfig | None = None,
        epochs: int = 1,
    ) -> None:
        self.spec, self.method, self.epochs = spec, METHODS.get(method), epochs
        self.network, self.curiosity = network or NetworkConfig(), curiosity or CuriosityConfig()
        optimizer = optimizer or OptimizerConfig()
        self.optimizer, self.learning_rate = make_optimizer(optimizer), optimizer.learning_rate
        own, set_to = self.curiosity.embedding_size, self.curiosity.prioritize
        self.size = self.network.embedding_size if own is None else own
        self.recall = self.method.recall(self.size)
        self.prioritizes = self.method.prioritizes if set_to is None else set_to
        self._parts = repr(spec.observation), spec.action, self.method, self.network, self.curiosity, optimizer, epochs

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Bonus) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(self._parts)

    def init(self, key: Array, observation: PyTree) -> BonusState:
        """Before anything is learned; encoders are centred on observations [n, ...], which should differ."""
        representation_key, method_key, state_key = jax.random.split(key, 3)
        normalizer = ObservationNormalizer(self.spec.observation, normalizes=self.network.normalize_vectors)
        normalizer = normalizer.moved(observation)
        seen = normalizer(observation)

        def start(tree: PyTree) -> PyTree:
            if not self.network.center:
                return tree
            return with_centered_encoders(tree, seen, scaled=self.method.compares_directions)

        representation = start(make_representation(self.network, self.spec, representation_key, self.size))
        materials = Materials(
            self.spec.observation, self.spec.action, self.network, self.curiosity, self.size,
            lambda key: start(make_encoder(self.network, self.spec, key, self.size)),
            self.epochs,
        )  # fmt: skip
        method = self.method.make(materials, method_key)
        networks = Trained(representation, method)
        state, optimizer = method.init(materials, representation.encoder, state_key), self.optimizer.init(networks)  # pyright: ignore[reportArgumentType]
        return BonusState(networks, normalizer, state, optimizer, moments.initial_normalizer())

    def initial_memory(self, state: BonusState, batch: int) -> BonusMemory:
        """Of sequences that follow nothing."""
        zero = jax.tree.map(lambda x: jnp.broadcast_to(x, (batch, *x.shape)), self.spec.action.zero())
        core = state.networks.representation.core.initial_state((batch,))
        return BonusMemory(core, zero, self.recall.blank(batch))

    def opened(self, state: BonusState, batch: int) -> PyTree:
        """What the method carries along streams, before the first of their sequences."""
        return state.networks.method.opened(batch)

    def view(
        self, networks: Trained, state: BonusState, memory: BonusMemory, sequence: Sequence
    ) -> tuple[View, Sequence]:
        """Sequences through the representation, and as it sees them.

        Of a method that does not read it the recurrent state stays as it is: nothing is unrolled for nobody.
        """
        sequence = sequence._replace(observation=state.observations(sequence.observation))
        representation, episode = networks.representation, memory.episode
        if not self.method.reads_representation:
            states = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(sequence.is_first), *x.shape)), memory.core)
            embedding = representation.embed(sequence.observation)
            return View(embedding, states, representation.core.belief(states), episode), sequence
        action = jax.tree.map(lambda one, rest: jnp.concatenate([one[None], rest]), memory.action, sequence.action)
        before = Before(action, jnp.zeros(sequence.is_first.shape))
        return representation.unroll(sequence, before, memory.core)._replace(episode=episode), sequence

    def follow(
        self, state: BonusState, memory: BonusMemory, carry: PyTree, sequence: Sequence
    ) -> tuple[BonusMemory, PyTree, Array]:
        """Uncertainties [T-1, B] of sequences that continue streams; memory and carry for those that come next."""
        view, seen = self.view(state.networks, state, memory, sequence)
        carry, uncertainty = state.networks.method.follow(state.method, carry, view, seen)
        episode, _ = self.recall.walk(memory.episode, view.embedding, seen)
        return _followed(memory, view, sequence, episode), carry, uncertainty

    def judge(
        self, normalizer: moments.Normalizer, uncertainty: Array, valid: Array, batches: Array | int = 1
    ) -> tuple[moments.Normalizer, Array]:
        """Rewards of uncertainties by statistics that have taken them in, with the weight of so many batches."""
        decay = self.curiosity.normalizer_decay
        return moments.intrinsic_reward(normalizer, uncertainty, valid, decay, self.prioritizes, batches)

    def pay(self, normalizer: moments.Normalizer, uncertainty: Array, valid: Array) -> Array:
        """Rewards of uncertainties by statistics as they stand, which must have seen something."""
        return moments.measured(normalizer, uncertainty, valid, self.curiosity.normalizer_decay, self.prioritizes)

    def deviation(self, normalizer: moments.Normalizer) -> Array:
        """What uncertainties are divided by."""
        return moments.standard_deviation(normalizer.raw, self.curiosity.normalizer_decay)

    def update(self, state: BonusState, memory: BonusMemory, sequence: Sequence) -> tuple[BonusState, dict[str, Array]]:
        """Learn from a batch of sequences once."""

        def loss(networks: Trained) -> tuple[Array, tuple[View, CuriosityOutput]]:
            view, seen = self.view(networks, state, memory, sequence)
            output = ask(networks.method, state.method, view, seen)
            return output.loss, (view, output)

        (_, (view, output)), gradient = jax.value_and_grad(loss, has_aux=True)(state.networks)
        direction, optimizer = self.optimizer.update(gradient, state.optimizer)
        networks = descend(state.networks, direction, self.learning_rate)
        seen = sequence._replace(observation=state.observations(sequence.observation))
        mask = None if sequence.filling is None else sequence.seen
        after = state._replace(
            networks=networks,
            observations=state.observations.moved(sequence.observation, mask),
            method=move(networks.method, state.method, networks.representation.encoder, seen),
            optimizer=optimizer,
        )
        alive = vitals(state.networks.method, state.method, state.networks.representation.encoder, view.embedding, mask)
        others = {"loss_curiosity": output.loss, "gradient_norm": optax.tree.norm(gradient)}
        return after, {**output.metrics, **alive, **others}


def _followed(memory: BonusMemory, view: View, sequence: Sequence, episode: PyTree) -> BonusMemory:
    """The memory of sequences that begin with the last observations of these; as it was where there are none."""
    count = jnp.sum(sequence.seen[1:], axis=0)  # transitions
    last = (jnp.maximum(count - 1, 0), jnp.arange(len(count)))
    core, action = jax.tree.map(lambda x: x[last], (view.state, sequence.action))
    return where(count > 0, BonusMemory(core, action, episode), memory)
