"""Compare the speed of the paper's Atari encoder in this package, in plain JAX and in PyTorch.

pip install torch==2.13.0
python benchmarks/encoder.py --json encoder.json
"""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from figures import show
from flops import count_flops
from rich.console import Console

from byol_explore.networks import cpu_kernels
from byol_explore.networks.layers import trainable
from byol_explore.networks.paper_encoders import AtariEncoder, ResidualUnit

try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError:
    sys.exit("this benchmark compares with PyTorch, which is not installed: pip install torch==2.13.0")

SHAPE, EMBEDDING, SIZE = (84, 84, 1), 512, 2048
Contestants = dict[str, Callable[[], Any]]


@dataclass(frozen=True)
class Arguments:
    """Measure the encoder's forward and backward pass."""

    frames: int = 512
    """Images per batch."""
    repetitions: int = 5
    """Rounds in which each implementation runs once; medians are reported."""
    chunk: tuple[int, ...] = (8, 64, 0)
    """Chunk sizes of PyTorch, of which the fastest is reported; 0 is the whole batch. Ours is 8
    (networks/cpu_kernels.py)."""
    json: Path | None = None
    """File to write the figures to."""


class TorchBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x: Any) -> Any:
        return x + self.second(functional.relu(self.first(functional.relu(x))))


