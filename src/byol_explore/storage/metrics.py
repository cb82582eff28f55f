"""metrics.jsonl, and the table of metrics.

Every line of metrics.jsonl ends with a checksum under the key "crc". Lines of packed copies (metrics.jsonl.gz) have
none: the archive has one over all of them, which is checked when they are unpacked.

Everything that shows metrics reads the table: the report (which columns it loads and plots), the curves of a run, the
console and the display of a study. A new metric that is logged needs one entry in the table to be shown everywhere.
"""

import gzip
import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from byol_explore.utils.files import CHECKSUM, add_checksum, atomic_write, safe_file, split_checksum

LOG_NAME, PACKED_LOG_NAME = "metrics.jsonl", "metrics.jsonl.gz"
MAX_LINE_LENGTH = 10_000_000  # characters
MAX_STEPS = 2**63
_CHECKSUM_KEY = f'"{CHECKSUM}"'
_MAX_NUMBERS = 5  # of damaged lines in a message
LARGEST = 1e100  # larger numbers count as unknown: they cannot be drawn


def find_log(directory: Path) -> Path | None:
    """Return the log of a run directory; None if there is none, or a link leads out of the directory."""
    return next((path for name in (LOG_NAME, PACKED_LOG_NAME) if (path := safe_file(directory, name))), None)


class LogReader:
    """Iterates over the intact rows of a log, plain or packed, and collects the numbers of its damaged lines.

    If any line of a log has a checksum, a line without one is damaged too.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged: list[int] = []  # from 1

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.damaged, needs_checksum = [], self._has_checksums()
        for number, line in enumerate(self._lines(), 1):
            if row := parse_row(line, needs_checksum=needs_checksum):
                yield row
            elif line.endswith("\n"):  # else the line is being written, or its process was killed
                self.damaged.append(number)

    def describe_damage(self, outcome: str = "left out") -> str | None:
        """Name the damaged lines, and say what has become of them; None without any."""
        if not self.damaged:
            return None
        first = ", ".join(map(str, self.damaged[:_MAX_NUMBERS]))
        more = f" and {len(self.damaged) - _MAX_NUMBERS:,} more" if len(self.damaged) > _MAX_NUMBERS else ""
        noun, verb = ("line", "is") if len(self.damaged) == 1 else ("lines", "are")
        return f"{self.path.name}: {noun} {first}{more} {verb} damaged and {outcome}"

    def _has_checksums(self) -> bool:
        return self.path.name == LOG_NAME and any(_CHECKSUM_KEY in line for line in self._lines())

    def _lines(self) -> Iterator[str]:
        name, is_packed = self.path.name, self.path.name == PACKED_LOG_NAME
        with gzip.open(self.path, "rt", errors="replace") if is_packed else self.path.open(errors="replace") as file:
            try:
                while line := file.readline(MAX_LINE_LENGTH):
                    if len(line) == MAX_LINE_LENGTH:
                        raise ValueError(f"{name} has a line of more than {MAX_LINE_LENGTH:,} characters")
                    yield line
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise ValueError(f"{name} is damaged: {error}") from None


def format_row(row: Mapping[str, Any]) -> str:
    """Return the line of a row, with its checksum."""
    return json.dumps(add_checksum(dict(row))) + "\n"


def parse_row(line: str | bytes, *, needs_checksum: bool = False) -> dict[str, Any]:
    """Parse a line; empty if it is cut off, no object, without a valid number of steps or with a wrong checksum."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(row, dict):
        return {}
    row, is_intact = split_checksum(row)
    accepted = is_intact if needs_checksum else is_intact is not False
    return row if accepted and 0 <= to_float(row.get("steps")) < MAX_STEPS else {}


def parse_last_row(tail: bytes) -> dict[str, Any]:
    """Return the last intact row in the end of a log; empty if there is none."""
    needs_checksum = _CHECKSUM_KEY.encode() in tail
    rows = (parse_row(line, needs_checksum=needs_checksum) for line in reversed(tail.splitlines()))
    return next((row for row in rows if row), {})


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read all intact rows of a log."""
    return list(LogReader(path))


def to_float(value: Any) -> float:
    """Convert a value of a row; NaN for values that are no number or too large to be drawn."""
    return float(value) if type(value) in (float, int) and -LARGEST < value < LARGEST else math.nan


def write_packed_log(directory: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write metrics.jsonl.gz; equal rows give equal bytes."""
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    (directory / PACKED_LOG_NAME).write_bytes(gzip.compress(text.encode(), mtime=0))


