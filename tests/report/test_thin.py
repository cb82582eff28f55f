"""Thin copies say the same as what they are copies of."""

import itertools
import json
import math
from pathlib import Path

import pytest

from byol_explore.errors import UserError
from byol_explore.metrics import read_metrics
from byol_explore.report.thin import MOST_LINES, rounded, spaced, thin_runs


def write_run(directory: Path, lines: int = 5) -> None:
    directory.mkdir(parents=True)
    (directory / "config.json").write_text('{"seed": 1}')
    rows = [{"steps": 10 * n, "success_rate": n / 7, "tasks": {"a": {"return_mean": None}}} for n in range(lines)]
    (directory / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (directory / "maps.json").write_text(
        '{"tasks": {"a": {"slices": [{"visits": [[1, 2]], "sum": [[0.123456789, 4.0]]}]}}}'
    )
    for folder in ("checkpoints", "films"):
        (directory / folder).mkdir()
        (directory / folder / "file").write_text(folder)


def test_checkpoints_stay_behind_and_everything_else_comes(tmp_path: Path) -> None:
    write_run(tmp_path / "study" / "world" / "rnd-seed0")
    write_run(tmp_path / "study" / "world" / "rnd-seed1")
    (tmp_path / "study" / "study.toml").write_text("name = 'x'")
    assert thin_runs(tmp_path / "study", tmp_path / "thin") == 2
    copied = {str(path.relative_to(tmp_path / "thin")) for path in (tmp_path / "thin").rglob("*") if path.is_file()}
    names = ("config.json", "metrics.jsonl", "maps.json", "films/file")
    assert copied == {"study.toml", *(f"world/rnd-seed{seed}/{name}" for seed in (0, 1) for name in names)}
    (row, *_) = rows = read_metrics(tmp_path / "thin/world/rnd-seed0/metrics.jsonl")
    assert [row["success_rate"] for row in rows] == [0, 0.14286, 0.28571, 0.42857, 0.57143]
    assert row["tasks"] == {"a": {"return_mean": None}}
    maps = json.loads((tmp_path / "thin/world/rnd-seed0/maps.json").read_text())
    assert maps["tasks"]["a"]["slices"] == [{"visits": [[1, 2]], "sum": [[0.12346, 4]]}]


@pytest.mark.parametrize("count", [1, MOST_LINES, MOST_LINES + 1, 1000])
def test_lines_are_spaced_evenly_from_the_first_to_the_last(count: int) -> None:
    kept = spaced(range(count))
    assert len(kept) == min(count, MOST_LINES)
    assert (kept[0], kept[-1]) == (0, count - 1)
    gaps = {after - before for before, after in itertools.pairwise(kept)}
    assert len(gaps) <= 2
    assert not gaps or max(gaps) - min(gaps) <= 1


@pytest.mark.parametrize(
    ("value", "short"),
    [(1.0 / 3.0, 0.33333), (12345678.9, 12346000), (1e-9 / 3, 3.3333e-10), (7, 7), (True, True), ("x", "x")],
)
def test_numbers_keep_their_leading_digits(value: object, short: object) -> None:
    assert rounded(value) == short
    assert isinstance(rounded(value), type(short))


def test_damaged_runs_are_copied_as_far_as_a_report_reads_them(tmp_path: Path) -> None:
    write_run(tmp_path / "run", lines=0)
    (tmp_path / "run/metrics.jsonl").write_bytes(
        b'{"steps": 1, "a": NaN, "b": -Infinity}\n{"ste\xff\xfe\n{"steps": 2}\n'
    )
    (tmp_path / "run/maps.json").write_text('{"tasks": {"a"')
    thin_runs(tmp_path / "run", tmp_path / "thin")
    first, second = read_metrics(tmp_path / "thin/metrics.jsonl")
    assert math.isnan(first["a"])
    assert (first["b"], second) == (-math.inf, {"steps": 2})
    assert not (tmp_path / "thin/maps.json").exists()


def test_nothing_is_overwritten_and_a_copy_does_not_lie_in_its_original(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    with pytest.raises(UserError, match="is not empty"):
        thin_runs(tmp_path / "run", tmp_path)
    with pytest.raises(UserError, match="which it is to be a copy of"):
        thin_runs(tmp_path / "run", tmp_path / "run" / "thin")
    with pytest.raises(UserError, match="holds no run"):
        thin_runs(tmp_path / "run" / "films", tmp_path / "thin")
    assert not (tmp_path / "thin").exists()
