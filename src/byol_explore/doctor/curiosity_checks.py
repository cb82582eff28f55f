"""Checks of the curiosity's machinery: target, normalizer, masks. Each is a pure function of the evidence."""

from byol_explore.doctor.evidence import Evidence
from byol_explore.doctor.findings import NO_CURIOSITY, Finding, finding, grade, not_used, unknown

# A target that follows closes 1 - alpha of its distance per update; half of that already means it does not.
LEAST_STEP = 0.5
# Beyond this share of the encoder's own size, the target is about another network than the one that is trained.
FAR_TARGET = 0.5
# Float32 keeps seven digits: closer than this, target and online encoder are the same.
EQUAL_TARGET = 1e-6
# Statistics run a hundred batches behind; a method that learns quickly is a few times off, not ten times.
OFF_SCALE, FAR_OFF_SCALE = 10.0, 100.0
# Statistics that forget within ten batches are not what keeps an old scale alive.
QUICK_DECAY = 0.9
# The normalizer adds 1e-8 to a variance, a deviation of 1e-4: below ten times that it divides by its own epsilon.
VANISHED_SIGMA = 1e-3
# A reward in units of its own deviation: means of tens are no longer noise around a mean.
LARGE_REWARD, HUGE_REWARD = 20.0, 200.0
# The mean over valid transitions is right to float32's rounding.
ROUNDING = 1e-4


def check_target(evidence: Evidence) -> Finding:
    """Whether the target network moves as the method wants it to."""
    check, config = "target", evidence.config
    if not evidence.method.has_target:
        curious = evidence.method.is_curious
        return not_used(check, f"{config.method} has no target network" if curious else NO_CURIOSITY)
    probe = evidence.probe.target if evidence.probe else None
    if "target_decay" not in evidence.method.reads or config.ablation == "fixed-targets":
        return _fixed_target(check, evidence)
    distance = probe.distance if probe else evidence.recent("target_distance")
    if config.curiosity.target_decay == 1.0:
        return finding(
            check, "bad", distance, "curiosity.target_decay is 1: the target is a random network that never moves",
            "set curiosity.target_decay to 0.99, or name it: --ablation fixed-targets",
        )  # fmt: skip
    if distance is None:
        return unknown(check, evidence)
    detail = f"the target is {distance:.3g} of the encoder's size away from it"
    if probe is not None and (_is_stuck(evidence) or probe.moved == 0.0):
        since = "since the checkpoint before" if probe.moved == 0.0 else "in an update"
        return finding(check, "bad", distance, f"{detail} and has not moved {since}",
                       "the target must follow the encoder after every learner step")  # fmt: skip
    if distance < EQUAL_TARGET:
        return finding(check, "warning", distance, "target and encoder are equal",
                       "check that learning rate and curiosity.target_decay are above 0")  # fmt: skip
    moved = "" if probe is None or probe.moved is None else f"; it moved by {probe.moved:.3g} since the last checkpoint"
    return finding(check, grade(bad=False, warning=distance > FAR_TARGET), distance, detail + moved,
                   "the encoder outruns its target: lower the learning rate or curiosity.target_decay")  # fmt: skip


def _is_stuck(evidence: Evidence) -> bool:
    """An update closes much less of the distance than it should; without a distance there is nothing to close."""
    assert evidence.probe is not None
    target = evidence.probe.target
    if target is None or target.distance is None or target.distance < EQUAL_TARGET:
        return False
    return target.step < LEAST_STEP * (1.0 - evidence.config.curiosity.target_decay)


def _fixed_target(check: str, evidence: Evidence) -> Finding:
    config = evidence.config
    why = f"of {config.method}" if config.ablation == "none" else f"of the {config.ablation} ablation"
    if evidence.probe is None or evidence.probe.target is None:
        return unknown(check, evidence)
    target = evidence.probe.target
    moved = max(target.moved or 0.0, target.step)
    detail = f"the target {why} is frozen on purpose" if moved == 0.0 else f"the target {why} moves"
    return finding(check, grade(bad=moved > 0.0, warning=False), moved, detail, "it must stay as it was drawn")


