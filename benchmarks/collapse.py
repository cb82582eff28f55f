"""What keeps the embeddings of the paper's Atari encoder alive under bootstrapping: starts and settings compared.

Plays a game with random actions, then trains encoder, core and world model on what was recorded with BYOL-Explore's
loss alone: no reward, no policy. All figures but the loss are of sequences that are not trained on.

python benchmarks/collapse.py --game montezuma_revenge --json collapse.json
python benchmarks/collapse.py --game private_eye --variants nothing centered --updates 0 235 1000
"""

import dataclasses
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro
from rich.console import Console
from rich.table import Table

from byol_explore.curiosity.byol_explore import BYOLExplore, encode
from byol_explore.curiosity.vitals import error_growth
from byol_explore.envs.adapters.atari import Atari
from byol_explore.envs.adapters.atari_emulator import SIZE
from byol_explore.envs.base import EnvSpec
from byol_explore.errors import UserError, unknown
from byol_explore.files import write_atomically
from byol_explore.learner import Learner
from byol_explore.networks.assembly import Actor, Networks, Representation
from byol_explore.networks.centering import SMALLEST, Centerable, centered
from byol_explore.networks.layers import Center, Conv, GroupNorm, Linear
from byol_explore.ops import latent
from byol_explore.runtime.compilation import enable_compilation_cache
from byol_explore.runtime.first_look import look_outside
from byol_explore.settings.presets import make_config
from byol_explore.spaces import Image
from byol_explore.types import Action, Array, Encoder, Policy, Trajectory

ROUNDS = 8  # sequences in a row from each game


class Variant(NamedTuple):
    """A start of the encoder, and the settings of its training; where nothing else is said, they are the paper's."""

    left: tuple[type, ...] = ()  # kinds of layers that stay as they are drawn; the others are centred
    unit: tuple[type, ...] = ()  # kinds whose outputs get unit deviation as well
    deviation: float | None = None  # of the embeddings; None leaves it as it is drawn
    undone: bool = True  # whether the core's weights are as much smaller
    learning_rate: float = 1e-4
    encoder_rate: float = 1.0  # learning rate of the encoder over that of everything else
    encoder_delay: int = 0  # updates over which the encoder's rate rises from zero
    target_decay: float = 0.99
    loss_weight: float = 5.0


VARIANTS = {
    "nothing": Variant(left=(Center, Conv, GroupNorm, Linear)),
    "last-bias": Variant(left=(Center, Conv, GroupNorm)),
    "no-mean-image": Variant(left=(Center,)),
    "no-group-norm": Variant(left=(GroupNorm,)),
    "centered": Variant(),
    "unit": Variant(deviation=1.0),
    "unit-layers": Variant(unit=(Conv, GroupNorm), deviation=1.0),
    "deviation-4-read": Variant(deviation=4.0, undone=False),
    "deviation-4": Variant(deviation=4.0),
    "deviation-16": Variant(deviation=16.0),
    "deviation-64": Variant(deviation=64.0),
    "encoder-rate-0.1": Variant(encoder_rate=0.1),
    "encoder-delay-200": Variant(encoder_delay=200),
    "loss-weight-1": Variant(loss_weight=1.0),
    "rate-3e-4": Variant(learning_rate=3e-4),
    "rate-1e-3": Variant(learning_rate=1e-3),
    "decay-0.9": Variant(target_decay=0.9),
    "decay-0.999": Variant(target_decay=0.999),
}
SETTINGS = ("loss_weight", "learning_rate", "encoder_rate", "target_decay")  # numbers that the update reads
COLUMNS = ("update", "loss", "spread", "rank", "error_1", "error_K", "growth", "explained")


