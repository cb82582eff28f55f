"""Hard-Eight: eight first-person tasks in three dimensions, pure JAX; one compiled step serves them all."""
