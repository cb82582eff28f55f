"""config.json and versions.json of a run, and the checks before a run is started, resumed or moved aside."""

import contextlib
import itertools
import json
import math
import re
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from byol_explore.config.config import Config, env_dir_name, external_code, from_dict, to_dict
from byol_explore.config.overrides import flatten
from byol_explore.errors import EnvironmentFailure, UserError
from byol_explore.registry import require_consent
from byol_explore.storage.metrics import LOG_NAME, to_float
from byol_explore.utils.files import DAMAGE_ERRORS, atomic_write, split_checksum, temporary_path, write_json_object
from byol_explore.utils.formatting import one_line
from byol_explore.utils.packages import versions
from byol_explore.utils.validation import validate

SEARCH = "search.json"  # of a study with a search
TRIALS = "trials"  # its trials, beside study.toml
FAILURE = "traceback.txt"
_FAILURE_TITLE = "what ended this run of byol-explore\n\n"
_CONFIG_FIELDS = {"env", "method", "seed", "runtime", "curiosity"}  # in every config.json of a run
_OLD_RUN = re.compile(r"\.old-\d{8}-\d{6}(-\d+)?$")
# A resumed run may have other values of these.
_CHANGEABLE = ("steps", "stop_at_success_rate", "runtime.step_timeout", "runtime.ray_address")
_CHANGEABLE_SECTIONS = ("distributed.", "log.")


def default_run_dir(config: Config) -> Path:
    """Return runs/<environment>/<method>[-<ablation>][-<algorithm>][-<regime>]-seed<seed>."""
    defaults = Config()
    words = [env_dir_name(config.method)]
    words += [env_dir_name(getattr(config, name)) for name in ("ablation", "algorithm", "regime")
              if getattr(config, name) != getattr(defaults, name)]  # fmt: skip
    return Path("runs") / env_dir_name(config.env) / f"{'-'.join(words)}-seed{config.seed}"


def check_run_dir(directory: Path, config: Config, *, resume: bool, accept_changes: bool = False) -> None:
    """Raise UserError unless a run can start in the directory, or the run in it be resumed with this configuration.

    Args:
      directory: the run directory.
      config: configuration to start or resume with.
      resume: continue the run that is there.
      accept_changes: as in `load_config`.
    """
    if resume:
        if not (directory / "config.json").exists() and saved_settings(directory) is None:
            raise UserError(f"nothing to resume: {directory} holds no run (config.json is missing)")
        check_resumable(load_config(directory, accept_changes=accept_changes), config)
    elif directory.is_dir() and not _is_unused(directory):
        if (directory / "config.json").exists():
            raise UserError(f"{directory} already holds a run: {_next_steps(config.distributed.num_processes)}")
        raise UserError(f"{directory} is not empty and holds no run: choose another --run-dir")


def _next_steps(processes: int) -> str:
    """Return the options to choose from. Only process 0 checks the directory, but every process needs `--resume`."""
    if processes == 1:
        return "continue it with --resume, begin anew with --force, or choose another --run-dir"
    anew = "begin anew with --force or choose another --run-dir in process 0"
    return f"continue it with --resume in all {processes} processes, or {anew}"


def _is_unused(directory: Path) -> bool:
    """Return True for an empty directory, and for one of a run that ended before its first dispatch did."""
    names = {path.name for path in directory.iterdir() if not _is_leftover(path)}
    has_no_line = names == {"config.json", "versions.json", LOG_NAME} and (directory / LOG_NAME).stat().st_size == 0
    return not names or has_no_line


def _is_leftover(path: Path) -> bool:
    """Return True for the files of a run that ended before its configuration was written."""
    if path.name == FAILURE:
        return path.read_text(errors="replace").startswith(_FAILURE_TITLE)
    return path.name == temporary_path(Path("config.json")).name


def write_config(directory: Path, config: Config) -> None:
    """Write config.json with its checksum; the directory is created if it is missing."""
    directory.mkdir(parents=True, exist_ok=True)
    write_json_object(directory / "config.json", to_dict(config))


