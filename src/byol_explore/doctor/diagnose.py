"""Run all checks on a run or on a Curiosity."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from byol_explore.config.config import Config
from byol_explore.doctor import agent_checks, curiosity_checks, reward_checks
from byol_explore.doctor.evidence import Evidence, Finding, collect_evidence, make_finding, worst_first
from byol_explore.doctor.measurements import measure_curiosity
from byol_explore.dropin.curiosity import Curiosity
from byol_explore.dropin.learning import Record
from byol_explore.errors import UserError

CHECKS: dict[str, Callable[[Evidence], Finding]] = {
    "target": curiosity_checks.check_target,
    "embedding_collapse": curiosity_checks.check_embedding,
    "horizon_growth": curiosity_checks.check_horizon,
    "normalizer": curiosity_checks.check_normalizer,
    "intrinsic_reward": reward_checks.check_intrinsic_reward,
    "episode_boundaries": curiosity_checks.check_boundaries,
    "mixing": reward_checks.check_mixing,
    "temperature": agent_checks.check_temperature,
    "kl": agent_checks.check_kl,
    "kl_multipliers": agent_checks.check_multipliers,
    "value": agent_checks.check_value,
    "entropy": agent_checks.check_entropy,
    "finite": agent_checks.check_numbers,
    "gradient": agent_checks.check_gradient,
}
_OF_AGENT = {"mixing", "temperature", "kl", "kl_multipliers", "value", "entropy"}
CURIOSITY_CHECKS = {name: check for name, check in CHECKS.items() if name not in _OF_AGENT}
ENV_NAME = "your environments"  # a Curiosity does not know the name of its environments
# Share of episodes whose last observation equals the next episode's first. A few may coincide; if all do, the caller
# does not pass the true last observations.
MIN_ENDS, MAX_REPEATED = 3, 0.5
# Share of streams that do not continue where the previous rollout ended. Environments may be reset between rollouts
# now and then; if most streams break, steps are left out.
MAX_BROKEN = 0.5


def run_checks(evidence: Evidence, checks: Mapping[str, Callable[[Evidence], Finding]] = CHECKS) -> list[Finding]:
    """Return one finding per check, worst first."""
    return worst_first([check(evidence)._replace(check=name) for name, check in checks.items()])


def diagnose(subject: Path | str | Curiosity) -> list[Finding]:
    """Check whether training works as it should.

    Args:
      subject: a run directory, or the `Curiosity` of a training loop of your own.
    Returns:
      One `Finding` per check, worst first.
    """
    if not isinstance(subject, str | Path | Curiosity):
        raise UserError(f"diagnose takes a run directory or a Curiosity, not {subject!r}")
    if not isinstance(subject, Curiosity):
        if Path(subject).is_file():
            raise UserError(f"{subject} is a file: give diagnose a run directory, or Curiosity.load(...) of that file")
        return run_checks(collect_evidence(subject))
    stream = check_stream(subject.progress.record, subject.num_envs)
    return run_checks(collect_curiosity_evidence(subject), {**CURIOSITY_CHECKS, "stream": lambda _: stream})


def collect_curiosity_evidence(curiosity: Curiosity) -> Evidence:
    """Collect the evidence of a Curiosity: its log, and measurements of the sequences that it learned from last."""
    settings, record, state = curiosity.settings, curiosity.progress.record, curiosity.progress.state
    config = Config(
        env=ENV_NAME, method=curiosity.method, network=settings.network, curiosity=settings.curiosity,
        optimizer=settings.optimizer,
    )  # fmt: skip
    rows: list[dict[str, Any]] = [
        {**row, "intrinsic_reward_per_task": [row["intrinsic_reward"]]} for row in record.rows
    ]
    action, sample = curiosity.spec.action, curiosity.sample
    if state is None or sample is None:
        return Evidence(config, rows, action, None, "nothing was learned since it was made or loaded")
    return Evidence(config, rows, action, measure_curiosity(curiosity.bonus, state, sample, record, ENV_NAME))


def check_stream(record: Record, num_envs: int) -> Finding:
    """Check that rollouts begin where the previous ones ended, and that episodes end with their true observation."""
    streams, ends, repeated = record.calls * num_envs, record.episode_ends, record.repeated_final_obs
    if not record.calls:
        return Finding("", "no-data", None, "nothing was learned yet")
    broken, repeated_share = record.discontinuities / streams, repeated / max(ends, 1)
    detail = (
        f"{ends - repeated:,} of {ends:,} episodes end with another observation than the next one begins with; "
        f"{record.discontinuities:,} of {streams:,} streams did not go on where they were"
    )
    if ends >= MIN_ENDS and repeated_share > MAX_REPEATED:
        advice = (
            "give the true last observation as next_obs, and mark steps that only reset as skipped: "
            "byol_explore.dropin.autoreset has an adapter for each way of vector environments"
        )
        return make_finding(repeated_share, detail, advice, fail=repeated_share == 1.0, warn=True)
    advice = "give every step of every environment once and in order: where one is left out, recurrent state is lost"
    return make_finding(broken, detail, advice, warn=broken > MAX_BROKEN)
