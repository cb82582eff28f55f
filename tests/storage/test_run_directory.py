"""Checks of run directories and of the configurations in them."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from byol_explore.config.config import Config
from byol_explore.config.sections import CuriosityConfig, LogConfig, NetworkConfig
from byol_explore.errors import EnvironmentFailure, UserError
from byol_explore.runtime.make import resolve_devices
from byol_explore.storage.run_directory import check_resumable, check_run_dir, load_config, save_traceback, write_config
from byol_explore.training import train as train_module
from byol_explore.training.train import train
from byol_explore.utils.files import add_checksum, split_checksum
from runs import (
    DISPATCH,
    HALF,
    config_for,
    files,
    half,
    quickly,
    run,
    shared_runtime,
    tiny,
    uninterrupted,
)


def test_a_directory_with_a_run_is_unchanged(root: Path, tmp_path: Path) -> None:
    directory = half(root, tmp_path / "run")
    before = files(directory)
    with pytest.raises(UserError, match=r"run already holds a run: continue it with --resume"):
        run(tiny(), directory)
    assert files(directory) == before


def test_a_directory_with_other_files_is_unchanged(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("do not lose me")
    with pytest.raises(UserError, match="is not empty and holds no run"):
        run(tiny(), tmp_path)
    with pytest.raises(UserError, match="is a file"):
        run(tiny(), tmp_path / "thesis.tex")
    assert files(tmp_path) == {"thesis.tex": b"do not lose me"}


def test_an_empty_directory_is_accepted(tmp_path: Path) -> None:
    check_run_dir(tmp_path, tiny(), resume=False)


def test_files_of_a_run_that_never_began_do_not_block_a_directory(tmp_path: Path) -> None:
    """The run was killed while it wrote its configuration, or its environment failed at once."""
    (tmp_path / "config.json.tmp").write_text('{"preset"')
    failure = save_traceback(EnvironmentFailure("environment 'x' failed in its reset"), tmp_path)
    assert str(failure) == f"environment 'x' failed in its reset; the traceback is in {tmp_path / 'traceback.txt'}"
    check_run_dir(tmp_path, tiny(), resume=False)
    (tmp_path / "traceback.txt").write_text("of something else")
    with pytest.raises(UserError, match="is not empty and holds no run"):
        check_run_dir(tmp_path, tiny(), resume=False)


def test_a_run_that_ended_before_its_first_dispatch_can_start_again(tmp_path: Path) -> None:
    """A user corrects an error in a bonus and runs the same command again."""
    config, corrected = tiny(), dataclasses.replace(tiny(), seed=1)
    mistake = mock.Mock(side_effect=UserError("bonus Mine pays nonsense"))
    with mock.patch.object(shared_runtime(config), "dispatch", mistake), pytest.raises(UserError, match="nonsense"):
        run(config, tmp_path)
    assert sorted(files(tmp_path)) == ["config.json", "metrics.jsonl", "versions.json"]
    check_run_dir(tmp_path, corrected, resume=False)
    (tmp_path / "metrics.jsonl").write_text('{"steps": 48}\n')
    with pytest.raises(UserError, match="already holds a run"):
        check_run_dir(tmp_path, corrected, resume=False)


def test_two_runs_started_in_one_directory_do_not_mix(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run begins and ends while the other still makes its environments."""
    directory, envs = tmp_path / "run", train_module.make_training_envs
    config = config_for(dispatches=1)

    def slow(config: Config) -> Any:
        if config.seed == 7:
            monkeypatch.setattr(train_module, "make_training_envs", envs)
            with pytest.raises(UserError, match="another process is training in"):
                run(dataclasses.replace(config, seed=0), directory)
        return envs(config)

    monkeypatch.setattr(train_module, "make_training_envs", slow)
    run(dataclasses.replace(config, seed=7), directory)
    assert load_config(directory).seed == 7


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        (tiny(env="probe:nothing"), "unknown environment 'probe:nothing'"),
        (tiny(env="probe:memory,probe:two-armed"), "cannot be learned by one agent"),
        (tiny(network=NetworkConfig(core="rnn")), "rnn"),
        (tiny(network=NetworkConfig(encoder="resnet")), "resnet"),
        (tiny(devices=3), "runtime.num_devices is 3"),
        (tiny(log={"wandb": True}), "byol-explore\\[wandb\\]"),
    ],
    ids=["env", "envs", "core", "encoder", "devices", "wandb"],
)
def test_a_wrong_value_leaves_no_directory_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: Config, complaint: str
) -> None:
    """Otherwise the corrected command would be refused."""
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=complaint):
        train(config, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_resuming_a_missing_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing to resume: .*gone holds no run"):
        run(tiny(), tmp_path / "gone", resume=True)
    assert not (tmp_path / "gone").exists()


def test_only_length_and_logging_may_change_on_resume() -> None:
    config = tiny()
    longer = dataclasses.replace(config, steps=10**6, stop_at_success_rate=0.9, log=LogConfig(episode_window=3))
    check_resumable(config, longer)
    check_resumable(longer, config)
    more_time = dataclasses.replace(config, runtime=dataclasses.replace(config.runtime, step_timeout=300.0))
    check_resumable(config, more_time)
    accepted = (
        r"only steps, stop_at_success_rate, runtime\.step_timeout, runtime\.ray_address, "
        r"distributed\.\* and log\.\* may change"
    )
    with pytest.raises(UserError, match=rf"seed was 0, now 1; {accepted}"):
        check_resumable(config, dataclasses.replace(config, seed=1))
    with pytest.raises(UserError, match=r"curiosity\.horizon was 2, now 1"):
        check_resumable(config, dataclasses.replace(config, curiosity=CuriosityConfig(horizon=1)))
    with pytest.raises(UserError, match=r"network\.encoder_hidden was \(10,\), now \(128,\)"):
        check_resumable(config, dataclasses.replace(config, network=NetworkConfig()))


def test_a_refused_resume_changes_no_file(root: Path, tmp_path: Path) -> None:
    directory = half(root, tmp_path / "run")
    before = files(directory)
    with pytest.raises(UserError, match="method was 'byol-explore', now 'rnd'"):
        run(dataclasses.replace(tiny(), method="rnd"), directory, resume=True)
    assert files(directory) == before


def test_a_run_can_resume_with_its_own_config(root: Path) -> None:
    check_resumable(load_config(uninterrupted(root, 2)), resolve_devices(tiny(devices=0)))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"seed": "zero"}', "seed is 'zero': it must be a whole number"),
        ('{"seed": -1}', "seed is -1: it must not be negative"),
        ('{"steps": 1e6}', r"steps is 1000000\.0: it must be a whole number"),
        ('{"env": 3}', "env is 3: it must be text"),
        ('{"env_kwargs": "length=1"}', "env_kwargs is 'length=1': it must be a list of texts"),
        ('{"agent": {"gamma": null}}', r"agent\.gamma is None: it must be a number"),
        ('{"agent": 5}', "agent is 5: it must be AgentConfig"),
        ('{"curiosity": {"share_representation": "no"}}', r"curiosity\.share_representation is 'no': it must be true"),
        ('{"regime": "both"}', "unknown regime 'both'; choose from: mixed"),
    ],
)
def test_a_wrong_value_in_a_config_is_named_with_its_file(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError, match=rf"^{tmp_path}/config\.json: {complaint}") as caught:
        load_config(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ("[1]", "cannot be read"),
        ('{"stepz": 3}', "unknown configuration field 'stepz' .*; choose from: preset, env"),
        ('{"agent": {"gama": 3}}', "unknown configuration field 'gama'"),
    ],
)
def test_an_unreadable_config_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError, match=complaint):
        load_config(tmp_path)
    with pytest.raises(UserError, match="holds no run"):
        load_config(tmp_path / "nowhere")