def write_versions(directory: Path, steps: int) -> None:
    """Add the installed versions to versions.json if they differ from those of the last session.

    Args:
      directory: the run directory.
      steps: environment steps at which the session begins.
    """
    path = directory / "versions.json"
    try:
        entries = [entry for entry in json.loads(path.read_text()) if isinstance(entry, dict)]
    except (OSError, ValueError, TypeError):  # the run begins, or the file is damaged
        entries = []
    if not entries or {**entries[-1], "from_step": steps} != {"from_step": steps, **versions()}:
        atomic_write(path, json.dumps([*entries, {"from_step": steps, **versions()}], indent=2) + "\n")


def load_config(directory: Path, *, accept_changes: bool = False) -> Config:
    """Read the configuration of a run. Code outside this package that it names needs consent.

    A UserError names the file, and the first value that is wrong or all that were changed since training wrote them.

    Args:
      directory: the run directory.
      accept_changes: return a configuration that was changed, and the copy in the newest checkpoint instead of one
        that cannot be read.
    """
    path = Path(directory) / "config.json"
    saved = saved_settings(path.parent)
    try:
        config, is_intact = _parse_config(path)
    except UserError as error:
        if saved is None:
            raise
        if not accept_changes:
            raise UserError(f"{error}; {_ACCEPT}") from error
        config, is_intact = from_dict(saved[1]), True
    if not accept_changes and (change := _describe_change(config, is_intact, saved)):
        raise UserError(f"{path} was changed since it was written: {change}; {_ACCEPT}")
    require_consent(external_code(config), path)
    return config


def _parse_config(path: Path) -> tuple[Config, bool | None]:
    """Read config.json. Returns the configuration, and whether the checksum matches; None if it has none."""
    try:
        data, is_intact = split_checksum(json.loads(path.read_text()))
        config = from_dict(data)
        validate(config)
    except OSError as error:
        raise UserError(f"{path.parent} holds no run: {path.name} is missing") from error
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path} cannot be read: {one_line(error)}") from error
    return config, is_intact


_ACCEPT = "restore it, or continue with train --resume --accept-config"
_MAX_CHANGES = 5  # in a message


def _describe_change(config: Config, is_intact: bool | None, saved: tuple[str, dict[str, Any]] | None) -> str | None:
    """Describe how a configuration differs from that of the newest checkpoint; None if it may.

    Args:
      config: in config.json.
      is_intact: whether the checksum of the file matches; None if it has none.
      saved: name and configuration of the newest checkpoint; None without one.
    """
    if saved is None:
        return None if is_intact is not False else "its checksum does not match"
    before, now = flatten(saved[1]), flatten(_as_json(to_dict(config)))
    # A resumed run may have other values of some settings, but then training wrote them, with a right checksum.
    changed = [
        name for name in before.keys() | now.keys()
        if before.get(name) != now.get(name) and not (is_intact and is_changeable(name))
    ]  # fmt: skip
    texts = [f"{name} is {now.get(name)!r}, in {saved[0]} {before.get(name)!r}" for name in sorted(changed)]
    more = [f"and {len(texts) - _MAX_CHANGES} more"] if len(texts) > _MAX_CHANGES else []
    return ", ".join(texts[:_MAX_CHANGES] + more) or None


def _as_json(data: dict[str, Any]) -> dict[str, Any]:
    """Return data as JSON has it: lists instead of tuples."""
    return json.loads(json.dumps(data))


def saved_settings(directory: Path) -> tuple[str, dict[str, Any]] | None:
    """Return the name of the newest checkpoint with intact metadata and its configuration; None without one."""
    for checkpoint in sorted(directory.glob("checkpoints/step_*"), reverse=True):
        with contextlib.suppress(UserError, *DAMAGE_ERRORS):
            config = from_dict(read_checkpoint_meta(checkpoint)["config"])  # settings of later versions get defaults
            validate(config)
            return checkpoint.name, _as_json(to_dict(config))
    return None


def read_checkpoint_meta(checkpoint: Path) -> dict[str, Any]:
    """Read what was saved beside the arrays of a checkpoint; one of `DAMAGE_ERRORS` if it is damaged."""
    meta, is_intact = split_checksum(json.loads((checkpoint / "meta" / "metadata").read_bytes()))
    if not is_intact:
        raise ValueError("checksum of meta does not match")
    return meta