class Metric(NamedTuple):
    """A number that runs log, and how it is shown."""

    name: str  # key in metrics.jsonl
    title: str  # of its plots
    unit: str  # of its axis
    range: tuple[float, float] | None = None  # of its axis, if the possible values are known
    logarithmic: bool = False  # scale of its axis
    higher_means: str = ""  # the meaning of a higher value
    section: str = ""  # of the report that plots it: curiosity (only variants with curiosity) or places
    panel: str = ""  # title of its panel in curves.png, if other metrics share it
    console_format: str = ""  # empty if the console does not show it
    is_table: bool = False  # several numbers by name, such as stages in the order in which they are reached

    def percent(self) -> "Metric":
        """Return the metric in percent; it must be a share."""
        low, high = self.range or (0.0, 1.0)
        return self._replace(unit=f"{self.unit} (%)", range=(100.0 * low, 100.0 * high))


SHARE = (0.0, 1.0)
STEPS = Metric("steps", "Environment steps", "environment steps")  # the horizontal axis of all others
ELAPSED = Metric("elapsed_seconds", "Time of training", "seconds")

RESTARTS = Metric("env_restarts", "Restarted environments", "environments", higher_means="more faults")
SUCCESS = Metric("success_rate", "Success", "success", SHARE, higher_means="better", console_format="success {:.2f}")

METRICS = (
    SUCCESS,
    Metric("return_mean", "Return of training episodes", "return", higher_means="better",
           console_format="return {:.1f}"),
    Metric("episode_length", "Length of training episodes", "steps"),
    Metric("evaluation_return", "Evaluation", "score", higher_means="better", panel="Evaluation: return, best so far"),
    Metric("evaluation_return_max", "Best evaluation so far", "score", higher_means="better",
           panel="Evaluation: return, best so far"),
    Metric("rooms_visited", "Rooms entered so far", "rooms", higher_means="more of the world was explored",
           section="places", console_format="rooms {:.0f}"),
    Metric("stages", "Stages that episodes reach", "share of episodes", SHARE,
           higher_means="more of the task was found", panel="Stages: share of episodes", console_format="{} {:.2f}",
           is_table=True),
    Metric("uncertainty", "Uncertainty (raw)", "uncertainty", logarithmic=True,
           higher_means="the world is predicted less well", section="curiosity", console_format="curiosity {:.3f}"),
    Metric("intrinsic_reward", "Intrinsic reward (normalised)", "intrinsic reward",
           higher_means="observations are newer to the agent", section="curiosity"),
    Metric("intrinsic_nonzero_fraction", "Share of transitions with an intrinsic reward", "share", SHARE,
           section="curiosity", panel="Shares with intrinsic reward: transitions, updates",
           console_format="nonzero {:.0%}"),
    Metric("active_update_fraction", "Share of updates with intrinsic reward so far", "share of learner steps", SHARE,
           higher_means="more updates had an intrinsic reward", section="curiosity",
           panel="Shares with intrinsic reward: transitions, updates"),
    Metric("embedding_spread", "Spread of the embeddings", "spread", SHARE,
           higher_means="observations are told apart; near 0 they are not: the representation has collapsed",
           section="curiosity"),
    Metric("prediction_error_growth", "Error of the longest prediction over that of the shortest", "growth of errors",
           higher_means="what is further away is less certain, as it should be; 1 is a sign of collapse",
           section="curiosity"),
    Metric("target_relative_distance", "Distance of the target encoder from the online one", "relative distance",
           logarithmic=True, higher_means="the encoder changes faster than its target follows", section="curiosity"),
    Metric("loss_curiosity", "Loss of the curiosity", "loss", higher_means="worse", panel="Losses"),
    Metric("loss_value", "Loss of the values", "loss", higher_means="worse", panel="Losses"),
    Metric("entropy", "Entropy of the policy", "nats", higher_means="actions are more random"),
    Metric("kl", "KL to the target policy (v-mpo) or the behaviour policy (ppo)", "nats",
           higher_means="the policy moves faster"),
    Metric("temperature", "Temperature", "temperature", higher_means="less is made of differences in advantage"),
    Metric("grad_norm", "Gradient norm", "norm"),
    Metric("policy_lag", "Policy lag", "learner steps", higher_means="the policy that acted was older"),
    Metric("learner_idle_fraction", "Share of the time that the learner waits", "share", SHARE,
           higher_means="acting is the bottleneck", panel="Waiting: learner, actors"),
    Metric("actor_idle_fraction", "Share of the time that actors wait", "share", SHARE,
           higher_means="learning is the bottleneck", panel="Waiting: learner, actors"),
    RESTARTS,
    Metric("steps_per_second", "Speed", "steps per second", higher_means="better", console_format="{:,.0f} steps/s"),
)  # fmt: skip


