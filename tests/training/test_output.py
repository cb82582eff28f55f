"""Writers: metrics.jsonl, which survives a crash, TensorBoard and W&B."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from byol_explore.config.config import Config, to_dict
from byol_explore.config.sections import LogConfig
from byol_explore.errors import UserError
from byol_explore.storage.metrics import flatten_scalars, read_metrics, truncate_log
from byol_explore.training.output import JsonLinesWriter, check_extras, make_writers

# metrics.jsonl


def test_lines_are_on_disk_as_soon_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    writer = JsonLinesWriter(path)
    writer.write({"steps": 1, "loss": 0.1})
    assert read_metrics(path) == [{"steps": 1, "loss": 0.1}]
    writer.write({"steps": 2, "loss": None})
    writer.close()
    assert [row["steps"] for row in read_metrics(path)] == [1, 2]


def test_an_incomplete_last_line_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"steps": 1}\n{"steps": 2, "lo')
    assert read_metrics(path) == [{"steps": 1}]


def test_a_resumed_log_has_every_step_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"steps": 1}\n{"steps": 2}\n{"steps": 3}\n{"steps": 4, "lo')
    writer = JsonLinesWriter(path, keep_until=2)
    writer.write({"steps": 3, "again": True})
    writer.close()
    assert read_metrics(path) == [{"steps": 1}, {"steps": 2}, {"steps": 3, "again": True}]
    assert path.read_text().count("\n") == 3


def test_a_log_is_truncated_only_on_request(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"steps": 5}\n')
    JsonLinesWriter(path).close()
    assert read_metrics(path) == [{"steps": 5}]
    truncate_log(path, 4)
    assert read_metrics(path) == []


# Other writers


def test_scalars_have_flat_names() -> None:
    row = {
        "steps": 3,
        "loss": 0.5,
        "none": None,
        "errors": [1.0, 2.0],
        "tasks": {"a": {"success_rate": 1.0}, "b": None},
    }
    assert flatten_scalars(row) == {
        "steps": 3, "loss": 0.5, "errors/1": 1.0, "errors/2": 2.0, "tasks/a/success_rate": 1.0,
    }  # fmt: skip


def config_with(**log: Any) -> Config:
    return Config(log=LogConfig(**log))


def test_by_default_only_metrics_jsonl_is_written(tmp_path: Path) -> None:
    writers = make_writers(config_with(), tmp_path, keep_until=None)
    assert len(writers) == 1
    writers[0].close()
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_tensorboard_gets_the_scalars(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    config = config_with(tensorboard=True)
    check_extras(config)
    for writer in make_writers(config, tmp_path, keep_until=None):
        writer.write({"steps": 10, "loss": 0.5, "errors": [1.0, 2.0]})
        writer.write({"steps": 20, "loss": 0.25, "errors": [3.0, 4.0]})
        writer.close()
    assert len(list((tmp_path / "tensorboard").glob("events.out.tfevents.*"))) == 1
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={"tensors": 0}).Reload()
    assert set(events.Tags()["tensors"]) == {"steps", "loss", "errors/1", "errors/2"}
    points = [(event.step, event.tensor_proto.float_val[0]) for event in events.Tensors("errors/2")]
    assert points == [(10, 2.0), (20, 4.0)]


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, name, None)  # makes the import fail
    with pytest.raises(UserError, match=rf"^log\.{name} needs {name}: pip install 'byol-explore\[{name}\]'$"):
        check_extras(config_with(**{name: True}))
    check_extras(config_with())


@pytest.mark.parametrize(("mode", "expected"), [(None, "offline"), ("online", "online")])
def test_wandb_is_offline_unless_wandb_mode_is_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: str | None, expected: str
) -> None:
    calls: list[Any] = []
    run = SimpleNamespace(
        log=lambda row, step: calls.append((row, step)),
        finish=lambda: calls.append("finish"),
    )
    fake = SimpleNamespace(init=lambda **settings: calls.append(settings) or run)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    if mode is not None:
        monkeypatch.setenv("WANDB_MODE", mode)
    config = config_with(wandb=True)
    for writer in make_writers(config, tmp_path, keep_until=None):
        writer.write({"steps": 7, "loss": 0.5, "none": None})
        writer.close()
    settings, (row, step), last = calls
    assert (settings["mode"], settings["dir"], settings["config"]) == (expected, str(tmp_path), to_dict(config))
    assert (settings["project"], settings["name"]) == ("byol-explore", tmp_path.name)
    assert (row, step, last) == ({"steps": 7, "loss": 0.5}, 7, "finish")


def test_wandb_project_and_name_can_be_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[Any] = []
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **settings: calls.append(settings)))
    make_writers(config_with(wandb=True, wandb_project="mine", wandb_name="first"), tmp_path, keep_until=None)
    assert [(settings["project"], settings["name"]) for settings in calls] == [("mine", "first")]