def is_changeable(name: str) -> bool:
    """Return True for a setting that a resumed run may have another value of."""
    return name in _CHANGEABLE or name.startswith(_CHANGEABLE_SECTIONS)


def is_finished(summary: Mapping[str, Any], steps: int, stop_at_success_rate: float) -> bool:
    """Return True if a run needs no more training.

    It was not interrupted, and has all its steps, or in every task the success rate at which it stops.

    Args:
      summary: contents of summary.json, which may be damaged.
      steps: of the configuration.
      stop_at_success_rate: of the configuration; 0 if the run stops at no rate.
    """
    done, has_seconds = summary.get("steps"), not math.isnan(to_float(summary.get("seconds")))
    has_ended = has_seconds and "success_rate" in summary and summary.get("interrupted") is False
    if not (isinstance(done, int) and has_ended):
        return False
    if done >= steps:
        return True
    tasks = summary.get("tasks", {"": summary})
    entries = tasks.values() if isinstance(tasks, dict) else ()
    rates = [to_float(entry.get("success_rate")) if isinstance(entry, dict) else math.nan for entry in entries]
    return stop_at_success_rate > 0 and bool(rates) and all(rate >= stop_at_success_rate for rate in rates)


def check_resumable(old: Config, new: Config) -> None:
    """Raise UserError if more has changed than the length of training, logging and distribution."""
    before, now = flatten(to_dict(old)), flatten(to_dict(new))
    different = [
        name for name in before
        if before[name] != now.get(name) and not is_changeable(name)
    ]  # fmt: skip
    if different:
        changes = ", ".join(f"{name} was {before[name]!r}, now {now.get(name)!r}" for name in different[:3])
        accepted = f"only {', '.join(_CHANGEABLE)}, distributed.* and log.* may change"
        raise UserError(f"cannot resume with another configuration: {changes}; {accepted}")


def save_traceback(failure: EnvironmentFailure, directory: Path) -> EnvironmentFailure:
    """Write the traceback of a failure to a file, and return the failure with its path if that was possible."""
    with contextlib.suppress(OSError):
        atomic_write(directory / FAILURE, _FAILURE_TITLE + "".join(traceback.format_exception(failure)))
        return EnvironmentFailure(f"{failure}; the traceback is in {directory / FAILURE}")
    return failure


def check_movable(directory: Path, config: Config) -> None:
    """Raise UserError unless the directory holds a run that `--force` may move aside for a new one.

    Args:
      directory: the run directory.
      config: configuration of the new run.
    """
    if not _is_config(directory / "config.json"):
        raise UserError(f"{directory} holds no run that --force could replace: its config.json is missing or no run's")
    if config.init_from and Path(config.init_from).resolve() == directory.resolve():
        # the new configuration would name itself as the run that it started from
        raise UserError(f"init_from is {config.init_from}, which --force would move: choose another --run-dir")


def move_aside(directory: Path) -> Path:
    """Move everything in a run directory to <directory>.old-<time>, and return that path."""
    # The directory itself stays in place: it carries the lock, and may be the working directory.
    place = directory.resolve()
    name = f"{place.name}.old-{time.strftime('%Y%m%d-%H%M%S')}"
    names = (name if count == 1 else f"{name}-{count}" for count in itertools.count(1))
    aside = next(path for path in map(place.with_name, names) if not path.exists())
    aside.mkdir()
    # config.json goes last: if the move is cut short, the rest is still a run, and --force moves it.
    for path in sorted(place.iterdir(), key=lambda path: path.name == "config.json"):
        path.rename(aside / path.name)
    return aside


def is_old_run(name: str) -> bool:
    """Return True for a name of a directory that `move_aside` made."""
    return _OLD_RUN.search(name) is not None


def _is_config(path: Path) -> bool:
    try:
        return not path.is_symlink() and json.loads(path.read_text()).keys() >= _CONFIG_FIELDS
    except (OSError, ValueError, AttributeError, RecursionError):
        return False
