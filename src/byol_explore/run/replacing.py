"""An old run that makes room for a new one in its directory, if everything in there is what a run leaves."""

import json
import shutil
from fnmatch import fnmatch
from pathlib import Path

from byol_explore.errors import UserError
from byol_explore.files import temporary
from byol_explore.run.failures import FAILURE
from byol_explore.settings.config import Config

_CONFIG = "config.json"
_FILES = ("versions.json", "metrics.jsonl", "metrics.jsonl.gz", "summary.json", "curves.png", "curves.tmp.png",
          "maps.json", "coverage.json", "rooms.png", FAILURE, _CONFIG)  # fmt: skip
_DIRECTORIES = {  # and what is in each of them
    "checkpoints": ("step_*", "damaged_step_*", "scores.json*"),
    "films": ("*.gif", "*.webp", "*.mp4"),
    "report": ("index.html*", "figures", "tables"),
    "tensorboard": ("events.out.*",),
    "wandb": ("*",),
}
_FIELDS = {"env", "method", "seed", "runtime", "curiosity"}  # that every configuration has


def check_replaceable(directory: Path, config: Config) -> None:
    """A UserError unless a directory is missing, or holds a run and nothing else that a new one would take away."""
    if directory.is_symlink():
        raise UserError(f"{directory} is a symbolic link: --force removes no run behind one; remove it yourself")
    if not directory.exists():
        return
    if not _is_config(directory / _CONFIG):
        raise UserError(f"{directory} holds no run that --force could remove: its {_CONFIG} is missing or no run's")
    if config.init_from and Path(config.init_from).resolve() == directory.resolve():
        raise UserError(f"init_from is {config.init_from}, which --force would remove: choose another --run-dir")
    inside = (path for name in _DIRECTORIES if (directory / name).is_dir() for path in (directory / name).iterdir())
    for path in sorted([*directory.iterdir(), *inside]):
        if not (_is_of_a_run(path) if path.parent == directory else _is_inside_a_run(path)):
            raise UserError(f"{path} is nothing that a run writes: --force removes runs and nothing else")


def remove_run(directory: Path) -> None:
    """All that a run left, its configuration last: when this is cut short there is still a run that can be removed."""
    for path in sorted(directory.iterdir(), key=lambda path: path.name == _CONFIG):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _is_config(path: Path) -> bool:
    try:
        return not path.is_symlink() and json.loads(path.read_text()).keys() >= _FIELDS
    except (OSError, ValueError, AttributeError, RecursionError):
        return False


def _is_inside_a_run(path: Path) -> bool:
    return path.parent.is_symlink() or any(fnmatch(path.name, pattern) for pattern in _DIRECTORIES[path.parent.name])


def _is_of_a_run(path: Path) -> bool:
    names = {*_FILES, *(temporary(Path(name)).name for name in _FILES)}
    return path.name in (_DIRECTORIES if path.is_dir() else names)