def check_normalizer(evidence: Evidence) -> Finding:
    """Whether the running statistics of the uncertainty fit what is seen now."""
    check, probe = "normalizer", evidence.probe
    if not evidence.method.is_curious:
        return not_used(check, NO_CURIOSITY)
    if probe is None:
        return _normalizer_as_logged(check, evidence)
    (mean, stddev), (running_mean, sigma) = probe.uncertainty, probe.normalizer
    off = max(_factor(mean, running_mean), _factor(stddev, sigma))
    detail = (f"uncertainty is {mean:.3g} ± {stddev:.3g} now, {running_mean:.3g} ± {sigma:.3g} in the statistics; "
              f"mean intrinsic reward {probe.intrinsic_reward:.3g}")  # fmt: skip
    if sigma < VANISHED_SIGMA:
        return finding(check, "bad" if stddev > OFF_SCALE * sigma else "warning", sigma, detail,
                       "the statistics have vanished: rewards are noise divided by almost nothing")  # fmt: skip
    bad = not off < FAR_OFF_SCALE or not probe.intrinsic_reward < HUGE_REWARD
    warning = off > OFF_SCALE or probe.intrinsic_reward > LARGE_REWARD
    return finding(check, grade(bad=bad, warning=warning), off, detail,
                   f"statistics and uncertainty are on different scales: {forget_faster(evidence)}")  # fmt: skip


def _normalizer_as_logged(check: str, evidence: Evidence) -> Finding:
    sigma, reward = evidence.recent("uncertainty_stddev"), evidence.recent("intrinsic_reward")
    if sigma is None or reward is None:
        return unknown(check, evidence)
    verdict = grade(bad=reward > HUGE_REWARD, warning=sigma < VANISHED_SIGMA or reward > LARGE_REWARD)
    detail = f"standard deviation {sigma:.3g} and mean intrinsic reward {reward:.3g}, as logged"
    return finding(check, verdict, sigma, detail, "look for a jump of uncertainty in metrics.jsonl")


def forget_faster(evidence: Evidence) -> str:
    """What to do about statistics that are of another time than the uncertainty."""
    decay, jump = evidence.config.curiosity.normalizer_decay, "look for a jump of uncertainty in metrics.jsonl"
    if decay <= QUICK_DECAY:
        return jump
    return f"lower curiosity.normalizer_decay (it is {decay:g}) so that they forget sooner, and {jump}"


def _factor(one: float, other: float) -> float:
    """How many times the larger is the smaller; both zero is 1, and what is not finite is infinitely off."""
    low, high = sorted((abs(one), abs(other)))
    if not high < float("inf"):
        return float("inf")
    return 1.0 if high < VANISHED_SIGMA else high / max(low, 1e-12)


def check_boundaries(evidence: Evidence) -> Finding:
    """Whether the step from one episode to the next is worth nothing, counts nowhere and lets nothing through."""
    check, probe = "boundaries", evidence.probe
    if not evidence.method.is_curious:
        return not_used(check, NO_CURIOSITY)
    if probe is None:
        return unknown(check, evidence)
    seen = probe.boundary
    if seen.ends == 0:
        return unknown(check, evidence, f"no episode ended in {seen.transitions:,} transitions")
    faults = {
        f"are paid {seen.reward:.3g}": seen.reward > 0.0,
        f"are counted by the normalizer ({seen.counted:.1%} off)": seen.counted > ROUNDING,
        f"let predictions through ({seen.leak:.1%} of the uncertainty)": seen.leak > ROUNDING,
    }
    found = [fault for fault, holds in faults.items() if holds]
    detail = f"{seen.ends:,} steps between episodes " + (" and ".join(found) or "are worth nothing, as they must be")
    return finding(check, "bad" if found else "ok", seen.reward, detail,
                   "the environment's is_first or a mask is wrong: see the convention in envs/base.py")  # fmt: skip
