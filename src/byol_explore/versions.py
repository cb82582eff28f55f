"""What is running: versions of the package and of what its results depend on most. Nothing is imported for it."""

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import byol_explore

_PACKAGE = Path(__file__).parent
_PATIENCE = 10.0  # seconds for git


@cache
def versions() -> dict[str, str]:
    """By name; the commit is there if the package runs from a checkout."""
    commit = commit_of(_PACKAGE)
    return {
        "byol-explore": byol_explore.__version__,
        **({"commit": commit} if commit else {}),
        "python": platform.python_version(),
        **{name: installed for name in ("jax", "jaxlib") if (installed := _installed(name))},
    }


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def commit_of(package: Path) -> str | None:
    """Of the checkout that a package lies in, with -dirty where files differ from it; None if there is none."""
    root = package.parents[1]
    if package.parent.name != "src" or not (root / ".git").exists():
        return None
    command = ["git", "--no-optional-locks", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"]
    others = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        said = subprocess.run(
            [*command, "--exclude", "*"], env=others, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said.stdout.strip() or None
