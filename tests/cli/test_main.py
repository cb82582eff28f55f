"""Training and evaluating from the command line."""

import dataclasses
import io
import json
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from byol_explore.cli.runs import _results_table
from byol_explore.storage.run_directory import load_config
from command_line import ESCAPE, call
from runs import (
    DISPATCH,
    arguments,
    quickly,
    tiny,
)


def test_training_prints_plain_lines(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tiny(dispatches=2)
    with quickly():
        code, out, err = call(capsys, "train", *arguments(config), "--run-dir", tmp_path / "run")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"training probe:memory with byol-explore in {tmp_path / 'run'} (vector encoder)"
    assert lines[1].startswith(" 50% ")
    assert f"eta -  {DISPATCH}/{2 * DISPATCH} steps  " in lines[1]
    assert lines[2].startswith("100% ")
    assert "eta 0:00:00" in lines[2]
    assert "success" in lines[2]
    assert "curiosity" in lines[2]
    assert lines[3].startswith(f"done: {2 * DISPATCH} steps in ")
    assert len(lines) == 4
    assert ESCAPE not in out
    assert load_config(tmp_path / "run") == config


def test_rounding_of_steps_is_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = dataclasses.replace(tiny(), steps=DISPATCH + 1)
    with quickly():
        code, out, _ = call(capsys, "train", *arguments(config), "--run-dir", tmp_path / "run")
    assert code == 0
    assert (
        out.splitlines()[1] == f"steps {DISPATCH + 1} become {2 * DISPATCH}: whole dispatches of {DISPATCH} steps each"
    )
    assert load_config(tmp_path / "run") == config


def test_quiet_training_prints_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with quickly():
        code, out, err = call(capsys, "train", *arguments(tiny(dispatches=1)), "--run-dir", tmp_path / "run", "--quiet")
    assert (code, out, err) == (0, "", "")
    assert (tmp_path / "run" / "summary.json").exists()


def test_evaluate_prints_json_and_writes_a_film(
    capsys: pytest.CaptureFixture[str], directory: Path, tmp_path: Path
) -> None:
    gif = tmp_path / "films" / "episodes.gif"
    with quickly():
        code, out, err = call(capsys, "evaluate", directory, "--episodes", "9", "--json", "--video", gif)
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert (report["run"], report["episodes"], report["checkpoint_steps"]) == (str(directory), 9, 2 * DISPATCH)
    for mode in ("greedy", "sampled"):
        result = report["tasks"]["probe:memory"][mode]
        assert result["success_rate"]["low"] <= result["success_rate"]["mean"] <= result["success_rate"]["high"]
        assert result["return"]["mean"] == pytest.approx(2 * result["success_rate"]["mean"] - 1)
        assert result["length_mean"] == 6.0
    assert report["video"] == str(gif)
    with Image.open(gif) as film:
        assert film.format == "GIF"
        assert getattr(film, "n_frames", 1) > 1


def test_evaluate_prints_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, directory: Path
) -> None:
    interval = {"mean": 0.5, "low": 0.25, "high": 0.75}
    result = {"success_rate": interval, "return": interval, "length_mean": 12.0}
    report = {"run": "r", "checkpoint_steps": 1234, "skipped_checkpoints": ["step_7 (torn)"], "episodes": 9,
              "tasks": {"maze": {"sampled": result, "greedy": result}}, "video": "films/x.mp4",
              "protocol": {"max_noops": 5, "sticky_action_prob": 0.25, "max_frames": 4000}}  # fmt: skip
    calls = []
    monkeypatch.setattr(
        "byol_explore.evaluation.trained_agent.evaluate",
        lambda *words, **options: calls.append((words, options)) or report,
    )
    words = "--checkpoint best --seed 4 --success-threshold 9.5 --protocol training"
    code, out, err = call(capsys, "evaluate", directory, *words.split())
    assert code == 0
    ((words, options),) = calls
    assert callable(options.pop("progress"))
    expected = {"episodes": None, "checkpoint": "best", "seed": 4, "success_threshold": 9.5, "video": None}
    assert (words, options) == ((directory,), expected | {"protocol": "training"})
    assert err == "skipped a damaged checkpoint: step_7 (torn)\n"
    assert "r after 1,234 steps, 9 episodes" in out
    assert out.endswith("protocol: max_noops 5, sticky_action_prob 0.25, max_frames 4,000\nfilm: films/x.mp4\n")
    for word in ("maze", "greedy", "sampled", "0.50 [0.25, 0.75]", "12.0"):
        assert word in out
    assert ESCAPE not in out


@pytest.mark.parametrize(("task", "value", "human"), [("MiniGrid-DoorKey-16x16", 0.987654, None),
                                                      ("atari:montezuma_revenge", 2500.0, 53.4)])  # fmt: skip
def test_table_rows_fit_a_terminal_of_80_columns(task: str, value: float, human: float | None) -> None:
    interval = {"mean": value, "low": 0.4 * value, "high": 1.2 * value}
    result = {"success_rate": None if human else interval, "return": interval, "length_mean": 4321.0}
    result |= {"human_normalized": human} if human else {}
    screen = Console(file=io.StringIO(), width=80)
    screen.print(_results_table([(task, mode, result) for mode in ("sampled", "greedy")]))
    lines = screen.file.getvalue().splitlines()  # pyright: ignore[reportAttributeAccessIssue]
    assert len(lines) == 4
    assert [line.split()[:2] for line in lines[2:]] == [[task, "sampled"], [task, "greedy"]]
    assert all("]" in line and line.rstrip().endswith("53.4" if human else "4,321") for line in lines[2:])
