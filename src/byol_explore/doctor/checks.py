"""All checks of a run, or of a curiosity in a foreign loop, the worst findings first."""

from collections.abc import Callable
from pathlib import Path

from byol_explore.doctor import agent_checks, collapse_checks, curiosity_checks, payment_checks
from byol_explore.doctor.evidence import Evidence, gather
from byol_explore.doctor.findings import Finding, worst_first
from byol_explore.doctor.foreign import check_stream, gather_curiosity
from byol_explore.dropin.curiosity import Curiosity
from byol_explore.errors import UserError

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


OF_CURIOSITY = (*CHECKS[:6], agent_checks.check_numbers, agent_checks.check_gradient)  # without any agent


def examine(evidence: Evidence) -> list[Finding]:
    """A finding per check, the worst first."""
    return worst_first([check(evidence) for check in CHECKS])


def diagnose(patient: Path | str | Curiosity) -> list[Finding]:
    """The findings of a run directory, or of a curiosity in a loop of somebody's own."""
    if not isinstance(patient, str | Path | Curiosity):
        raise UserError(f"diagnose takes a run directory or a Curiosity, not {patient!r}")
    if not isinstance(patient, Curiosity):
        if Path(patient).is_file():
            raise UserError(f"{patient} is a file: give diagnose a run directory, or Curiosity.load(...) of that file")
        return examine(gather(patient))
    evidence = gather_curiosity(patient)
    stream = check_stream(patient.progress.record, patient.num_envs)
    return worst_first([*(check(evidence) for check in OF_CURIOSITY), stream])
