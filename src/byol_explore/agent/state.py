"""Records of the learner: its state, its batches and its results; the initial networks."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from byol_explore.agent.targets import RunningStatistics, Targets
from byol_explore.config.config import Config, embedding_size, has_own_representation
from byol_explore.curiosity.method import BuildContext
from byol_explore.envs.interface import EnvSpec
from byol_explore.errors import unknown_name
from byol_explore.networks.centering import center_encoders
from byol_explore.networks.encoders import make_encoder
from byol_explore.networks.layers import MLP
from byol_explore.networks.representation import Actor, Networks, make_actor
from byol_explore.registry import ALGORITHMS, METHODS
from byol_explore.types import Array, PyTree, Trajectory
from byol_explore.utils.validation import validate


class Hyperparams(NamedTuple):
    """Settings that a callback may change during a run."""

    # Arrays of the learner's state, not constants of the compiled program: a change needs no compilation, and a
    # checkpoint holds it.
    mixing: Array  # [] lambda, the weight of the intrinsic reward
    learning_rate: Array  # []
    entropy_weight: Array  # []
    loss_weight: Array  # [] of the curiosity loss


_SECTIONS = {"mixing": "curiosity", "learning_rate": "optimizer", "entropy_weight": "agent", "loss_weight": "curiosity"}


def init_hyperparams(config: Config) -> Hyperparams:
    """Read the initial values from the configuration."""
    values = {name: getattr(getattr(config, section), name) for name, section in _SECTIONS.items()}
    return Hyperparams(**{name: jnp.asarray(value, jnp.float32) for name, value in values.items()})


def validate_hyperparams(config: Config, values: Mapping[str, Any]) -> dict[str, float]:
    """Convert numbers of any kind to floats. Raises a UserError for an unknown name or a value outside its bounds."""
    checked = {}
    for name, value in values.items():
        if name not in _SECTIONS:
            raise unknown_name("hyperparameter", name, list(_SECTIONS))
        number = value.item() if np.ndim(value) == 0 and hasattr(value, "item") else value
        _validate(config, name, number)
        with np.errstate(over="ignore"):
            checked[name] = float(np.float32(number))
        _validate(config, name, checked[name])  # again, because float32 may round to infinity or 0
    return checked


def _validate(config: Config, name: str, value: Any) -> None:
    section = _SECTIONS[name]
    validate(dataclasses.replace(getattr(config, section), **{name: value}), f"{section}.")


def with_hyperparams(hyperparams: Hyperparams, values: Mapping[str, float]) -> Hyperparams:
    """Replace some values, on the devices of all processes where they were before."""

    def array_like(old: Array, value: float) -> Array:
        return jax.make_array_from_callback((), old.sharding, lambda _: np.float32(value))

    return hyperparams._replace(**{name: array_like(getattr(hyperparams, name), x) for name, x in values.items()})


class LearnerState(NamedTuple):
    """Everything that a learner step reads and changes."""

    online: Networks
    method_state: PyTree  # of the intrinsic method: a target encoder, counts
    target_actor: Actor  # the target policy, which acts
    duals: PyTree  # of the algorithm
    opt_state: optax.OptState
    dual_opt_state: optax.OptState
    statistics: RunningStatistics
    hyperparams: Hyperparams
    step: Array  # [] learner steps done


class Batch(NamedTuple):
    """A rollout [T, E] or a minibatch [T, B], and its targets."""

    trajectory: Trajectory
    targets: Targets | None = None  # None: the update computes them for its own minibatch


class FiniteChecks(eqx.Module):
    """Which quantities are finite, in causal order: the first that is not names a divergence."""

    names: tuple[str, ...] = eqx.field(static=True)
    flags: Array  # [..., len(names)] bool

    @classmethod
    def of(cls, quantities: Mapping[str, PyTree]) -> Self:
        """Check that every array of each quantity is finite."""
        bad = [
            sum(jnp.sum(~jnp.isfinite(leaf)) for leaf in jax.tree.leaves(quantity)) for quantity in quantities.values()
        ]
        return cls(tuple(quantities), jnp.stack(bad) == 0)

    def __add__(self, later: "FiniteChecks") -> "FiniteChecks":
        return FiniteChecks(self.names + later.names, jnp.concatenate([self.flags, later.flags], axis=-1))

    def first_failure(self) -> tuple[int, str] | None:
        """Return the first row of flags [rows, names] with a False, and the name of its first one; None if all hold."""
        failures = np.argwhere(~np.asarray(self.flags))
        return (int(failures[0, 0]), self.names[failures[0, 1]]) if len(failures) else None


class UpdateOutput(NamedTuple):
    """Results of a learner step."""

    metrics: dict[str, Array]  # [] each, except for a few per task or horizon
    finite: FiniteChecks  # flags [quantities]
    intrinsic_reward: Array  # [T-1, B] normalised, 0 for the dummy transition


def init_networks(
    config: Config, spec: EnvSpec, tasks: int, key: Array, observation: PyTree = None
) -> tuple[Networks, PyTree]:
    """Make the online networks and the state of the intrinsic method.

    Args:
      config: configuration of the run.
      spec: spaces of the environments.
      tasks: outputs of the value head.
      key: random key.
      observation: [n, ...] warm-up observations, or None. All encoders are centred on them (`networks/centering.py`),
        also those that the method makes for itself, and they are the first of the observation statistics.
    """
    network, method, size = config.network, METHODS.get(config.method), embedding_size(config)
    actor_key, value_key, curiosity_key, state_key = jax.random.split(key, 4)
    actor = make_actor(
        network, spec, actor_key, own_representation=has_own_representation(config), curiosity_size=size,
        episodic_memory=method.episodic_memory(size),
    )  # fmt: skip
    if observation is not None:
        actor = actor.update_obs_stats(observation)
        observation = actor.obs_normalizer(observation)

    def center(tree: PyTree) -> PyTree:
        if observation is None:
            return tree
        return center_encoders(tree, observation, scaled=method.scale_invariant_loss)

    actor = center(actor)
    context = BuildContext(
        spec.observation, spec.action, network, config.curiosity, size,
        lambda key: center(make_encoder(network, spec, key, size)),
        ALGORITHMS.get(config.algorithm)(config, spec.action).epochs(),
    )  # fmt: skip
    curiosity = method.create(context, curiosity_key)
    # Values start at 0: those of random weights would be noise in the advantages until they are unlearned.
    value_head = MLP(network.belief_size, network.value_hidden, tasks, value_key, scale=0.0)
    return Networks(actor, value_head, curiosity), curiosity.init_state(context, actor.curiosity_encoder, state_key)
