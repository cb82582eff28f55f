"""Optional extras and their one-line errors; versions of installed packages; the compilation cache.

The core has the equations, networks, curiosity, learner and runtimes, on probe worlds and Gymnasium's environments.
Code that needs a package of an extra imports it where it is used, inside `require_extra`.
"""

import contextlib
import os
import platform
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import byol_explore
from byol_explore.errors import UserError

EXTRAS = {  # by extra: its modules, and the packages that provide them
    "train": {
        "imageio_ffmpeg": "imageio-ffmpeg",
        "matplotlib": "matplotlib",
        "orbax": "orbax-checkpoint",
        "PIL": "pillow",
        "rich": "rich",
        "tyro": "tyro",
        "xminigrid": "xminigrid",
    },
    "atari": {"ale_py": "ale-py"},
    "minigrid": {"minigrid": "minigrid"},
    "envpool": {"envpool": "envpool"},
    "dm-hard-eight": {"dm_env_rpc": "dm-env-rpc"},
    "tensorboard": {"tensorboard": "tensorboard"},
    "wandb": {"wandb": "wandb"},
    "ray": {"ray": "ray"},
    "native": {"byol_explore_native": "byol-explore-native"},
    "sb3": {"stable_baselines3": "stable-baselines3", "sb3_contrib": "sb3-contrib"},
    "torchrl": {"torchrl": "torchrl", "tensordict": "tensordict"},
}


@contextlib.contextmanager
def require_extra(what: str) -> Iterator[None]:
    """Turn the failed import of a package of an extra into a UserError that names `what` and the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        module = _missing_module(error)
        for extra, packages in EXTRAS.items():
            if module in packages:
                raise UserError(f"{what} needs {packages[module]}: pip install 'byol-explore[{extra}]'") from None
        raise


def missing_extras() -> list[str]:
    """Return the extras with a missing module."""
    return [extra for extra, modules in EXTRAS.items() if not all(map(find_spec, modules))]


def _missing_module(error: ModuleNotFoundError) -> str:
    """Return the top-level package that could not be imported; Gymnasium raises an error of its own around it."""
    first = error.__cause__ if isinstance(error.__cause__, ModuleNotFoundError) else error
    return (first.name or "").partition(".")[0]


_PACKAGE = Path(__file__).parent
_GIT_TIMEOUT = 10.0  # seconds


@cache
def versions() -> dict[str, str]:
    """Return versions by name, with the commit if the package runs from a checkout."""
    commit = git_commit(_PACKAGE)
    return {
        "byol-explore": byol_explore.__version__,
        **({"commit": commit} if commit else {}),
        "python": platform.python_version(),
        **{name: installed for name in ("jax", "jaxlib", "byol-explore-native") if (installed := _installed(name))},
    }


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def git_commit(package: Path) -> str | None:
    """Return the commit of the checkout of a package, with -dirty if files differ; None without a checkout."""
    root = package.parents[1]
    if package.parent.name != "src" or not (root / ".git").exists():
        return None
    command = ["git", "--no-optional-locks", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"]
    others = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        said = subprocess.run(
            [*command, "--exclude", "*"], env=others, capture_output=True, text=True, timeout=_GIT_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said.stdout.strip() or None


MIN_COMPILE_SECONDS = 0.1  # compile time from which a program is kept; reading one back takes some milliseconds


def cache_dir() -> Path:
    """$BYOL_EXPLORE_CACHE, or byol-explore in the user's cache directory."""
    if "BYOL_EXPLORE_CACHE" in os.environ:
        return Path(os.environ["BYOL_EXPLORE_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "byol-explore"


def enable_compilation_cache() -> None:
    """Enable JAX's persistent compilation cache, unless the user has configured one."""
    import jax

    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.update("jax_compilation_cache_dir", str(cache_dir()))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", MIN_COMPILE_SECONDS)
