"""Compare initialisations and settings that may keep the paper's Atari encoder from collapsing under bootstrapping.

Records a game with random actions, then trains encoder, core and world model on the recording with BYOL-Explore's loss
alone, without reward and policy. All figures except the loss are of held-out sequences.

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

from byol_explore.agent.learner import Learner
from byol_explore.config.presets import make_config
from byol_explore.curiosity.byol_explore import BYOLExplore, encode_sequence
from byol_explore.curiosity.method import prediction_error_growth
from byol_explore.envs.atari import Atari
from byol_explore.envs.atari_worker import SIZE
from byol_explore.envs.interface import EnvSpec
from byol_explore.errors import UserError, unknown_name
from byol_explore.networks.centering import MIN_STD, SupportsCentering, center_encoder, warmup_observations_host
from byol_explore.networks.layers import Conv, GroupNorm, Linear, SubtractMean
from byol_explore.networks.representation import Actor, Networks, Representation
from byol_explore.ops import world_model
from byol_explore.spaces import Image
from byol_explore.types import Action, Array, Encoder, Policy, Trajectory
from byol_explore.utils.files import atomic_write
from byol_explore.utils.packages import enable_compilation_cache

ROUNDS = 8  # consecutive sequences per game


class Variant(NamedTuple):
    """An initialisation of the encoder and settings of its training; the defaults are the paper's."""

    not_centered: tuple[type, ...] = ()  # layer types that keep their initial bias; the others are centred
    unit: tuple[type, ...] = ()  # layer types whose outputs are scaled to unit standard deviation as well
    deviation: float | None = None  # standard deviation of the embeddings; None keeps the initial one
    rescale_core: bool = True  # divide the core's input weights by `deviation`
    learning_rate: float = 1e-4
    encoder_rate: float = 1.0  # learning rate of the encoder relative to that of the other networks
    encoder_delay: int = 0  # updates over which the encoder's rate rises linearly from zero
    target_decay: float = 0.99
    loss_weight: float = 5.0


