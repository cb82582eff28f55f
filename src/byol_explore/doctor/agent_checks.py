"""Checks of the agent that curiosity drives: policy, value, gradients. Each is a pure function of the evidence."""

import math
from statistics import median

from byol_explore.algorithms.vmpo import VMPO
from byol_explore.doctor.evidence import Evidence, TaskProbe
from byol_explore.doctor.findings import Finding, finding, grade, not_used, unknown
from byol_explore.registries import ALGORITHMS
from byol_explore.run.metrics import scalars

# Dual variables are kept above 1e-8: what is within a hundred times that has run into its floor.
DUAL_FLOOR = 1e-6
# Temperature in units of the advantages' deviation: below, one sample has all the weight; above, all have the same.
COLD, HOT = 0.01, 1000.0
# Smaller than this, advantages are rounding errors: there is no reward to tell actions apart by.
NO_ADVANTAGE = 1e-5
# A constraint is soft, a few times its bound happens; ten times means that it does not hold.
LOOSE_KL, BROKEN_KL = 10.0, 100.0
# Multipliers move by the dual learning rate: hundreds of times their start need a constraint broken for long.
LARGE_MULTIPLIER, HUGE_MULTIPLIER = 100.0, 10_000.0
# One rollout varies less than all of training: PopArt's scale is several times its targets' deviation, not tens.
OFF_POPART, FAR_OFF_POPART = 30.0, 1000.0
# Worse than predicting the mean is usual while rewards change; a hundred times its error is a broken value.
POOR_VALUE, BROKEN_VALUE = -10.0, -100.0
# Share of the largest entropy; below, one action is taken almost always.
LOW_ENTROPY, NO_ENTROPY = 0.05, 0.005
# A policy may be certain where it succeeds.
SOLVED = 0.9
# Standard deviation of a continuous action whose range is 2 wide.
NARROW, POINT = 0.01, 0.001
# Squares overflow float32 beyond 1.8e19; trained networks have parameters of order 1 to 100.
LARGE_NUMBER, HUGE_NUMBER = 1e6, 1e15
# Gradient norms of healthy runs grow or shrink some ten times in training.
RISING, EXPLODING = 30.0, 1000.0
FEWEST_ROWS = 4  # for a trend
# Metrics that may be large: counts, times and scores.
COUNTS = ("steps", "learner_steps", "episode", "elapsed", "return", "best_return", "evaluation", "tasks", "human_",
          "rooms_", "cells_", "policy_lag")  # fmt: skip


NO_DUALS = "the algorithm has no temperature and no KL constraint"


def _has_duals(evidence: Evidence) -> bool:
    return issubclass(ALGORITHMS.get(evidence.config.algorithm), VMPO)


def check_temperature(evidence: Evidence) -> Finding:
    """V-MPO's temperature: at its floor, and in relation to the advantages that it divides."""
    check = "temperature"
    if not _has_duals(evidence):
        return not_used(check, NO_DUALS)
    logged, advantage = evidence.recent("temperature"), evidence.recent("advantage_stddev")
    now = evidence.probe.temperature if evidence.probe else logged
    if now is None:
        return unknown(check, evidence)
    if advantage is not None and advantage < NO_ADVANTAGE:
        return finding(check, "ok", now, f"{now:.3g}; advantages are zero: no reward has told actions apart yet")
    ratio = now / advantage if advantage else None
    detail = f"{now:.3g}" + (f", {ratio:.3g} times the advantages' deviation" if ratio is not None else "")
    if not math.isfinite(now) or now <= DUAL_FLOOR:
        return finding(check, "bad", now, f"{detail}: at its floor" if now <= DUAL_FLOOR else detail,
                       "one sample of a batch has all the weight: raise vmpo.temperature_epsilon or lower "
                       "optimizer.dual_learning_rate")  # fmt: skip
    warning = ratio is not None and not COLD <= ratio <= HOT
    return finding(check, grade(bad=False, warning=warning), now, detail,
                   "it should be of the order of the advantages: raise optimizer.dual_learning_rate so that it can "
                   "follow them, or start vmpo.temperature nearer to them")  # fmt: skip


