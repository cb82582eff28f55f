"""Synthetic run directories."""

import dataclasses
import json
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from byol_explore.config.config import Config, to_dict
from byol_explore.config.presets import make_config
from byol_explore.report.load import Runs, load_runs
from byol_explore.report.model import Block, Section, Text

Row = dict[str, Any]
B = TypeVar("B", bound=Block)


def make_rows(success: list[float | None], every: int = 100, **columns: Any) -> list[Row]:
    """Make a log row per success rate; other columns are equal in all rows."""
    return [
        {
            "steps": every * (i + 1),
            "elapsed_seconds": 36.0 * (i + 1),
            "success_rate": rate,
            "return_mean": rate,
            **columns,
        }
        for i, rate in enumerate(success)
    ]


def returns(values: list[float], every: int = 100, **columns: Any) -> list[Row]:
    """Make rows of a task that is scored by return and evaluated at every row."""
    best = np.maximum.accumulate(values).tolist()
    evaluations = [
        {"evaluation_return": value, "evaluation_return_max": top} for value, top in zip(values, best, strict=True)
    ]
    rows = zip(make_rows([*values], every), evaluations, strict=True)
    return [{**row, "success_rate": 0.0, **evaluation, **columns} for row, evaluation in rows]


def undefined(values: list[float], every: int = 100, **columns: Any) -> list[Row]:
    """Make rows of a task without a definition of success."""
    return [{**row, "success_rate": None} for row in make_rows([*values], every, **columns)]


def write_run(
    root: Path, name: str = "byol-explore-seed0", rows: list[Row] | None = None, *, finished: bool = True,
    preset: str = "grid", method: str = "byol-explore", ablation: str = "none", **settings: Any,
) -> Path:  # fmt: skip
    """Write a run of 300 steps; `name` may contain folders, and ends with the seed."""
    directory = root / name
    directory.mkdir(parents=True)
    tail = name.rpartition("-seed")[2]
    given = {"env": "rooms-6", "steps": 300, "seed": int(tail) if tail.isdigit() else 0, **settings}
    config: Config = dataclasses.replace(make_config(preset, ablation, method), **given)
    (directory / "config.json").write_text(json.dumps(to_dict(config)))
    lines = make_rows([0.0, 0.5, 1.0]) if rows is None else rows
    (directory / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    if finished:
        last = lines[-1] if lines else {"steps": 0, "success_rate": None}
        at_success = 0 < config.stop_at_success_rate <= (last.get("success_rate") or 0.0)
        summary = {**last, "steps": last["steps"] if at_success else config.steps, "seconds": 9.0, "interrupted": False}
        (directory / "summary.json").write_text(json.dumps(summary))
    return directory


def write_study(root: Path) -> Runs:
    """Write three variants, two of them with two seeds."""
    write_run(root, "byol-explore-seed0", make_rows([0.0, 0.5, 1.0]))
    write_run(root, "byol-explore-seed1", make_rows([0.2, 0.7, 0.9]))
    write_run(root, "rnd-seed0", make_rows([0.0, 0.0, 0.4]), method="rnd")
    write_run(root, "rnd-seed1", make_rows([0.0, 0.2, 0.2]), method="rnd")
    write_run(root, "horizon-1-seed0", make_rows([0.0, 0.1, 0.3]), ablation="horizon-1")
    return load_runs([root])


def blocks(section: Section, kind: type[B]) -> list[B]:
    return [block for block in section.blocks if isinstance(block, kind)]


def words(section: Section) -> str:
    """Return the paragraphs of a section."""
    return "\n".join(paragraph for block in blocks(section, Text) for paragraph in block.paragraphs)
