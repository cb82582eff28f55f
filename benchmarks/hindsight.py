"""Measure the information in BYOL-Hindsight's z with new networks.

z must carry no information on c = (belief, action). The method's own critic estimates it, but generator and critic were
trained against each other. Here a frozen checkpoint acts, and a new critic is trained on its (c, z) and evaluated on
held-out rollouts: its L_inv is a lower bound of the information of z on c, in nats. The same critic with w in place of
z shows how much it can find.

The contribution of z to the reconstruction is separated as well: reconstructions with z, with the z of another
environment and with noise, and two new reconstructors beside the forecast, one with z and one with noise as input.

python benchmarks/hindsight.py --run studies/noise/quiet-rooms-6/byol-hindsight-seed0 --json hindsight.json
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro
from figures import show

from byol_explore.agent.learner import Learner
from byol_explore.agent.state import LearnerState
from byol_explore.curiosity.byol_hindsight import BYOLHindsight, InvarianceCritic, invariance_loss
from byol_explore.envs.interface import count_tasks
from byol_explore.errors import UserError
from byol_explore.networks.layers import MLP
from byol_explore.ops import world_model
from byol_explore.ops.arrays import masked_mean
from byol_explore.runtime.anakin import Anakin
from byol_explore.runtime.make import make_training_envs
from byol_explore.storage.checkpoint import Checkpoints
from byol_explore.storage.run_directory import load_config
from byol_explore.types import Array, PyTree, Trajectory
from byol_explore.utils.packages import enable_compilation_cache


@dataclass(frozen=True)
class Arguments:
    """Measure the information in z."""

    run: Path
    """Run directory of byol-hindsight with a checkpoint."""
    rollouts: int = 40
    """Rollouts to train the new networks on."""
    held_out: int = 8
    """Rollouts to evaluate on."""
    updates: int = 4000
    """Updates of each new network."""
    rows: int = 16
    """Rows (t, k) of a rollout per batch, each with all environments."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of the new networks."""
    learning_rate: float = 1e-3
    """Learning rate of the new networks."""
    json: Path | None = None
    """File to write the figures to."""


class Pairs(NamedTuple):
    """Predictions [rows, B], rows of the same (t, k)."""

    condition: Array  # [rows, B, M + gates] c
    belief: Array  # [rows, B, M] b_{t,k}
    target: Array  # [rows, B, N] w
    noise: Array  # [rows, B, size] eps
    z: Array  # [rows, B, size]
    valid: Array  # [rows, B]


class Frozen:
    """The newest checkpoint of a run, which acts without learning."""

    def __init__(self, directory: Path) -> None:
        config = load_config(directory)
        envs: Any = make_training_envs(config)
        self.learner = Learner(config, envs[0].spec, count_tasks(envs))
        self.anakin = Anakin(config, envs, jax.devices()[:1])
        checkpoints = Checkpoints(directory / "checkpoints")
        template: LearnerState = jax.eval_shape(self.learner.init, jax.random.key(0))
        restored = checkpoints.restore(template, part="learner")
        self.state: LearnerState = restored.state
        self.step: int = restored.meta["step"]
        self.batch_size = config.runtime.batch_size
        self.curiosity: Any = self.state.online.curiosity
        if not isinstance(self.curiosity, BYOLHindsight) or self.curiosity.forecaster is None:
            raise UserError(f"{directory} is a run with {config.method}: it must be byol-hindsight with its forecasts")

    def collect(self, rollouts: int, key: Array) -> list[Pairs]:
        """Return predictions of successive rollouts, without the first one, in which all episodes begin."""
        actor = self.anakin.init(1).actor
        rollout: Callable[..., Any] = jax.jit(self.anakin.rollout)
        compute_pairs, result = jax.jit(self.pairs), list[Pairs]()
        for number in range(rollouts + 1):
            actor, trajectory, _ = rollout(self.state.target_actor, actor)
            if number:
                result.append(jax.device_get(compute_pairs(trajectory, jax.random.fold_in(key, number))))
        return result

    def pairs(self, trajectory: Trajectory, key: Array) -> Pairs:
        """Return the outputs of its networks for a rollout."""
        online, memory = self.state.online, trajectory.initial_state
        trajectory = online.actor.normalize(trajectory)
        representation, core = online.actor.representation, memory.policy_core
        if online.actor.curiosity_representation is not None:
            representation, core = online.actor.curiosity_representation, memory.curiosity_core
        view = representation.unroll(trajectory.sequence, trajectory.previous, core)
        landings, _ = self.curiosity.predict_all(self.state.method_state, view, trajectory.sequence)
        condition = jnp.concatenate([landings.prev_belief, landings.action], axis=-1)
        noise = jax.random.normal(key, (*landings.valid.shape, self.curiosity.size))
        z = self.curiosity.generate(condition, landings.target, noise)
        return Pairs(condition, landings.belief, landings.target, noise, z, landings.valid)


def fit(network: PyTree, loss: Callable[[PyTree, Pairs], Array], pairs: list[Pairs], arguments: Arguments) -> PyTree:
    """Train a network on random rows."""
    optimizer = optax.adam(arguments.learning_rate)

    @jax.jit
    def update(network: PyTree, state: Any, batch: Pairs) -> tuple[PyTree, Any]:
        direction, state = optimizer.update(jax.grad(loss)(network, batch), state)
        return optax.apply_updates(network, direction), state

    state, rng = optimizer.init(network), np.random.default_rng(0)
    for _ in range(arguments.updates):
        rollout = pairs[rng.integers(len(pairs))]
        rows = rng.choice(len(rollout.valid), arguments.rows, replace=False)
        network, state = update(network, state, jax.tree.map(lambda x, rows=rows: x[rows], rollout))
    return network


