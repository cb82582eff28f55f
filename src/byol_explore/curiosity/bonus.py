"""Curiosity for sequences of any agent: a method with a representation, an optimizer and reward statistics of its own.

Nothing of an agent is read: no policy, no reward, no memory but the one that is kept here. It is all pure, so it can be
jitted, vmapped and saved like any other JAX program:

    bonus = Bonus(Spaces(Vector(4), ActionSpec(discrete=(2,))))
    state = bonus.init(key, observations)  # [n, ...] that differ: encoders are centred on them
    memory = bonus.initial_memory(state, batch)
    state, memory, output = bonus.update(state, memory, sequence)
    output.reward  # [T-1, B] for the agent

Sequences may overlap by one observation, as those of a rollout that is cut do: the last observation of one is the first
of the next, and the memory goes from one to the other. Where an episode begins it is forgotten.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from byol_explore.curiosity.base import Curiosity, CuriosityOutput, Materials, ask, move
from byol_explore.curiosity.reward import RewardSettings, RewardStatistics, initial_statistics, make_rewards, pay
from byol_explore.curiosity.vitals import vitals
from byol_explore.networks.assembly import Representation, View, make_representation
from byol_explore.networks.centering import with_centered_encoders
from byol_explore.networks.choosing import make_encoder
from byol_explore.networks.normalizing import ObservationNormalizer
from byol_explore.networks.optimizing import descend, make_optimizer
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
    normalizer: ObservationNormalizer
    method: PyTree  # the method's state: a target encoder, counts, whatever it keeps
    optimizer: optax.OptState
    statistics: RewardStatistics


class BonusMemory(NamedTuple):
    """What goes from a sequence to the one that follows it."""

    core: PyTree  # [B, ...] recurrent state before the first observation
    action: Action  # [B, ...] that led there


class BonusOutput(NamedTuple):
    """What is said of a batch of sequences."""

    reward: Array  # [T-1, B] normalised uncertainty, clipped if the method is; 0 where no transition is
    uncertainty: Array  # [T-1, B] raw
    metrics: dict[str, Array]


class Bonus:
    """Builds and updates a `BonusState`; holds no state of its own."""

    def __init__(
        self,
        spec: Interface,
        method: str = "byol-explore",
        *,
        network: NetworkConfig | None = None,
        curiosity: CuriosityConfig | None = None,
        optimizer: OptimizerConfig | None = None,
    ) -> None:
        self.spec, self.method = spec, METHODS.get(method)
        self.network, self.curiosity = network or NetworkConfig(), curiosity or CuriosityConfig()
        optimizer = optimizer or OptimizerConfig()
        self.optimizer, self.learning_rate = make_optimizer(optimizer), optimizer.learning_rate
        own, set_to = self.curiosity.embedding_size, self.curiosity.prioritize
        self.size = self.network.embedding_size if own is None else own
        prioritizes = self.method.prioritizes if set_to is None else set_to
        self.rewards = RewardSettings("intrinsic", prioritize=prioritizes, decay=self.curiosity.normalizer_decay)

    def init(self, key: Array, observation: PyTree) -> BonusState:
        """Before anything is learned; encoders are centred on observations [n, ...], which should differ."""
        representation_key, method_key, state_key = jax.random.split(key, 3)
        normalizer = ObservationNormalizer(self.spec.observation, normalizes=self.network.normalize_vectors)
        normalizer = normalizer.moved(observation)
        seen = normalizer(observation)

        def start(tree: PyTree) -> PyTree:
            return with_centered_encoders(tree, seen, scaled=self.method.compares_directions)

        representation = start(make_representation(self.network, self.spec, representation_key, self.size))
        materials = Materials(
            self.spec.observation, self.spec.action, self.network, self.curiosity, self.size,
            lambda key: start(make_encoder(self.network, self.spec, key, self.size)),
        )  # fmt: skip
        method = self.method.make(materials, method_key)
        networks = Trained(representation, method)
        state, optimizer = method.init(materials, representation.encoder, state_key), self.optimizer.init(networks)  # pyright: ignore[reportArgumentType]
        return BonusState(networks, normalizer, state, optimizer, initial_statistics())

    def initial_memory(self, state: BonusState, batch: int) -> BonusMemory:
        """Of sequences that follow nothing."""
        zero = jax.tree.map(lambda x: jnp.broadcast_to(x, (batch, *x.shape)), self.spec.action.zero())
        return BonusMemory(state.networks.representation.core.initial_state((batch,)), zero)

    def see(
        self, networks: Trained, state: BonusState, memory: BonusMemory, sequence: Sequence
    ) -> tuple[View, CuriosityOutput]:
        """One forward pass."""
        sequence = sequence._replace(observation=state.normalizer(sequence.observation))
        action = jax.tree.map(lambda one, rest: jnp.concatenate([one[None], rest]), memory.action, sequence.action)
        before = Before(action, jnp.zeros(sequence.is_first.shape))
        view = networks.representation.unroll(sequence, before, memory.core)
        return view, ask(networks.method, state.method, view, sequence)

    def update(
        self, state: BonusState, memory: BonusMemory, sequence: Sequence
    ) -> tuple[BonusState, BonusMemory, BonusOutput]:
        """Learn from a batch of sequences once, and pay for it: by statistics that have taken the batch in."""

        def loss(networks: Trained) -> tuple[Array, tuple[View, CuriosityOutput]]:
            view, output = self.see(networks, state, memory, sequence)
            return output.loss, (view, output)

        (_, (view, output)), gradient = jax.value_and_grad(loss, has_aux=True)(state.networks)
        nobody = jnp.zeros(output.uncertainty.shape)  # pays for the task
        statistics, rewards = make_rewards(
            state.statistics, output.uncertainty, nobody, _one_task(sequence), sequence.valid, self.rewards
        )
        direction, optimizer = self.optimizer.update(gradient, state.optimizer)
        networks = descend(state.networks, direction, self.learning_rate)
        seen = sequence._replace(observation=state.normalizer(sequence.observation))
        after = BonusState(
            networks=networks,
            normalizer=state.normalizer.moved(sequence.observation),
            method=move(networks.method, state.method, networks.representation.encoder, seen),
            optimizer=optimizer,
            statistics=statistics,
        )
        metrics = {**_metrics(state, view, output), "gradient_norm": optax.tree.norm(gradient)}
        return after, _followed(view, sequence), BonusOutput(rewards.total, output.uncertainty, metrics)

    def pay(self, state: BonusState, memory: BonusMemory, sequence: Sequence) -> tuple[BonusMemory, BonusOutput]:
        """Pay by statistics as they stand, which must have seen something, and learn nothing."""
        view, output = self.see(state.networks, state, memory, sequence)
        reward = pay(state.statistics, output.uncertainty, _one_task(sequence), sequence.valid, self.rewards)
        return _followed(view, sequence), BonusOutput(reward, output.uncertainty, _metrics(state, view, output))


def _metrics(state: BonusState, view: View, output: CuriosityOutput) -> dict[str, Array]:
    alive = vitals(state.networks.method, state.method, state.networks.representation.encoder, view.embedding)
    return {**output.metrics, **alive, "loss_curiosity": output.loss}


def _one_task(sequence: Sequence) -> Array:
    return jnp.zeros(sequence.valid.shape, jnp.int32)


def _followed(view: View, sequence: Sequence) -> BonusMemory:
    """The memory of the sequence that begins with the last observation of this one."""
    return BonusMemory(jax.tree.map(lambda x: x[-2], view.state), jax.tree.map(lambda x: x[-1], sequence.action))