class TorchUnit(nn.Module):
    def __init__(self, inputs: int, channels: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(inputs, channels, 3, padding=1), nn.GroupNorm(1, channels)
        self.blocks = nn.Sequential(TorchBlock(channels), TorchBlock(channels))

    def forward(self, x: Any) -> Any:
        x = self.conv(x)
        height, width = x.shape[2:]
        # SAME padding pads both sides of an odd axis; on an even axis only the last window is cut.
        pooled = functional.max_pool2d(x, 3, stride=2, padding=(height % 2, width % 2), ceil_mode=True)
        return self.norm(self.blocks(pooled))

    def load(self, unit: ResidualUnit) -> None:
        assert unit.norm is not None
        pairs = [(self.conv, unit.conv)]
        for mine, theirs in zip(self.blocks, unit.blocks, strict=True):
            pairs += [(mine.first, theirs.first), (mine.second, theirs.second)]
        for mine, theirs in pairs:
            copy(mine.weight, np.transpose(theirs.weight, (3, 2, 0, 1)))
            copy(mine.bias, theirs.bias)
        copy(self.norm.weight, unit.norm.scale)
        copy(self.norm.bias, unit.norm.bias)


class TorchFlatten(nn.Module):
    """In the order of height, width, channels, as ours."""

    def forward(self, x: Any) -> Any:
        return x.permute(0, 2, 3, 1).reshape(x.shape[0], -1)


def torch_encoder(encoder: AtariEncoder) -> nn.Module:
    """Return the same network with the same weights in PyTorch, channels last."""
    units = [TorchUnit(u.conv.weight.shape[2], u.conv.weight.shape[3]) for u in encoder.resnet.units]
    for mine, theirs in zip(units, encoder.resnet.units, strict=True):
        mine.load(theirs)
    linear = nn.Linear(*encoder.linear.weight.shape)
    copy(linear.weight, np.transpose(encoder.linear.weight))
    copy(linear.bias, encoder.linear.bias)
    return nn.Sequential(*units, nn.ReLU(), TorchFlatten(), linear).to(memory_format=torch.channels_last)


def copy(parameter: Any, value: Any) -> None:
    with torch.no_grad():
        parameter.copy_(torch.from_numpy(np.array(value)))


def jax_contestant(encoder: AtariEncoder, frames: jax.Array) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return the forward pass and the gradient, compiled now, with or without CPU kernels as set by the caller."""

    def loss(encoder: AtariEncoder, frames: jax.Array) -> jax.Array:
        return jnp.mean(jnp.square(encoder(frames)))

    forward = jax.jit(lambda encoder, frames: encoder(frames)).lower(encoder, frames).compile()
    both = jax.jit(jax.grad(loss)).lower(encoder, frames).compile()
    return lambda: jax.block_until_ready(forward(encoder, frames)), lambda: jax.block_until_ready(both(encoder, frames))


def torch_contestant(
    network: nn.Module, frames: np.ndarray, chunk: int
) -> tuple[Callable[[], Any], Callable[[], Any]]:  # fmt: skip
    """Return the forward pass and the gradient, computed in chunks of images whose gradients add up."""
    images = torch.from_numpy(frames).permute(0, 3, 1, 2)  # channels last in memory
    parts, numbers = images.split(chunk), len(images) * EMBEDDING

    def forward() -> Any:
        with torch.no_grad():
            return torch.cat([network(part.float() / 255.0) for part in parts])

    def both() -> None:
        network.zero_grad(set_to_none=True)
        for part in parts:
            (network(part.float() / 255.0).square().sum() / numbers).backward()

    return forward, both


def chunks(arguments: Arguments) -> list[int]:
    """Return the different chunk sizes; 0 and sizes above the batch become the batch."""
    if not arguments.chunk or min(arguments.chunk) < 0:
        sys.exit(f"chunk is {arguments.chunk}: give numbers of images, or 0 for all of them")
    return sorted({min(size, arguments.frames) or arguments.frames for size in arguments.chunk})


def check_same(encoder: AtariEncoder, ours: Any, plain: Any, theirs: dict[int, Any], network: nn.Module) -> None:
    counts = [sum(x.size for x in jax.tree.leaves(trainable(encoder))), sum(x.numel() for x in network.parameters())]
    if counts[0] != counts[1]:
        sys.exit(f"not the same network: {counts[0]} parameters in JAX, {counts[1]} in PyTorch")
    others = {"plain JAX": plain} | {f"PyTorch in chunks of {size}": seen.numpy() for size, seen in theirs.items()}
    for name, other in others.items():
        difference = float(np.abs(np.asarray(ours) - np.asarray(other)).max() / np.abs(np.asarray(other)).max())
        if not difference < 1e-3:
            sys.exit(f"not the same network: outputs differ from {name} by {difference:.1e} of the largest")


def race(contestants: Contestants, repetitions: int, title: str, console: Console) -> dict[str, float]:
    """Return median seconds of each, measured in turn, so that other load on the machine affects all equally."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    with console.status(title) as status:
        for repetition in range(-1, repetitions):  # the first round is not counted
            for name, run in contestants.items():
                status.update(f"{title}: round {repetition + 1} of {repetitions}, {name}")
                began = time.perf_counter()
                run()
                if repetition >= 0:
                    times[name].append(time.perf_counter() - began)
    return {name: float(np.median(values)) for name, values in times.items()}


def measure(arguments: Arguments, console: Console) -> dict[str, float]:
    torch.set_num_threads(os.cpu_count() or 1)
    encoder = AtariEncoder(SHAPE, EMBEDDING, jax.random.key(0))
    frames = np.random.default_rng(0).integers(0, 256, (arguments.frames, *SHAPE)).astype(np.uint8)
    network = torch_encoder(encoder)
    with console.status("compiling"):
        ours = jax_contestant(encoder, jnp.asarray(frames))
        with cpu_kernels.disable_cpu_kernels():
            plain = jax_contestant(encoder, jnp.asarray(frames))
            flops = count_flops(jax.grad(lambda e: jnp.sum(e(jnp.asarray(frames)))), encoder)
    theirs = {size: torch_contestant(network, frames, size) for size in chunks(arguments)}
    check_same(encoder, ours[0](), plain[0](), {size: each[0]() for size, each in theirs.items()}, network)
    matrix, product = jnp.ones((SIZE, SIZE)), jax.jit(lambda x: x @ x)
    figures: dict[str, float] = {"frames": arguments.frames}
    for index, name in enumerate(("fwd", "fwd_bwd")):
        contestants: Contestants = {"plain": plain[index], "ours": ours[index]}
        contestants |= {f"torch_{size}": each[index] for size, each in theirs.items()}
        if name == "fwd_bwd":
            contestants["gemm"] = lambda: jax.block_until_ready(product(matrix))
        seconds = race(contestants, arguments.repetitions, name, console)
        for other in ("plain", "ours", *(f"torch_{size}" for size in theirs)):
            figures[f"{other}_{name}_frames_per_second"] = arguments.frames / seconds[other]
        best = min(theirs, key=lambda size: seconds[f"torch_{size}"])
        figures[f"torch_best_chunk_{name}"] = best
        figures[f"ours_over_plain_{name}"] = seconds["plain"] / seconds["ours"]
        figures[f"ours_over_torch_{name}"] = seconds[f"torch_{best}"] / seconds["ours"]
    gemm = 2.0 * SIZE**3 / seconds["gemm"]
    figures["gflops"] = flops / seconds["ours"] / 1e9
    figures["gemm_gflops"] = gemm / 1e9
    figures["flop_share_of_gemm"] = flops / seconds["ours"] / gemm
    return figures


def main(arguments: Arguments) -> None:
    show(measure(arguments, Console()), "the paper's Atari encoder, float32", arguments.json)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
