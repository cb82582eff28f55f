"""A study is a small TOML file: which methods, on which tasks, with which seeds.

name = "sweep"
description = "Two methods and an ablation on two tasks."
needs = "two CPU cores"             # for those who look for a study
preset = "grid"
tasks = ["rooms-4", "rooms-6"]      # a run each, or one run on all of them with: multitask = true
seeds = 3                           # 0, 1, 2; or a list
steps = 1_000_000
methods = ["byol-explore", "rnd"]   # short for variants of these names
ablations = ["horizon-1"]

[settings]                          # any field of the configuration, for all runs
stop_at_success = 0

[[variants]]
name = "far-sighted"                # and method, ablation, regime
settings = { curiosity.horizon = 8 }
tasks = ["rooms-6"]                 # and multitask, seeds, steps: where it differs from the study in them

[[variants]]
name = "far-sighted"                # the same again, on other tasks with fewer seeds
settings = { curiosity.horizon = 8 }
tasks = ["rooms-4"]
seeds = 1
"""

import re
import tomllib
from dataclasses import dataclass, field, fields
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import Any

from byol_explore.errors import UserError, unknown
from byol_explore.registries import METHODS
from byol_explore.report.logs import MOST_STEPS
from byol_explore.settings.config import file_name, flatten
from byol_explore.settings.presets import ABLATIONS
from byol_explore.study.settings import check_settings

MOST_BYTES = 1_000_000
MOST_SEEDS = 1_000
_KEYS = ("name", "description", "preset", "tasks", "multitask", "seeds", "steps", "methods", "ablations", "settings",
         "variants", "needs")  # fmt: skip
_VARIANT_KEYS = ("name", "method", "ablation", "regime", "settings", "tasks", "multitask", "seeds", "steps")
_OWN_KEYS = {"preset": "preset", "env": "tasks", "seed": "seeds", "steps": "steps", "method": "methods or variants",
             "ablation": "ablations or variants", "regime": "variants"}  # fmt: skip
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_WORDS = {str: "a text", int: "a whole number", bool: "true or false", list: "a list", dict: "a table"}


@dataclass(frozen=True)
class Variant:
    """What runs of a study differ in, other than task and seed. None of the last four is the study's own."""

    name: str
    method: str = "byol-explore"
    ablation: str = "none"
    regime: str | None = None  # None is the preset's
    settings: dict[str, Any] = field(default_factory=dict)
    tasks: tuple[str, ...] | None = None
    multitask: bool | None = None
    seeds: tuple[int, ...] | None = None
    steps: int | None = None


@dataclass(frozen=True)
class Study:
    """A study file that was read; what it says about runs is checked when they are planned."""

    source: str = field(compare=False)  # for messages: the file, or the name of a shipped study
    text: str = field(compare=False)
    name: str
    description: str = field(compare=False)
    needs: str = field(compare=False)
    preset: str
    tasks: tuple[str, ...]
    multitask: bool
    seeds: tuple[int, ...]
    steps: int | None  # None is the preset's
    settings: dict[str, Any]
    variants: tuple[Variant, ...]


def shipped_studies() -> dict[str, Study]:
    """The studies that come with the package, by name."""
    return {name: read_study(name) for name in _shipped_names()}


def _shipped_names() -> list[str]:
    return sorted(entry.name.removesuffix(".toml") for entry in _shipped().iterdir() if entry.name.endswith(".toml"))


