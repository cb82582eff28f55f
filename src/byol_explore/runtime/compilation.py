"""JAX's persistent compilation cache, so that a second start is quick."""

import os
from pathlib import Path

import jax


def cache_dir() -> Path:
    """$BYOL_EXPLORE_CACHE, or byol-explore in the user's cache directory."""
    if "BYOL_EXPLORE_CACHE" in os.environ:
        return Path(os.environ["BYOL_EXPLORE_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "byol-explore"


def enable_compilation_cache() -> None:
    """Keep compiled programs, unless the user has set a cache of their own."""
    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.update("jax_compilation_cache_dir", str(cache_dir()))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 1.0)
