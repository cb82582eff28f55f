"""What the doctor looks at: a run's metrics, and what a rollout with its newest checkpoint shows."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from byol_explore.curiosity.base import Curiosity
from byol_explore.errors import UserError
from byol_explore.extras import needed_by
from byol_explore.registries import ALGORITHMS, METHODS
from byol_explore.report.logs import log_of, read_metrics
from byol_explore.settings.config import Config
from byol_explore.spaces import ActionSpec

Row = dict[str, Any]
RECENT = 3  # log steps that "now" is a mean over: one alone is noisy


class TaskProbe(NamedTuple):
    """One task in the rollout."""

    distinct: int  # different observations
    spread: float  # 1 - |mean of their unit embeddings|^2: 0 if all look alike, 1 if they point everywhere
    rank: float  # directions that these spread over, counted by their share of the variance
    intrinsic: float  # mean size of the intrinsic part of the reward, as it is added
    extrinsic: float  # and of the extrinsic part
    entropy: float | None  # of the discrete actions, as a share of the largest possible one
    stddev: float | None  # of the narrowest continuous action
    target_mean: float  # of the value targets
    target_stddev: float
    popart_mean: float
    popart_scale: float
    explained: float | None  # share of the targets' variance that the value explains


class TargetProbe(NamedTuple):
    """The curiosity's target network beside the online encoder."""

    distance: float | None  # |phi - theta| / |theta|; None where the two are not comparable
    step: float  # share of that distance which one update of the target closes: 1 - alpha
    moved: float | None  # |change of phi| / |phi| since the checkpoint before; None without one


class BoundaryProbe(NamedTuple):
    """The transitions from an episode's last observation to the next one's first."""

    ends: int  # how many of them
    transitions: int  # looked at in all
    reward: float  # the largest intrinsic reward of one
    counted: float  # error of the normalizer's mean if only the other transitions may count, relative
    leak: float  # change of uncertainties on one side when the observations on the other change


class Probe(NamedTuple):
    """The newest checkpoint and one rollout with it."""

    steps: int
    learner_steps: int
    tasks: dict[str, TaskProbe]
    target: TargetProbe | None  # None where the method has no target
    boundary: BoundaryProbe
    uncertainty: tuple[float, float]  # mean and standard deviation now, of the task whose running ones fit least
    normalizer: tuple[float, float]  # the running ones
    intrinsic_reward: float  # mean, normalised
    paid_share: float  # of the transitions, how many have an intrinsic reward
    temperature: float | None  # of an algorithm that has one
    multipliers: dict[str, float]  # the largest of each kind of KL multiplier
    largest: dict[str, float]  # magnitude in parameters, optimizer and statistics
    not_finite: str | None  # the first array with a NaN or an infinity


class Course(NamedTuple):
    """How a metric went, log line by log line."""

    first: float
    lowest: float
    now: float  # in the last line


@dataclass(frozen=True)
class Evidence:
    config: Config
    rows: list[Row]  # of its log
    action: ActionSpec | None = None  # None if the environment cannot be made
    probe: Probe | None = None
    why_no_probe: str = ""
    damaged: tuple[str, ...] = ()  # checkpoints that could not be used

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks, in the order of their numbers: as logged, or where only one is, as configured."""
        logged = (row["tasks"] for row in self.rows if isinstance(row.get("tasks"), dict))
        return next((list(tasks) for tasks in logged), self.config.env_ids)

    @property
    def method(self) -> type[Curiosity]:
        """What the run's curiosity is."""
        return METHODS.get(self.config.method)

    def history(self, name: str) -> list[float]:
        """All finite values of a metric, in the order of time."""
        values = [row.get(name) for row in self.rows]
        return [float(v) for v in values if isinstance(v, int | float) and math.isfinite(v)]

    def recent(self, name: str) -> float | None:
        """A metric's mean over the last log steps; None if it was never logged."""
        last = self.history(name)[-RECENT:]
        return sum(last) / len(last) if last else None

    def course(self, name: str) -> Course | None:
        """A metric from the first log line to the last; None if it was never logged."""
        values = self.history(name)
        return Course(values[0], min(values), values[-1]) if values else None

    @property
    def learner_steps(self) -> int:
        """How many the run has done, as far as is known."""
        logged = self.history("learner_steps")
        return int(max([*logged, self.probe.learner_steps if self.probe else 0]))

    def batches(self, learner_steps: int) -> int:
        """How many batches running statistics have taken in after so many learner steps.

        One each; but where rollouts are judged as a whole, only once however often they are learned from.
        """
        algorithm = ALGORITHMS.get(self.config.algorithm)
        if not algorithm.judges_rollouts:
            return learner_steps
        return learner_steps // algorithm(self.config, self.action or ActionSpec()).epochs()


def gather(run_dir: Path | str) -> Evidence:
    """All evidence of a run; what cannot be had is left out, with the reason."""
    with needed_by("byol_explore.diagnose"):
        from byol_explore.doctor.probing import probe_run
    from byol_explore.run.directory import load_config

    directory = Path(run_dir)
    config = load_config(directory)
    rows = _logged(directory)
    probed = probe_run(directory, config)
    return Evidence(config, rows, probed.action, probed.probe, probed.reason, tuple(probed.damaged))


def _logged(directory: Path) -> list[Row]:
    """The lines of a run's log, plain or packed; a UserError where a packed one is damaged."""
    log = log_of(directory)
    try:
        return [] if log is None else read_metrics(log)
    except (OSError, ValueError) as error:
        raise UserError(f"the log of {directory} cannot be read: {error}") from None
