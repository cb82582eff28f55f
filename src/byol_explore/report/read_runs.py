"""Find run directories; read their configuration, their study and their log into columns of numbers.

A run directory may be damaged or hostile. Readers raise OSError or ValueError with the reason, and the limits below
bound the time and memory of a report, whatever the files contain.
"""

import math
import os
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from byol_explore.config.config import from_dict
from byol_explore.config.overrides import flatten
from byol_explore.errors import UserError
from byol_explore.evaluation.scores import REFERENCES, SCORED_BY_EVALUATION
from byol_explore.storage.metrics import LOG_NAME, PACKED_LOG_NAME, STEPS, LogReader, report_columns, to_float
from byol_explore.storage.run_directory import TRIALS, is_old_run
from byol_explore.utils.files import read_json_object, read_safe_file, safe_file
from byol_explore.utils.formatting import error_text, escape_unprintable, truncate
from byol_explore.utils.validation import validate

CONFIG = "config.json"

# Limits of a report. Beyond them is an error that names the limit, or a part that is left out and listed on the page.
# Reading
MAX_FOLDERS = 20_000  # below one directory: more suggest a home directory or a disk
MAX_CONFIG_BYTES = 1_000_000  # of config.json, and of study.toml
MAX_TASKS = 300
MAX_NAME_LENGTH = 200  # characters of a task, method or stage
MAX_HORIZON = 1_000
MAX_STAGES = 50  # of a task
MAX_PICTURE_BYTES = 6_000_000  # of rooms.png
MAX_FLOOR_SIDE = 1_000  # cells of a visit map
MAX_FLOOR_ASPECT = 8  # height over width of a visit map
MAX_SLICES = 16  # of a visit map; training writes 8
# On the page
MAX_POINTS = 200  # of a curve
MAX_ENV_GROUPS = 3  # environments with curiosity plots of their own: raw uncertainties are not comparable across them
MAX_STAGE_PLOTS = 24
MAX_MAPS = 24  # visits and rewards
MAX_ROOM_PICTURES = 4  # pictures of Montezuma's rooms
MAX_FILM_BYTES = 6_000_000  # of all films
# In files
MAX_FILE_NAME = 150  # characters: file systems allow 255, with the suffix
MAX_FIGURE_HEIGHT = 300  # inches: matplotlib cannot draw more than 65,535 pixels
MAX_LEGEND_NAME = 40  # characters of a name in a figure
# In published copies
MAX_LOG_LINES = 200
MAX_FILM_FRAMES = 60  # a film of an episode has up to 161
MAX_FILM_PIXELS = 200_000_000  # of all frames: ten times a film of ours


class RunFolder(NamedTuple):
    path: Path
    is_run: bool
    why_unreadable: str = ""


