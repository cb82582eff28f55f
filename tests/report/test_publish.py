"""Published copies make the same report as the originals."""

import errno
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from byol_explore.errors import UserError
from byol_explore.report.build import build_report
from byol_explore.report.load import load_runs
from byol_explore.report.maps_and_films import select_films
from byol_explore.report.model import Block, HeatMap, Picture, Plot, Report, Table
from byol_explore.report.publish import publish_runs
from byol_explore.report.read_runs import MAX_LOG_LINES
from byol_explore.storage.metrics import PACKED_LOG_NAME, read_metrics
from report.samples import sample_gif
from report.synthetic import make_rows, write_run

FLOOR = ["####", "#..#", "####"]
TASKS = ("rooms-4", "rooms-6")


def write_maps(run: Path) -> None:
    visits, reward = [[[0] * 4, [0, *pair, 0], [0] * 4] for pair in ((3, 40000), (0.123456, 9876.54321))]
    part = {"from": 0, "to": 300, "visits": visits, "intrinsic_reward": reward}
    (run / "visit_maps.json").write_text(
        json.dumps({"tasks": {task: {"floor": FLOOR, "slices": [part]} for task in TASKS}})
    )


def write_study(root: Path) -> None:
    """Write two variants of two seeds on two tasks, with maps, films and checkpoints."""
    for variant in ("byol-explore", "rnd"):
        for seed in (0, 1):
            tasks = {task: {"success_rate": (seed + 1) / 7, "return_mean": 1 / 3} for task in TASKS}
            rows = make_rows(
                [1 / 9, 1 / 7], uncertainty=math.pi, prediction_error=[1 / 3, 2 / 3], tasks=tasks, loss=1.5
            )
            name = f"world/{variant}-seed{seed}"
            run = write_run(root, name, rows, method=variant, env=",".join(TASKS))
            write_maps(run)
            for folder in ("checkpoints", "films"):
                (run / folder).mkdir()
            (run / "checkpoints" / "last").write_bytes(b"large")
            for task in TASKS:
                (run / "films" / f"{task}-after.gif").write_bytes(sample_gif(40))
    (root / "study.toml").write_text("name = 'x'")


def copied(target: Path) -> set[str]:
    return {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}


def test_copy_has_packed_logs_and_shown_maps_and_films(tmp_path: Path) -> None:
    write_study(tmp_path / "study")
    assert publish_runs(tmp_path / "study", tmp_path / "copy") == (4, [], [])
    every = {f"world/{variant}-seed{seed}" for variant in ("byol-explore", "rnd") for seed in (0, 1)}
    first = {run for run in every if run.endswith("0")}
    assert copied(tmp_path / "copy") == {
        "study.toml",
        *(f"{run}/{name}" for run in every for name in ("config.json", "summary.json", PACKED_LOG_NAME)),
        *(f"{run}/visit_maps.json" for run in first),
        *(f"{run}/films/{task}-after.webp" for run in first for task in TASKS),
    }


def test_maps_beyond_the_limit_are_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byol_explore.report.maps_and_films.MAX_MAPS", 2)
    write_study(tmp_path / "study")
    publish_runs(tmp_path / "study", tmp_path / "copy")
    [path] = (tmp_path / "copy").rglob("visit_maps.json")
    assert path.parent.name == "byol-explore-seed0"
    assert list(json.loads(path.read_text())["tasks"]) == ["rooms-4"]


def test_report_of_copy_equals_report_of_original(tmp_path: Path) -> None:
    write_study(tmp_path / "study")
    publish_runs(tmp_path / "study", tmp_path / "copy")
    before, after = (_blocks(build_report([tmp_path / name])) for name in ("study", "copy"))
    assert list(before) == list(after)
    assert {"headline", "by-seed", "uncertainty", "visits-rnd-rooms-6", "film-rnd-rooms-6-after"} <= set(before)
    for name, block in before.items():
        if not isinstance(block, Picture) and name != "runs":  # the table of runs says where they lie
            assert _flat(block) == [pytest.approx(value, rel=1e-2) if isinstance(value, float) else value
                                    for value in _flat(after[name])]  # fmt: skip


def _blocks(report: Report) -> dict[str, Block]:
    drawn = (Table, Plot, HeatMap, Picture)
    return {block.name: block for section in report.sections for block in section.blocks if isinstance(block, drawn)}


def _flat(value: Any) -> list[Any]:
    """Flatten nested lists and tuples."""
    return [each for part in value for each in _flat(part)] if isinstance(value, list | tuple) else [value]


