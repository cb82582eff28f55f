"""Checks for a collapse: whether embeddings differ, and whether what is further away is harder to predict.

Metrics alone are enough for both, from the first log line on; a checkpoint tells more. In a collapse every observation
looks alike and every prediction is right: the loss looks wonderful, and curiosity is paid for noise.
"""

from byol_explore.doctor.evidence import Course, Evidence, TaskProbe
from byol_explore.doctor.findings import NO_CURIOSITY, Finding, finding, grade, not_used, unknown
from byol_explore.registries import METHODS
from byol_explore.settings.config import Config

# An encoder of first-person images that had collapsed logged 0.002; the narrowest that came back to life, 0.03.
COLLAPSED_SPREAD, LOW_SPREAD = 5e-3, 5e-2
# Where the first line logged less, curiosity was of little use for half a million steps of the eight laptop tasks; an
# encoder that starts centred logs several times this.
NARROW_START = 0.2
# One direction can tell no more than more from less; healthy runs use four and more.
COLLAPSED_RANK, LOW_RANK = 1.05, 2.0
# Fewer different observations than this do not fill the directions that there are.
FEWEST_OBSERVATIONS = 8
# From the shortest to the longest prediction errors grew 1.09 times and more in every line of 12 runs of the laptop
# tasks, and 1.6 times in the first-person rooms; in the collapse they shrank to 0.9.
FLAT = 1.02
# Before that many learner steps predictions are still random, and so equally wrong at all horizons.
FIRST_UPDATES = 200
# A target this slow is not what lets encoder and target agree on a constant.
SLOW_TARGET = 0.999


def check_embedding(evidence: Evidence) -> Finding:
    """Whether observations that differ have embeddings that differ, now and from the start."""
    check, config = "embedding", evidence.config
    if not evidence.method.is_curious:
        return not_used(check, NO_CURIOSITY)
    # The policy's encoder, whose spread is logged, is not what a curiosity with networks of its own sees through.
    logged = evidence.course("embedding_spread") if evidence.method.reads_representation else None
    if evidence.probe is None:
        return unknown(check, evidence) if logged is None else _as_logged(check, config, logged)
    task, seen = max(evidence.probe.tasks.items(), key=lambda item: (*_collapse(item[1]), -item[1].spread))
    if seen.distinct < 2:
        return unknown(check, evidence, f"all observations of {task} in the rollout are the same")
    bad, warning = _collapse(seen)
    detail = (f"{seen.distinct} different observations of {task}: spread {seen.spread:.3g} of at most 1, in "
              f"{seen.rank:.1f} directions" + ("" if logged is None else f"; logged: {_told(logged)}"))  # fmt: skip
    if seen.spread < LOW_SPREAD:
        advice = _collapsed(config)
    elif warning:
        advice = (f"the embeddings lie along few directions: the observations have no more that matter, or the encoder "
                  f"is collapsing; if it stays so, {_remedies(config)}")  # fmt: skip
    else:
        warning = logged is not None and logged.first < NARROW_START
        advice = _narrow(config)
    return finding(check, grade(bad=bad, warning=warning), seen.spread, detail, advice)


def _as_logged(check: str, config: Config, spread: Course) -> Finding:
    low = spread.now < LOW_SPREAD
    verdict = grade(bad=spread.now < COLLAPSED_SPREAD, warning=low or spread.first < NARROW_START)
    detail = f"spread as logged, of at most 1: {_told(spread)}"
    return finding(check, verdict, spread.now, detail, _collapsed(config) if low else _narrow(config))


def _told(spread: Course) -> str:
    return f"{spread.first:.3g} in the first line, {spread.lowest:.3g} at the lowest, {spread.now:.3g} now"


def _collapse(seen: TaskProbe) -> tuple[bool, bool]:
    """Whether a task's embeddings are as good as one, and whether they are on the way there."""
    many = seen.distinct >= FEWEST_OBSERVATIONS
    bad = seen.spread < COLLAPSED_SPREAD or (many and seen.rank < COLLAPSED_RANK)
    return bad, seen.spread < LOW_SPREAD or (many and seen.rank < LOW_RANK)


def _collapsed(config: Config) -> str:
    return f"the encoder has collapsed: everything looks alike and nothing is uncertain; {_remedies(config)}"


def _narrow(config: Config) -> str:
    return f"the embeddings started nearly parallel, and curiosity was slow to begin; {_remedies(config)}"


def _remedies(config: Config) -> str:
    """What is not set yet: turning on what is on helps nobody."""
    if not config.network.center:
        return "start again with network.center, which is off"
    curiosity, steps = config.curiosity, ["check that observations vary"]
    if "target_decay" in METHODS.get(config.method).reads and curiosity.target_decay < SLOW_TARGET:
        steps.append(f"raise curiosity.target_decay nearer to 1 (it is {curiosity.target_decay:g})")
    if curiosity.loss_weight > 1.0:
        steps.append(f"lower curiosity.loss_weight (it is {curiosity.loss_weight:g})")
    steps.append(f"lower optimizer.learning_rate (it is {config.optimizer.learning_rate:g})")
    return ", ".join(steps[:-1]) + f", or {steps[-1]}"


def check_horizon(evidence: Evidence) -> Finding:
    """Whether errors grow with the horizon; errors that do not, of embeddings that hardly differ, are a collapse."""
    check, config = "horizon", evidence.config
    if "horizon" not in evidence.method.reads:
        curious = evidence.method.is_curious
        return not_used(check, f"{config.method} looks one step ahead at most" if curious else NO_CURIOSITY)
    if config.curiosity.horizon == 1:
        return not_used(check, "curiosity.horizon is 1: there is nothing to compare")
    growth, spread = evidence.recent("error_growth"), _spread(evidence)
    if growth is None:
        return unknown(check, evidence)
    detail = f"the error of the longest prediction is {growth:.3g} times that of the shortest"
    if evidence.learner_steps < FIRST_UPDATES:
        return finding(check, "ok", growth, f"{detail}; the first {FIRST_UPDATES} learner steps say little")
    flat, narrow = growth < FLAT, spread is not None and spread < NARROW_START
    if narrow:
        detail += f", and embeddings hardly differ (spread {spread:.3g})" if flat else ""
        advice = _collapsed(config)
    else:
        advice = ("what is further away is no harder to predict: fine where all is known or all is noise, else check "
                  "that actions change the observations")  # fmt: skip
    return finding(check, grade(bad=flat and narrow, warning=flat), growth, detail, advice)


def _spread(evidence: Evidence) -> float | None:
    """Of the newest checkpoint's narrowest task, or as logged: there, observations that repeat make it smaller."""
    if evidence.probe is not None:
        return min(task.spread for task in evidence.probe.tasks.values())
    logged = evidence.course("embedding_spread")
    return None if logged is None else logged.now
