"""Every block of docs/anyones-agent.md does what it says, and so does the example in CleanRL's way.

Those with PyTorch are run by tests/integrations/test_document.py.
"""

import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from examples import cleanrl_style

from byol_explore import Curiosity
from code_blocks import PLAIN, python_blocks, run_blocks
from dropins import OBSERVATIONS, SMALL, rollout

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "anyones-agent.md"


def test_every_block_of_the_document_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run the blocks in order, as a user types them; then use the method that they define by its import path."""
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("my_module")
    monkeypatch.setitem(sys.modules, "my_module", module)
    blocks = python_blocks(DOCUMENT)
    assert len(blocks[PLAIN]) == 6
    run_blocks(DOCUMENT, blocks[PLAIN], module.__dict__)
    namespace = module.__dict__
    assert namespace["rewards"].shape == (32, 4)
    assert namespace["metrics"]["learner_steps"] == 3
    assert namespace["other"].settings.curiosity.horizon == 8
    assert (tmp_path / "mine.npz").is_file()
    assert "no-data episode_boundaries" in capsys.readouterr().out
    mine = Curiosity(OBSERVATIONS, namespace["curiosity"].reader.action_space, 2, "my_module:Leap", settings=SMALL)
    given = rollout(10, ends=0.0)
    given.actions[:] %= 2
    mine.learn(*given)
    assert mine.progress.record.metrics["uncertainty"] == pytest.approx(expected_leap(given), rel=1e-4)


def expected_leap(given) -> float:
    """Return the mean length of steps between normalised observations."""
    seen = np.concatenate([given.obs, given.next_obs[-1:]])
    scaled = np.clip((seen - seen.mean((0, 1))) / np.sqrt(seen.var((0, 1)) + 1e-6), -5, 5)
    return float(np.mean(np.linalg.norm(scaled[1:] - scaled[:-1], axis=-1)))


def test_the_cleanrl_example_learns_and_marks_six_lines() -> None:
    metrics = cleanrl_style.train("CartPole-v1", 128, num_envs=4, num_steps=32)
    assert metrics["learner_steps"] == 1
    assert metrics["transitions"] == 128
    assert len(metrics["returns"]) > 0
    source = Path(cleanrl_style.__file__).read_text()
    assert len(re.findall(r"# curiosity$", source, re.MULTILINE)) == 6


def test_advantages_by_hand() -> None:
    """Two steps, with an end after the first: it gets no credit from the second."""
    rewards, values = np.asarray([[1.0], [2.0]]), np.asarray([[0.5], [0.25]])
    found = cleanrl_style.advantages(rewards, values, np.asarray([[0.0], [4.0]]), np.asarray([[True], [False]]))
    np.testing.assert_allclose(found.ravel(), [1.0 - 0.5, 2.0 + 0.99 * 4.0 - 0.25])
