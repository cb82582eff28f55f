"""Settings that differ between runs."""

import json
from pathlib import Path

from byol_explore.config.sections import CuriosityConfig, LogConfig
from byol_explore.report.load import load_runs
from byol_explore.report.model import Table
from byol_explore.report.reproduction import settings_section
from report.synthetic import blocks, words, write_run


def test_differing_settings_are_listed_by_variant(tmp_path: Path) -> None:
    write_run(tmp_path, "byol-explore-seed0")
    write_run(tmp_path, "byol-explore-seed1", log=LogConfig(episode_window=7))
    write_run(tmp_path, "fixed-targets-seed0", ablation="fixed-targets", env="rooms-4")
    [table] = blocks(settings_section(load_runs([tmp_path])), Table)
    assert table.columns == ["setting", "byol-explore", "fixed-targets"]
    assert table.rows == [["ablation", "none", "fixed-targets"], ["curiosity.target_decay", "0.99", "1.0"]]


def test_variants_with_differing_runs_are_listed(tmp_path: Path) -> None:
    write_run(tmp_path, "byol-explore-seed0", curiosity=CuriosityConfig(horizon=3))
    write_run(tmp_path, "byol-explore-seed1", curiosity=CuriosityConfig(horizon=5))
    section = settings_section(load_runs([tmp_path]))
    assert blocks(section, Table)[0].rows == [["curiosity.horizon", "3 or 5"]]
    assert "different settings among their runs: byol-explore." in words(section)


def test_setting_unknown_to_another_version_is_a_difference(tmp_path: Path) -> None:
    write_run(tmp_path, "byol-explore-seed0")
    path = write_run(tmp_path, "rnd-seed0", method="rnd") / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "courage": 0.5}))
    [table] = blocks(settings_section(load_runs([tmp_path])), Table)
    assert table.rows[-1] == ["courage", "(not there)", "0.5"]


def test_equal_settings_are_one_sentence(tmp_path: Path) -> None:
    write_run(tmp_path, "byol-explore-seed0")
    write_run(tmp_path, "byol-explore-seed1")
    assert "All runs have the same settings" in words(settings_section(load_runs([tmp_path])))
