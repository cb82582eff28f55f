"""Consent to import what a file names: a run directory or a study may come from somebody else.

What is typed on the command line is its user's own. What `config.json` or a study's file names is imported only after
consent: `--trust` on the command line, the environment variable, which child processes inherit, or a yes on a terminal.
"""

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from byol_explore.envs.families import outside_words
from byol_explore.errors import UserError
from byol_explore.registry import is_import_path
from byol_explore.settings.config import Config

VARIABLE = "BYOL_EXPLORE_TRUST"
FLAG = "--trust"


def trust() -> None:
    """From now on, in this process and its children, import whatever run directories and studies name."""
    os.environ[VARIABLE] = "1"


def outside_code(config: Config) -> list[str]:
    """All that a configuration names outside this package, in its own words."""
    names = [config.method, config.algorithm, config.preset, config.network.encoder, *config.env_ids]
    named = [name for name in dict.fromkeys(names) if is_outside(name)]
    return named + outside_words(config.env_ids, config.env_settings)


def is_outside(name: str) -> bool:
    """Whether a name leads to code outside this package."""
    family, _, rest = name.partition(":")
    if family == "gymnasium":
        return ":" in rest  # Gymnasium imports what stands before the colon
    return is_import_path(name) and family not in ("atari", "probe")


def require_consent(names: Iterable[str], source: Path | str) -> None:
    """A UserError unless there is nothing to import or somebody has agreed to it."""
    names = list(names)
    if not names or os.environ.get(VARIABLE) == "1":
        return
    words = f"{source} names code outside this package: {', '.join(names)}"
    if sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty():
        print(f"{words}\nimport and run it? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            trust()
            return
    raise UserError(f"{words}; if you know it, add {FLAG} or set {VARIABLE}=1")
