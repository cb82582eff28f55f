"""Checks of the curiosity: its target, its embeddings, its rewards. Each is a pure function of the evidence."""

from byol_explore.doctor.evidence import Evidence, TaskProbe
from byol_explore.doctor.findings import Finding, Verdict, finding, grade, not_used, unknown

# A target that follows closes 1 - alpha of its distance per update; half of that already means it does not.
LEAST_STEP = 0.5
# Beyond this share of the encoder's own size, the target is about another network than the one that is trained.
FAR_TARGET = 0.5
# Float32 keeps seven digits: closer than this, target and online encoder are the same.
EQUAL_TARGET = 1e-6
# Unit embeddings of a random encoder spread over 0.1 and more; a hundredth is one point with some noise around it.
COLLAPSED_SPREAD, LOW_SPREAD = 1e-3, 1e-2
# One direction can tell no more than more from less; healthy runs use four and more.
COLLAPSED_RANK, LOW_RANK = 1.05, 2.0
# Fewer different observations than this do not fill the directions that there are.
FEWEST_OBSERVATIONS = 8
# Statistics run a hundred batches behind; a method that learns quickly is a few times off, not ten times.
OFF_SCALE, FAR_OFF_SCALE = 10.0, 100.0
# The normaliser adds 1e-8 to a variance, a deviation of 1e-4: below ten times that it divides by its own epsilon.
VANISHED_SIGMA = 1e-3
# A reward in units of its own deviation: means of tens are no longer noise around a mean.
LARGE_REWARD, HUGE_REWARD = 20.0, 200.0
# Rewards below the mean are clipped: about half, more when a few transitions stick out.
LEAST_CLIPPED, FEW_CLIPPED, MANY_CLIPPED, MOST_CLIPPED = 0.02, 0.2, 0.98, 0.999
# The mean over valid transitions is right to float32's rounding.
ROUNDING = 1e-4
# With a task's reward in sight, less than this share is no curiosity, and more is nothing but.
LITTLE_INTRINSIC, MUCH_INTRINSIC = 1e-3, 0.95

NO_CURIOSITY = "method none has no curiosity"


def check_target(evidence: Evidence) -> Finding:
    """Whether the target network moves as the method wants it to."""
    check, config = "target", evidence.config
    if config.method in ("none", "icm"):
        return not_used(check, NO_CURIOSITY if config.method == "none" else "icm has no target network")
    probe = evidence.probe.target if evidence.probe else None
    if config.method == "rnd" or config.ablation == "fixed-targets":
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
                       "the target must follow the encoder after every learner step: see update_target")  # fmt: skip
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
    why = "of rnd" if evidence.config.method == "rnd" else "of the fixed-targets ablation"
    if evidence.probe is None or evidence.probe.target is None:
        return unknown(check, evidence)
    target = evidence.probe.target
    moved = max(target.moved or 0.0, target.step)
    detail = f"the target {why} is frozen on purpose" if moved == 0.0 else f"the target {why} moves"
    return finding(check, grade(bad=moved > 0.0, warning=False), moved, detail, "it must stay as it was drawn")


def check_embedding(evidence: Evidence) -> Finding:
    """Whether observations that differ still have embeddings that differ."""
    check = "embedding"
    if evidence.config.method == "none":
        return not_used(check, NO_CURIOSITY)
    remedy = "lower the learning rate, raise curiosity.target_decay, and for images keep network.center"
    advice = f"the encoder has collapsed: everything looks alike and nothing is uncertain; {remedy}"
    if evidence.probe is None:
        spread = evidence.recent("embedding_spread")
        if spread is None:
            return unknown(check, evidence)
        verdict = grade(bad=spread < COLLAPSED_SPREAD, warning=spread < LOW_SPREAD)
        return finding(check, verdict, spread, f"spread {spread:.3g} of at most 1, as logged", advice)
    task, seen = max(evidence.probe.tasks.items(), key=lambda item: (*_collapse(item[1]), -item[1].spread))
    if seen.distinct < 2:
        return unknown(check, evidence, f"all observations of {task} in the rollout are the same")
    bad, warning = _collapse(seen)
    if seen.spread >= LOW_SPREAD:
        advice = (f"the embeddings lie along few directions: the observations have no more that matter, or the encoder "
                  f"is collapsing; if it stays so, {remedy}")  # fmt: skip
    detail = f"{seen.distinct} different observations of {task}: spread {seen.spread:.3g} of at most 1, "
    verdict = grade(bad=bad, warning=warning)
    return finding(check, verdict, seen.spread, detail + f"in {seen.rank:.1f} directions", advice)


def _collapse(seen: TaskProbe) -> tuple[bool, bool]:
    """Whether a task's embeddings are as good as one, and whether they are on the way there."""
    many = seen.distinct >= FEWEST_OBSERVATIONS
    bad = seen.spread < COLLAPSED_SPREAD or (many and seen.rank < COLLAPSED_RANK)
    return bad, seen.spread < LOW_SPREAD or (many and seen.rank < LOW_RANK)