VARIANTS = {
    "nothing": Variant(not_centered=(SubtractMean, Conv, GroupNorm, Linear)),
    "last-bias": Variant(not_centered=(SubtractMean, Conv, GroupNorm)),
    "no-mean-image": Variant(not_centered=(SubtractMean,)),
    "no-group-norm": Variant(not_centered=(GroupNorm,)),
    "centered": Variant(),
    "unit": Variant(deviation=1.0),
    "unit-layers": Variant(unit=(Conv, GroupNorm), deviation=1.0),
    "deviation-4-read": Variant(deviation=4.0, rescale_core=False),
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
SETTINGS = ("loss_weight", "learning_rate", "encoder_rate", "target_decay")  # traced arguments of the update
COLUMNS = ("update", "loss", "spread", "rank", "error_1", "error_K", "growth", "explained")


@dataclass(frozen=True)
class Arguments:
    """Compare initialisations and settings on one game."""

    game: str = "montezuma_revenge"
    """Game to record."""
    variants: tuple[str, ...] = tuple(VARIANTS)
    """Variants to train."""
    updates: tuple[int, ...] = (0, 50, 100, 235)
    """Numbers of updates after which to measure."""
    side: int = 42
    """Side of an image in pixels: half of the agent's, for speed."""
    sequences: int = 48
    """Recorded sequences to train on."""
    held_out: int = 16
    """Sequences to measure on, from other games than the training sequences."""
    length: int = 17
    """T, observations in a sequence."""
    batch: int = 4
    """B, sequences in an update."""
    horizon: int = 5
    """K."""
    seed: int = 0
    """Seeds of networks and batches."""
    json: Path | None = None
    """Also write the figures here, after every variant."""

    def validate(self) -> None:
        for name in self.variants:
            if name not in VARIANTS:
                raise unknown_name("variant", name, list(VARIANTS))
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
    """Sequences of random actions, time-major."""

    image: np.ndarray  # [T, n, side, side, 1]
    is_first: np.ndarray  # [T, n]
    action: np.ndarray  # [T-1, n, 1]


def shrink(image: np.ndarray, side: int) -> np.ndarray:
    """Return square images [..., side, side, C] of block means."""
    *lead, height, width, channels = image.shape
    blocks = image.reshape(*lead, side, height // side, side, width // side, channels)
    return blocks.mean(axis=(-4, -2)).astype(np.uint8)


def record(env: Atari, sequences: int, length: int, side: int, seed: int) -> Recording:
    """Record random actions: `ROUNDS` consecutive sequences per game."""
    games = sequences // ROUNDS
    batch, rng, steps = env.make_vector_env(games, seed), np.random.default_rng(seed), []
    try:
        timestep = batch.reset()
        for _ in range(ROUNDS * length):
            choice = rng.integers(0, env.spec.action.discrete[0], (games, 1)).astype(np.int32)
            steps.append((shrink(timestep.observation, side), timestep.is_first.copy(), choice))
            timestep = batch.step(Action(choice, np.zeros((games, 0), np.float32)))
    finally:
        batch.close()
    image, is_first, action = (np.concatenate(np.split(np.stack(x), ROUNDS), axis=1) for x in zip(*steps, strict=True))
    is_first[0] = True  # no recurrent state is stored to continue from
    return Recording(image, is_first, action[:-1])


def as_trajectory(recording: Recording, actor: Actor, spec: EnvSpec, chosen: np.ndarray) -> Trajectory:
    """Return the chosen sequences as a trajectory; rewards and policy are unused."""
    image, is_first, action = (jnp.asarray(x[:, chosen]) for x in recording)
    zero = jnp.zeros(action.shape[:2])
    return Trajectory(
        observation=image, is_first=is_first, action=Action(action, jnp.zeros((*zero.shape, 0))), reward=zero,
        discount=zero + 1.0, behaviour_policy=Policy((), zero, zero), task_id=jnp.zeros(is_first.shape, jnp.int32),
        initial_state=actor.initial_state(spec, len(chosen)),
    )  # fmt: skip


class VariantLayer:
    """Stand-in for a layer while an encoder is centred, which applies the rules of a variant."""

    def __init__(self, layer: Any, variant: Variant) -> None:
        self.layer, self.variant = layer, variant

    def __call__(self, x: Array) -> Array:
        return self.layer(x)

    def centered(self, x: Array) -> "VariantLayer":
        layer = self.layer
        if isinstance(layer, self.variant.not_centered):
            return self
        if isinstance(layer, self.variant.unit):
            name = "scale" if isinstance(layer, GroupNorm) else "weight"
            deviation = jnp.maximum(jnp.std(layer(x), axis=(0, 1, 2)), MIN_STD)
            layer = eqx.tree_at(lambda node: getattr(node, name), layer, getattr(layer, name) / deviation)
        return VariantLayer(layer.centered(x), self.variant)

    def scale_outputs(self, factor: Array) -> "VariantLayer":
        return VariantLayer(self.layer.scale_outputs(factor), self.variant)


def initialise_encoder(encoder: Encoder, observation: np.ndarray, variant: Variant) -> Encoder:
    """Return the encoder with a variant's initialisation."""

    def is_layer(node: object) -> bool:
        return isinstance(node, SupportsCentering)

    stand_ins = jax.tree.map(lambda x: VariantLayer(x, variant) if is_layer(x) else x, encoder, is_leaf=is_layer)
    centered = center_encoder(stand_ins, observation, variant.deviation)
    return jax.tree.map(lambda x: x.layer if isinstance(x, VariantLayer) else x, centered)


class World(NamedTuple):
    """Trained networks and their target encoder."""

    representation: Representation
    curiosity: BYOLExplore
    target: Encoder
    optimizer: optax.OptState


ADAM = optax.scale_by_adam()  # the agent's, with rates as arguments, so that all variants share one program


def make_world(networks: Networks, observation: np.ndarray, variant: Variant) -> World:
    """Return the agent's networks with a variant's initialisation."""
    representation, curiosity = networks.actor.representation, networks.curiosity
    encoder, inputs = initialise_encoder(representation.encoder, observation, variant), representation.inputs
    if variant.deviation is not None and variant.rescale_core:
        inputs = inputs.rescale_for_std(variant.deviation)
    representation = Representation(encoder, inputs, representation.core)
    optimizer = ADAM.init((representation, curiosity))  # pyright: ignore[reportArgumentType]
    return World(representation, curiosity, encoder, optimizer)


@jax.jit
def update(world: World, batch: Trajectory, settings: dict[str, Array]) -> tuple[World, Array]:
    """Take one step of Adam on the curiosity's loss, and one of the target. Returns the new world and the loss."""

    def weighted_loss(trained: tuple[Representation, BYOLExplore]) -> Array:
        view = trained[0].unroll(batch.sequence, batch.previous, batch.initial_state.policy_core)
        return settings["loss_weight"] * trained[1](world.target, view, batch.sequence).loss

    trained = (world.representation, world.curiosity)
    loss, gradient = jax.value_and_grad(weighted_loss)(trained)
    direction, optimizer = ADAM.update(gradient, world.optimizer)  # pyright: ignore[reportArgumentType]
    direction = jax.tree.map(lambda x: -settings["learning_rate"] * x, direction)
    slower = partial(jax.tree.map, lambda x: settings["encoder_rate"] * x)
    direction = eqx.tree_at(lambda x: x[0].encoder, direction, replace_fn=slower)
    representation, curiosity = optax.apply_updates(trained, direction)  # pyright: ignore
    target = world_model.ema(world.target, representation.encoder, settings["target_decay"])
    return World(representation, curiosity, target, optimizer), loss / settings["loss_weight"]


@jax.jit
def forward(world: World, batch: Trajectory) -> tuple[Array, Array, Array]:
    """Return the errors of each horizon [K], and embeddings and targets [n, N] of unit length."""
    view = world.representation.unroll(batch.sequence, batch.previous, batch.initial_state.policy_core)
    errors = world.curiosity(world.target, view, batch.sequence).metrics["prediction_error"]
    targets = encode_sequence(world.target, batch.observation)
    unit, unit_targets = (world_model.l2_normalize(x.reshape(-1, x.shape[-1])) for x in (view.embedding, targets))
    return errors, unit, unit_targets


def collapse_metrics(errors: np.ndarray, unit: np.ndarray, targets: np.ndarray) -> dict[str, Any]:
    """Measure how far embeddings have collapsed.

    `rank` is the exponential of the entropy of the spectrum. `explained` is the share of the error of the best constant
    prediction, 2 - 2 |mean target|, that the world model removes: it separates learning from embeddings becoming equal.

    Args:
      errors: [K] mean error of each horizon.
      unit: [n, N] embeddings of unit length.
      targets: [n, N] targets of unit length.
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
        "growth": prediction_error_growth(errors.tolist()),
        "explained": 1.0 - float(errors.mean()) / constant,
        "errors": errors.tolist(),
    }


class Experiment:
    """A recorded game, and the initial networks of all variants."""

    def __init__(self, arguments: Arguments) -> None:
        self.arguments, env = arguments, Atari(arguments.game)
        self.recording = record(env, arguments.sequences, arguments.length, arguments.side, 0)
        held_out = record(env, arguments.held_out, arguments.length, arguments.side, 1)
        self.warmup = shrink(warmup_observations_host([env], 2), arguments.side)
        config = make_config("atari")
        config = dataclasses.replace(config, curiosity=dataclasses.replace(config.curiosity, horizon=arguments.horizon))
        self.spec = env.spec._replace(observation=Image(arguments.side, arguments.side, 1))
        learner = Learner(config, self.spec, 1)
        self.networks = learner.init(jax.random.key(arguments.seed)).online
        self.held_out = as_trajectory(held_out, self.networks.actor, self.spec, np.arange(arguments.held_out))

    def rows(self, variant: Variant) -> Iterator[dict[str, Any]]:
        """Yield the figures of one variant after each number of updates."""
        arguments, losses = self.arguments, []
        world = make_world(self.networks, self.warmup, variant)
        settings = {name: jnp.asarray(getattr(variant, name)) for name in SETTINGS}
        rng = np.random.default_rng(arguments.seed)
        for step in range(max(arguments.updates) + 1):
            if step in arguments.updates:
                outputs = [np.asarray(x, np.float64) for x in forward(world, self.held_out)]
                loss = float(np.mean(losses[-25:])) if losses else None
                yield {"update": step, "loss": loss, **collapse_metrics(*outputs)}
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
            atomic_write(arguments.json, json.dumps(results, indent=2) + "\n")
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
