"""Time and environments as one axis, and as two again."""

import jax.numpy as jnp
import numpy as np

from byol_explore.ops.batches import flat, timed


def test_environments_go_first_and_come_back() -> None:
    x = jnp.arange(3 * 2 * 4).reshape(3, 2, 4)
    one = flat(x)
    np.testing.assert_array_equal(one[:3], x[:, 0])  # all of the first environment
    np.testing.assert_array_equal(timed(one, 3), x)
    np.testing.assert_array_equal(timed(flat(x[..., 0]), 3), x[..., 0])
