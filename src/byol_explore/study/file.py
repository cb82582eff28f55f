"""Study files: the methods, tasks and seeds of many runs, in TOML. For example:

name = "sweep"
description = "Two methods and an ablation on two tasks."
needs = "two CPU cores"             # the hardware, shown by --list
preset = "grid"
tasks = ["rooms-4", "rooms-6"]      # one run each; with multitask = true, one run on all of them
seeds = 3                           # 0, 1, 2; or a list
steps = 1_000_000
methods = ["byol-explore", "rnd"]   # adds variants with these names
ablations = ["horizon-1"]

[settings]                          # fields of the configuration, for all runs
stop_at_success_rate = 0

[[variants]]
name = "far-sighted"                # and method, ablation, regime
settings = { curiosity.horizon = 8 }
tasks = ["rooms-6"]                 # replaces those of the study, as do multitask, seeds and steps

[[variants]]
name = "far-sighted"                # the same variant on other tasks, with fewer seeds
settings = { curiosity.horizon = 8 }
tasks = ["rooms-4"]
seeds = 1

With a table [search] the settings of every variant are chosen by trials: see `study/search.py`.
"""

import re
import tomllib
from dataclasses import dataclass, field, fields
from itertools import combinations
from pathlib import Path
from typing import Any

from byol_explore.config.config import env_dir_name
from byol_explore.config.overrides import convert_value, field_types, flatten, parse_overrides
from byol_explore.config.presets import ABLATIONS
from byol_explore.errors import UserError, unknown_name
from byol_explore.registry import METHODS
from byol_explore.storage.metrics import MAX_STEPS
from byol_explore.study.search import Search, parse_search

MAX_BYTES = 1_000_000
MAX_SEEDS = 1_000
_KEYS = ("name", "description", "preset", "tasks", "multitask", "seeds", "steps", "methods", "ablations", "settings",
         "variants", "needs", "search")  # fmt: skip
_OWN_KEYS = {"preset": "preset", "env": "tasks", "seed": "seeds", "steps": "steps", "method": "methods or variants",
             "ablation": "ablations or variants", "regime": "variants"}  # fmt: skip
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_BUILT_IN = Path(__file__).with_name("studies")


@dataclass(frozen=True)
class Variant:
    """A named difference between runs. If one of the last four fields is None, the value of the study counts."""

    name: str
    method: str = "byol-explore"
    ablation: str = "none"
    regime: str | None = None  # None takes the preset's
    settings: dict[str, Any] = field(default_factory=dict)
    tasks: tuple[str, ...] | None = None
    multitask: bool | None = None
    seeds: tuple[int, ...] | None = None
    steps: int | None = None


@dataclass(frozen=True)
class Study:
    """The contents of a study file. Configurations of its runs are checked by `plan_runs`."""

    source: str = field(compare=False)  # for messages: the file, or the name of a built-in study
    text: str = field(compare=False)
    name: str
    tasks: tuple[str, ...]
    description: str = field(default="", compare=False)
    needs: str = field(default="", compare=False)
    preset: str = "grid"
    multitask: bool = False
    seeds: tuple[int, ...] = (0, 1, 2)  # three, as in the paper
    steps: int | None = None  # None takes the preset's
    settings: dict[str, Any] = field(default_factory=dict)
    variants: tuple[Variant, ...] = (Variant("byol-explore"),)
    search: Search | None = None  # None runs the settings of the file


def builtin_studies() -> dict[str, Study]:
    """Return the studies that come with the package, by name."""
    return {name: read_study(name) for name in _builtin_names()}


def _builtin_names() -> list[str]:
    return sorted(path.stem for path in _BUILT_IN.glob("*.toml"))


