"""The table [search] of a study file: choose the settings of every variant by trials on some seeds, and run the chosen
ones on other seeds. For example:

[search]
trials = 16                     # per variant; trial 0 has the settings of the file unchanged
seeds = [0, 1]                  # every trial runs on these
report_seeds = [5, 6, 7, 8, 9]  # the chosen trial of every variant runs on these
tasks = ["rooms-4"]             # to choose on; default: the tasks of the study, on which it reports
success_rate = 0.95             # a run is solved from its first log line with this success over a full window
draw_seed = 0                   # seed of the drawn values

[search.ranges]                 # the same for every variant, by dotted setting
curiosity.mixing = { log-uniform = [0.003, 1.0] }
agent.gamma = { uniform = [0.9, 0.999] }
agent.entropy_weight = { choice = [0.0, 0.001, 0.005, 0.01] }

[search.own.icm]                # at most two more settings for this variant alone
curiosity.prioritize = { choice = [true, false] }

With n trials each setting has one value in each n-th of its range. Trial i has the same common settings in every
variant.
"""

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from byol_explore.config.overrides import convert_value, field_types
from byol_explore.errors import UserError, unknown_name

MAX_TRIALS = 1_000
MAX_OWN = 2  # settings of a variant's own, so that no method is searched much more than others
_DIGITS = 3  # significant digits of drawn numbers
_KEYS = ("trials", "seeds", "report_seeds", "tasks", "success_rate", "draw_seed", "ranges", "own")


class Range(Protocol):
    """The values of a setting that trials may have."""

    def value_at(self, share: float) -> Any:
        """Return the value at a quantile of the range, in [0, 1)."""
        ...


@dataclass(frozen=True)
class Uniform(Range):
    """Uniform or log-uniform numbers between two bounds."""

    low: float
    high: float
    logarithmic: bool = False
    is_whole: bool = False

    def value_at(self, share: float) -> float | int:
        if self.is_whole and not self.logarithmic:
            return int(self.low) + int(share * (int(self.high) - int(self.low) + 1))
        if self.logarithmic:
            value = math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + share * (self.high - self.low)
        rounded = round(value) if self.is_whole else float(f"{value:.{_DIGITS}g}")
        return type(rounded)(min(max(rounded, self.low), self.high))


@dataclass(frozen=True)
class Choice(Range):
    """One of some values, with equal probability."""

    values: tuple[Any, ...]

    def value_at(self, share: float) -> Any:
        return self.values[int(share * len(self.values))]


Ranges = Mapping[str, Range]  # by dotted setting
Values = dict[str, Any]  # of a trial, by dotted setting
Sampler = Callable[[Ranges, int], list[Values]]  # draws the settings of `count` trials


@dataclass(frozen=True)
class Search:
    """The contents of [search]."""

    trials: int
    seeds: tuple[int, ...]
    report_seeds: tuple[int, ...]
    ranges: dict[str, Range]
    own: dict[str, dict[str, Range]] = field(default_factory=dict)  # by variant
    tasks: tuple[str, ...] | None = None  # None: the tasks of the study
    success_rate: float = 0.95
    draw_seed: int = 0

    def values_of(self, variant: str, sampler: Sampler | None = None) -> list[Values]:
        """Return the settings that each trial of a variant changes; trial 0 changes none.

        Args:
          variant: its name.
          sampler: draws the others; by default `stratified` with `draw_seed`.
        """
        draw = sampler or (lambda ranges, count: stratified(ranges, count, self.draw_seed))
        return [{}, *draw({**self.ranges, **self.own.get(variant, {})}, self.trials - 1)]


def stratified(ranges: Ranges, count: int, seed: int) -> list[Values]:
    """Draw `count` trials; each setting has one value in each of `count` equal parts of its range.

    The values of a setting depend on its name, its range, `count` and `seed`, and on no other setting.
    """
    import numpy as np  # lazy: --help must not load NumPy

    columns = {}
    for name, values in ranges.items():
        random = np.random.default_rng([seed, zlib.crc32(name.encode())])
        shares = (random.permutation(count) + random.random(count)) / count
        columns[name] = [values.value_at(float(share)) for share in shares]
    return [{name: column[trial] for name, column in columns.items()} for trial in range(count)]


