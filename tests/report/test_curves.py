"""The picture of a run."""

import json
import os
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from PIL import Image

from byol_explore.report.curves import draw_curves
from byol_explore.report.metrics_table import METRICS


def write(directory: Path, rows: list[dict[str, Any]]) -> None:
    (directory / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def row(steps: int, **values: Any) -> dict[str, Any]:
    return {"steps": steps, **{metric.name: 0.5 for metric in METRICS}, **values}


def test_curves_are_a_picture_with_every_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[str, list[tuple[float, float]]] = {}
    plot = Axes.plot

    def remember(self: Axes, x: Any, y: Any, *, label: str) -> Any:
        drawn[label] = list(zip(x, y, strict=True))
        return plot(self, x, y, label=label)

    monkeypatch.setattr(Axes, "plot", remember)
    write(tmp_path, [row(10, success_rate=None), row(20, success_rate=0.25, kl=3.0)])
    assert draw_curves(tmp_path) == tmp_path / "curves.png"
    assert set(drawn) == {metric.name for metric in METRICS}
    assert drawn["success_rate"] == [(20, 0.25)], "what is not known yet is not drawn"
    assert drawn["kl"] == [(10, 0.5), (20, 3.0)]
    with Image.open(tmp_path / "curves.png") as picture:
        assert picture.format == "PNG"
        assert picture.size == (1600, 1500)
        assert len(np.unique(np.asarray(picture.convert("L")))) > 10
    assert {path.name for path in tmp_path.iterdir()} == {"curves.png", "metrics.jsonl"}


def test_what_a_run_does_not_log_has_no_panel(tmp_path: Path) -> None:
    outside = ("evaluation_return", "evaluation_best", "rooms_found", "policy_lag", "learner_wait", "actor_wait")
    write(tmp_path, [row(steps, **dict.fromkeys(outside)) for steps in (10, 20)])
    path = draw_curves(tmp_path)
    assert path is not None
    with Image.open(path) as picture:
        assert picture.size == (1600, 1200), "four rows of four"


def test_without_a_line_there_is_no_picture(tmp_path: Path) -> None:
    write(tmp_path, [])
    assert draw_curves(tmp_path) is None
    assert not (tmp_path / "curves.png").exists()


def test_the_callers_own_figures_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a notebook, training must not touch what is being drawn there, nor the backend."""

    def touched(*arguments: Any, **settings: Any) -> None:
        raise AssertionError("pyplot was used")

    for name in ("figure", "close", "switch_backend"):
        monkeypatch.setattr(plt, name, touched)
    write(tmp_path, [row(10)])
    assert draw_curves(tmp_path) is not None


def test_one_line_can_be_seen(tmp_path: Path) -> None:
    """A run that ends after its first log line has points and no lines."""
    pictures = []
    for value in (0.5, 0.1):  # elsewhere in a panel with a fixed range, and nothing else of the picture moves
        write(tmp_path, [{"steps": 10, "success_rate": value}])
        assert draw_curves(tmp_path)
        with Image.open(tmp_path / "curves.png") as picture:
            pictures.append(np.asarray(picture.convert("L"), int))
    assert (np.abs(pictures[0] - pictures[1]) > 50).sum() > 20


def test_what_is_no_number_is_not_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[list[float]] = []
    plot = Axes.plot
    monkeypatch.setattr(Axes, "plot", lambda self, x, y, label: drawn.append([*y]) or plot(self, x, y, label=label))
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


def test_a_run_may_be_called_anything(tmp_path: Path) -> None:
    """At the end of its training it is too late to complain."""
    directory = tmp_path / os.fsdecode(b"\xff $x_{\n")
    directory.mkdir()
    write(directory, [{"steps": 10, "kl": 1.0}])
    assert draw_curves(directory)
