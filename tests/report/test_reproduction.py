"""Commands that reproduce runs."""

import dataclasses
import shlex
from pathlib import Path

import pytest
import tyro

from byol_explore.config.config import Config, to_dict
from byol_explore.config.overrides import flatten
from byol_explore.config.presets import make_config
from byol_explore.config.sections import AgentConfig, CuriosityConfig, NetworkConfig, RuntimeConfig
from byol_explore.report.load import load_runs
from byol_explore.report.model import Table
from byol_explore.report.reproduction import reproduce, train_command
from report.synthetic import blocks, make_rows, words, write_run

CONFIGS = [
    make_config(),
    dataclasses.replace(make_config("atari-small", method="rnd", ablation="prioritized"), regime="intrinsic"),
    dataclasses.replace(
        make_config("grid"), env="rooms-4,rooms-5", stop_at_success_rate=0.0,
        network=NetworkConfig(policy_hidden=(64, 32), encoder="grid"), agent=AgentConfig(gamma=0.995),
        curiosity=CuriosityConfig(share_representation=False, prioritize=True, embedding_size=12),
        runtime=RuntimeConfig(synchronous=True, num_devices=2),
    ),
]  # fmt: skip


@pytest.mark.parametrize("config", CONFIGS)
def test_train_command_reproduces_the_configuration(config: Config) -> None:
    program, command, *options = shlex.split(train_command(flatten(to_dict(config))))
    assert (program, command) == ("byol-explore", "train")
    start = make_config(config.preset, config.ablation, config.method)  # as `train` does
    assert tyro.cli(Config, args=options, default=start) == config


def test_train_command_has_only_changes_of_the_preset() -> None:
    assert train_command(flatten(to_dict(make_config()))) == "byol-explore train"
    fixed = dataclasses.replace(make_config(ablation="fixed-targets"), steps=1000, runtime=RuntimeConfig(num_devices=1))
    command = "byol-explore train --ablation fixed-targets --steps 1000 --runtime.num-devices 1"
    assert train_command(flatten(to_dict(fixed))) == command


def test_seeds_of_a_configuration_share_a_command(tmp_path: Path) -> None:
    for seed in (0, 3):
        write_run(tmp_path, f"rnd-seed{seed}", method="rnd")
    write_run(tmp_path, "none-seed1", method="none", env="rooms-4")
    text = words(reproduce(load_runs([tmp_path])))
    assert "    for seed in 0 3; do byol-explore train --method rnd --steps 300 --seed $seed; done" in text
    assert "    byol-explore train --env rooms-4 --method none --steps 300 --seed 1" in text


def test_study_has_one_command(tmp_path: Path) -> None:
    root = tmp_path / "laptop"
    write_run(root, "rooms-6/byol-explore-seed0")
    (root / "study.toml").write_text('name = "laptop"\n')
    text = words(reproduce(load_runs([root])))
    assert "the study 'laptop':" in text
    assert "    byol-explore study laptop/study.toml --study-dir laptop" in text
    assert "byol-explore train" not in text
    (root / "study.toml").write_text("name = ")
    assert "the study 'laptop':" in words(reproduce(load_runs([root]))), "a damaged study is named after its directory"


def test_all_runs_are_listed_with_their_state(tmp_path: Path) -> None:
    write_run(tmp_path, "byol-explore-seed0")
    write_run(tmp_path, "byol-explore-seed1", make_rows([1.0]), stop_at_success_rate=0.9)
    write_run(tmp_path, "byol-explore-seed2", make_rows([0.1]), finished=False)
    write_run(tmp_path, "byol-explore-seed3", [], finished=False)
    run = write_run(tmp_path, "byol-explore-seed4", make_rows([0.1]))
    (run / "summary.json").write_text('{"interrupted": true}')
    [table] = blocks(reproduce(load_runs([tmp_path])), Table)
    states = [row[table.columns.index("state")] for row in table.rows]
    assert states == ["done", "stopped at success", "not finished", "no log line yet", "interrupted"]
    assert table.rows[0] == ["byol-explore", "rooms-6", 0, 300, 0.03, "done", f"{tmp_path.name}/byol-explore-seed0"]
    assert table.rows[3][4] is None


@pytest.mark.parametrize("name", ["preset", "method"])
def test_names_in_a_configuration_are_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A run directory may be hostile."""
    (tmp_path / "external.py").write_text("import pathlib; pathlib.Path('imported').touch()\nMine = None")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    config = {**flatten(to_dict(make_config(ablation="horizon-1"))), name: "external:Mine"}
    command = train_command(config)
    assert f"--{name} external:Mine" in command
    assert not (tmp_path / "imported").exists()


def test_command_for_unknown_preset_names_every_setting() -> None:
    """The defaults of the preset are unknown."""
    config = make_config()
    command = train_command({**flatten(to_dict(config)), "preset": "external:Mine"})
    _, _, *options = shlex.split(command)
    other = dataclasses.replace(make_config("atari-small"), stop_at_success_rate=0.3)
    assert tyro.cli(Config, args=options, default=other) == dataclasses.replace(config, preset="external:Mine")
