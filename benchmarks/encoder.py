"""Compare the speed of the paper's Atari encoder in this package, in byol-explore-native, in plain JAX and in PyTorch.

Each round runs every contestant once. PyTorch takes part in several forms, with and without torch.compile, of which the
fastest counts. `--threads 1` limits the process to one CPU.

make native
pip install torch==2.13.0
python benchmarks/encoder.py --json encoder.json
python benchmarks/encoder.py --threads 1 --json encoder-1.json
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

from byol_explore.networks import cpu_kernels, native_resnet
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
    threads: int = 0
    """CPUs that all may use; 0 for all of this machine."""
    compile: bool = True
    """PyTorch also takes part with torch.compile, which needs a C++ compiler."""
    plain: bool = True
    """Plain JAX takes part, which is slow."""
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
    network: Any, frames: np.ndarray, chunk: int
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


def torch_contestants(network: nn.Module, frames: np.ndarray, arguments: Arguments) -> dict[str, Any]:
    """Return PyTorch's forms by name, each with its forward pass and its gradient."""
    forms = {f"torch_{size}": torch_contestant(network, frames, size) for size in chunks(arguments)}
    if arguments.compile:
        compiled = torch.compile(network, dynamic=False)  # a program of its own for each size, which is faster
        forms |= {f"torch_compiled_{size}": torch_contestant(compiled, frames, size) for size in chunks(arguments)}
    return forms


def chunks(arguments: Arguments) -> list[int]:
    """Return the different chunk sizes; 0 and sizes above the batch become the batch."""
    if not arguments.chunk or min(arguments.chunk) < 0:
        sys.exit(f"chunk is {arguments.chunk}: give numbers of images, or 0 for all of them")
    return sorted({min(size, arguments.frames) or arguments.frames for size in arguments.chunk})


def check_same(encoder: AtariEncoder, network: nn.Module, outputs: dict[str, Any]) -> None:
    """Exit unless all are the same network: in the number of parameters, and in outputs up to rounding."""
    counts = [sum(x.size for x in jax.tree.leaves(trainable(encoder))), sum(x.numel() for x in network.parameters())]
    if counts[0] != counts[1]:
        sys.exit(f"not the same network: {counts[0]} parameters in JAX, {counts[1]} in PyTorch")
    ours = np.asarray(outputs["ours"])
    for name, other in outputs.items():
        difference = float(np.abs(ours - np.asarray(other)).max() / np.abs(ours).max())
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


def jax_contestants(encoder: AtariEncoder, frames: jax.Array, arguments: Arguments) -> dict[str, Any]:
    """Return the forms in JAX by name; `native` only if byol-explore-native is installed."""
    forms = {}
    if native_resnet.can_encode(encoder.resnet, frames):
        forms["native"] = jax_contestant(encoder, frames)
    with native_resnet.disable_native():
        forms["ours"] = jax_contestant(encoder, frames)
    if arguments.plain:
        with cpu_kernels.disable_cpu_kernels():
            forms["plain"] = jax_contestant(encoder, frames)
    return forms


def limit_threads(arguments: Arguments) -> int:
    """Limit this process and PyTorch to `threads` CPUs, before JAX starts its threads. Returns their number."""
    available = sorted(os.sched_getaffinity(0))
    if not 0 <= arguments.threads <= len(available):
        sys.exit(f"threads is {arguments.threads}: choose 1 to {len(available)}, or 0 for all")
    used = available[: arguments.threads or len(available)]
    os.sched_setaffinity(0, used)
    torch.set_num_threads(len(used))
    return len(used)


def measure(arguments: Arguments, console: Console) -> dict[str, Any]:
    figures: dict[str, Any] = {"frames": arguments.frames, "threads": limit_threads(arguments)}
    encoder = AtariEncoder(SHAPE, EMBEDDING, jax.random.key(0))
    frames = np.random.default_rng(0).integers(0, 256, (arguments.frames, *SHAPE)).astype(np.uint8)
    network = torch_encoder(encoder)
    with console.status("compiling"):
        forms = jax_contestants(encoder, jnp.asarray(frames), arguments) | torch_contestants(network, frames, arguments)
        with cpu_kernels.disable_cpu_kernels():
            forward = count_flops(lambda e: e(jnp.asarray(frames)), encoder)
            both = count_flops(jax.grad(lambda e: jnp.sum(e(jnp.asarray(frames)))), encoder)
        check_same(encoder, network, {name: forward() for name, (forward, _) in forms.items()})
    figures["native"] = native_resnet.announcement() or "byol-explore-native is not used"
    matrix, product = jnp.ones((SIZE, SIZE)), jax.jit(lambda x: x @ x)
    for index, (name, flops) in enumerate((("fwd", forward), ("fwd_bwd", both))):
        contestants: Contestants = {form: passes[index] for form, passes in forms.items()}
        contestants["gemm"] = lambda: jax.block_until_ready(product(matrix))
        seconds = race(contestants, arguments.repetitions, name, console)
        figures |= {f"{form}_{name}_frames_per_second": arguments.frames / seconds[form] for form in forms}
        best = min((form for form in forms if form.startswith("torch")), key=seconds.__getitem__)
        figures[f"torch_best_{name}"] = best
        for form in [form for form in forms if not form.startswith("torch")]:
            figures[f"{form}_over_torch_{name}"] = seconds[best] / seconds[form]
            share = flops / seconds[form] / (2.0 * SIZE**3 / seconds["gemm"])
            figures[f"{form}_flop_share_of_gemm_{name}"] = share  # of the arithmetic that is needed, done once
    return figures


def main(arguments: Arguments) -> None:
    show(measure(arguments, Console()), "the paper's Atari encoder, float32", arguments.json)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
