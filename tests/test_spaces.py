"""Observation spaces have shape, dtype and size, and serve as descriptions of arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore.spaces import ActionSpec, ArraySpace, Grid, Image, Tokens, Vector

KINDS = [
    (Image(9, 8, 3), (9, 8, 3), np.uint8, 216),
    (Vector(5), (5,), np.float32, 5),
    (Grid(4, 3, (11, 6)), (4, 3, 2), np.uint8, 24),
    (Tokens(7, 256), (7,), np.int32, 7),
]


@pytest.mark.parametrize(("kind", "shape", "dtype", "size"), KINDS)
def test_a_space_has_shape_dtype_and_size(kind: ArraySpace, shape: tuple[int, ...], dtype: type, size: int) -> None:
    assert (kind.shape, kind.dtype, kind.size) == (shape, dtype, size)  # pyright: ignore[reportAttributeAccessIssue]
    described = jax.eval_shape(lambda: jnp.zeros(kind.shape, kind.dtype))
    assert (described.shape, described.dtype, described.size) == (shape, dtype, size)


def test_spaces_are_leaves_and_compare_by_value() -> None:
    spec = {name: kind for name, (kind, *_) in zip("abcd", KINDS, strict=True)}
    assert jax.tree.leaves(spec) == [kind for kind, *_ in KINDS]
    assert len({Grid(4, 3, (11, 6)), Grid(4, 3, (11, 6)), Grid(4, 3, (11, 7)), Image(4, 3, 2)}) == 3
    assert Vector(7) != Tokens(7, 256)


def test_zero_action_has_all_parts() -> None:
    zero = ActionSpec((3, 2), 4).zero()
    assert (zero.discrete.shape, zero.continuous.shape) == ((2,), (4,))
    assert (zero.discrete.dtype, zero.continuous.dtype) == (jnp.int32, jnp.float32)
