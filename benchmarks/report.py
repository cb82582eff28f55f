"""Measure time and memory of a report on many long synthetic runs.

python benchmarks/report.py --json report.json
"""

import dataclasses
import json
import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from figures import show

from byol_explore.config.config import to_dict
from byol_explore.config.presets import make_config
from byol_explore.report.build import build_report, write_report

VARIANTS = {
    "byol-explore": {}, "rnd": {"method": "rnd"}, "icm": {"method": "icm"}, "none": {"method": "none"},
    "fixed-targets": {"ablation": "fixed-targets"}, "horizon-1": {"ablation": "horizon-1"},
    "no-clipping": {"ablation": "no-clipping"}, "no-sharing": {"ablation": "no-sharing"},
}  # fmt: skip
NUMBERS = (
    "loss", "loss_curiosity", "loss_value", "loss_policy", "loss_temperature", "loss_kl", "uncertainty",
    "uncertainty_running_std", "intrinsic_reward", "extrinsic_reward", "value", "value_target", "popart_std", "entropy",
    "kl", "temperature", "kl_multiplier_mean", "advantage_std", "grad_norm", "intrinsic_nonzero_fraction",
    "active_update_fraction",
    "embedding_spread", "prediction_error_growth", "target_relative_distance", "steps_per_second", "return_mean",
    "episode_length",
    "episode_return_max", "num_episodes",
)  # fmt: skip
SIDE, SLICES = 13, 8  # of visit maps


@dataclass(frozen=True)
class Arguments:
    """Write synthetic runs to a temporary directory and build a report."""

    runs: int = 200
    """Number of runs: eight variants on as many tasks as needed."""
    seeds: int = 5
    """Seeds per variant and task."""
    lines: int = 1000
    """Lines per metrics.jsonl."""
    json: Path | None = None
    """File to write the figures to."""


def write_runs(root: Path, arguments: Arguments) -> int:
    """Write all runs. Returns the bytes of metrics."""
    random, total = np.random.default_rng(0), 0
    for index in range(arguments.runs):
        variant = list(VARIANTS)[index % len(VARIANTS)]
        seed = index // len(VARIANTS) % arguments.seeds
        env = f"rooms-{index // (len(VARIANTS) * arguments.seeds) + 3}"
        directory = root / env / f"{variant}-seed{seed}"
        directory.mkdir(parents=True)
        config = dataclasses.replace(
            make_config("grid", **VARIANTS[variant]), env=env, seed=seed, stop_at_success_rate=0.0
        )
        (directory / "config.json").write_text(json.dumps(to_dict(config)))
        (directory / "summary.json").write_text(json.dumps({"steps": config.steps, "interrupted": False}))
        (directory / "visit_maps.json").write_text(json.dumps({"tasks": {env: make_map(random)}}))
        metrics = "".join(json.dumps(row) + "\n" for row in make_rows(random, arguments.lines))
        (directory / "metrics.jsonl").write_text(metrics)
        total += len(metrics)
    return total


def make_rows(random: np.random.Generator, lines: int) -> list[dict[str, Any]]:
    """Return log rows with a rising success rate and noise."""
    rates = np.clip(np.cumsum(random.normal(0.001, 0.005, lines)), 0.0, 1.0)
    noise, errors = random.random((lines, len(NUMBERS))), random.random((lines, 8))
    return [
        {
            "steps": 6000 * (i + 1), "learner_steps": 12 * (i + 1), "success_rate": rates[i],
            **dict(zip(NUMBERS, noise[i].tolist(), strict=True)),
            "prediction_error": errors[i].tolist(), "elapsed_seconds": 0.5 * i,
        }
        for i in range(lines)
    ]  # fmt: skip


def make_map(random: np.random.Generator) -> dict[str, Any]:
    visits = random.integers(0, 1000, (SLICES, SIDE, SIDE))
    parts = [
        {
            "from": 750_000 * i,
            "to": 750_000 * (i + 1),
            "visits": grid.tolist(),
            "intrinsic_reward": (0.3 * grid).tolist(),
        }
        for i, grid in enumerate(visits)
    ]
    return {"floor": ["." * SIDE] * SIDE, "slices": parts}


def measure(arguments: Arguments) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        megabytes = write_runs(Path(folder), arguments) / 1e6
        began, worked = time.perf_counter(), time.process_time()
        report = build_report([folder])
        built, work = time.perf_counter(), time.process_time() - worked
        build_report([folder])
        again, worked = time.perf_counter(), time.process_time()
        page = write_report(report, Path(folder) / "report")
        written, drawing, size = time.perf_counter(), time.process_time() - worked, page.stat().st_size
    return {
        "runs": arguments.runs,
        "metrics_megabytes": megabytes,
        "build_seconds": built - began,
        "build_cpu_seconds": work,  # depends less on other load
        "build_again_seconds": again - built,  # as `watch` does: unchanged files are not read again
        "write_seconds": written - again,
        "write_cpu_seconds": drawing,
        "page_megabytes": size / 1e6,
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main(arguments: Arguments) -> None:
    figures = measure(arguments)
    show(figures, f"a report on {arguments.runs} runs of {arguments.lines} lines", arguments.json)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
