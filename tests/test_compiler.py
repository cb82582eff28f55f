"""The compiler computes right values: jaxlib 0.10.2 does not on CPUs (jax issue 39103), so it is excluded."""

import os
import subprocess
import sys

# Squared lengths of the points (i, 0, 0): the release at fault gets the last of 32,769 wrong.
PROGRAM = """
import jax
import jax.numpy as jnp
import numpy as np

ROWS = 32_769
points = jnp.zeros((ROWS, 3)).at[:, 0].set(jnp.arange(ROWS))
squared_length = jax.jit(jax.vmap(lambda point: jnp.sum(jnp.square(jnp.eye(3) @ point))))
expected = np.square(np.arange(ROWS, dtype=np.float32))
np.testing.assert_array_equal(squared_length(points), expected)
"""


def test_a_matrix_product_inside_of_a_reduction_is_right() -> None:
    """In a process of its own, with the optimizations that users have and these tests switch off."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("XLA_", "JAX_"))}
    run = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
