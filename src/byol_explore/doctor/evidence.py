"""Evidence that checks read, findings that they return, and verdicts."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from byol_explore.config.config import Config
from byol_explore.curiosity.method import IntrinsicMethod
from byol_explore.errors import UserError
from byol_explore.registry import ALGORITHMS, METHODS
from byol_explore.spaces import ActionSpec
from byol_explore.storage.metrics import LogReader, find_log
from byol_explore.utils.packages import require_extra

Row = dict[str, Any]
RECENT = 3  # log rows in a recent mean: a single row is noisy


class TaskMeasurement(NamedTuple):
    """One task in the rollout. A Curiosity has no agent: fields after `intrinsic_magnitude` keep their defaults."""

    distinct_observations: int
    embedding_spread: float  # 1 - |mean unit embedding|^2: 0 if all are parallel, 1 if their mean is 0
    effective_rank: float  # exponential of the entropy of the normalised covariance eigenvalues
    intrinsic_magnitude: float  # mean |intrinsic part of the mixed reward|
    extrinsic_magnitude: float = 0.0  # mean |extrinsic part of the mixed reward|
    normalized_entropy: float | None = None  # of the discrete actions, divided by the entropy of a uniform policy
    min_action_std: float | None = None  # smallest standard deviation of a continuous action dimension
    value_target_mean: float = 0.0
    value_target_std: float = 0.0
    popart_mean: float = 0.0
    popart_std: float = 1.0  # 0 before the first value target other than 0
    explained_variance: float | None = None  # 1 - Var(target - value) / Var(target)


class TargetMeasurement(NamedTuple):
    """The target encoder phi compared with the online encoder theta."""

    relative_distance: float | None  # |phi - theta| / |theta|; None if the two are not comparable
    step_fraction: float  # fraction of |phi - theta| that one update of the target closes: 1 - alpha
    relative_change: float | None  # |phi - previous phi| / |phi| since the checkpoint before; None without one


class BoundaryMeasurement(NamedTuple):
    """The dummy transitions from an episode's last observation to the next episode's first."""

    episode_ends: int  # number of dummy transitions
    transitions: int  # number of all transitions
    max_reward: float  # largest |intrinsic reward| of a dummy transition
    normalizer_error: float  # relative error of the normalizer's mean, if only valid transitions may count
    uncertainty_leak: float  # relative change of uncertainties when observations of the other episode change


class Measurements(NamedTuple):
    """Measurements of the newest checkpoint and of one rollout with it."""

    steps: int
    learner_steps: int
    tasks: dict[str, TaskMeasurement]
    target: TargetMeasurement | None  # None if the method has no target encoder
    boundary: BoundaryMeasurement
    uncertainty_moments: tuple[float, float]  # mean and std in the rollout, for the normalizer that fits worst
    normalizer_moments: tuple[float, float]  # running mean and std of that normalizer
    intrinsic_reward: float  # mean, normalised
    intrinsic_nonzero_fraction: float  # fraction of the transitions with an intrinsic reward
    temperature: float | None  # None if the algorithm has none
    kl_multipliers: dict[str, float]  # the largest of each kind of KL constraint
    max_magnitude: dict[str, float]  # largest magnitude in parameters, optimizer and statistics
    first_nonfinite: str | None  # name of the first array with a NaN or an infinity


@dataclass(frozen=True)
class Evidence:
    """Config, log and measurements of a run or a Curiosity."""

    config: Config
    rows: list[Row]  # of the log
    action: ActionSpec | None = None  # None if the environment cannot be made
    probe: Measurements | None = None
    why_no_probe: str = ""
    damaged: tuple[str, ...] = ()  # names of skipped checkpoints
    log_damage: str = ""  # damaged lines of the log, which are left out

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks in the order of their ids: as logged, else as configured."""
        logged = (row["tasks"] for row in self.rows if isinstance(row.get("tasks"), dict))
        return next((list(tasks) for tasks in logged), self.config.env_ids)

    @property
    def method(self) -> type[IntrinsicMethod]:
        """The class of the intrinsic method."""
        return METHODS.get(self.config.method)

    def history(self, name: str) -> list[float]:
        """Return all finite values of a metric, in order of time."""
        values = [row.get(name) for row in self.rows]
        return [float(v) for v in values if isinstance(v, int | float) and math.isfinite(v)]

    def recent_mean(self, name: str) -> float | None:
        """Return the mean of a metric over the last `RECENT` rows; None if it was never logged."""
        last = self.history(name)[-RECENT:]
        return sum(last) / len(last) if last else None

    @property
    def learner_steps(self) -> int:
        """Number of learner steps, from the log or the checkpoint."""
        logged = self.history("learner_steps")
        return int(max([*logged, self.probe.learner_steps if self.probe else 0]))

    def normalizer_updates(self, learner_steps: int) -> int:
        """Return how often the running statistics were updated in `learner_steps`.

        Once per step; with targets per rollout (PPO) once per rollout, however many epochs it has.
        """
        algorithm = ALGORITHMS.get(self.config.algorithm)
        if not algorithm.targets_per_rollout:
            return learner_steps
        return learner_steps // algorithm(self.config, self.action or ActionSpec()).epochs()


def collect_evidence(run_dir: Path | str) -> Evidence:
    """Collect the evidence of a run. Parts that are not available are None, with the reason."""
    with require_extra("byol_explore.diagnose"):
        from byol_explore.doctor.probe import probe_run
    from byol_explore.storage.run_directory import load_config

    directory = Path(run_dir)
    config, log = load_config(directory), find_log(directory)
    reader = None if log is None else LogReader(log)
    try:
        rows = [] if reader is None else list(reader)
    except (OSError, ValueError) as error:
        raise UserError(f"the log of {directory} cannot be read: {error}") from None
    damage = reader.describe_damage() if reader else None
    return replace(probe_run(directory, config, rows), log_damage=damage or "")


Verdict = Literal["fail", "warn", "no-data", "pass", "skipped"]  # worst first
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
NO_CURIOSITY = "method none has no curiosity"


class Finding(NamedTuple):
    """The result of one check."""

    check: str  # set by `run_checks`
    verdict: Verdict
    value: float | None  # the number that decided; None if there is none or it is not finite
    detail: str  # the observation in words
    advice: str = ""  # the remedy, for the verdicts fail and warn


def make_finding(
    value: float | None, detail: str, advice: str = "", *, fail: bool = False, warn: bool = False
) -> Finding:
    """Return a finding with the worst verdict that holds: advice only with `fail` and `warn`, and a finite value."""
    verdict: Verdict = "fail" if fail else "warn" if warn else "pass"
    finite = value if value is not None and math.isfinite(value) else None
    return Finding("", verdict, finite, detail, "" if verdict == "pass" else advice)


def skipped(why: str) -> Finding:
    """Return a finding for a check that does not apply."""
    return Finding("", "skipped", None, why)


def no_data(evidence: Evidence, also: str = "") -> Finding:
    """Return a finding for a check that has neither a probe nor a metric."""
    why = evidence.why_no_probe or also or "the run has not logged it yet"
    return Finding("", "no-data", None, why if evidence.rows else f"{why}, and its log has no line")


def worst_first(findings: list[Finding]) -> list[Finding]:
    """Sort findings by verdict; the order of equals stays."""
    return sorted(findings, key=lambda item: VERDICTS.index(item.verdict))
