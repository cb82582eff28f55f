"""What the doctor says: a finding per check."""

import math
from typing import Literal, NamedTuple

from byol_explore.doctor.evidence import Evidence

Verdict = Literal["bad", "warning", "unknown", "ok", "not used"]
NO_CURIOSITY = "method none has no curiosity"
VERDICTS: tuple[Verdict, ...] = ("bad", "warning", "unknown", "ok", "not used")  # the worst first


class Finding(NamedTuple):
    check: str
    verdict: Verdict
    figure: float | None  # what the verdict rests on; None where there is none or it is not finite
    detail: str  # what was seen
    advice: str = ""  # what to do about it


def finding(check: str, verdict: Verdict, figure: float | None, detail: str, advice: str = "") -> Finding:
    """Advice is for those who need it, and a figure that is no number is none."""
    shown = figure if figure is not None and math.isfinite(figure) else None
    return Finding(check, verdict, shown, detail, advice if verdict in ("bad", "warning") else "")


def not_used(check: str, why: str) -> Finding:
    return finding(check, "not used", None, why)


def unknown(check: str, evidence: Evidence, also: str = "") -> Finding:
    """Nothing to judge by: no probe, and no metric either."""
    why = evidence.why_no_probe or also or "the run has not logged it yet"
    return finding(check, "unknown", None, why if evidence.rows else f"{why}, and its log has no line")


def grade(*, bad: bool, warning: bool) -> Verdict:
    """The worst that holds."""
    return "bad" if bad else "warning" if warning else "ok"


def worst_first(findings: list[Finding]) -> list[Finding]:
    """In the order of the verdicts; equals stay as they are."""
    return sorted(findings, key=lambda item: VERDICTS.index(item.verdict))
