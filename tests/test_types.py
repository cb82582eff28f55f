"""The tree map without JAX equals that of JAX."""

import jax
import numpy as np

from byol_explore.types import Action, TimeStep, numpy_tree_map


def test_numpy_tree_map_equals_jax_tree_map() -> None:
    def tree(start: int) -> TimeStep:
        numbers = iter(np.arange(start, start + 10.0))
        seen = {"rgb": next(numbers), "more": (next(numbers), Action(next(numbers), next(numbers)))}
        return TimeStep(seen, *(next(numbers) for _ in range(4)), success=None)

    one, other = tree(0), tree(100)
    mapped = numpy_tree_map(lambda x, y: 2 * x + y, one, other)
    assert mapped == jax.tree.map(lambda x, y: 2 * x + y, one, other)
    assert isinstance(mapped, TimeStep)
    assert isinstance(mapped.observation["more"][1], Action)
    assert mapped.success is None
