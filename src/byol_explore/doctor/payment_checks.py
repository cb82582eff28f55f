"""Checks of what curiosity pays: to how many transitions, in how much of the run, in which tasks, beside the task."""

from byol_explore.curiosity.vitals import LEAST_PAID
from byol_explore.doctor.curiosity_checks import forget_faster
from byol_explore.doctor.evidence import RECENT, Evidence
from byol_explore.doctor.findings import NO_CURIOSITY, Finding, Verdict, finding, grade, not_used, unknown
from byol_explore.settings.config import Config
from byol_explore.settings.methods import is_paid, prioritizes

# Rewards below the mean are clipped, so about a third is paid: fewer when a few transitions stick out. Statistics that
# are ten and a hundred times too large leave 2% and less.
NOTHING_PAID, LITTLE_PAID, MUCH_PAID, ALL_PAID = 5e-3, 0.02, 0.8, 0.98
# The statistics' first batches, of errors before anything was learned, weigh less than a hundredth after five times
# the number of batches that they remember.
MEMORIES = 5.0
# A deviation is about as large as the mean in healthy runs; several times that is of another time.
OLD_DEVIATION = 5.0
# Curiosity that paid in less than half of the run's learner steps did not drive it.
SELDOM = 0.5
# With a task's reward in sight, less than this share is no curiosity, and more is nothing but.
LITTLE_INTRINSIC, MUCH_INTRINSIC = 1e-3, 0.95


def check_paid(evidence: Evidence) -> Finding:
    """How many transitions are paid for, in how much of the run curiosity paid at all, and whether in every task."""
    check, config = "paid", evidence.config
    if not is_paid(config):
        return not_used(check, "the reward is extrinsic alone" if evidence.method.is_curious else NO_CURIOSITY)
    share = evidence.recent("paid_share")
    if share is None and evidence.probe is not None:
        share = evidence.probe.paid_share
    if share is None:
        return unknown(check, evidence)
    remembered = 1.0 / (1.0 - config.curiosity.normalizer_decay)
    settled = evidence.batches(evidence.learner_steps) >= MEMORIES * remembered
    course = evidence.course("paying_share")
    seldom = settled and course is not None and course.now < SELDOM
    silent = _silent_tasks(evidence) if settled else []
    little, much = share < LITTLE_PAID, prioritizes(config) and share > MUCH_PAID
    bad = (settled and share < NOTHING_PAID) or (prioritizes(config) and share > ALL_PAID)
    detail = f"{share:.1%} of the transitions are paid for" + (
        "" if course is None else f"; curiosity paid in {course.now:.0%} of the learner steps so far"
    )
    if silent:
        detail += f"; next to nothing in {', '.join(silent)}"
    return finding(check, grade(bad=bad, warning=little or much or seldom or bool(silent)), share, detail,
                   _advice(evidence, silent, little=little, much=much))  # fmt: skip


def _advice(evidence: Evidence, silent: list[str], *, little: bool, much: bool) -> str:
    mean, deviation = evidence.course("uncertainty"), evidence.course("uncertainty_stddev")
    if mean is not None and deviation is not None and deviation.now > OLD_DEVIATION * mean.now:
        return (f"the running deviation ({deviation.now:.3g}) is still that of larger errors (now {mean.now:.3g}): "
                f"{forget_faster(evidence)}")  # fmt: skip
    if much:
        return "the clipping threshold does not follow the uncertainty: see the normalizer"
    if silent and not little:
        return silent_advice(evidence.config, silent)
    if little:
        return "nothing is more uncertain than the mean: see the embedding and the normalizer"
    return f"curiosity paid late: where runs are short, {forget_faster(evidence)}"


def _silent_tasks(evidence: Evidence) -> list[str]:
    """Tasks that are paid next to nothing while curiosity pays in the others."""
    names = evidence.tasks
    lines = [row["paid_reward"] for row in evidence.rows if len(row.get("paid_reward") or ()) == len(names)][-RECENT:]
    if not lines:
        return []
    paid = [sum(of_task) / len(lines) for of_task in zip(*lines, strict=True)]
    if sum(paid) / len(paid) < LEAST_PAID:
        return []
    return [name for name, reward in zip(names, paid, strict=True) if reward < LEAST_PAID]


def silent_advice(config: Config, silent: list[str]) -> str:
    """What to do for tasks that are paid next to nothing beside others, of which there is one at least."""
    names = ", ".join(silent)
    if not config.curiosity.normalize_per_task:
        return (f"everything in {names} is below the mean uncertainty of all tasks: turn on "
                "curiosity.normalize_per_task, which is off")  # fmt: skip
    if config.intrinsic_scale_step(len(silent) + 1) == 0.0:
        return (f"rewards in {names} are small beside those of others: set agent.intrinsic_scale_step (it is 0) to "
                "0.01, so that each task is paid on its own scale")  # fmt: skip
    return (f"{names} has statistics of its own already: its running deviation is of larger errors than it has now "
            "(lower curiosity.normalizer_decay), or nothing in it is news any more (train it apart)")  # fmt: skip


def check_mixing(evidence: Evidence) -> Finding:
    """How much of the reward is curiosity."""
    check, config = "mixing", evidence.config
    if not evidence.method.is_curious or config.regime != "mixed":
        curious = evidence.method.is_curious
        return not_used(check, f"the reward is {config.regime} alone" if curious else NO_CURIOSITY)
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
                   _mixing_advice(config, shares))  # fmt: skip


def _mixing_advice(config: Config, shares: dict[str, float]) -> str:
    silent = [task for task, share in shares.items() if share == 0]
    if prioritizes(config) and 0 < len(silent) < len(shares):
        return silent_advice(config, silent)
    if len(silent) == len(shares):
        return "curiosity pays nothing that could be mixed: see what is paid, the embedding and the normalizer"
    return "change curiosity.mixing: up if curiosity is drowned, down if it drowns the task"


def _mixing_verdict(share: float, *, found: bool) -> Verdict:
    if not found:
        return "ok" if share > 0 else "bad"
    return grade(bad=False, warning=share < LITTLE_INTRINSIC or share > MUCH_INTRINSIC)
