"""Settings that differ."""

import json
from pathlib import Path

from byol_explore.report.differences import differences
from byol_explore.report.load import load_runs
from byol_explore.report.model import Table
from byol_explore.settings.parts import CuriosityConfig, LogConfig
from report.synthetic import blocks, words, write_run


def test_only_settings_that_differ_are_listed_by_variant(tmp_path: Path) -> None:
    write_run(tmp_path, "byol-explore-seed0")
    write_run(tmp_path, "byol-explore-seed1", log=LogConfig(window=7))
    write_run(tmp_path, "fixed-targets-seed0", ablation="fixed-targets", env="rooms-4")
    [table] = blocks(differences(load_runs([tmp_path])), Table)
    assert table.columns == ["setting", "byol-explore", "fixed-targets"]
    assert table.rows == [["ablation", "none", "fixed-targets"], ["curiosity.target_decay", "0.99", "1.0"]]


def test_a_variant_whose_runs_differ_among_themselves_is_pointed_out(tmp_path: Path) -> None:
    write_run(tmp_path, "byol-explore-seed0", curiosity=CuriosityConfig(horizon=3))
    write_run(tmp_path, "byol-explore-seed1", curiosity=CuriosityConfig(horizon=5))
    section = differences(load_runs([tmp_path]))
    assert blocks(section, Table)[0].rows == [["curiosity.horizon", "3 or 5"]]
    assert "do not all have the same settings: byol-explore." in words(section)


def test_a_setting_that_another_version_does_not_have_is_a_difference(tmp_path: Path) -> None:
    write_run(tmp_path, "byol-explore-seed0")
    path = write_run(tmp_path, "rnd-seed0", method="rnd") / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "courage": 0.5}))
    [table] = blocks(differences(load_runs([tmp_path])), Table)
    assert table.rows[-1] == ["courage", "(not there)", "0.5"]


def test_equal_settings_are_said_to_be_equal(tmp_path: Path) -> None:
    write_run(tmp_path, "byol-explore-seed0")
    write_run(tmp_path, "byol-explore-seed1")
    assert "All runs have the same settings" in words(differences(load_runs([tmp_path])))
