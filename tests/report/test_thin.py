"""Thin copies say the same as what they are copies of."""

import errno
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from byol_explore.errors import UserError
from byol_explore.report.build import build_report
from byol_explore.report.films import film_files
from byol_explore.report.load import load_runs
from byol_explore.report.logs import PACKED, rows_of
from byol_explore.report.model import Block, HeatMap, Picture, Plot, Report, Table
from byol_explore.report.thin import MOST_LINES, rounded, thin_runs
from report.samples import sample_gif
from report.synthetic import make_rows, write_run

FLOOR = ["####", "#..#", "####"]
TASKS = ("rooms-4", "rooms-6")


def write_maps(run: Path) -> None:
    visits, reward = [[[0] * 4, [0, *pair, 0], [0] * 4] for pair in ((3, 40000), (0.123456, 9876.54321))]
    part = {"from": 0, "to": 300, "visits": visits, "intrinsic_reward": reward}
    (run / "maps.json").write_text(json.dumps({"tasks": {task: {"floor": FLOOR, "slices": [part]} for task in TASKS}}))


def write_study(root: Path) -> None:
    """Two variants of two seeds on two tasks, all with maps and films, and checkpoints."""
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
            (run / "checkpoints" / "last").write_bytes(b"heavy")
            for task in TASKS:
                (run / "films" / f"{task}-after.gif").write_bytes(sample_gif(40))
    (root / "study.toml").write_text("name = 'x'")


def copied(target: Path) -> set[str]:
    return {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}


def test_logs_are_packed_and_of_films_and_maps_those_are_kept_that_the_page_shows(tmp_path: Path) -> None:
    write_study(tmp_path / "study")
    assert thin_runs(tmp_path / "study", tmp_path / "thin") == (4, [])
    every = {f"world/{variant}-seed{seed}" for variant in ("byol-explore", "rnd") for seed in (0, 1)}
    first = {run for run in every if run.endswith("0")}
    assert copied(tmp_path / "thin") == {
        "study.toml",
        *(f"{run}/{name}" for run in every for name in ("config.json", "summary.json", PACKED)),
        *(f"{run}/maps.json" for run in first),
        *(f"{run}/films/{task}-after.webp" for run in first for task in TASKS),
    }


def test_maps_that_the_page_has_no_room_for_stay_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byol_explore.report.places.MOST_MAPS", 1)
    write_study(tmp_path / "study")
    thin_runs(tmp_path / "study", tmp_path / "thin")
    [path] = (tmp_path / "thin").rglob("maps.json")
    assert path.parent.name == "byol-explore-seed0"
    assert list(json.loads(path.read_text())["tasks"]) == ["rooms-4"]


def test_the_copys_page_is_that_of_the_original(tmp_path: Path) -> None:
    write_study(tmp_path / "study")
    thin_runs(tmp_path / "study", tmp_path / "thin")
    before, after = (_blocks(build_report([tmp_path / name])) for name in ("study", "thin"))
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
    """All that is in a block, one after the other."""
    return [each for part in value for each in _flat(part)] if isinstance(value, list | tuple) else [value]


def test_every_metric_is_kept_with_fewer_digits(tmp_path: Path) -> None:
    write_study(tmp_path / "study")
    thin_runs(tmp_path / "study", tmp_path / "thin")
    row, _ = rows_of(tmp_path / "thin/world/rnd-seed0" / PACKED)
    assert (row["success_rate"], row["uncertainty"], row["loss"]) == (0.11111, 3.1416, 1.5)
    assert row["tasks"]["rooms-4"] == {"success_rate": 0.14286, "return_mean": 0.33333}


def test_the_same_runs_make_the_same_bytes_and_a_copy_can_be_copied(tmp_path: Path) -> None:
    write_study(tmp_path / "study")
    for source, target in (("study", "one"), ("study", "two"), ("one", "three")):
        thin_runs(tmp_path / source, tmp_path / target)
    files = copied(tmp_path / "one")
    assert files == copied(tmp_path / "two") == copied(tmp_path / "three")
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
        if not name.endswith("webp"):
            assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "three" / name).read_bytes()