def mean(compute: Callable[[Pairs], Array], pairs: list[Pairs]) -> float:
    """Return the mean over valid predictions."""
    one = jax.jit(lambda batch: masked_mean(compute(batch), batch.valid))
    return float(np.mean([one(batch) for batch in pairs]))


def split(pairs: Pairs, size: int) -> Pairs:
    """Split rows to `size` environments each: [rows * B / size, size]."""
    return jax.tree.map(lambda x: x.reshape(-1, size, *x.shape[2:]), pairs)


def invariance(critic: InvarianceCritic, hindsight_of: Callable[[Pairs], Array]) -> Callable[[Pairs], Array]:
    """Return a function that computes L_inv of each pair with a critic."""
    return lambda batch: invariance_loss(critic(batch.condition, hindsight_of(batch)), batch.valid)


def new_critic(hindsight_of: Callable[[Pairs], Array], pairs: list[Pairs], arguments: Arguments) -> InvarianceCritic:
    """Train a critic to match z with c."""
    (*_, condition), (*_, hindsight) = pairs[0].condition.shape, jax.eval_shape(hindsight_of, pairs[0]).shape
    one, other = jax.random.split(jax.random.key(1))
    critic = InvarianceCritic(MLP(condition, arguments.hidden, 64, one), MLP(hindsight, arguments.hidden, 64, other))

    def loss(critic: InvarianceCritic, batch: Pairs) -> Array:
        return -masked_mean(invariance(critic, hindsight_of)(batch), batch.valid)

    return fit(critic, loss, pairs, arguments)


def invariances(frozen: Frozen, learned: list[Pairs], held_out: list[Pairs], arguments: Arguments) -> dict[str, float]:
    """Return L_inv of the critics on held-out rollouts, for the learner's batch size and for all environments."""
    inputs: dict[str, Callable[[Pairs], Array]] = {
        "z": lambda batch: batch.z,
        "noise": lambda batch: batch.noise,
        "w": lambda batch: batch.target,
    }
    critics = {f"a new critic, of {name}": (new_critic(of, learned, arguments), of) for name, of in inputs.items()}
    critics["its own critic, of z"] = frozen.curiosity.critic, inputs["z"]
    num_envs = learned[0].valid.shape[-1]
    return {
        f"L_inv by {name}, B = {size}": mean(
            invariance(critic, of), [split(batch, size) for batch in held_out]
        )
        for size in (frozen.batch_size, num_envs) for name, (critic, of) in critics.items()
    }  # fmt: skip


def errors(curiosity: BYOLHindsight, learned: list[Pairs], held_out: list[Pairs], arguments: Arguments) -> Any:
    """Return mean errors of reconstructions on held-out rollouts."""
    forecaster: Any = curiosity.forecaster

    def error(guess: Callable[[Pairs], Array]) -> Callable[[Pairs], Array]:
        return lambda batch: world_model.cosine_distance(guess(batch), batch.target)

    def reconstruct(belief: Array, z: Array) -> Array:
        known = world_model.l2_normalize(forecaster(belief))
        return curiosity.predictor(jnp.concatenate([belief, z], axis=-1)) + known

    def with_input(hindsight_of: Callable[[Pairs], Array]) -> Callable[[PyTree, Pairs], Array]:
        def guess(network: PyTree, batch: Pairs) -> Array:
            rest = network(jnp.concatenate([batch.belief, hindsight_of(batch)], axis=-1))
            return rest + world_model.l2_normalize(forecaster(batch.belief))

        return guess

    guesses: dict[str, Callable[[Pairs], Array]] = {
        "forecast alone": lambda batch: forecaster(batch.belief),
        "with z": lambda batch: reconstruct(batch.belief, batch.z),
        "with another environment's z": lambda batch: reconstruct(batch.belief, jnp.roll(batch.z, 1, axis=1)),
        "with noise for z": lambda batch: reconstruct(batch.belief, batch.noise),
    }
    size = learned[0].belief.shape[-1] + curiosity.size
    for name, source in {"z": lambda batch: batch.z, "noise for z": lambda batch: batch.noise}.items():
        guess = with_input(source)
        network = fit(
            MLP(size, arguments.hidden, learned[0].target.shape[-1], jax.random.key(2), scale=0.0),
            lambda network, batch, guess=guess: masked_mean(error(lambda b: guess(network, b))(batch), batch.valid),
            learned, arguments,
        )  # fmt: skip
        guesses[f"new reconstructor, with {name}"] = lambda batch, network=network, guess=guess: guess(network, batch)
    return {f"error, {name}": mean(error(guess), held_out) for name, guess in guesses.items()}


def measure(arguments: Arguments) -> dict[str, float]:
    frozen = Frozen(arguments.run)
    pairs = frozen.collect(arguments.rollouts + arguments.held_out, jax.random.key(0))
    learned, held_out = pairs[: arguments.rollouts], pairs[arguments.rollouts :]
    return {
        "step": frozen.step,
        "log B of a batch": float(np.log(frozen.batch_size)),
        "log B of all": float(np.log(learned[0].valid.shape[-1])),
        "|z - eps|^2 / 2": mean(lambda batch: jnp.sum(jnp.square(batch.z - batch.noise), axis=-1) / 2, held_out),
        **errors(frozen.curiosity, learned, held_out, arguments),
        **invariances(frozen, learned, held_out, arguments),
    }


def main(arguments: Arguments) -> None:
    enable_compilation_cache()
    show(measure(arguments), f"information in z, {arguments.run}", arguments.json)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
