"""All checks of a run, the worst findings first."""

from collections.abc import Callable
from pathlib import Path

from byol_explore.doctor import agent_checks, collapse_checks, curiosity_checks, payment_checks
from byol_explore.doctor.evidence import Evidence, gather
from byol_explore.doctor.findings import Finding, worst_first

CHECKS: tuple[Callable[[Evidence], Finding], ...] = (
    curiosity_checks.check_target,
    collapse_checks.check_embedding,
    collapse_checks.check_horizon,
    curiosity_checks.check_normalizer,
    payment_checks.check_paid,
    curiosity_checks.check_boundaries,
    payment_checks.check_mixing,
    agent_checks.check_temperature,
    agent_checks.check_kl,
    agent_checks.check_multipliers,
    agent_checks.check_value,
    agent_checks.check_entropy,
    agent_checks.check_numbers,
    agent_checks.check_gradient,
)


def examine(evidence: Evidence) -> list[Finding]:
    """A finding per check, the worst first."""
    return worst_first([check(evidence) for check in CHECKS])


def diagnose(run_dir: Path | str) -> list[Finding]:
    """The findings of a run directory."""
    return examine(gather(run_dir))
