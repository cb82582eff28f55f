"""Ray itself, for all that use it here: imported once, and told before how patient it is to be."""

import os
from typing import Any

os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "2")  # read when Ray is imported: how often it tries to connect

import ray as _ray  # pyright: ignore[reportMissingImports]
import ray.exceptions as _exceptions  # pyright: ignore[reportMissingImports]

ray: Any = _ray
RayError: Any = _exceptions.RayError