@dataclass(frozen=True)
class Arguments:
    """Compare starts and settings on one game."""

    game: str = "montezuma_revenge"
    """The game that is recorded."""
    variants: tuple[str, ...] = tuple(VARIANTS)
    """Which of them to train."""
    updates: tuple[int, ...] = (0, 50, 100, 235)
    """After how many updates to look."""
    side: int = 42
    """Pixels of an image's side: half of what the agent sees, for speed."""
    sequences: int = 48
    """Recorded sequences to train on."""
    held_out: int = 16
    """Sequences to look at, from other games than those to train on."""
    length: int = 17
    """T, observations in a sequence."""
    batch: int = 4
    """B, sequences in an update."""
    horizon: int = 5
    """K."""
    seed: int = 0
    """Of networks and batches."""
    json: Path | None = None
    """Also write the figures here, after every variant."""

    def validate(self) -> None:
        for name in self.variants:
            if name not in VARIANTS:
                raise unknown("variant", name, list(VARIANTS))
        for name in ("sequences", "held_out"):
            if getattr(self, name) < ROUNDS or getattr(self, name) % ROUNDS:
                raise UserError(f"{name} {getattr(self, name)} must be a multiple of {ROUNDS}: each game gives as many")
        if SIZE % self.side:
            raise UserError(f"side {self.side} must divide {SIZE}")
        if self.batch > self.sequences:
            raise UserError(f"batch {self.batch} must be at most sequences {self.sequences}")
        if self.horizon >= self.length:
            raise UserError(f"horizon {self.horizon} must be below length {self.length}")


class Recording(NamedTuple):
    """Sequences of random play, time-major."""

    image: np.ndarray  # [T, n, side, side, 1]
    is_first: np.ndarray  # [T, n]
    action: np.ndarray  # [T-1, n, 1]