def edit(directory: Path, before: str, now: str) -> None:
    path = directory / "config.json"
    assert path.read_text().count(before) == 1
    path.write_text(path.read_text().replace(before, now))


def refusal(directory: Path) -> str:
    with pytest.raises(UserError) as caught:
        load_config(directory)
    assert "\n" not in str(caught.value)
    return str(caught.value)


ACCEPT = "restore it, or continue with train --resume --accept-config"


def test_a_changed_configuration_is_named_field_by_field(root: Path, tmp_path: Path) -> None:
    directory = half(root, tmp_path / "run")
    edit(directory, '"epsilon_mean": 0.001', '"epsilon_mean": 2.001')
    edit(directory, '"seed": 0', '"seed": 4')
    last = f"step_{HALF * DISPATCH:012d}"
    changes = f"seed is 4, in {last} 0, vmpo.epsilon_mean is 2.001, in {last} 0.001"
    where = directory / "config.json"
    assert refusal(directory) == f"{where} was changed since it was written: {changes}; {ACCEPT}"
    config = load_config(directory, accept_changes=True)
    assert (config.seed, config.vmpo.epsilon_mean) == (4, 2.001)


def test_no_changed_byte_of_a_configuration_changes_a_setting(root: Path, tmp_path: Path) -> None:
    directory = half(root, tmp_path / "run")
    config, path = load_config(directory), directory / "config.json"
    content, seen = path.read_bytes(), {"read": 0, "refused": 0}
    for place in range(0, len(content), 3):
        path.write_bytes(content[:place] + bytes([content[place] ^ (1 << place % 7)]) + content[place + 1 :])
        try:
            assert load_config(directory) == config
            seen["read"] += 1
        except UserError:
            seen["refused"] += 1
    assert seen["refused"] > 10 * seen["read"], "few bytes are spaces"


