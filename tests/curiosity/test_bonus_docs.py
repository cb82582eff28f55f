"""Every block of docs/jax-loops.md does what it says, and so does the example in PureJaxRL's way."""

import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from examples import purejaxrl_byol

from code_blocks import PLAIN, python_blocks, run_blocks

DOCUMENT = Path(__file__).parents[2] / "docs" / "jax-loops.md"
TINY = ["--env", "rooms-2", "--num-envs", "4", "--num-steps", "8", "--total-steps", "128", "--print-every", "2"]


def test_every_block_of_the_document_runs() -> None:
    """Run the blocks in order, as a user types them."""
    blocks = python_blocks(DOCUMENT)
    names: dict[str, Any] = {}
    run_blocks(DOCUMENT, blocks[PLAIN], names)
    assert names["rewards"].shape == (5, 16, 4)
    assert np.max(names["rewards"]) > 0.01
    many = jax.eval_shape(names["train_seeds"], jax.random.split(jax.random.key(0), 2))
    assert many[1][0].shape == (2, 5, 16, 4)
    assert int(np.sum(names["metrics"]["stream_discontinuities"])) == 0
    assert names["other"].reader.spec.action.continuous == 3
    assert names["longer"].config.minibatches == 4
    assert np.all(np.isfinite(names["curious"].reward))
    init, update = names["init"], names["update"]
    assert jax.eval_shape(jax.vmap(init), jax.random.split(jax.random.key(0), 2)).learner.step.shape == (2,)
    assert callable(update)


def test_the_example_trains_two_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    success = purejaxrl_byol.train(purejaxrl_byol.parse_args([*TINY, "--bonus", "rnd", "--seeds", "2"]))
    lines = capsys.readouterr().out.splitlines()
    assert len(success) == len(lines) == 2
    rewards = [float(found) for line in lines for found in re.findall(r"intrinsic ([\d.]+)", line)]
    assert len(rewards) == 2
    assert min(rewards) > 0


def test_the_example_can_be_traced_without_curiosity() -> None:
    init, update = purejaxrl_byol.make_train(purejaxrl_byol.parse_args([*TINY, "--bonus", "none"]))
    runner = jax.eval_shape(init, jax.random.key(0))
    after, metrics = jax.eval_shape(update, runner, None)
    assert jax.tree.structure(after) == jax.tree.structure(runner)
    assert metrics["success"].shape == ()


def test_the_example_is_short_and_marks_its_lines() -> None:
    source = Path(purejaxrl_byol.__file__).read_text()
    assert len(source.splitlines()) <= 200
    assert len(re.findall(r"# curiosity$", source, re.MULTILINE)) == 11


def test_advantages_by_hand() -> None:
    """Two steps, with an end after the first: it gets no credit from the second."""
    rewards, values = np.asarray([[1.0], [2.0]]), np.asarray([[0.5], [0.25]])
    found = purejaxrl_byol.advantages(rewards, values, np.asarray([[0.0], [4.0]]), np.asarray([[True], [False]]))
    np.testing.assert_allclose(found.ravel(), [1.0 - 0.5, 2.0 + 0.99 * 4.0 - 0.25], rtol=1e-6)
    whole = purejaxrl_byol.advantages(rewards, values, np.asarray([[0.25], [4.0]]), np.zeros((2, 1), bool))
    later = 2.0 + 0.99 * 4.0 - 0.25
    np.testing.assert_allclose(whole[0, 0], 1.0 + 0.99 * 0.25 - 0.5 + 0.99 * 0.95 * later, rtol=1e-6)
