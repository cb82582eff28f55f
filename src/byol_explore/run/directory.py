"""A run directory's configuration: written when a run begins, compared when it goes on, read by all that look at it."""

import json
from pathlib import Path

from byol_explore.errors import UserError, one_line
from byol_explore.files import temporary, write_atomically
from byol_explore.report.logs import PLAIN
from byol_explore.rules import check
from byol_explore.run.failures import is_failure
from byol_explore.settings.config import Config, file_name, flatten, from_dict, to_dict
from byol_explore.settings.trust import outside_code, require_consent
from byol_explore.versions import versions

MAY_CHANGE = ("steps", "stop_at_success", "runtime.step_timeout", "runtime.address")  # when a run continues
_PARTS_THAT_MAY_CHANGE = ("log.", "distributed.")


def default_run_dir(config: Config) -> Path:
    """runs/<environment>/<method>[-<ablation>][-<algorithm>][-<regime>]-seed<seed>."""
    usual = Config()
    words = [file_name(config.method)]
    words += [file_name(getattr(config, name)) for name in ("ablation", "algorithm", "regime")
              if getattr(config, name) != getattr(usual, name)]  # fmt: skip
    return Path("runs") / file_name(config.env) / f"{'-'.join(words)}-seed{config.seed}"


def check_run_dir(directory: Path, config: Config, *, resume: bool) -> None:
    """A UserError unless the directory is empty or missing, or for `resume` holds a run whose configuration fits."""
    if resume:
        if not (directory / "config.json").exists():
            raise UserError(f"nothing to resume: {directory} holds no run (config.json is missing)")
        check_resumable(load_config(directory), config)
    elif directory.exists() and not directory.is_dir():
        raise UserError(f"{directory} is a file: choose another --run-dir")
    elif directory.exists() and not _never_began(directory) and not all(map(_is_of_no_run, directory.iterdir())):
        if (directory / "config.json").exists():
            raise UserError(f"{directory} already holds a run: {_choices(config.distributed.processes)}")
        raise UserError(f"{directory} is not empty and holds no run: choose another --run-dir")


def _choices(processes: int) -> str:
    """What to type; of several processes the first alone looks at the directory, but all must know that they resume."""
    if processes == 1:
        return "continue it with --resume, begin anew with --force, or choose another --run-dir"
    anew = "begin anew with --force or choose another --run-dir in process 0"
    return f"continue it with --resume in all {processes} processes, or {anew}"


def _never_began(directory: Path) -> bool:
    """Whether a run ended before its first dispatch did: of it there is a configuration, and a log without a line."""
    names = {path.name for path in directory.iterdir() if not _is_of_no_run(path)}
    return names == {"config.json", "versions.json", PLAIN} and (directory / PLAIN).stat().st_size == 0


def _is_of_no_run(path: Path) -> bool:
    """Whether a file is what a run leaves that ended before its configuration was written."""
    return path.name == temporary(Path("config.json")).name or is_failure(path)


def write_config(directory: Path, config: Config) -> None:
    """config.json, in a directory that is made if need be."""
    directory.mkdir(parents=True, exist_ok=True)
    write_atomically(directory / "config.json", json.dumps(to_dict(config), indent=2) + "\n")


def write_versions(directory: Path, steps: int) -> None:
    """versions.json: what a run began with, and whatever else it went on with after so many steps."""
    path = directory / "versions.json"
    try:
        before = [entry for entry in json.loads(path.read_text()) if isinstance(entry, dict)]
    except (OSError, ValueError, TypeError):  # a run that begins, or a file that is damaged
        before = []
    if not before or {**before[-1], "from_step": steps} != {"from_step": steps, **versions()}:
        entries = [*before, {"from_step": steps, **versions()}]
        write_atomically(path, json.dumps(entries, indent=2) + "\n")


def load_config(directory: Path) -> Config:
    """The configuration of a run; code outside this package that it names needs consent (`trust.py`)."""
    path = Path(directory) / "config.json"
    config = _read_config(path)
    require_consent(outside_code(config), path)
    return config


def _read_config(path: Path) -> Config:
    """A UserError that names the file, and of its values the first that is wrong."""
    try:
        config = from_dict(json.loads(path.read_text()))
        check(config)
        return config
    except OSError as error:
        raise UserError(f"{path.parent} holds no run: {path.name} is missing") from error
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path} cannot be read: {one_line(error)}") from error


def check_resumable(old: Config, new: Config) -> None:
    """Only how long it trains and what is logged may change when a run continues."""
    before, now = flatten(to_dict(old)), flatten(to_dict(new))
    different = [name for name in before if before[name] != now.get(name) and not _may_change(name)]
    if different:
        changes = ", ".join(f"{name} was {before[name]!r}, now {now.get(name)!r}" for name in different[:3])
        raise UserError(
            f"cannot resume with another configuration: {changes}; only {', '.join(MAY_CHANGE)}, distributed.* and "
            "log.* may change"
        )


def _may_change(name: str) -> bool:
    return name in MAY_CHANGE or name.startswith(_PARTS_THAT_MAY_CHANGE)