def check_kl(evidence: Evidence) -> Finding:
    """How far the policy is from the one that acted, in units of what is allowed."""
    check, kl, allowed = "kl", evidence.recent("kl"), _allowed_kl(evidence)
    if not _has_duals(evidence):
        return not_used(check, NO_DUALS)
    if kl is None or allowed is None:
        return unknown(check, evidence)
    ratio = kl / allowed
    return finding(check, grade(bad=ratio > BROKEN_KL, warning=ratio > LOOSE_KL), ratio,
                   f"KL to the acting policy {kl:.3g}, allowed {allowed:.3g}",
                   "the policy jumps: lower the learning rate or vmpo.target_period, or raise "
                   "optimizer.dual_learning_rate")  # fmt: skip


def _allowed_kl(evidence: Evidence) -> float | None:
    """The sum of all constraints."""
    action, settings = evidence.action, evidence.config.vmpo
    if action is None:
        return None
    gaussian = settings.kl_mean_epsilon + settings.kl_covariance_epsilon
    return len(action.discrete) * settings.kl_categorical_epsilon + action.continuous * gaussian or None


def check_multipliers(evidence: Evidence) -> Finding:
    """The KL constraints' multipliers."""
    check, settings = "kl multiplier", evidence.config.vmpo
    if not _has_duals(evidence):
        return not_used(check, NO_DUALS)
    starts = {"categorical": settings.kl_categorical, "mean": settings.kl_mean, "covariance": settings.kl_covariance}
    if evidence.probe is not None:
        kinds = evidence.probe.multipliers
    elif (logged := evidence.recent("kl_multiplier")) is not None:
        kinds = {"mean of all": logged}
    else:
        return unknown(check, evidence)
    grown = max(value / max(starts.get(kind, max(starts.values())), DUAL_FLOOR) for kind, value in kinds.items())
    detail = ", ".join(f"{kind} {value:.3g}" for kind, value in kinds.items())
    largest, kl, allowed = max(kinds.values()), evidence.recent("kl"), _allowed_kl(evidence)
    if largest <= DUAL_FLOOR:
        broken = kl is not None and allowed is not None and kl > LOOSE_KL * allowed
        detail += ": at the floor" + (", though the constraint is broken" if broken else ", the constraint is slack")
        return finding(check, "bad" if broken else "ok", largest, detail, "raise optimizer.dual_learning_rate")
    bad = not grown < HUGE_MULTIPLIER
    return finding(check, grade(bad=bad, warning=grown > LARGE_MULTIPLIER), largest, detail,
                   "the constraint is broken all the time: lower the learning rate or vmpo.target_period")  # fmt: skip


def check_value(evidence: Evidence) -> Finding:
    """Whether PopArt's statistics fit the value targets, and what the value explains of them."""
    check = "value"
    if evidence.probe is None:
        scale = evidence.recent("value_scale")
        if scale is None:
            return unknown(check, evidence)
        return finding(check, "unknown", scale, f"PopArt's scale is {scale:.3g} as logged; {evidence.why_no_probe}")
    agent, batches = evidence.config.agent, evidence.batches(evidence.probe.learner_steps)
    start = (1.0 - agent.popart_step) ** batches  # what is left of the variance of 1 that the statistics start with
    parts = {name: _value_of_task(seen, start, agent.popart_min_scale) for name, seen in evidence.probe.tasks.items()}
    off = max(factor for factor, _ in parts.values())
    explained = [seen.explained for seen in evidence.probe.tasks.values() if seen.explained is not None]
    worst = min(explained) if explained and off > 0.0 else 0.0
    bad = not off < FAR_OFF_POPART or not worst > BROKEN_VALUE
    return finding(check, grade(bad=bad, warning=off > OFF_POPART or worst < POOR_VALUE),
                   min(explained) if explained else None, "; ".join(text for _, text in parts.values()),
                   "value and targets are on different scales: raise agent.popart_step, or look for a jump of "
                   "value_target in metrics.jsonl")  # fmt: skip


