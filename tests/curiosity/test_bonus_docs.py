"""Every block of docs/jax-loops.md does what it says."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from code_blocks import PLAIN, python_blocks, run_blocks

DOCUMENT = Path(__file__).parents[2] / "docs" / "jax-loops.md"


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