def shrink(image: np.ndarray, side: int) -> np.ndarray:
    """Square images whose pixels are the means of the areas that they cover."""
    *lead, height, width, channels = image.shape
    blocks = image.reshape(*lead, side, height // side, side, width // side, channels)
    return blocks.mean(axis=(-4, -2)).astype(np.uint8)


def record(env: Atari, sequences: int, length: int, side: int, seed: int) -> Recording:
    """Random play, a few sequences in a row from each game."""
    games = sequences // ROUNDS
    batch, rng, steps = env.batch(games, seed), np.random.default_rng(seed), []
    try:
        timestep = batch.reset()
        for _ in range(ROUNDS * length):
            choice = rng.integers(0, env.spec.action.discrete[0], (games, 1)).astype(np.int32)
            steps.append((shrink(timestep.observation, side), timestep.is_first.copy(), choice))
            timestep = batch.step(Action(choice, np.zeros((games, 0), np.float32)))
    finally:
        batch.close()
    image, is_first, action = (np.concatenate(np.split(np.stack(x), ROUNDS), axis=1) for x in zip(*steps, strict=True))
    is_first[0] = True  # no recurrent state is stored from which to go on
    return Recording(image, is_first, action[:-1])


def as_trajectory(recording: Recording, actor: Actor, spec: EnvSpec, chosen: np.ndarray) -> Trajectory:
    """Some of the sequences as the learner sees them; rewards and policy are not used."""
    image, is_first, action = (jnp.asarray(x[:, chosen]) for x in recording)
    zero = jnp.zeros(action.shape[:2])
    return Trajectory(
        observation=image, is_first=is_first, action=Action(action, jnp.zeros((*zero.shape, 0))), reward=zero,
        discount=zero + 1.0, policy=Policy((), zero, zero), task=jnp.zeros(is_first.shape, jnp.int32),
        memory=actor.initial_memory(spec, len(chosen)),
    )  # fmt: skip


class Treated:
    """Stands in for a layer while an encoder is centred, and does with it what a variant says."""

    def __init__(self, layer: Any, variant: Variant) -> None:
        self.layer, self.variant = layer, variant

    def __call__(self, x: Array) -> Array:
        return self.layer(x)

    def centered(self, x: Array) -> "Treated":
        layer = self.layer
        if isinstance(layer, self.variant.left):
            return self
        if isinstance(layer, self.variant.unit):
            name = "scale" if isinstance(layer, GroupNorm) else "weight"
            deviation = jnp.maximum(jnp.std(layer(x), axis=(0, 1, 2)), SMALLEST)
            layer = eqx.tree_at(lambda node: getattr(node, name), layer, getattr(layer, name) / deviation)
        return Treated(layer.centered(x), self.variant)

    def scaled(self, factor: Array) -> "Treated":
        return Treated(self.layer.scaled(factor), self.variant)


def started(encoder: Encoder, observation: np.ndarray, variant: Variant) -> Encoder:
    """The encoder with a variant's start."""

    def is_layer(node: object) -> bool:
        return isinstance(node, Centerable)

    treated = jax.tree.map(lambda x: Treated(x, variant) if is_layer(x) else x, encoder, is_leaf=is_layer)
    treated = centered(treated, observation, variant.deviation)
    return jax.tree.map(lambda x: x.layer if isinstance(x, Treated) else x, treated)


class World(NamedTuple):
    """What is trained, and what it is trained towards."""

    representation: Representation
    curiosity: BYOLExplore
    target: Encoder
    optimizer: optax.OptState


ADAM = optax.scale_by_adam()  # as the agent's; the rates are arguments, so that one program serves all variants


def make_world(networks: Networks, observation: np.ndarray, variant: Variant) -> World:
    """The agent's networks with a variant's start."""
    representation, curiosity = networks.actor.representation, networks.curiosity
    encoder, inputs = started(representation.encoder, observation, variant), representation.inputs
    if variant.deviation is not None and variant.undone:
        inputs = inputs.for_deviation(variant.deviation)
    representation = Representation(encoder, inputs, representation.core)
    optimizer = ADAM.init((representation, curiosity))  # pyright: ignore[reportArgumentType]
    return World(representation, curiosity, encoder, optimizer)


@jax.jit
def update(world: World, batch: Trajectory, settings: dict[str, Array]) -> tuple[World, Array]:
    """One step of Adam on the curiosity's loss alone, and one of the target."""

    def weighted_loss(trained: tuple[Representation, BYOLExplore]) -> Array:
        view = trained[0].unroll(batch.sequence, batch.before, batch.memory.core)
        return settings["loss_weight"] * trained[1](world.target, view, batch.sequence).loss

    trained = (world.representation, world.curiosity)
    loss, gradient = jax.value_and_grad(weighted_loss)(trained)
    direction, optimizer = ADAM.update(gradient, world.optimizer)  # pyright: ignore[reportArgumentType]
    direction = jax.tree.map(lambda x: -settings["learning_rate"] * x, direction)
    slower = partial(jax.tree.map, lambda x: settings["encoder_rate"] * x)
    direction = eqx.tree_at(lambda x: x[0].encoder, direction, replace_fn=slower)
    representation, curiosity = optax.apply_updates(trained, direction)  # pyright: ignore
    target = latent.ema(world.target, representation.encoder, settings["target_decay"])
    return World(representation, curiosity, target, optimizer), loss / settings["loss_weight"]


@jax.jit
def look(world: World, batch: Trajectory) -> tuple[Array, Array, Array]:
    """Errors of each horizon; embeddings and targets of unit length."""
    view = world.representation.unroll(batch.sequence, batch.before, batch.memory.core)
    errors = world.curiosity(world.target, view, batch.sequence).metrics["prediction_error"]
    targets = encode(world.target, batch.observation)
    unit, unit_targets = (latent.l2_normalize(x.reshape(-1, x.shape[-1])) for x in (view.embedding, targets))
    return errors, unit, unit_targets


def vitals(errors: np.ndarray, unit: np.ndarray, targets: np.ndarray) -> dict[str, Any]:
    """Signs of life.

    `rank` is the exponential of the entropy of the spectrum, `explained` the share of the error of the best constant
    prediction, 2 - 2 |mean target|, that the world model does without: it tells what was learned from what became
    alike.
    """
    mean = unit.mean(axis=0)
    constant = 2.0 - 2.0 * float(np.linalg.norm(targets.mean(axis=0)))
    variance = np.square(np.linalg.svd(unit - mean, compute_uv=False))
    share = variance[variance > 0.0] / variance.sum()
    return {
        "spread": 1.0 - float(np.sum(np.square(mean))),
        "rank": float(np.exp(-np.sum(share * np.log(share)))),
        "error_1": float(errors[0]),
        "error_K": float(errors[-1]),
        "growth": error_growth(errors.tolist()),
        "explained": 1.0 - float(errors.mean()) / constant,
        "errors": errors.tolist(),
    }


class Experiment:
    """A recorded game, and networks with which every variant begins."""

    def __init__(self, arguments: Arguments) -> None:
        self.arguments, env = arguments, Atari(arguments.game)
        self.recording = record(env, arguments.sequences, arguments.length, arguments.side, 0)
        held_out = record(env, arguments.held_out, arguments.length, arguments.side, 1)
        self.first_look = shrink(look_outside([env], 2), arguments.side)
        config = make_config("atari")
        config = dataclasses.replace(config, curiosity=dataclasses.replace(config.curiosity, horizon=arguments.horizon))
        self.spec = env.spec._replace(observation=Image(arguments.side, arguments.side, 1))
        learner = Learner(config, self.spec, 1)
        self.networks = learner.init(jax.random.key(arguments.seed)).online
        self.held_out = as_trajectory(held_out, self.networks.actor, self.spec, np.arange(arguments.held_out))

    def rows(self, variant: Variant) -> Iterator[dict[str, Any]]:
        """Figures of one variant, before training and after some updates."""
        arguments, losses = self.arguments, []
        world = make_world(self.networks, self.first_look, variant)
        settings = {name: jnp.asarray(getattr(variant, name)) for name in SETTINGS}
        rng = np.random.default_rng(arguments.seed)
        for step in range(max(arguments.updates) + 1):
            if step in arguments.updates:
                seen = [np.asarray(x, np.float64) for x in look(world, self.held_out)]
                loss = float(np.mean(losses[-25:])) if losses else None
                yield {"update": step, "loss": loss, **vitals(*seen)}
            chosen = rng.choice(arguments.sequences, arguments.batch, replace=False)
            batch = as_trajectory(self.recording, self.networks.actor, self.spec, chosen)
            if variant.encoder_delay:
                settings["encoder_rate"] = jnp.asarray(variant.encoder_rate * min(1.0, step / variant.encoder_delay))
            world, loss = update(world, batch, settings)
            losses.append(loss)


def compare(arguments: Arguments, console: Console) -> dict[str, list[dict[str, Any]]]:
    arguments.validate()
    enable_compilation_cache()
    with console.status(f"playing {arguments.game}"):
        experiment = Experiment(arguments)
    results: dict[str, list[dict[str, Any]]] = {}
    for name in arguments.variants:
        rows = results[name] = []
        for row in experiment.rows(VARIANTS[name]):
            rows.append(row)
            console.print(
                f"{name}, {row['update']} updates: spread {row['spread']:.3f}, {row['explained']:.2f} explained"
            )
        if arguments.json is not None:
            write_atomically(arguments.json, json.dumps(results, indent=2) + "\n")
    return results


def show(results: dict[str, list[dict[str, Any]]], title: str, console: Console) -> None:
    table = Table(title=title)
    table.add_column("variant")
    for name in COLUMNS:
        table.add_column(name, justify="right")
    for name, rows in results.items():
        for row in rows:
            figures = [row[column] for column in COLUMNS]
            table.add_row(name if row is rows[0] else "", *("" if x is None else f"{x:.4g}" for x in figures))
    console.print(table)


def main(arguments: Arguments) -> None:
    console = Console()
    try:
        results = compare(arguments, console)
    except UserError as error:
        sys.exit(f"error: {error}")
    show(results, f"{arguments.game}, {arguments.side} x {arguments.side}, K = {arguments.horizon}", console)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
