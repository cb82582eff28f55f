"""Time and environments as one axis, and as two again."""

import jax.numpy as jnp
import numpy as np

from byol_explore.ops.arrays import merge_time_batch, split_time_batch


def test_environments_go_first_and_come_back() -> None:
    x = jnp.arange(3 * 2 * 4).reshape(3, 2, 4)
    one = merge_time_batch(x)
    np.testing.assert_array_equal(one[:3], x[:, 0])  # all of the first environment
    np.testing.assert_array_equal(split_time_batch(one, 3), x)
    np.testing.assert_array_equal(split_time_batch(merge_time_batch(x[..., 0]), 3), x[..., 0])
