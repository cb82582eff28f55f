"""Trees of arrays without JAX are those of JAX."""

import jax
import numpy as np

from byol_explore.trees import map_arrays
from byol_explore.types import Action, TimeStep


def test_all_places_are_mapped_as_jax_does() -> None:
    def tree(start: int) -> TimeStep:
        numbers = iter(np.arange(start, start + 10.0))
        seen = {"rgb": next(numbers), "more": (next(numbers), Action(next(numbers), next(numbers)))}
        return TimeStep(seen, next(numbers), next(numbers), next(numbers), next(numbers))

    one, other = tree(0), tree(100)
    mapped = map_arrays(lambda x, y: 2 * x + y, one, other)
    assert mapped == jax.tree.map(lambda x, y: 2 * x + y, one, other)
    assert isinstance(mapped, TimeStep)
    assert isinstance(mapped.observation["more"][1], Action)
    assert mapped.success is None
