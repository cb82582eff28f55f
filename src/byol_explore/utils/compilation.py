"""The directory of compiled programs: a program is compiled once on a machine, not in every process."""

import os
from pathlib import Path

MIN_SECONDS = 0.1  # compile time from which a program is kept; reading one back takes some milliseconds


def cache_dir() -> Path:
    """$BYOL_EXPLORE_CACHE, or byol-explore in the user's cache directory."""
    if "BYOL_EXPLORE_CACHE" in os.environ:
        return Path(os.environ["BYOL_EXPLORE_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "byol-explore"


def enable_compilation_cache() -> None:
    """Keep compiled programs, unless the user has set a cache of their own."""
    import jax

    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.update("jax_compilation_cache_dir", str(cache_dir()))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", MIN_SECONDS)