def parse_search(table: Any, variants: Sequence[str]) -> Search:
    """Check the table [search] of a study with these variants; a UserError names the first mistake."""
    if not isinstance(table, dict):
        raise UserError(f"search is {table!r}: it must be a table, [search]")
    for key in table:
        if key not in _KEYS:
            raise unknown_name("key of [search]", key, list(_KEYS))
    for key in ("seeds", "report_seeds", "ranges"):
        if key not in table:
            raise UserError(f"search.{key} is missing")
    trials = convert_value("search.trials", table.get("trials", 16), int)
    if not 1 <= trials <= MAX_TRIALS:
        raise UserError(f"search.trials is {trials}: it must be 1 to {MAX_TRIALS:,}")
    rate = convert_value("search.success_rate", table.get("success_rate", 0.95), float)
    if not 0.0 < rate <= 1.0:
        raise UserError(f"search.success_rate is {rate}: it must be above 0, and at most 1")
    draw_seed = convert_value("search.draw_seed", table.get("draw_seed", 0), int)
    if draw_seed < 0:
        raise UserError(f"search.draw_seed is {draw_seed}: it must not be negative")
    seeds, report_seeds = (_parse_seeds(key, table[key]) for key in ("seeds", "report_seeds"))
    if both := sorted(set(seeds) & set(report_seeds)):
        raise UserError(f"search.seeds and search.report_seeds both have {both[0]}: choose and report on other seeds")
    tasks = convert_value("search.tasks", table["tasks"], tuple[str, ...]) if "tasks" in table else None
    if tasks is not None and (not tasks or len(set(tasks)) < len(tasks)):
        raise UserError(f"search.tasks is {list(tasks)}: name at least one, and each once")
    ranges = _parse_ranges("search.ranges", table["ranges"])
    own = _parse_own(convert_value("search.own", table.get("own", {}), dict), ranges, variants)
    return Search(trials, seeds, report_seeds, ranges, own, tasks, rate, draw_seed)


def _parse_seeds(key: str, seeds: Any) -> tuple[int, ...]:
    is_list = isinstance(seeds, list) and all(type(seed) is int and seed >= 0 for seed in seeds)
    if not is_list or not seeds or len(set(seeds)) < len(seeds):
        raise UserError(f"search.{key} is {seeds!r}: it must be a list of different seeds, such as [0, 1]")
    return tuple(seeds)


def _parse_own(tables: dict[str, Any], ranges: Ranges, variants: Sequence[str]) -> dict[str, dict[str, Range]]:
    own = {}
    for variant, table in tables.items():
        if variant not in variants:
            raise unknown_name("variant in search.own", variant, list(variants))
        own[variant] = _parse_ranges(f"search.own.{variant}", table)
        if len(own[variant]) > MAX_OWN:
            raise UserError(f"search.own.{variant} has {len(own[variant])} settings: at most {MAX_OWN} are allowed")
        if both := [name for name in own[variant] if name in ranges]:
            raise UserError(f"search.own.{variant} has {both[0]}, which search.ranges has too")
    return own


def _parse_ranges(where: str, table: Any) -> dict[str, Range]:
    """Return the ranges of nested tables by dotted setting."""
    if not isinstance(table, dict) or not table:
        raise UserError(f"{where} is {table!r}: it must be a table of settings with their ranges")
    kinds, ranges = field_types(), {}
    for name, entry in _leaves(table):
        if name not in kinds:
            section = name.rpartition(".")[0] + "."
            raise unknown_name(f"setting in {where}", name, [each for each in kinds if each.startswith(section)])
        if name in ("env", "seed", "steps", "method", "ablation", "regime", "preset", "env_kwargs"):
            raise UserError(f"{where} has {name}: it is not a setting to search")
        ranges[name] = _parse_range(f"{where}: {name}", entry, kinds[name])
    return ranges


def _leaves(table: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found = []
    for key, entry in table.items():
        is_range = not isinstance(entry, dict) or prefix + key in field_types() or set(entry) & set(_PARSERS)
        found += [(prefix + key, entry)] if is_range else _leaves(entry, f"{prefix}{key}.")
    return found


def _parse_range(where: str, entry: Any, kind: Any) -> Range:
    if not isinstance(entry, dict) or len(entry) != 1 or next(iter(entry)) not in _PARSERS:
        raise UserError(f"{where} is {entry!r}: it must be a table with one of {', '.join(_PARSERS)}")
    [(key, values)] = entry.items()
    if not isinstance(values, list):
        raise UserError(f"{where} is {entry!r}: {key} needs a list")
    return _PARSERS[key](where, values, kind)


def _parse_uniform(where: str, values: list[Any], kind: Any, *, logarithmic: bool = False) -> Range:
    if len(values) != 2 or any(type(value) not in (int, float) for value in values):
        raise UserError(f"{where} is {values}: it must be the lowest and the highest number")
    low, high = (convert_value(where, value, kind) for value in values)
    if type(low) not in (int, float) or not -math.inf < low < high < math.inf or (logarithmic and low <= 0):
        least = "0 < " if logarithmic else ""
        raise UserError(f"{where} is {values}: it must be {least}lowest < highest, of a setting that is a number")
    return Uniform(low, high, logarithmic, is_whole=type(low) is int and type(high) is int)


def _parse_log_uniform(where: str, values: list[Any], kind: Any) -> Range:
    return _parse_uniform(where, values, kind, logarithmic=True)


def _parse_choice(where: str, values: list[Any], kind: Any) -> Range:
    converted = tuple(convert_value(where, value, kind) for value in values)
    if len(converted) < 2 or any(value in converted[:index] for index, value in enumerate(converted)):
        raise UserError(f"{where} is {values}: choice needs at least two different values")
    return Choice(converted)


_PARSERS = {"uniform": _parse_uniform, "log-uniform": _parse_log_uniform, "choice": _parse_choice}
