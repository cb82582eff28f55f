"""Runs that collapse on purpose: found in the log alone, and absent with centred encoders."""

import dataclasses
import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from byol_explore.cli.main import main
from byol_explore.config.config import Config
from byol_explore.envs.probes.base import ProbeState
from byol_explore.envs.probes.worlds import CorridorProbe
from byol_explore.registry import ENVIRONMENTS
from byol_explore.storage.metrics import read_metrics
from byol_explore.types import Array
from runs import quickly, run, tiny

DISPATCH = 2 * 8 * 9  # steps: rollouts, environments, transitions


class Faint(CorridorProbe):
    """Corridor behind fog: the position changes the observation by a few percent."""

    def __init__(self) -> None:
        super().__init__("faint", 12)

    def _observe(self, state: ProbeState) -> Array:
        return 10.0 + super()._observe(state)


@pytest.fixture(scope="module", autouse=True)
def faint() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, quickly():
        patch.setitem(ENVIRONMENTS._added, "probe:faint", Faint)
        yield


def config(env: str, *, center: bool, target_decay: float) -> Config:
    """Train for 160 updates, with a log row after each quarter."""
    base = tiny(env=env, log={"log_every": 10 * DISPATCH, "checkpoint_every": 20 * DISPATCH})
    return dataclasses.replace(
        base,
        steps=40 * DISPATCH,
        network=dataclasses.replace(
            base.network, center_encoders=center, normalize_vectors=False
        ),  # which sees through fog
        curiosity=dataclasses.replace(base.curiosity, target_decay=target_decay),
        runtime=dataclasses.replace(base.runtime, sequence_length=10),
    )


CONFIGS = {
    "uncentred": config("probe:faint", center=False, target_decay=0.99),
    "hasty": config("probe:faint", center=True, target_decay=0.0),  # the target is the encoder itself
    "healthy": config("probe:corridor", center=True, target_decay=0.99),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directories = {name: tmp_path_factory.mktemp("runs") / name for name in CONFIGS}
    for name, directory in directories.items():
        run(CONFIGS[name], directory)
    return directories


def findings(directory: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the exit code and the findings by check."""
    code = main(["doctor", str(directory), "--json"])
    return code, {entry["check"]: entry for entry in json.loads(capsys.readouterr().out)}


def first_lines(directory: Path, copy: Path, count: int) -> Path:
    """Copy a run with its first log rows and without checkpoints."""
    shutil.copytree(directory, copy, ignore=shutil.ignore_patterns("checkpoints"))
    lines = (copy / "metrics.jsonl").read_text().splitlines(keepends=True)
    (copy / "metrics.jsonl").write_text("".join(lines[:count]))
    return copy


def test_collapse_fails_and_advice_names_the_missing_setting(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    advice = {}
    for name in ("uncentred", "hasty"):
        code, found = findings(runs[name], capsys)
        assert (code, found["embedding_collapse"]["verdict"]) == (1, "fail"), name
        assert found["embedding_collapse"]["value"] < 0.005
        advice[name] = found["embedding_collapse"]["advice"]
    assert "start again with network.center_encoders, which is off" in advice["uncentred"]
    assert "network.center_encoders" not in advice["hasty"]
    assert "raise curiosity.target_decay nearer to 1 (it is 0)" in advice["hasty"]


@pytest.mark.parametrize(("name", "lines"), [("uncentred", 2), ("hasty", 2)])
def test_collapse_is_found_in_the_log_of_a_young_run(
    name: str, lines: int, runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = findings(first_lines(runs[name], tmp_path / "copy", lines), capsys)
    assert (code, found["embedding_collapse"]["verdict"]) == (1, "fail")
    assert "in the first line" in found["embedding_collapse"]["detail"]


def test_first_row_alone_gives_a_warning(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = findings(first_lines(runs["uncentred"], tmp_path / "copy", 1), capsys)
    assert (code, found["embedding_collapse"]["verdict"]) == (0, "warn")


def test_centred_run_without_fog_does_not_fail(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for directory in (runs["healthy"], first_lines(runs["healthy"], tmp_path / "copy", 4)):
        code, found = findings(directory, capsys)
        assert code == 0
        assert {found[check]["verdict"] for check in ("embedding_collapse", "horizon_growth", "intrinsic_reward")} == {
            "pass"
        }


def test_collapse_ends_the_intrinsic_reward(runs: dict[str, Path]) -> None:
    shares = {
        name: [row["active_update_fraction"] for row in read_metrics(runs[name] / "metrics.jsonl")] for name in CONFIGS
    }
    assert shares["healthy"][-1] > 0.9
    assert all(later < earlier for earlier, later in itertools.pairwise(shares["uncentred"]))
    summary = json.loads((runs["uncentred"] / "summary.json").read_text())
    assert summary["active_update_fraction"] == shares["uncentred"][-1] < 0.2