def read_study(source: str | Path) -> Study:
    """A shipped study by its name, or one of your own by its path."""
    shipped = _shipped() / f"{source}.toml"
    if _NAME.fullmatch(str(source)) and shipped.is_file():
        return parse_study(shipped.read_text(), f"study {str(source)!r}")
    path = Path(source)
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is no file: give the path of a TOML file, or the name of a study")
    if not path.exists():
        raise UserError(f"{unknown('study', source, _shipped_names())}, or give the path of a TOML file")
    try:
        return parse_study(_text(path), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error


def _text(path: Path) -> str:
    if path.stat().st_size > MOST_BYTES:
        raise UserError(f"{path} has more than {MOST_BYTES:,} bytes: it is no study")
    return path.read_text()


def parse_study(text: str, source: str) -> Study:
    """A study from its text; a UserError that begins with the source for whatever is wrong in it."""
    try:
        return Study(source, text, **_contents(tomllib.loads(text)))
    except UserError as error:
        raise UserError(f"{source}: {error}") from None
    except (ValueError, RecursionError) as error:  # a number or a depth without end among them
        raise UserError(f"{source} is not TOML: {error}") from None


def difference(old: Any, new: Any) -> str | None:
    """What differs first between two studies, for a message; None if they ask for the same runs."""
    for item in fields(old):
        before, now = getattr(old, item.name), getattr(new, item.name)
        if not item.compare or before == now:
            continue
        if item.name == "variants" and _names(before) == _names(now):
            pair = next((one, other) for one, other in zip(before, now, strict=True) if one != other)
            return f"variant {pair[0].name!r}: {difference(*pair)}"
        return f"{item.name} was {_shown(before)}, now {_shown(now)}"
    return None


def _contents(data: dict[str, Any]) -> dict[str, Any]:
    """The fields of a study."""
    _check_keys(data, _KEYS, "key")
    name = _take(data, "name", str)
    if not _NAME.fullmatch(name):
        raise UserError(f"name {name!r}: letters, digits, dots, dashes and underscores make a name")
    return {
        "name": name, "description": _take(data, "description", str, ""),
        "needs": _take(data, "needs", str, ""), "preset": _take(data, "preset", str, "grid"),
        "tasks": _tasks(data), "multitask": _take(data, "multitask", bool, False), "seeds": _seeds(data),
        "steps": _steps(data), "settings": _settings(data), "variants": _variants(data),
    }  # fmt: skip


def _tasks(table: dict[str, Any]) -> tuple[str, ...]:
    tasks = _texts(table, "tasks")
    if not tasks:
        raise UserError("tasks is missing or empty: name at least one, as in tasks = ['rooms-6']")
    if len(set(tasks)) < len(tasks):
        raise UserError(f"tasks names {_twice(tasks)!r} twice")
    return tasks


def _steps(table: dict[str, Any]) -> int | None:
    steps = _take(table, "steps", int, 0)
    if "steps" in table and not 1 <= steps < MOST_STEPS:
        raise UserError(f"steps is {steps}: it must be positive, and below 2^63")
    return steps or None


def _variants(data: dict[str, Any]) -> tuple[Variant, ...]:
    """Short forms first, then those written out; byol-explore alone if there are none."""
    variants = []
    for method in _texts(data, "methods"):
        METHODS.check(method)
        variants.append(Variant(file_name(method), method))
    for ablation in _texts(data, "ablations"):
        if ablation not in ABLATIONS:
            raise unknown("ablation", ablation, list(ABLATIONS))
        name = ablation if ablation != "none" else "byol-explore"  # a variant called none is the method
        variants.append(Variant(name, ablation=ablation))
    for table in _take(data, "variants", list, []):
        if not isinstance(table, dict):
            raise UserError(f"variants holds {table!r}: every variant is a table, [[variants]]")
        variants.append(_variant(table))
    _check_names(variants, _texts(data, "tasks"))
    return tuple(variants) or (Variant("byol-explore"),)


def _check_names(variants: list[Variant], tasks: tuple[str, ...]) -> None:
    """A UserError for a name that is given twice, unless it is the same variant on other tasks."""
    for one, other in combinations(variants, 2):
        if one.name != other.name:
            continue
        where, elsewhere = (tasks if each.tasks is None else each.tasks for each in (one, other))
        if _kind(one) != _kind(other) or set(where) & set(elsewhere):
            raise UserError(
                f"two variants are called {one.name!r}: a name comes again only for the same method, ablation, regime "
                "and settings on other tasks"
            )


def _kind(variant: Variant) -> tuple[Any, ...]:
    return variant.method, variant.ablation, variant.regime, variant.settings


def _variant(table: dict[str, Any]) -> Variant:
    _check_keys(table, _VARIANT_KEYS, "key of a variant")
    method = _take(table, "method", str, "byol-explore")
    ablation = _take(table, "ablation", str, "none")
    regime = _take(table, "regime", str, "") or None
    parts = [method, *([ablation] if ablation != "none" else []), *([regime] if regime not in (None, "mixed") else [])]
    name = _take(table, "name", str, "-".join(parts))
    if not _NAME.fullmatch(name) or re.search(r"-seed\d+$", name):
        raise UserError(
            f"variant name {name!r}: letters, digits, dots, dashes and underscores, and no -seed at the end"
        )
    try:
        return Variant(name, method, ablation, regime, _settings(table), **_own(table))
    except UserError as error:
        raise UserError(f"variant {name!r}: {error}") from None


def _own(table: dict[str, Any]) -> dict[str, Any]:
    """What a variant says for itself of what a study says for all."""
    multitask = _take(table, "multitask", bool, False)
    say = {"tasks": _tasks, "seeds": _seeds, "steps": _steps, "multitask": lambda _: multitask}
    return {key: read(table) for key, read in say.items() if key in table}


def _settings(table: dict[str, Any]) -> dict[str, Any]:
    settings = flatten(_take(table, "settings", dict, {}))
    for name, key in _OWN_KEYS.items():
        if name in settings:
            raise UserError(f"setting {name!r} has a key of its own in a study: {key}")
    return check_settings(settings)


def _seeds(data: dict[str, Any]) -> tuple[int, ...]:
    """As a list, or as many as said; three as in the paper unless said."""
    seeds = data.get("seeds", 3)
    if type(seeds) is int and seeds > MOST_SEEDS:
        raise UserError(f"seeds is {seeds}: a study has at most {MOST_SEEDS:,}")
    if type(seeds) is int and seeds > 0:
        return tuple(range(seeds))
    if isinstance(seeds, list) and seeds and all(type(seed) is int and seed >= 0 for seed in seeds):
        if len(set(seeds)) < len(seeds):
            raise UserError(f"seeds names {_twice(seeds)} twice")
        return tuple(seeds)
    raise UserError(f"seeds is {seeds!r}: give how many, or a list such as [0, 1, 2]")


def _take(table: dict[str, Any], key: str, kind: type, default: Any = None) -> Any:
    """A value of the right type, or the default; without a default the key must be there."""
    if key not in table:
        if default is None:
            raise UserError(f"{key} is missing: it must be {_WORDS[kind]}")
        return default
    value = table[key]
    if kind is int and type(value) is float and value.is_integer():  # as 1e6 is in TOML
        return int(value)
    if type(value) is not kind:
        raise UserError(f"{key} is {value!r}: it must be {_WORDS[kind]}")
    return value


def _texts(table: dict[str, Any], key: str) -> tuple[str, ...]:
    values = _take(table, key, list, [])
    wrong = [value for value in values if not isinstance(value, str)]
    if wrong:
        raise UserError(f"{key} holds {wrong[0]!r}: it must be a list of texts")
    return tuple(values)


def _check_keys(table: dict[str, Any], accepted: tuple[str, ...], what: str) -> None:
    for key in table:
        if key not in accepted:
            raise unknown(what, key, list(accepted))


def _twice(values: Any) -> Any:
    return next(value for index, value in enumerate(values) if value in list(values)[:index])


def _names(variants: tuple[Variant, ...]) -> list[str]:
    return [variant.name for variant in variants]


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} = {each!r}" for name, each in value.items()) or "empty"
    if isinstance(value, tuple):
        return ", ".join(each.name if isinstance(each, Variant) else str(each) for each in value)
    return repr(value)


def _shipped() -> Any:
    return files("byol_explore.study") / "studies"
