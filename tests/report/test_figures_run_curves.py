"""curves.png of a run."""

import json
import os
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from PIL import Image

from byol_explore.report.figures import draw_curves
from byol_explore.storage.metrics import METRICS


def write(directory: Path, rows: list[dict[str, Any]]) -> None:
    (directory / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def row(steps: int, **values: Any) -> dict[str, Any]:
    return {"steps": steps, **{metric.name: 0.5 for metric in METRICS}, **values}


def test_curves_png_shows_every_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[str, list[tuple[float, float]]] = {}
    plot = Axes.plot

    def record(self: Axes, x: Any, y: Any, *, label: str, **style: Any) -> Any:
        drawn[label] = list(zip(x, y, strict=True))
        return plot(self, x, y, label=label, **style)

    monkeypatch.setattr(Axes, "plot", record)
    write(tmp_path, [row(10, success_rate=None), row(20, success_rate=0.25, kl=3.0)])
    assert draw_curves(tmp_path) == tmp_path / "curves.png"
    assert set(drawn) == {metric.name for metric in METRICS}
    assert drawn["success_rate"] == [(20, 0.25)], "unknown values are not drawn"
    assert drawn["kl"] == [(10, 0.5), (20, 3.0)]
    with Image.open(tmp_path / "curves.png") as picture:
        assert picture.format == "PNG"
        assert picture.size == (1600, 1800)
        assert len(np.unique(np.asarray(picture.convert("L")))) > 10
    assert {path.name for path in tmp_path.iterdir()} == {"curves.png", "metrics.jsonl"}


def test_metrics_without_values_have_no_panel(tmp_path: Path) -> None:
    outside = (
        "evaluation_return",
        "evaluation_return_max",
        "rooms_visited",
        "policy_lag",
        "env_restarts",
        "learner_idle_fraction",
        "actor_idle_fraction",
    )
    write(tmp_path, [row(steps, **dict.fromkeys(outside)) for steps in (10, 20)])
    path = draw_curves(tmp_path)
    assert path is not None
    with Image.open(path) as picture:
        assert picture.size == (1600, 1200), "four rows of four"


def test_no_picture_without_log_lines(tmp_path: Path) -> None:
    write(tmp_path, [])
    assert draw_curves(tmp_path) is None
    assert not (tmp_path / "curves.png").exists()


def test_drawing_does_not_use_pyplot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training in a notebook must change neither its figures nor its backend."""

    def fail(*arguments: Any, **settings: Any) -> None:
        raise AssertionError("pyplot was used")

    for name in ("figure", "close", "switch_backend"):
        monkeypatch.setattr(plt, name, fail)
    write(tmp_path, [row(10)])
    assert draw_curves(tmp_path) is not None


def test_single_log_line_is_visible(tmp_path: Path) -> None:
    """A single log line has points, not lines."""
    pictures = []
    for value in (0.5, 0.1):  # elsewhere in a panel with a fixed range, and nothing else of the picture moves
        write(tmp_path, [{"steps": 10, "success_rate": value}])
        assert draw_curves(tmp_path)
        with Image.open(tmp_path / "curves.png") as picture:
            pictures.append(np.asarray(picture.convert("L"), int))
    assert (np.abs(pictures[0] - pictures[1]) > 50).sum() > 20


def test_invalid_values_are_not_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[list[float]] = []
    plot = Axes.plot
    monkeypatch.setattr(Axes, "plot", lambda self, x, y, **style: drawn.append([*y]) or plot(self, x, y, **style))
    damaged = (
        '{"steps": 20, "kl": "high"}',
        '{"steps": 30, "kl": 1e999}',
        "123",
        '{"kl": 5}',
        '{"steps": null, "kl": 6}',
    )
    lines = ['{"steps": 10, "kl": 2.0}', *damaged, '{"steps": 40, "kl": 3.0, "entropy": [1]}']
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    assert draw_curves(tmp_path)
    assert drawn == [[2.0, 3.0]]


def test_run_names_may_have_any_characters(tmp_path: Path) -> None:
    """An error at the end of training would be too late."""
    directory = tmp_path / os.fsdecode(b"\xff $x_{\n")
    directory.mkdir()
    write(directory, [{"steps": 10, "kl": 1.0}])
    assert draw_curves(directory)