def test_copy_has_all_metrics_with_fewer_digits(tmp_path: Path) -> None:
    write_study(tmp_path / "study")
    publish_runs(tmp_path / "study", tmp_path / "copy")
    row, _ = read_metrics(tmp_path / "copy/world/rnd-seed0" / PACKED_LOG_NAME)
    assert (row["success_rate"], row["uncertainty"], row["loss"]) == (0.11111, 3.1416, 1.5)
    assert row["tasks"]["rooms-4"] == {"success_rate": 0.14286, "return_mean": 0.33333}


def test_copies_are_deterministic_and_can_be_copied(tmp_path: Path) -> None:
    write_study(tmp_path / "study")
    for source, target in (("study", "one"), ("study", "two"), ("one", "three")):
        publish_runs(tmp_path / source, tmp_path / target)
    files = copied(tmp_path / "one")
    assert files == copied(tmp_path / "two") == copied(tmp_path / "three")
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
        if not name.endswith("webp"):
            assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "three" / name).read_bytes()


def test_long_logs_are_shortened(tmp_path: Path) -> None:
    write_run(tmp_path / "study", rows=make_rows([0.5] * (3 * MAX_LOG_LINES)))
    publish_runs(tmp_path / "study", tmp_path / "copy")
    steps = load_runs([tmp_path / "copy"]).runs[0].steps
    assert (len(steps), steps[0], steps[-1]) == (MAX_LOG_LINES, 100, 300 * MAX_LOG_LINES)


def test_readable_parts_of_damaged_runs_are_copied(tmp_path: Path) -> None:
    run = write_run(tmp_path / "study")
    (run / "metrics.jsonl").write_bytes(
        b'{"steps": 1, "success_rate": 0.5, "a": NaN, "b": -Infinity}\n{"ste\xff\xfe\n{"steps": 2}\n'
    )
    (run / "visit_maps.json").write_text('{"tasks": {"rooms-6"')
    (run / "films").mkdir()
    (run / "films" / "rooms-6-after.gif").write_bytes(b"GIF89a, but no more")
    publish_runs(tmp_path / "study", tmp_path / "copy")
    first, second = read_metrics(tmp_path / "copy" / run.name / PACKED_LOG_NAME)
    assert math.isnan(first["a"])
    assert (first["b"], second) == (-math.inf, {"steps": 2})
    assert copied(tmp_path / "copy" / run.name) == {"config.json", "summary.json", PACKED_LOG_NAME}


def test_truncated_packed_log_is_unreadable(tmp_path: Path) -> None:
    write_study(tmp_path / "study")
    publish_runs(tmp_path / "study", tmp_path / "copy")
    path = tmp_path / "copy/world/rnd-seed1" / PACKED_LOG_NAME
    path.write_bytes(path.read_bytes()[:-20])
    runs = load_runs([tmp_path / "copy"])
    assert len(runs.runs) == 3
    assert runs.unreadable[0].startswith("copy/world/rnd-seed1: metrics.jsonl.gz is damaged")


def test_films_are_found_in_originals_and_copies(tmp_path: Path) -> None:
    write_study(tmp_path / "study")
    publish_runs(tmp_path / "study", tmp_path / "copy")
    for name, kind in (("study", ".gif"), ("copy", ".webp")):
        found = select_films(load_runs([tmp_path / name])).shown
        assert [film.task for film in found] == ["rooms-4", "rooms-6", "rooms-4", "rooms-6"]
        assert {film.path.suffix for film in found} == {kind}


def test_target_must_be_empty_and_outside_of_the_source(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs")
    (run / "films").mkdir()
    with pytest.raises(UserError, match="is not empty"):
        publish_runs(run, tmp_path)
    with pytest.raises(UserError, match="the directory to copy"):
        publish_runs(run, run / "copy")
    with pytest.raises(UserError, match="holds no run"):
        publish_runs(run / "films", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_full_disk_is_a_user_error_and_leaves_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For each kind of file."""
    write_study(tmp_path / "study")
    write = Path.write_bytes
    for name in (PACKED_LOG_NAME, "config.json", "rooms-4-after.webp"):

        def full(self: Path, data: bytes, name: str = name) -> int:
            if self.name == name:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(self, data)

        monkeypatch.setattr(Path, "write_bytes", full)
        with pytest.raises(UserError, match="copy cannot be written: No space left on device; nothing was changed"):
            publish_runs(tmp_path / "study", tmp_path / "copy")
        assert {path.name for path in tmp_path.iterdir()} == {"study"}


def test_too_large_films_are_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byol_explore.report.publish.MAX_FILM_PIXELS", 2 * 96 * 64 - 1)
    write_study(tmp_path / "study")
    publish_runs(tmp_path / "study", tmp_path / "copy")
    assert not list((tmp_path / "copy").rglob("*.webp"))
