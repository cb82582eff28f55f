"""Code blocks of docs/anyones-agent.md that need PyTorch, and the example for Stable-Baselines3."""

from pathlib import Path

import numpy as np
import pytest
from examples import sb3_ppo

from code_blocks import WITH_TORCH, python_blocks, run_blocks

DOCUMENT = Path(__file__).parents[2] / "docs" / "anyones-agent.md"


@pytest.mark.parametrize(("section", "count", "calls"), [("Stable-Baselines3", 3, 2), ("TorchRL", 1, 2)])
def test_blocks_of_a_section_run(
    section: str, count: int, calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = python_blocks(DOCUMENT)[section]
    assert len(blocks) == count
    namespace = {}
    run_blocks(DOCUMENT, blocks, namespace)
    assert namespace["curiosity"].progress.record.calls == calls
    assert namespace["curiosity"].progress.record.discontinuities == 0
    if section == "Stable-Baselines3":
        assert (tmp_path / "agent.zip").is_file()
        assert namespace["model"].curiosity is namespace["curiosity"]


def test_every_section_is_run() -> None:
    assert set(WITH_TORCH) < set(python_blocks(DOCUMENT))


def last_step(env: sb3_ppo.Rooms, actions: str) -> tuple[float, bool, bool, int]:
    """Step through actions r, l, d, u. Return (reward, terminated, truncated, rooms) of the last one."""
    env.reset()
    result = [env.step("rldu".index(action)) for action in actions][-1]
    return result[1], result[2], result[3], result[4]["rooms"]


def test_rooms_by_hand() -> None:
    """Two rooms of 3 x 3: the door is in the second row, where the agent starts."""
    env = sb3_ppo.Rooms(rooms=2, size=3)
    assert env.doors == [1]
    assert last_step(env, "urrrrdd") == (0.0, False, False, 1)  # along the wall
    assert last_step(env, "rrr") == (0.0, False, False, 1)  # in the door
    assert last_step(env, "rrrr") == (0.0, False, False, 2)
    assert last_step(env, "rrrrrr") == (1.0, True, False, 2)
    assert last_step(env, "l" * 40) == (0.0, False, True, 1)


def test_the_example_runs_with_curiosity_and_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for mixing in ("0.01", "0"):
        curve = tmp_path / f"{mixing}.csv"
        sb3_ppo.main(["--total-steps", "512", "--num-envs", "4", "--mixing", mixing, "--curve", str(curve)])
        assert np.loadtxt(curve, delimiter=",", skiprows=1, ndmin=2)[-1, 0] == 512
        assert "512 steps; of the last 100 episodes 0% reached the end" in capsys.readouterr().out