def read_study(source: str | Path) -> Study:
    """Read a built-in study by its name, or a study file by its path."""
    if str(source) in _builtin_names():
        return parse_study((_BUILT_IN / f"{source}.toml").read_text(), f"study {str(source)!r}")
    path = Path(source)
    if not path.exists():
        raise UserError(f"{unknown_name('study', source, _builtin_names())}, or give the path of a TOML file")
    if not path.is_file():
        raise UserError(f"{path} is no file: give the path of a TOML file, or the name of a study")
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UserError(f"{path} has more than {MAX_BYTES:,} bytes: it is no study")
        return parse_study(path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error


def parse_study(text: str, source: str) -> Study:
    """Parse the text of a study file; a UserError for a mistake begins with the source."""
    try:
        return Study(source, text, **_contents(tomllib.loads(text)))
    except UserError as error:
        raise UserError(f"{source}: {error}") from None
    except (ValueError, RecursionError) as error:  # also too long numbers and too deep tables
        raise UserError(f"{source} is not TOML: {error}") from None


def describe_difference(old: Any, new: Any) -> str | None:
    """Describe the first difference between two studies; None if they plan the same runs."""
    for item in fields(old):
        before, now = getattr(old, item.name), getattr(new, item.name)
        if not item.compare or before == now:
            continue
        if item.name == "variants" and [each.name for each in before] == [each.name for each in now]:
            pair = next((one, other) for one, other in zip(before, now, strict=True) if one != other)
            return f"variant {pair[0].name!r}: {describe_difference(*pair)}"
        if item.name == "search" and before is not None and now is not None:
            return f"search: {describe_difference(before, now)}"
        return f"{item.name} was {_format_value(before)}, now {_format_value(now)}"
    return None


def _contents(data: dict[str, Any]) -> dict[str, Any]:
    """Check the contents of a study file and return the fields of `Study`."""
    _check_keys(data, _KEYS, "key")
    if "name" not in data:
        raise UserError("name is missing: it must be a text")
    contents = _check_values({"tasks": [], **data}, Study)
    if not _NAME.fullmatch(name := contents["name"]):
        raise UserError(f"name {name!r}: letters, digits, dots, dashes and underscores make a name")
    if variants := _variants(data):
        _check_names(variants, contents["tasks"])
        contents["variants"] = tuple(variants)
    if "search" in data:
        contents["search"] = search = _search(data, variants)
        contents["seeds"] = search.report_seeds
    return contents


def _search(data: dict[str, Any], variants: list[Variant]) -> Search:
    """Return the table [search]; raise a UserError for seeds and tasks that contradict it."""
    if "seeds" in data:
        raise UserError("seeds is given beside [search], which has search.seeds and search.report_seeds")
    for variant in variants:
        for key in ("seeds", "tasks", "steps"):
            if getattr(variant, key) is not None:
                raise UserError(f"variant {variant.name!r} has {key} of its own: with [search] all have the same")
    return parse_search(data["search"], [variant.name for variant in variants] or [Variant("byol-explore").name])


def _check_values(table: dict[str, Any], kind: type) -> dict[str, Any]:
    """Check the values of a study or a variant and return the fields of `kind`, without methods and variants."""
    types = field_types(kind)
    values = {
        key: convert_value(key, value, types[key])
        for key, value in table.items()
        if key in types and key not in ("seeds", "variants", "search")
    }
    if "tasks" in values and not _check_unique("tasks", values["tasks"]):
        raise UserError("tasks is missing or empty: name at least one, as in tasks = ['rooms-6']")
    if not 1 <= values.get("steps", 1) < MAX_STEPS:
        raise UserError(f"steps is {values['steps']}: it must be positive, and below 2^63")
    if "seeds" in table:
        values["seeds"] = _seeds(table["seeds"])
    if "settings" in values:
        values["settings"] = _settings(values["settings"])
    return values


def _seeds(seeds: Any) -> tuple[int, ...]:
    """Return a list unchanged, and 0, 1, ... for a number."""
    if type(seeds) is int and seeds > MAX_SEEDS:
        raise UserError(f"seeds is {seeds}: a study has at most {MAX_SEEDS:,}")
    if type(seeds) is int and seeds > 0:
        return tuple(range(seeds))
    if isinstance(seeds, list) and seeds and all(type(seed) is int and seed >= 0 for seed in seeds):
        return _check_unique("seeds", tuple(seeds))
    raise UserError(f"seeds is {seeds!r}: give how many, or a list such as [0, 1, 2]")


def _variants(data: dict[str, Any]) -> list[Variant]:
    """Return the variants of `methods`, `ablations` and `variants`."""
    variants = []
    for method in convert_value("methods", data.get("methods", []), tuple[str, ...]):
        METHODS.check(method)
        variants.append(Variant(env_dir_name(method), method))
    for ablation in convert_value("ablations", data.get("ablations", []), tuple[str, ...]):
        if ablation not in ABLATIONS:
            raise unknown_name("ablation", ablation, list(ABLATIONS))
        name = ablation if ablation != "none" else "byol-explore"  # a variant called none is the method
        variants.append(Variant(name, ablation=ablation))
    for table in convert_value("variants", data.get("variants", []), list):
        if not isinstance(table, dict):
            raise UserError(f"variants holds {table!r}: every variant is a table, [[variants]]")
        variants.append(_variant(table))
    return variants


def _check_names(variants: list[Variant], tasks: tuple[str, ...]) -> None:
    """Raise a UserError for a name that is used twice, unless it is the same variant on other tasks."""
    for one, other in combinations(variants, 2):
        first, second = (tasks if each.tasks is None else each.tasks for each in (one, other))
        if one.name == other.name and (_kind(one) != _kind(other) or set(first) & set(second)):
            raise UserError(
                f"two variants are called {one.name!r}: a name comes again only for the same method, ablation, regime "
                "and settings on other tasks"
            )


def _kind(variant: Variant) -> tuple[Any, ...]:
    return variant.method, variant.ablation, variant.regime, variant.settings


def _variant(table: dict[str, Any]) -> Variant:
    _check_keys(table, tuple(field_types(Variant)), "key of a variant")
    optional = [
        table[key] for key, usual in (("ablation", "none"), ("regime", "mixed")) if table.get(key, usual) != usual
    ]
    name = table.get("name", "-".join(map(str, [table.get("method", "byol-explore"), *optional])))
    try:
        values = _check_values({**table, "name": name}, Variant)
    except UserError as error:
        raise UserError(f"variant {name!r}: {error}") from None
    if not _NAME.fullmatch(name) or re.search(r"-seed\d+$", name):
        raise UserError(
            f"variant name {name!r}: letters, digits, dots, dashes and underscores, and no -seed at the end"
        )
    return Variant(**values)


def _settings(tables: dict[str, Any]) -> dict[str, Any]:
    """Return settings by dotted name; raise a UserError for those that a study has other keys for."""
    settings = flatten(tables)
    for name, key in _OWN_KEYS.items():
        if name in settings:
            raise UserError(f"setting {name!r} has a key of its own in a study: {key}")
    return parse_overrides(settings)


def _check_unique(key: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the values; raise a UserError if one is given twice."""
    for index, value in enumerate(values):
        if value in values[:index]:
            raise UserError(f"{key} names {value!r} twice")
    return values


def _check_keys(table: dict[str, Any], accepted: tuple[str, ...], what: str) -> None:
    for key in table:
        if key not in accepted:
            raise unknown_name(what, key, list(accepted))


def _format_value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} = {each!r}" for name, each in value.items()) or "empty"
    if isinstance(value, tuple):
        return ", ".join(each.name if isinstance(each, Variant) else str(each) for each in value)
    return repr(value)
