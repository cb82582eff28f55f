"""All methods and ablations on one task: runs what is missing, then draws the plot and the table of docs/results.md.

python benchmarks/compare.py --root runs/compare --docs docs
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import tyro

from byol_explore.checkpoint import write_atomically
from byol_explore.metrics import read_metrics

VARIANTS = {
    "byol-explore": [],
    "rnd": ["--method", "rnd"],
    "icm": ["--method", "icm"],
    "none": ["--method", "none"],
    "fixed-targets": ["--ablation", "fixed-targets"],
    "horizon-1": ["--ablation", "horizon-1"],
    "no-clipping": ["--ablation", "no-clipping"],
    "no-sharing": ["--ablation", "no-sharing"],
}
FIGURES = {
    "comparison.png": ["byol-explore", "rnd", "icm", "none"],
    "ablations.png": ["byol-explore", "fixed-targets", "horizon-1", "no-clipping", "no-sharing"],
}


@dataclass(frozen=True)
class Arguments:
    """Compare methods and ablations on one task, one core per run."""

    root: Path = Path("runs/compare")
    """Where the runs are kept; finished ones are not run again."""
    docs: Path = Path("docs")
    """Where figures and results.json go."""
    env: str = "rooms-6"
    """The task."""
    steps: int = 3_000_000
    """Environment steps of each run."""
    seeds: int = 3
    """Runs of each variant."""
    parallel: int = 2
    """Runs at a time."""


def command(arguments: Arguments, variant: str, seed: int) -> list[str]:
    return [
        sys.executable, "-m", "byol_explore.cli", "train", "--env", arguments.env, "--seed", str(seed),
        "--steps", str(arguments.steps), "--stop-at-success", "0", "--log.log-every", "50000",
        "--run-dir", str(run_dir(arguments, variant, seed)), "--quiet", *VARIANTS[variant],
    ]  # fmt: skip


def run_dir(arguments: Arguments, variant: str, seed: int) -> Path:
    return arguments.root / f"{variant}-seed{seed}"


def is_finished(directory: Path) -> bool:
    path = directory / "summary.json"
    return path.exists() and not json.loads(path.read_text())["interrupted"]


def run_missing(arguments: Arguments) -> None:
    """All runs that are not finished, a few at a time, each on a core of its own."""
    todo = [
        (variant, seed)
        for seed in range(arguments.seeds)
        for variant in VARIANTS
        if not is_finished(run_dir(arguments, variant, seed))
    ]
    total, started = len(todo), time.monotonic()
    running: dict[int, tuple[subprocess.Popen[bytes], str]] = {}
    while todo or running:
        for core in range(arguments.parallel):
            if core in running:
                process, name = running[core]
                if process.poll() is None:
                    continue
                del running[core]
                done = total - len(todo) - len(running)
                eta = (time.monotonic() - started) / done * (total - done)
                print(f"{done}/{total} {name}: exit {process.returncode}, eta {eta / 60:.0f} min", flush=True)
            if todo:
                variant, seed = todo.pop(0)
                resume = ["--resume"] if (run_dir(arguments, variant, seed) / "config.json").exists() else []
                process = subprocess.Popen(
                    [*command(arguments, variant, seed), *resume],
                    preexec_fn=lambda core=core: os.sched_setaffinity(0, {core % (os.cpu_count() or 1)}),
                )
                running[core] = process, f"{variant} seed {seed}"
        time.sleep(0.5)


def load(arguments: Arguments, variant: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps [n] and success [seeds, n] of a variant."""
    rows = [read_metrics(run_dir(arguments, variant, s) / "metrics.jsonl") for s in range(arguments.seeds)]
    length = min(map(len, rows))
    success = [[row["success_rate"] or 0.0 for row in run[:length]] for run in rows]
    return np.asarray([row["steps"] for row in rows[0][:length]]), np.asarray(success)


def draw(arguments: Arguments) -> None:
    """Success over steps: the mean of the seeds, in a band from the lowest to the highest."""
    for name, variants in FIGURES.items():
        figure, axis = plt.subplots(figsize=(8, 4.5), constrained_layout=True)
        for variant in variants:
            steps, success = load(arguments, variant)
            line = axis.plot(steps / 1e6, success.mean(axis=0), label=variant)[0]
            axis.fill_between(steps / 1e6, success.min(axis=0), success.max(axis=0), color=line.get_color(), alpha=0.15)
        axis.set_xlabel("environment steps (millions)")
        axis.set_ylabel("success over the last 200 episodes")
        axis.set_title(f"{arguments.env}, {arguments.seeds} seeds, band from lowest to highest")
        axis.set_ylim(-0.03, 1.03)
        axis.grid(alpha=0.3)
        axis.legend()
        figure.savefig(arguments.docs / name, dpi=120)
        plt.close(figure)


def tabulate(arguments: Arguments) -> str:
    """A Markdown table of the summaries, also kept as results.json."""
    lines = ["| variant | solved | steps to solve (millions) | final success | best success |", "|---|---|---|---|---|"]
    records = {}
    for variant in VARIANTS:
        summaries = [
            json.loads((run_dir(arguments, variant, seed) / "summary.json").read_text())
            for seed in range(arguments.seeds)
        ]
        _, success = load(arguments, variant)
        solved = [s["solved_at"]["steps"] / 1e6 if s["solved_at"] else None for s in summaries]
        shown = ", ".join("-" if value is None else f"{value:.2f}" for value in solved)
        final = ", ".join(f"{s['success_rate']:.2f}" for s in summaries)
        best = ", ".join(f"{value:.2f}" for value in success.max(axis=1))
        count = sum(value is not None for value in solved)
        lines.append(f"| {variant} | {count} of {arguments.seeds} | {shown} | {final} | {best} |")
        records[variant] = {"summaries": summaries, "best_success": success.max(axis=1).tolist()}
    write_atomically(arguments.docs / "results.json", json.dumps(records, indent=1) + "\n")
    return "\n".join(lines)


def main(arguments: Arguments) -> None:
    run_missing(arguments)
    draw(arguments)
    print(tabulate(arguments))


if __name__ == "__main__":
    main(tyro.cli(Arguments))