def _value_of_task(seen: TaskProbe, start: float, minimum: float) -> tuple[float, str]:
    """How many times PopArt's scale is off (0 where that says nothing yet), and the task in words."""
    variance = seen.target_stddev**2
    told = (f"targets {seen.target_mean:.3g} ± {seen.target_stddev:.3g}, PopArt {seen.popart_mean:.3g} ± "
            f"{seen.popart_scale:.3g}")  # fmt: skip
    if seen.explained is not None:
        told += f", explained variance {seen.explained:.2f}"
    if start > 0.1 * max(variance, minimum**2):
        return 0.0, told + " (PopArt is still settling)"
    if seen.target_stddev < minimum:
        return 1.0, told + " (targets hardly differ)"
    wide = max(seen.popart_scale, minimum)
    shift = abs(seen.target_mean - seen.popart_mean) / wide
    return max(wide / seen.target_stddev, seen.target_stddev / wide, shift), told


def check_entropy(evidence: Evidence) -> Finding:
    """Whether the policy still tries things."""
    check, success = "entropy", evidence.recent("success_rate") or 0.0
    advice = "the policy has collapsed: raise agent.entropy_weight or lower vmpo.kl_categorical_epsilon"
    if evidence.probe is None:
        entropy, action = evidence.recent("entropy"), evidence.action
        if entropy is None or action is None or action.continuous or not action.discrete:
            return unknown(check, evidence)
        shares, widths = {evidence.config.env: entropy / sum(map(math.log, action.discrete))}, {}
    else:
        tasks = evidence.probe.tasks
        shares = {name: seen.entropy for name, seen in tasks.items() if seen.entropy is not None}
        widths = {name: seen.stddev for name, seen in tasks.items() if seen.stddev is not None}
    share, width = min(shares.values(), default=1.0), min(widths.values(), default=1.0)
    words = [f"{value:.1%} of the largest entropy in {name}" for name, value in shares.items()]
    words += [f"narrowest continuous action ± {value:.3g} in {name}" for name, value in widths.items()]
    detail = ", ".join(words)
    if success > SOLVED:
        return finding(check, "ok", share if shares else width, f"{detail}; {success:.0%} of the episodes succeed")
    verdict = grade(bad=share < NO_ENTROPY or width < POINT, warning=share < LOW_ENTROPY or width < NARROW)
    return finding(check, verdict, share if shares else width, detail, advice)


def check_numbers(evidence: Evidence) -> Finding:
    """Whether all numbers are finite and far from what float32 can hold."""
    check, advice = "numbers", "lower the learning rate, or set optimizer.max_gradient_norm"
    flat = [(name, value) for row in evidence.rows for name, value in scalars(row).items()]
    broken = [name for name, value in flat if not math.isfinite(value)]
    not_finite = evidence.probe.not_finite if evidence.probe else None
    if broken or not_finite:
        where = f"{not_finite} in the checkpoint" if not_finite else f"{broken[0]} in metrics.jsonl"
        return finding(check, "bad", None, f"{where} is NaN or infinite", advice)
    sizes = {"metrics": max((abs(value) for name, value in flat if not name.startswith(COUNTS)), default=0.0)}
    if evidence.probe is not None:
        sizes |= evidence.probe.largest
    elif not flat:
        return unknown(check, evidence)
    largest = max(sizes.values())
    detail = "largest: " + ", ".join(f"{name} {size:.3g}" for name, size in sizes.items())
    return finding(check, grade(bad=largest > HUGE_NUMBER, warning=largest > LARGE_NUMBER), largest, detail, advice)


def check_gradient(evidence: Evidence) -> Finding:
    """The trend of the gradient's norm."""
    check, history = "gradient", evidence.history("gradient_norm")
    if len(history) < FEWEST_ROWS:
        return finding(check, "unknown", history[-1] if history else None,
                       f"a trend needs {FEWEST_ROWS} log steps; there are {len(history)}")  # fmt: skip
    usual, now = median(history[:-1]), history[-1]
    if now == 0.0:
        return finding(check, "bad", now, "the gradient is zero: nothing is learned", "look for a constant loss")
    ratio = now / usual if usual > 0 else 1.0
    return finding(check, grade(bad=ratio > EXPLODING, warning=ratio > RISING), now,
                   f"norm {now:.3g} now, {usual:.3g} usually",
                   "lower the learning rate, or set optimizer.max_gradient_norm")  # fmt: skip
