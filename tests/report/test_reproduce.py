"""Commands that make the same runs again."""

import dataclasses
import shlex
from pathlib import Path

import pytest
import tyro

from byol_explore.report.load import load_runs
from byol_explore.report.model import Table
from byol_explore.report.reproduce import reproduce, train_command
from byol_explore.settings.config import Config, flatten, to_dict
from byol_explore.settings.parts import AgentConfig, CuriosityConfig, NetworkConfig, RuntimeConfig
from byol_explore.settings.presets import make_config
from report.synthetic import blocks, make_rows, words, write_run

CONFIGS = [
    make_config(),
    dataclasses.replace(make_config("atari-small", method="rnd", ablation="prioritized"), regime="intrinsic"),
    dataclasses.replace(
        make_config("grid"), env="rooms-4,rooms-5", stop_at_success=0.0,
        network=NetworkConfig(policy_hidden=(64, 32), encoder="grid"), agent=AgentConfig(gamma=0.995),
        curiosity=CuriosityConfig(share=False, prioritize=True, embedding_size=12),
        runtime=RuntimeConfig(deterministic=True, devices=2),
    ),
]  # fmt: skip


@pytest.mark.parametrize("config", CONFIGS)
def test_the_command_gives_the_configuration_back(config: Config) -> None:
    program, command, *options = shlex.split(train_command(flatten(to_dict(config))))
    assert (program, command) == ("byol-explore", "train")
    start = make_config(config.preset, config.ablation, config.method)  # as `train` does
    assert tyro.cli(Config, args=options, default=start) == config


def test_only_what_differs_from_the_preset_is_in_the_command() -> None:
    assert train_command(flatten(to_dict(make_config()))) == "byol-explore train"
    fixed = dataclasses.replace(make_config(ablation="fixed-targets"), steps=1000, runtime=RuntimeConfig(devices=1))
    assert train_command(flatten(to_dict(fixed))) == "byol-explore train --ablation fixed-targets --steps 1000"


def test_seeds_of_a_variant_are_one_command(tmp_path: Path) -> None:
    for seed in (0, 3):
        write_run(tmp_path, f"rnd-seed{seed}", method="rnd")
    write_run(tmp_path, "none-seed1", method="none", env="rooms-4")
    said = words(reproduce(load_runs([tmp_path])))
    assert "    for seed in 0 3; do byol-explore train --method rnd --steps 300 --seed $seed; done" in said
    assert "    byol-explore train --env rooms-4 --method none --steps 300 --seed 1" in said


def test_a_study_is_run_by_its_own_command(tmp_path: Path) -> None:
    root = tmp_path / "laptop"
    write_run(root, "rooms-6/byol-explore-seed0")
    (root / "study.toml").write_text('name = "laptop"\n')
    said = words(reproduce(load_runs([root])))
    assert "The study 'laptop'" in said
    assert "    byol-explore study laptop/study.toml --dir laptop" in said
    assert "byol-explore train" not in said
    (root / "study.toml").write_text("name = ")
    assert "The study 'laptop'" in words(reproduce(load_runs([root]))), "damaged, it is called after its directory"


def test_all_runs_are_listed_with_their_state(tmp_path: Path) -> None:
    write_run(tmp_path, "byol-explore-seed0")
    write_run(tmp_path, "byol-explore-seed1", make_rows([1.0]), stop_at_success=0.9)
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
def test_nothing_that_a_run_names_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A run directory may come from somebody else."""
    (tmp_path / "somebodys.py").write_text("import pathlib; pathlib.Path('imported').touch()\nMine = None")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    config = {**flatten(to_dict(make_config(ablation="horizon-1"))), name: "somebodys:Mine"}
    command = train_command(config)
    assert f"--{name} somebodys:Mine" in command
    assert not (tmp_path / "imported").exists()


def test_of_a_preset_that_is_not_known_every_setting_is_named() -> None:
    """Which of them the preset has, nobody knows."""
    config = make_config()
    command = train_command({**flatten(to_dict(config)), "preset": "somebodys:Mine"})
    _, _, *options = shlex.split(command)
    other = dataclasses.replace(make_config("atari-small"), stop_at_success=0.3)
    assert tyro.cli(Config, args=options, default=other) == dataclasses.replace(config, preset="somebodys:Mine")
