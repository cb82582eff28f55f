"""Two CPU devices for all tests, so that what is spread over devices is tested too."""

import jax

jax.config.update("jax_num_cpu_devices", 2)
