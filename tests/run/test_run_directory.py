"""Which run directories, and which configurations in them, are refused."""

import dataclasses
import sys
from pathlib import Path

import pytest

from byol_explore.errors import UserError
from byol_explore.run.directory import check_resumable, check_run_dir, load_config
from byol_explore.run.training import train
from byol_explore.runtime.choosing import resolve_devices
from byol_explore.settings.config import Config
from byol_explore.settings.parts import CuriosityConfig, LogConfig, NetworkConfig
from runs import (
    files,
    half,
    run,
    tiny,
    uninterrupted,
)


def test_a_directory_with_a_run_is_not_touched(root: Path, tmp_path: Path) -> None:
    directory = half(root, tmp_path / "run")
    before = files(directory)
    with pytest.raises(UserError, match=r"run already holds a run: continue it with --resume"):
        run(tiny(), directory)
    assert files(directory) == before


def test_a_directory_with_anything_in_it_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("do not lose me")
    with pytest.raises(UserError, match="is not empty and holds no run"):
        run(tiny(), tmp_path)
    with pytest.raises(UserError, match="is a file"):
        run(tiny(), tmp_path / "thesis.tex")
    assert files(tmp_path) == {"thesis.tex": b"do not lose me"}


def test_an_empty_directory_is_taken(tmp_path: Path) -> None:
    check_run_dir(tmp_path, tiny(), resume=False)


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        (tiny(env="probe:nothing"), "unknown environment 'probe:nothing'"),
        (tiny(env="probe:memory,probe:two-armed"), "cannot be learned by one agent"),
        (tiny(network=NetworkConfig(core="rnn")), "rnn"),
        (tiny(network=NetworkConfig(encoder="resnet")), "resnet"),
        (tiny(devices=3), "runtime.devices is 3"),
        (tiny(log={"wandb": True}), "byol-explore\\[wandb\\]"),
    ],
    ids=["env", "envs", "core", "encoder", "devices", "wandb"],
)
def test_a_wrong_value_leaves_no_directory_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: Config, complaint: str
) -> None:
    """The corrected command must not stumble over it."""
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=complaint):
        train(config, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_nothing_to_resume(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing to resume: .*gone holds no run"):
        run(tiny(), tmp_path / "gone", resume=True)
    assert not (tmp_path / "gone").exists()


def test_only_length_and_logging_may_change() -> None:
    config = tiny()
    longer = dataclasses.replace(config, steps=10**6, stop_at_success=0.9, log=LogConfig(window=3))
    check_resumable(config, longer)
    check_resumable(longer, config)
    more_time = dataclasses.replace(config, runtime=dataclasses.replace(config.runtime, step_timeout=300.0))
    check_resumable(config, more_time)
    accepted = r"only steps, stop_at_success, runtime\.step_timeout and log\.\* may change"
    with pytest.raises(UserError, match=rf"seed was 0, now 1; {accepted}"):
        check_resumable(config, dataclasses.replace(config, seed=1))
    with pytest.raises(UserError, match=r"curiosity\.horizon was 2, now 1"):
        check_resumable(config, dataclasses.replace(config, curiosity=CuriosityConfig(horizon=1)))
    with pytest.raises(UserError, match=r"network\.encoder_hidden was \(10,\), now \(128,\)"):
        check_resumable(config, dataclasses.replace(config, network=NetworkConfig()))


def test_resuming_with_another_config_changes_nothing(root: Path, tmp_path: Path) -> None:
    directory = half(root, tmp_path / "run")
    before = files(directory)
    with pytest.raises(UserError, match="method was 'byol-explore', now 'rnd'"):
        run(dataclasses.replace(tiny(), method="rnd"), directory, resume=True)
    assert files(directory) == before


def test_a_run_continues_with_the_config_that_it_wrote(root: Path) -> None:
    check_resumable(load_config(uninterrupted(root, 2)), resolve_devices(tiny(devices=0)))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "cannot be read"),
        ("[1]", "cannot be read"),
        ('{"stepz": 3}', "unknown configuration field 'stepz'; choose from: preset, env"),
        ('{"agent": {"gama": 3}}', "unknown configuration field 'gama'"),
    ],
)
def test_an_unreadable_config(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError, match=complaint):
        load_config(tmp_path)
    with pytest.raises(UserError, match="holds no run"):
        load_config(tmp_path / "nowhere")
