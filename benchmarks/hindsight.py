"""What BYOL-Hindsight's z tells, asked of networks that begin anew.

z must tell nothing of c = (belief, action), and the method's own critic says whether it does; but generator and critic
learned against each other. Here a run's newest checkpoint stands still and plays on. A critic that begins anew learns
from (c, z) of that play, and is asked on play that it has not seen: its L_inv is a lower bound of what z tells of c, in
nats. A z that is all of w shows what such a critic can find.

What z takes off the error is separated as well: the reconstruction with z, with another environment's z and with noise
in its place, and two reconstructors that begin anew beside the forecast, of which one is told z and one has nothing but
a second look at b.

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

from byol_explore.curiosity.byol_hindsight import BYOLHindsight, Critic, invariance_loss
from byol_explore.envs.tasks import count_tasks
from byol_explore.errors import UserError
from byol_explore.learner import Learner
from byol_explore.learner_state import LearnerState
from byol_explore.networks.layers import MLP
from byol_explore.ops import latent
from byol_explore.ops.moments import masked_mean
from byol_explore.run.checkpoint import Checkpoints
from byol_explore.run.directory import load_config
from byol_explore.runtime.anakin import Anakin
from byol_explore.runtime.choosing import training_envs
from byol_explore.runtime.compilation import enable_compilation_cache
from byol_explore.types import Array, PyTree, Trajectory


@dataclass(frozen=True)
class Arguments:
    """Options of the benchmark."""

    run: Path
    """Directory of a run with byol-hindsight, with a checkpoint in it."""
    rollouts: int = 40
    """Rollouts that new networks learn from."""
    held_out: int = 8
    """Rollouts after them, that figures are of."""
    updates: int = 4000
    """Updates of each new network."""
    rows: int = 16
    """Rows (t, k) of a rollout in a batch, each of all environments."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of new networks."""
    learning_rate: float = 1e-3
    """Of new networks."""
    json: Path | None = None
    """Also write the figures here."""


class Pairs(NamedTuple):
    """Predictions [rows, B], rows of the same (t, k)."""

    condition: Array  # [rows, B, M + gates] c
    belief: Array  # [rows, B, M] b_{t,k}
    target: Array  # [rows, B, N] w
    noise: Array  # [rows, B, size] eps, drawn for each
    told: Array  # [rows, B, size] z
    valid: Array  # [rows, B]


class Frozen:
    """The newest checkpoint of a run, which plays on and learns no more."""

    def __init__(self, directory: Path) -> None:
        config = load_config(directory)
        envs: Any = training_envs(config)
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

    def play(self, rollouts: int, key: Array) -> list[Pairs]:
        """Of new episodes, one rollout after the other; the first is left out, in which all of them begin."""
        actor = self.anakin.init(1).actor
        rollout: Callable[..., Any] = jax.jit(self.anakin.rollout)
        look, found = jax.jit(self.pairs), list[Pairs]()
        for number in range(rollouts + 1):
            actor, trajectory, _ = rollout(self.state.acting, actor)
            if number:
                found.append(jax.device_get(look(trajectory, jax.random.fold_in(key, number))))
        return found

    def pairs(self, trajectory: Trajectory, key: Array) -> Pairs:
        """What its networks make of a rollout."""
        online, memory = self.state.online, trajectory.memory
        trajectory = online.actor.normalized(trajectory)
        representation, core = online.actor.representation, memory.core
        if online.actor.curious is not None:
            representation, core = online.actor.curious, memory.curious
        view = representation.unroll(trajectory.sequence, trajectory.before, core)
        landings, _ = self.curiosity.land(self.state.curiosity, view, trajectory.sequence)
        condition = jnp.concatenate([landings.before, landings.action], axis=-1)
        noise = jax.random.normal(key, (*landings.valid.shape, self.curiosity.size))
        told = self.curiosity.generate(condition, landings.target, noise)
        return Pairs(condition, landings.belief, landings.target, noise, told, landings.valid)


def fitted(network: PyTree, loss: Callable[[PyTree, Pairs], Array], pairs: list[Pairs], arguments: Arguments) -> PyTree:
    """A network that has learned from rows drawn at random."""
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


def mean(of: Callable[[Pairs], Array], pairs: list[Pairs]) -> float:
    """Of valid predictions."""
    one = jax.jit(lambda batch: masked_mean(of(batch), batch.valid))
    return float(np.mean([one(batch) for batch in pairs]))


def split(pairs: Pairs, size: int) -> Pairs:
    """Rows of fewer environments each, as many as the learner has in a batch: [rows * B / size, size]."""
    return jax.tree.map(lambda x: x.reshape(-1, size, *x.shape[2:]), pairs)