def walk_folders(root: Path) -> Iterator[RunFolder]:
    """Yield a directory and all below it, each once and in natural order; follow links, do not enter runs."""
    stack, seen = [root], set[tuple[int, int]]()
    while stack:
        path = stack.pop()
        try:
            status = path.stat()
            children = [] if (is_run := _is_run(path)) else _child_folders(path)
        except FileNotFoundError:  # removed since it was listed
            continue
        except OSError as error:
            yield RunFolder(path, False, error_text(error))
            continue
        if (inode := (status.st_dev, status.st_ino)) in seen:
            continue
        seen.add(inode)
        if len(seen) > MAX_FOLDERS:
            raise UserError(
                f"{escape_unprintable(root)} has more than {MAX_FOLDERS:,} folders below it: name those that "
                f"hold the runs"
            )
        yield RunFolder(path, is_run)
        stack += children


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Sort key that puts rooms-10 after rooms-9."""
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in re.split(r"(\d+)", text)]


def _is_run(path: Path) -> bool:
    """Return True for a directory with a configuration and a log, damaged or not; OSError if access is denied."""
    return _exists(path / CONFIG) and any(_exists(path / name) for name in (LOG_NAME, PACKED_LOG_NAME))


def _exists(path: Path) -> bool:
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    return True


def _child_folders(path: Path) -> list[Path]:
    """Folders in reverse natural order (the caller pops from the end), without hidden, old and trial runs."""
    with os.scandir(path) as entries:
        names = [entry.name for entry in entries if _is_folder(entry)]
    names = [name for name in names if not name.startswith(".") and not is_old_run(name)]
    if _exists(path / "study.toml"):  # a report of trials must name their folder
        names = [name for name in names if name != TRIALS]
    return [path / name for name in sorted(names, key=natural_key, reverse=True)]


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    # isdir follows links; it is false for a broken or circular link
    return entry.is_dir(follow_symlinks=False) or (entry.is_symlink() and os.path.isdir(entry.path))


def read_config_leniently(directory: Path) -> dict[str, Any]:
    """Read settings by dotted name ("curiosity.horizon"); raise OSError or ValueError if they are unusable.

    Unlike `load_config` it accepts configurations of other versions, and imports nothing that they name.
    """
    data = read_json_object(directory, CONFIG, MAX_CONFIG_BYTES)
    for name in ("env", "seed", "method"):
        if name not in data:
            raise ValueError(f"{CONFIG} has no {name}")
    try:
        known = from_dict(data, lenient=True)
        validate(known)
        settings = {escape_unprintable(name): _plain(value) for name, value in flatten(data).items()}
    except (UserError, TypeError) as error:
        raise ValueError(f"{CONFIG}: {error}") from None
    except RecursionError:
        raise ValueError(f"{CONFIG} is nested too deeply") from None
    tasks = split_tasks(known.env)
    if not all(tasks) or len(tasks) > MAX_TASKS:
        raise ValueError(f"env in {CONFIG} names {len(tasks):,} tasks or an empty one: at most {MAX_TASKS} are allowed")
    longest = max([*tasks, known.method, known.ablation, known.regime, known.preset], key=len)
    if len(longest) > MAX_NAME_LENGTH:
        raise ValueError(f"{CONFIG} names {truncate(longest, 20)!r}, which has {len(longest):,} characters")
    return settings


def split_tasks(env: str) -> list[str]:
    return [name.strip() for name in env.split(",")]


def logged_tasks(row: dict[str, Any]) -> list[str]:
    """Return the task names in a row; empty without any."""
    # the configuration does not name them all: hard-eight:all
    tasks = row.get("tasks")
    if not isinstance(tasks, dict) or len(tasks) > MAX_TASKS or max(map(len, tasks), default=0) > MAX_NAME_LENGTH:
        return []
    return list(tasks) if all(map(str.isprintable, tasks)) else []


def _plain(value: Any) -> Any:
    """Turn JSON lists into tuples, and escape unprintable characters."""
    if isinstance(value, list):
        return tuple(map(_plain, value))
    return escape_unprintable(value) if isinstance(value, str) else value


class StudyFacts(NamedTuple):
    """The part of a study.toml that a report uses."""

    name: str
    description: str
    variants: list[str]  # in the order of the file


def read_study(directory: Path) -> StudyFacts | None:
    """Read study.toml; None without one. A damaged file leaves only the directory's name."""
    if safe_file(directory, "study.toml") is None:
        return None
    try:
        facts = tomllib.loads(read_safe_file(directory, "study.toml", MAX_CONFIG_BYTES).decode())
    except (OSError, ValueError, RecursionError):
        facts = {}
    name, description = facts.get("name", directory.resolve().name), facts.get("description", "")
    return StudyFacts(truncate(name), escape_unprintable(" ".join(str(description).split())), _variants(facts))


def _variants(facts: dict[str, Any]) -> list[str]:
    """Return the names of methods, ablations and variants, the order of a study."""
    lists = [facts.get(key) for key in ("methods", "ablations", "variants")]
    entries = [entry for each in lists if isinstance(each, list) for entry in each]
    names = [entry.get("name", entry.get("method")) if isinstance(entry, dict) else entry for entry in entries]
    return [escape_unprintable(name) for name in names if isinstance(name, str)]


class MetricColumns(NamedTuple):
    """The metrics of a log with R rows that a report uses; NaN where a row lacks one."""

    columns: dict[str, np.ndarray]  # [R] by name
    scores: dict[str, np.ndarray]  # [R] by task; the training return where no score is defined
    returns: dict[str, np.ndarray]  # [R] by task, of training episodes
    best_evaluation: dict[str, np.ndarray]  # [R] by task, the highest so far
    stages: dict[str, dict[str, np.ndarray]]  # [R] by task and stage: share of training episodes
    prediction_error: np.ndarray  # [R, K] by horizon; K = 0 for methods without it
    damage: str = ""  # damaged lines, which are left out

    @property
    def tasks(self) -> list[str]:
        return list(self.scores)

    def without_rows(self) -> "MetricColumns":
        """Return the same tasks and columns with R = 0."""
        return MetricColumns(*_take(self, np.empty(0, int)))


