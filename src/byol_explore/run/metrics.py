"""Where metrics go: a JSON line per log step, and other writers beside it."""

import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from byol_explore.extras import needed_by
from byol_explore.files import write_atomically
from byol_explore.report.logs import read_metrics
from byol_explore.settings.config import Config, to_dict


class Writer(Protocol):
    """Takes one dictionary of metrics per log step."""

    def write(self, metrics: dict[str, Any]) -> None: ...
    def close(self) -> None: ...


class JsonLinesWriter:
    """Appends to metrics.jsonl; a line that is written is on the disk."""

    def __init__(self, path: Path, *, keep_until: int | None = None) -> None:
        if keep_until is not None and path.exists():
            drop_lines_after(path, keep_until)
        self._file = path.open("ab", buffering=0)  # what a full disk refuses is not kept to be refused again

    def write(self, metrics: dict[str, Any]) -> None:
        left = f"{json.dumps(metrics)}\n".encode()
        while left:
            left = left[self._file.write(left) :]
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class TensorBoardWriter:
    """Scalars to TensorBoard event files in the run directory."""

    def __init__(self, directory: Path) -> None:
        from tensorboard.summary import Writer as EventWriter  # pyright: ignore[reportMissingImports]

        self._writer = EventWriter(str(directory / "tensorboard"))

    def write(self, metrics: dict[str, Any]) -> None:
        for name, value in scalars(metrics).items():
            self._writer.add_scalar(name, value, step=metrics["steps"])

    def close(self) -> None:
        self._writer.close()


class WandbWriter:
    """Scalars to Weights & Biases; nothing leaves the machine unless WANDB_MODE says so."""

    def __init__(self, directory: Path, config: Config) -> None:
        import wandb  # pyright: ignore[reportMissingImports]

        self._run = wandb.init(
            project=config.log.wandb_project,
            name=config.log.wandb_name or directory.resolve().name,
            dir=str(directory),
            config=to_dict(config),
            mode=os.environ.get("WANDB_MODE", "offline"),
        )

    def write(self, metrics: dict[str, Any]) -> None:
        self._run.log(scalars(metrics), step=metrics["steps"])

    def close(self) -> None:
        self._run.finish()


def check_extras(config: Config) -> None:
    """A UserError for a writer whose package is not installed."""
    for name in ("tensorboard", "wandb"):
        if getattr(config.log, name):
            with needed_by(f"log.{name}"):
                import_module(name)


def make_writers(config: Config, directory: Path, *, keep_until: int | None) -> list[Writer]:
    """All writers that the configuration asks for."""
    writers: list[Writer] = [JsonLinesWriter(directory / "metrics.jsonl", keep_until=keep_until)]
    if config.log.tensorboard:
        writers.append(TensorBoardWriter(directory))
    if config.log.wandb:
        writers.append(WandbWriter(directory, config))
    return writers


def scalars(metrics: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """Numbers only, nested names joined by slashes."""
    flat: dict[str, float] = {}
    for name, value in metrics.items():
        if isinstance(value, dict):
            flat.update(scalars(value, f"{prefix}{name}/"))
        elif isinstance(value, list):
            flat.update({f"{prefix}{name}/{i + 1}": float(v) for i, v in enumerate(value)})
        elif isinstance(value, int | float):
            flat[prefix + name] = value
    return flat


def drop_lines_after(path: Path, step: int) -> None:
    """Forget what was logged after the checkpoint that a run continues from."""
    write_atomically(path, "".join(json.dumps(row) + "\n" for row in lines_until(path, step)))


def lines_until(path: Path, step: int) -> list[dict[str, Any]]:
    """Whole lines up to a step; none if there is no file."""
    rows = read_metrics(path) if path.exists() else []
    return [row for row in rows if isinstance(row.get("steps"), int) and row["steps"] <= step]