def test_a_configuration_of_another_run_is_refused(root: Path, tmp_path: Path) -> None:
    directory = half(root, tmp_path / "run")
    write_config(directory, dataclasses.replace(load_config(directory), algorithm="ppo"))
    assert "algorithm is 'ppo', in step_" in refusal(directory)


def test_settings_that_training_may_change_are_no_damage(root: Path, tmp_path: Path) -> None:
    """A run that was continued with more steps and then killed has no checkpoint with them yet."""
    directory = half(root, tmp_path / "run")
    write_config(directory, dataclasses.replace(load_config(directory), steps=10**6))
    assert load_config(directory).steps == 10**6
    edit(directory, '"steps": 1000000', '"steps": 1000001')
    assert "steps is 1000001, in step_" in refusal(directory)


def test_a_changed_configuration_without_checkpoint_is_refused(tmp_path: Path) -> None:
    write_config(tmp_path, tiny())
    edit(tmp_path, '"seed": 0', '"seed": 4')
    where = tmp_path / "config.json"
    assert refusal(tmp_path) == f"{where} was changed since it was written: its checksum does not match; {ACCEPT}"


@pytest.mark.parametrize("text", [None, "", "{", '{"steps": null}', "[" * 10**5, "[1]", "\0"])
def test_a_checkpoint_replaces_an_unreadable_configuration(root: Path, tmp_path: Path, text: str | None) -> None:
    directory = half(root, tmp_path / "run")
    config, path = load_config(directory), directory / "config.json"
    path.unlink() if text is None else path.write_text(text)
    assert refusal(directory).endswith(f"; {ACCEPT}")
    assert load_config(directory, accept_changes=True) == config


def test_a_run_continues_with_an_accepted_configuration(root: Path, tmp_path: Path) -> None:
    directory = half(root, tmp_path / "run")
    edit(directory, '"epsilon_mean": 0.001', '"epsilon_mean": 0.002')
    config = load_config(directory, accept_changes=True)
    with pytest.raises(UserError, match=r"epsilon_mean is 0\.002"):
        run(config, directory, resume=True)
    with pytest.raises(UserError, match="accept_config needs resume"):
        train(config, directory, accept_config=True)
    longer = dataclasses.replace(config, steps=(HALF + 1) * DISPATCH)
    with quickly():
        train(longer, directory, resume=True, quiet=True, accept_config=True)
    assert load_config(directory) == longer


def test_a_setting_that_a_later_version_has_added_is_no_change(root: Path, tmp_path: Path) -> None:
    directory = half(root, tmp_path / "run")
    for path in (directory / "config.json", *directory.glob("checkpoints/*/meta/metadata")):
        data, _ = split_checksum(json.loads(path.read_text()))
        del data.get("config", data)["runtime"]["max_env_restarts"]
        path.write_text(json.dumps(add_checksum(data)))
    assert load_config(directory).runtime.max_env_restarts == 20
    edit(directory, '"seed": 0', '"seed": 4')
    assert "seed is 4, in step_" in refusal(directory)