def _take(value: Any, rows: np.ndarray) -> Any:
    """Select rows of all nested arrays and lists of numbers; texts stay."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return {name: _take(part, rows) for name, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_take(part, rows) for part in value)
    return np.asarray(value, np.float64)[rows]


@lru_cache(maxsize=512)
def read_columns(path: Path, env: str, stamp: tuple[int, int]) -> MetricColumns:
    """Read a log line by line, sorted by step; of lines with the same step the last counts.

    Args:
      path: metrics.jsonl, or its packed copy.
      env: task names as configured, used if the log names no tasks.
      stamp: time and size of the file: an unchanged file comes from the cache.
    """
    tasks, names = split_tasks(env), report_columns()
    columns: dict[str, list[float]] = {name: [] for name in names}
    scores, returns, best = (defaultdict[str, list[float]](list) for _ in range(3))
    stages = defaultdict[str, dict[str, dict[int, float]]](dict)  # share by task, stage and line
    errors: list[list[float]] = []
    reader = LogReader(path)
    for line, row in enumerate(reader):
        tasks = tasks if line else logged_tasks(row) or tasks
        for name in names:
            columns[name].append(to_float(row.get(name)))
        for task in tasks:
            episodes, evaluation = _task_entries(row, task, several=len(tasks) > 1)
            scores[task].append(_score(task, episodes, evaluation))
            returns[task].append(to_float(episodes.get("return_mean")))
            best[task].append(to_float(evaluation.get("best")))
            for stage, share in _entry(episodes, "stages").items():
                _add_share(stages[task], truncate(stage, MAX_NAME_LENGTH), line, to_float(share))
        horizon = row.get("prediction_error")
        errors.append([to_float(value) for value in horizon[:MAX_HORIZON]] if isinstance(horizon, list) else [])
    longest = max(map(len, errors), default=0)
    parts = (
        columns,
        *({task: values[task] for task in tasks} for values in (scores, returns, best)),
        {task: {stage: _fill(shares, len(errors)) for stage, shares in stages[task].items()} for task in tasks},
        np.asarray([_fill(dict(enumerate(row)), longest) for row in errors]).reshape(len(errors), longest),
        reader.describe_damage() or "",
    )
    return MetricColumns(*_take(parts, _row_order(columns[STEPS.name])))


def _fill(values: dict[int, float], length: int) -> list[float]:
    """Return values by index as a list; NaN where there is none."""
    return [values.get(index, math.nan) for index in range(length)]


def _row_order(steps: list[float]) -> np.ndarray:
    """Return row indices sorted by step, which goes back in a damaged log; of equal steps the last row."""
    _, last = np.unique(np.asarray(steps, np.float64)[::-1], return_index=True)
    return len(steps) - 1 - last


def _task_entries(row: dict[str, Any], task: str, *, several: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the training episodes and the evaluation of a task in a row."""
    if several:
        return _entry(_entry(row, "tasks"), task), _entry(_entry(row, "evaluation"), task)
    return row, {"return": row.get("evaluation_return"), "best": row.get("evaluation_return_max")}


def _score(task: str, episodes: dict[str, Any], evaluation: dict[str, Any]) -> float:
    """Return the success in percent, or the return if the task has a human reference.

    Atari games have rules for evaluation: there it is the return of evaluation episodes, else of training episodes.
    """
    if task not in REFERENCES:
        return 100.0 * to_float(episodes.get("success_rate"))
    return to_float(evaluation.get("return") if task in SCORED_BY_EVALUATION else episodes.get("return_mean"))


def _add_share(stages: dict[str, dict[int, float]], stage: str, line: int, share: float) -> None:
    if stage in stages or len(stages) < MAX_STAGES:
        stages.setdefault(stage, {})[line] = share


def _entry(table: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a nested table; empty if there is none."""
    entry = table.get(name)
    return entry if isinstance(entry, dict) else {}