def metric(name: str) -> Metric:
    """Return the entry of a name."""
    return next(entry for entry in METRICS if entry.name == name)


def section_metrics(section: str) -> list[Metric]:
    """Return the metrics that a section of the report plots."""
    return [entry for entry in METRICS if entry.section == section]


def report_columns() -> list[str]:
    """Return the names of the columns that a report loads; scores of tasks come on top."""
    return [STEPS.name, ELAPSED.name, SUCCESS.name, RESTARTS.name, *(entry.name for entry in METRICS if entry.section)]


def panels(row: Mapping[str, Any]) -> dict[str, list[Metric]]:
    """Return the panels of curves.png by title, each with the metrics that share it.

    Args:
      row: a row of the log. A table in it becomes one metric per number, named as in stages/lifted.
    """
    found: dict[str, list[Metric]] = {}
    for entry in METRICS:
        table = row.get(entry.name) if entry.is_table else None
        names = [f"{entry.name}/{name}" for name in table] if isinstance(table, dict) else [entry.name]
        found.setdefault(entry.panel or entry.title, []).extend(entry._replace(name=name) for name in names)
    return found


def value_of(row: dict[str, Any], name: str) -> Any:
    """Return the value of a metric in a row; stages/lifted is a number in a table."""
    first, _, rest = name.partition("/")
    value = row.get(first)
    return (value.get(rest) if isinstance(value, dict) else None) if rest else value


def console_summary(row: dict[str, Any]) -> list[str]:
    """Format the metrics of a row that the console shows, with a dash for unknown values."""
    return [_format(entry, row[entry.name]) for entry in METRICS if entry.console_format and entry.name in row]


def _format(entry: Metric, value: Any) -> str:
    if entry.is_table:  # show the last number that is not 0
        reached = [item for item in (value or {}).items() if item[1]]
        return entry.console_format.format(*reached[-1]) if reached else f"{entry.name} -"
    return re.sub(r"\{.*\}", "-", entry.console_format) if value is None else entry.console_format.format(value)


def flatten_scalars(metrics: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """Return the numbers, also those in tables and lists, with the parts of their names joined by slashes."""
    flat: dict[str, float] = {}
    for name, value in metrics.items():
        if isinstance(value, dict):
            flat.update(flatten_scalars(value, f"{prefix}{name}/"))
        elif isinstance(value, list):
            flat.update({f"{prefix}{name}/{i + 1}": float(v) for i, v in enumerate(value) if v is not None})
        elif isinstance(value, int | float):
            flat[prefix + name] = value
    return flat


def truncate_log(path: Path, step: int) -> None:
    """Drop the lines after a step, those that are damaged, and those that do not continue the one before."""
    atomic_write(path, "".join(map(format_row, rows_until(path, step)[0])))


def rows_until(path: Path, step: int) -> tuple[list[dict[str, Any]], str | None]:
    """Return the rows up to a step in order, and a description of damaged lines; no row if there is no file."""
    if not path.exists():
        return [], None
    reader, rows = LogReader(path), []
    for row in reader:
        if row["steps"] <= step and (not rows or row["steps"] > rows[-1]["steps"]):
            rows.append(row)
    return rows, reader.describe_damage("dropped")