def test_of_long_logs_so_many_lines_are_kept(tmp_path: Path) -> None:
    write_run(tmp_path / "study", rows=make_rows([0.5] * (3 * MOST_LINES)))
    thin_runs(tmp_path / "study", tmp_path / "thin")
    steps = load_runs([tmp_path / "thin"]).runs[0].steps
    assert (len(steps), steps[0], steps[-1]) == (MOST_LINES, 100, 300 * MOST_LINES)


@pytest.mark.parametrize(
    ("value", "short"),
    [(1.0 / 3.0, 0.33333), (12345678.9, 12346000), (1e-9 / 3, 3.3333e-10), (7, 7), (True, True), ("x", "x")],
)
def test_numbers_keep_their_leading_digits(value: object, short: object) -> None:
    assert rounded(value, 5) == short
    assert isinstance(rounded(value, 5), type(short))


def test_damaged_runs_are_copied_as_far_as_a_report_reads_them(tmp_path: Path) -> None:
    run = write_run(tmp_path / "study")
    (run / "metrics.jsonl").write_bytes(
        b'{"steps": 1, "success_rate": 0.5, "a": NaN, "b": -Infinity}\n{"ste\xff\xfe\n{"steps": 2}\n'
    )
    (run / "maps.json").write_text('{"tasks": {"rooms-6"')
    (run / "films").mkdir()
    (run / "films" / "rooms-6-after.gif").write_bytes(b"GIF89a, but no more")
    thin_runs(tmp_path / "study", tmp_path / "thin")
    first, second = rows_of(tmp_path / "thin" / run.name / PACKED)
    assert math.isnan(first["a"])
    assert (first["b"], second) == (-math.inf, {"steps": 2})
    assert copied(tmp_path / "thin" / run.name) == {"config.json", "summary.json", PACKED}


def test_a_packed_log_that_was_cut_off_is_named_as_unreadable(tmp_path: Path) -> None:
    write_study(tmp_path / "study")
    thin_runs(tmp_path / "study", tmp_path / "thin")
    path = tmp_path / "thin/world/rnd-seed1" / PACKED
    path.write_bytes(path.read_bytes()[:-20])
    runs = load_runs([tmp_path / "thin"])
    assert len(runs.runs) == 3
    assert runs.unreadable[0].startswith("thin/world/rnd-seed1: metrics.jsonl.gz is damaged")


def test_films_are_found_as_recorded_or_as_thinned(tmp_path: Path) -> None:
    write_study(tmp_path / "study")
    thin_runs(tmp_path / "study", tmp_path / "thin")
    for name, kind in (("study", ".gif"), ("thin", ".webp")):
        found = film_files(load_runs([tmp_path / name])).shown
        assert [film.task for film in found] == ["rooms-4", "rooms-6", "rooms-4", "rooms-6"]
        assert {film.path.suffix for film in found} == {kind}


def test_nothing_is_overwritten_and_a_copy_does_not_lie_in_its_original(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs")
    (run / "films").mkdir()
    with pytest.raises(UserError, match="is not empty"):
        thin_runs(run, tmp_path)
    with pytest.raises(UserError, match="which it is to be a copy of"):
        thin_runs(run, run / "thin")
    with pytest.raises(UserError, match="holds no run"):
        thin_runs(run / "films", tmp_path / "thin")
    assert not (tmp_path / "thin").exists()


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever file it is that there is no room for."""
    write_study(tmp_path / "study")
    write = Path.write_bytes
    for name in (PACKED, "config.json", "rooms-4-after.webp"):

        def full(self: Path, data: bytes, name: str = name) -> int:
            if self.name == name:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(self, data)

        monkeypatch.setattr(Path, "write_bytes", full)
        with pytest.raises(UserError, match="thin cannot be written: No space left on device; nothing was changed"):
            thin_runs(tmp_path / "study", tmp_path / "thin")
        assert {path.name for path in tmp_path.iterdir()} == {"study"}


def test_a_film_that_would_fill_the_memory_stays_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byol_explore.report.short_films.MOST_PIXELS", 2 * 96 * 64 - 1)
    write_study(tmp_path / "study")
    thin_runs(tmp_path / "study", tmp_path / "thin")
    assert not list((tmp_path / "thin").rglob("*.webp"))