def check_normalizer(evidence: Evidence) -> Finding:
    """Whether the running statistics of the uncertainty fit what is seen now."""
    check, probe = "normaliser", evidence.probe
    if evidence.config.method == "none":
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
                   "statistics and uncertainty are on different scales: lower curiosity.normalizer_decay, and look "
                   "for a jump of uncertainty in metrics.jsonl")  # fmt: skip


def _normalizer_as_logged(check: str, evidence: Evidence) -> Finding:
    sigma, reward = evidence.recent("uncertainty_stddev"), evidence.recent("intrinsic_reward")
    if sigma is None or reward is None:
        return unknown(check, evidence)
    verdict = grade(bad=reward > HUGE_REWARD, warning=sigma < VANISHED_SIGMA or reward > LARGE_REWARD)
    detail = f"standard deviation {sigma:.3g} and mean intrinsic reward {reward:.3g}, as logged"
    return finding(check, verdict, sigma, detail, "look for a jump of uncertainty in metrics.jsonl")


def _factor(one: float, other: float) -> float:
    """How many times the larger is the smaller; both zero is 1, and what is not finite is infinitely off."""
    low, high = sorted((abs(one), abs(other)))
    if not high < float("inf"):
        return float("inf")
    return 1.0 if high < VANISHED_SIGMA else high / max(low, 1e-12)


def check_clipping(evidence: Evidence) -> Finding:
    """The share of transitions that are worth nothing because they are less uncertain than the mean."""
    check, config = "clipping", evidence.config
    if config.method == "none" or not config.prioritize:
        return not_used(check, NO_CURIOSITY if config.method == "none" else "rewards are not clipped in this run")
    share = evidence.recent("clipped_share")
    if share is None and evidence.probe is not None:
        share = evidence.probe.clipped_share
    if share is None:
        return unknown(check, evidence)
    bad = share < LEAST_CLIPPED or share > MOST_CLIPPED
    return finding(check, grade(bad=bad, warning=share < FEW_CLIPPED or share > MANY_CLIPPED), share,
                   f"{share:.1%} of the rewards are clipped; about half or more is usual",
                   "the clipping threshold does not follow the uncertainty: see the normaliser")  # fmt: skip


def check_boundaries(evidence: Evidence) -> Finding:
    """Whether the step from one episode to the next is worth nothing, counts nowhere and lets nothing through."""
    check, probe = "boundaries", evidence.probe
    if evidence.config.method == "none":
        return not_used(check, NO_CURIOSITY)
    if probe is None:
        return unknown(check, evidence)
    seen = probe.boundary
    if seen.ends == 0:
        return unknown(check, evidence, f"no episode ended in {seen.transitions:,} transitions")
    faults = {
        f"are paid {seen.reward:.3g}": seen.reward > 0.0,
        f"are counted by the normaliser ({seen.counted:.1%} off)": seen.counted > ROUNDING,
        f"let predictions through ({seen.leak:.1%} of the uncertainty)": seen.leak > ROUNDING,
    }
    found = [fault for fault, holds in faults.items() if holds]
    detail = f"{seen.ends:,} steps between episodes " + (" and ".join(found) or "are worth nothing, as they must be")
    return finding(check, "bad" if found else "ok", seen.reward, detail,
                   "the environment's is_first or a mask is wrong: see the convention in envs/base.py")  # fmt: skip


def check_mixing(evidence: Evidence) -> Finding:
    """How much of the reward is curiosity."""
    check, config = "mixing", evidence.config
    if config.method == "none" or config.regime != "mixed":
        why = NO_CURIOSITY if config.method == "none" else f"the reward is {config.regime} alone"
        return not_used(check, why)
    if evidence.probe is None:
        return unknown(check, evidence)
    shares, verdicts = {}, []
    for task, seen in evidence.probe.tasks.items():
        total = seen.intrinsic + seen.extrinsic
        shares[task] = seen.intrinsic / total if total > 0 else 0.0
        verdicts.append(_mixing_verdict(shares[task], found=seen.extrinsic > 0))
    words = [f"{share:.1%} in {task}" for task, share in shares.items()]
    verdict = min(verdicts, key=("bad", "warning", "ok").index)
    rewarded = any(seen.extrinsic > 0 for seen in evidence.probe.tasks.values())
    return finding(check, verdict, min(shares.values()),
                   f"curiosity's share of the reward: {', '.join(words)}"
                   + ("" if rewarded else "; no reward of the task in the rollout"),
                   _mixing_advice(shares, clips=config.prioritize))  # fmt: skip


def _mixing_advice(shares: dict[str, float], *, clips: bool) -> str:
    silent = [task for task, share in shares.items() if share == 0]
    if clips and 0 < len(silent) < len(shares):  # the threshold is one for all tasks
        return (f"everything in {', '.join(silent)} is below the mean uncertainty of all tasks, and clipped: try "
                "--ablation no-clipping, or train such tasks apart")  # fmt: skip
    return "change curiosity.mixing: up if curiosity is drowned, down if it drowns the task"


def _mixing_verdict(share: float, *, found: bool) -> Verdict:
    if not found:
        return "ok" if share > 0 else "bad"
    return grade(bad=False, warning=share < LITTLE_INTRINSIC or share > MUCH_INTRINSIC)
