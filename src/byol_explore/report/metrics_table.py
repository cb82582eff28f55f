"""The table of metrics: what a line of metrics.jsonl says, and how it is shown.

Everything that shows metrics reads this table: the report (what it loads and plots), the curves of a run, the console
and the display of a study. A metric is logged by whoever measures it; to be shown it needs an entry here and nothing
else.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Metric(NamedTuple):
    """A number that runs log, and how people see it."""

    name: str  # in metrics.jsonl
    title: str  # over a plot of it
    unit: str  # beside its axis
    range: tuple[float, float] | None = None  # of the axis, where all values are known to lie in one
    scale: str = "linear"  # or log, for what changes by orders of magnitude
    higher: str = ""  # what a higher value means, if it means anything
    section: str = ""  # of the report that plots it: curiosity (variants that have one) or places (all)
    panel: str = ""  # of curves.png, if it shares one with others: the title of that
    brief: str = ""  # on the console, as a format; without one it is not shown there
    is_table: bool = False  # of several numbers by name, about in the order in which they are reached

    @property
    def logarithmic(self) -> bool:
        return self.scale == "log"

    def percent(self) -> "Metric":
        """The same metric, which is a share, in percent."""
        low, high = self.range or (0.0, 1.0)
        return self._replace(unit=f"{self.unit} (%)", range=(100.0 * low, 100.0 * high))


SHARE = (0.0, 1.0)
STEPS = Metric("steps", "Environment steps", "environment steps")  # the horizontal axis of all others
ELAPSED = Metric("elapsed", "Time of training", "seconds")

SUCCESS = Metric("success_rate", "Success", "success", SHARE, higher="better", brief="success {:.2f}")

METRICS = (
    SUCCESS,
    Metric("return_mean", "Return of training episodes", "return", higher="better", brief="return {:.1f}"),
    Metric("episode_length", "Length of training episodes", "steps"),
    Metric("evaluation_return", "Evaluation", "score", higher="better", panel="Evaluation: return, best so far"),
    Metric("evaluation_best", "Best evaluation so far", "score", higher="better",
           panel="Evaluation: return, best so far"),
    Metric("rooms_found", "Rooms entered so far", "rooms", higher="more of the world was explored", section="places",
           brief="rooms {:.0f}"),
    Metric("stages", "Stages that episodes reach", "share of episodes", SHARE, higher="more of the task was found",
           panel="Stages: share of episodes", brief="{} {:.2f}", is_table=True),
    Metric("uncertainty", "Uncertainty (raw)", "uncertainty", scale="log", higher="the world is predicted less well",
           section="curiosity", brief="curiosity {:.3f}"),
    Metric("intrinsic_reward", "Intrinsic reward (normalised)", "intrinsic reward",
           higher="more is paid for what is not yet known", section="curiosity"),
    Metric("paid_share", "Share of transitions that were paid for", "share", SHARE, section="curiosity",
           panel="Shares: transitions paid, steps that pay", brief="paid {:.0%}"),
    Metric("paying_share", "Share of the run so far in which curiosity paid", "share of learner steps", SHARE,
           higher="curiosity was awake for more of the run", section="curiosity",
           panel="Shares: transitions paid, steps that pay"),
    Metric("embedding_spread", "Spread of the embeddings", "spread", SHARE,
           higher="observations are told apart; near 0 they are not: the representation has collapsed",
           section="curiosity"),
    Metric("error_growth", "Error of the longest prediction over that of the shortest", "growth of errors",
           higher="what is further away is less certain, as it should be; 1 is a sign of collapse",
           section="curiosity"),
    Metric("target_distance", "Distance of the target encoder from the online one", "relative distance", scale="log",
           higher="the encoder changes faster than its target follows", section="curiosity"),
    Metric("loss_curiosity", "Loss of the curiosity", "loss", higher="worse", panel="Losses"),
    Metric("loss_value", "Loss of the values", "loss", higher="worse", panel="Losses"),
    Metric("entropy", "Entropy of the policy", "nats", higher="actions are more random"),
    Metric("kl", "KL to the target policy", "nats", higher="the policy moves faster"),
    Metric("temperature", "Temperature", "temperature", higher="less is made of differences in advantage"),
    Metric("gradient_norm", "Gradient norm", "norm"),
    Metric("policy_lag", "Policy lag", "learner steps", higher="the policy that acted was older"),
    Metric("learner_wait", "Share of the time that the learner waits", "share", SHARE,
           higher="acting is the bottleneck", panel="Waiting: learner, actors"),
    Metric("actor_wait", "Share of the time that actors wait", "share", SHARE, higher="learning is the bottleneck",
           panel="Waiting: learner, actors"),
    Metric("steps_per_second", "Speed", "steps per second", higher="better", brief="{:,.0f} steps/s"),
)  # fmt: skip


def metric(name: str) -> Metric:
    """The entry of that name."""
    return next(each for each in METRICS if each.name == name)


def plotted_in(section: str) -> list[Metric]:
    """What a section of the report plots."""
    return [each for each in METRICS if each.section == section]


def read_by_report() -> list[str]:
    """Names of all that a report keeps of a line as it is; scores of tasks come on top."""
    return [STEPS.name, ELAPSED.name, SUCCESS.name, *(each.name for each in METRICS if each.section)]


def panels(row: Mapping[str, Any] = MappingProxyType({})) -> dict[str, list[Metric]]:
    """The panels of a run's curves by title, each with the metrics that share it; tables as a line of metrics has them.

    A number in a table is a metric of its own, named after both: stages/lifted.
    """
    found: dict[str, list[Metric]] = {}
    for each in METRICS:
        found.setdefault(each.panel or each.title, []).extend(_numbers(each, row))
    return found


def _numbers(entry: Metric, row: Mapping[str, Any]) -> list[Metric]:
    table = row.get(entry.name) if entry.is_table else None
    return [entry._replace(name=f"{entry.name}/{name}") for name in table] if isinstance(table, dict) else [entry]


def value_of(row: dict[str, Any], name: str) -> Any:
    """What a line of metrics says of a metric, which may be a number in a table."""
    first, _, rest = name.partition("/")
    value = row.get(first)
    return (value.get(rest) if isinstance(value, dict) else None) if rest else value


def in_brief(row: dict[str, Any]) -> list[str]:
    """A line of metrics, or some of it, in a few words; what is logged but not known yet is a dash."""
    return [_brief(each, row[each.name]) for each in METRICS if each.brief and each.name in row]


def _brief(entry: Metric, value: Any) -> str:
    if entry.is_table:
        return _furthest(entry, value or {})
    if value is not None:
        return entry.brief.format(value)
    before, _, after = entry.brief.partition("{")
    return f"{before}-{after.partition('}')[2]}"


def _furthest(entry: Metric, table: dict[str, float]) -> str:
    """Of a table the last number that is not 0; a dash as long as all are."""
    found = [(name, value) for name, value in table.items() if value]
    return entry.brief.format(*found[-1]) if found else f"{entry.name} -"