def invariance(critic: Critic, told: Callable[[Pairs], Array]) -> Callable[[Pairs], Array]:
    """L_inv of each pair, by a critic."""
    return lambda batch: invariance_loss(critic(batch.condition, told(batch)), batch.valid)


def new_critic(told: Callable[[Pairs], Array], pairs: list[Pairs], arguments: Arguments) -> Critic:
    """That has learned to tell which z is of which c."""
    (*_, condition), (*_, hindsight) = pairs[0].condition.shape, jax.eval_shape(told, pairs[0]).shape
    one, other = jax.random.split(jax.random.key(1))
    critic = Critic(MLP(condition, arguments.hidden, 64, one), MLP(hindsight, arguments.hidden, 64, other))
    return fitted(critic, lambda critic, batch: -masked_mean(invariance(critic, told)(batch), batch.valid),
                  pairs, arguments)  # fmt: skip


def invariances(frozen: Frozen, learned: list[Pairs], held_out: list[Pairs], arguments: Arguments) -> dict[str, float]:
    """L_inv by critics, on play that none has seen, of as many environments as a learner's batch has and of all."""
    told: dict[str, Callable[[Pairs], Array]] = {
        "z": lambda batch: batch.told,
        "noise": lambda batch: batch.noise,
        "w": lambda batch: batch.target,
    }
    critics = {f"a new critic, of {name}": (new_critic(of, learned, arguments), of) for name, of in told.items()}
    critics["its own critic, of z"] = frozen.curiosity.critic, told["z"]
    everyone = learned[0].valid.shape[-1]
    return {
        f"L_inv by {name}, B = {size}": mean(
            invariance(critic, of), [split(batch, size) for batch in held_out]
        )
        for size in (frozen.batch_size, everyone) for name, (critic, of) in critics.items()
    }  # fmt: skip


def errors(curiosity: BYOLHindsight, learned: list[Pairs], held_out: list[Pairs], arguments: Arguments) -> Any:
    """Mean errors of reconstructions, on play that no new network has seen."""
    forecaster: Any = curiosity.forecaster

    def error(guess: Callable[[Pairs], Array]) -> Callable[[Pairs], Array]:
        return lambda batch: latent.cosine_distance(guess(batch), batch.target)

    def anew(told: Callable[[Pairs], Array]) -> Callable[[PyTree, Pairs], Array]:
        def guess(network: PyTree, batch: Pairs) -> Array:
            rest = network(jnp.concatenate([batch.belief, told(batch)], axis=-1))
            return rest + latent.l2_normalize(forecaster(batch.belief))

        return guess

    guesses: dict[str, Callable[[Pairs], Array]] = {
        "forecast alone": lambda batch: forecaster(batch.belief),
        "with z": lambda batch: curiosity.reconstruct(batch.belief, batch.told),
        "with another environment's z": lambda batch: curiosity.reconstruct(
            batch.belief, jnp.roll(batch.told, 1, axis=1)
        ),
        "with noise for z": lambda batch: curiosity.reconstruct(batch.belief, batch.noise),
    }
    size = learned[0].belief.shape[-1] + curiosity.size
    for name, told in {"z": lambda batch: batch.told, "noise for z": lambda batch: batch.noise}.items():
        guess = anew(told)
        network = fitted(
            MLP(size, arguments.hidden, learned[0].target.shape[-1], jax.random.key(2), scale=0.0),
            lambda network, batch, guess=guess: masked_mean(error(lambda b: guess(network, b))(batch), batch.valid),
            learned, arguments,
        )  # fmt: skip
        guesses[f"new reconstructor, with {name}"] = lambda batch, network=network, guess=guess: guess(network, batch)
    return {f"error, {name}": mean(error(guess), held_out) for name, guess in guesses.items()}


def measure(arguments: Arguments) -> dict[str, float]:
    frozen = Frozen(arguments.run)
    pairs = frozen.play(arguments.rollouts + arguments.held_out, jax.random.key(0))
    learned, held_out = pairs[: arguments.rollouts], pairs[arguments.rollouts :]
    return {
        "step": frozen.step,
        "log B of a batch": float(np.log(frozen.batch_size)),
        "log B of all": float(np.log(learned[0].valid.shape[-1])),
        "|z - eps|^2 / 2": mean(lambda batch: jnp.sum(jnp.square(batch.told - batch.noise), axis=-1) / 2, held_out),
        **errors(frozen.curiosity, learned, held_out, arguments),
        **invariances(frozen, learned, held_out, arguments),
    }


def main(arguments: Arguments) -> None:
    enable_compilation_cache()
    show(measure(arguments), f"what z tells in {arguments.run}", arguments.json)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
