"""A collapse made on purpose in whole runs: found from the log alone, and absent where the start is centred."""

import dataclasses
import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from byol_explore.cli.main import main
from byol_explore.envs.worlds.probes import Corridor, ProbeState
from byol_explore.registries import ENVIRONMENTS
from byol_explore.report.logs import read_metrics
from byol_explore.settings.config import Config
from byol_explore.types import Array
from runs import quickly, run, tiny

DISPATCH = 2 * 8 * 9  # steps: rollouts, environments, transitions


class Faint(Corridor):
    """A corridor behind fog: where one stands changes what one sees by a few percent."""

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
    """160 updates, and a line after each quarter of them."""
    base = tiny(env=env, log={"log_every": 10 * DISPATCH, "checkpoint_every": 20 * DISPATCH})
    return dataclasses.replace(
        base,
        steps=40 * DISPATCH,
        network=dataclasses.replace(base.network, center=center, normalize_vectors=False),  # which sees through fog
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
    """The exit code, and the findings by their checks."""
    code = main(["doctor", str(directory), "--json"])
    return code, {entry["check"]: entry for entry in json.loads(capsys.readouterr().out)}


def first_lines(directory: Path, copy: Path, count: int) -> Path:
    """A copy of a run with so many log lines and no checkpoint."""
    shutil.copytree(directory, copy, ignore=shutil.ignore_patterns("checkpoints"))
    lines = (copy / "metrics.jsonl").read_text().splitlines(keepends=True)
    (copy / "metrics.jsonl").write_text("".join(lines[:count]))
    return copy


def test_a_collapse_is_bad_and_the_advice_is_what_is_not_set(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    advice = {}
    for name in ("uncentred", "hasty"):
        code, found = findings(runs[name], capsys)
        assert (code, found["embedding"]["verdict"]) == (1, "bad"), name
        assert found["embedding"]["figure"] < 0.005
        advice[name] = found["embedding"]["advice"]
    assert "start again with network.center, which is off" in advice["uncentred"]
    assert "network.center" not in advice["hasty"]
    assert "raise curiosity.target_decay nearer to 1 (it is 0)" in advice["hasty"]


@pytest.mark.parametrize(("name", "lines"), [("uncentred", 2), ("hasty", 2)])
def test_it_is_seen_in_the_log_alone_while_the_run_is_young(
    name: str, lines: int, runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = findings(first_lines(runs[name], tmp_path / "copy", lines), capsys)
    assert (code, found["embedding"]["verdict"]) == (1, "bad")
    assert "in the first line" in found["embedding"]["detail"]


def test_what_was_not_found_in_the_first_line_is_a_warning_there(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = findings(first_lines(runs["uncentred"], tmp_path / "copy", 1), capsys)
    assert (code, found["embedding"]["verdict"]) == (0, "warning")


def test_a_centred_run_in_clear_sight_is_not_bad(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for directory in (runs["healthy"], first_lines(runs["healthy"], tmp_path / "copy", 4)):
        code, found = findings(directory, capsys)
        assert code == 0
        assert {found[check]["verdict"] for check in ("embedding", "horizon", "paid")} == {"ok"}


def test_a_collapse_stops_paying_and_the_log_says_when(runs: dict[str, Path]) -> None:
    shares = {name: [row["paying_share"] for row in read_metrics(runs[name] / "metrics.jsonl")] for name in CONFIGS}
    assert shares["healthy"][-1] > 0.9
    assert all(later < earlier for earlier, later in itertools.pairwise(shares["uncentred"]))
    summary = json.loads((runs["uncentred"] / "summary.json").read_text())
    assert summary["paying_share"] == shares["uncentred"][-1] < 0.2
