"""The configuration of a run as a report reads it: what is shown or counted with is checked, the rest is only shown."""

from pathlib import Path
from typing import Any

from byol_explore.report.finding import CONFIG
from byol_explore.report.own_files import read_object
from byol_explore.report.words import brief, printable
from byol_explore.settings.config import flatten

MOST_BYTES = 1_000_000
MOST_TASKS = 300
MOST_LETTERS = 200  # of a name
_TEXTS = ("method", "ablation", "regime", "preset")
_HIGHEST = {"seed": 2**32 - 1, "steps": 2**63 - 1}


def read_config(directory: Path) -> dict[str, Any]:
    """Settings by dotted name; an OSError or a ValueError that says what is wrong with them."""
    try:
        settings = flatten(read_object(directory, CONFIG, MOST_BYTES))
        config = {printable(name): _plain(value) for name, value in settings.items()}
    except RecursionError:
        raise ValueError(f"{CONFIG} is nested too deeply") from None
    for name in ("env", "seed", "method"):
        if name not in config:
            raise ValueError(f"{CONFIG} does not say {name}")
    _check(config)
    return config


def split_tasks(env: str) -> list[str]:
    return [name.strip() for name in env.split(",")]


def logged_tasks(row: dict[str, Any]) -> list[str]:
    """The tasks that a line of metrics names, if it names any: some environments have several that env does not."""
    tasks = row.get("tasks")
    if not isinstance(tasks, dict) or len(tasks) > MOST_TASKS or max(map(len, tasks), default=0) > MOST_LETTERS:
        return []
    return list(tasks) if all(map(str.isprintable, tasks)) else []


def _plain(value: Any) -> Any:
    """A list as the tuple that it was; texts in one line."""
    if isinstance(value, list):
        return tuple(map(_plain, value))
    return printable(value) if isinstance(value, str) else value


def _check(config: dict[str, Any]) -> None:
    """A ValueError for the first wrong value among those that the report counts with."""
    tasks = split_tasks(config["env"]) if isinstance(config["env"], str) else []
    if not all(tasks) or not tasks:
        raise _wrong(config, "env", "names of tasks")
    if len(tasks) > MOST_TASKS:
        raise ValueError(f"env in {CONFIG} names {len(tasks):,} tasks: a report has room for {MOST_TASKS}")
    for name in _TEXTS:
        if name in config and not isinstance(config[name], str):
            raise _wrong(config, name, "a text")
    longest = max(tasks + [config[name] for name in _TEXTS if name in config], key=len)
    if len(longest) > MOST_LETTERS:
        raise ValueError(f"{CONFIG} names {brief(longest, 20)!r}, of {len(longest):,} letters")
    for name, highest in _HIGHEST.items():
        if name in config and not (type(config[name]) is int and 0 <= config[name] <= highest):
            raise _wrong(config, name, f"a whole number, at most {highest}")
    share = config.get("stop_at_success", 0.0)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0.0 <= share <= 1.0:
        raise _wrong(config, "stop_at_success", "a share")


def _wrong(config: dict[str, Any], name: str, accepted: str) -> ValueError:
    return ValueError(f"{name} in {CONFIG} is {brief(repr(config[name]), 60)}: it must be {accepted}")
