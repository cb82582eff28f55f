"""Blocks of docs/anyones-agent.md that need PyTorch do what they say, and so does the example of Stable-Baselines3."""

from pathlib import Path

import numpy as np
import pytest
from examples import sb3_ppo

from blocks import WITH_TORCH, python_blocks, run_blocks

DOCUMENT = Path(__file__).parents[2] / "docs" / "anyones-agent.md"


@pytest.mark.parametrize(("section", "count", "calls"), [("Stable-Baselines3", 3, 2), ("TorchRL", 1, 2)])
def test_blocks_of_a_section_run(
    section: str, count: int, calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = python_blocks(DOCUMENT)[section]
    assert len(blocks) == count
    told = {}
    run_blocks(DOCUMENT, blocks, told)
    assert told["curiosity"].progress.record.calls == calls
    assert told["curiosity"].progress.record.breaks == 0
    if section == "Stable-Baselines3":
        assert (tmp_path / "agent.zip").is_file()
        assert told["model"].curiosity is told["curiosity"]


def test_every_section_is_run() -> None:
    assert set(WITH_TORCH) < set(python_blocks(DOCUMENT))


def walked(env: sb3_ppo.Rooms, actions: str) -> tuple[float, bool, bool, int]:
    """What the last of some actions came to: right, left, down, up."""
    env.reset()
    answer = [env.step("rldu".index(action)) for action in actions][-1]
    return answer[1], answer[2], answer[3], answer[4]["rooms"]


def test_rooms_by_hand() -> None:
    """Two rooms of 3 x 3: the door is in the second row, where the agent begins."""
    env = sb3_ppo.Rooms(rooms=2, size=3)
    assert env.doors == [1]
    assert walked(env, "urrrrdd") == (0.0, False, False, 1)  # along the wall
    assert walked(env, "rrr") == (0.0, False, False, 1)  # in the door
    assert walked(env, "rrrr") == (0.0, False, False, 2)
    assert walked(env, "rrrrrr") == (1.0, True, False, 2)
    assert walked(env, "l" * 40) == (0.0, False, True, 1)


def test_the_example_runs_with_curiosity_and_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for mixing in ("0.01", "0"):
        curve = tmp_path / f"{mixing}.csv"
        sb3_ppo.main(["--total-steps", "512", "--num-envs", "4", "--mixing", mixing, "--curve", str(curve)])
        assert np.loadtxt(curve, delimiter=",", skiprows=1, ndmin=2)[-1, 0] == 512
        assert "512 steps; of the last 100 episodes 0% reached the end" in capsys.readouterr().out
