"""Checks of the intrinsic reward: how many transitions, updates and tasks get one, and its share of the reward."""

from byol_explore.config.config import Config, has_intrinsic_reward, is_prioritized
from byol_explore.curiosity.method import MIN_ACTIVE_REWARD
from byol_explore.doctor.curiosity_checks import shorter_memory_advice
from byol_explore.doctor.evidence import NO_CURIOSITY, RECENT, Evidence, Finding, make_finding, no_data, skipped

# Rewards below the mean are clipped, so about a third of the transitions is paid, and fewer if some stand out.
# Statistics that are ten and a hundred times too large leave 2% and less.
NOTHING_PAID, LITTLE_PAID, MUCH_PAID, ALL_PAID = 5e-3, 0.02, 0.8, 0.98
# After five times the number of batches that the statistics average, their first batches weigh less than a hundredth.
MEMORIES = 5.0
# In healthy runs the running std is about as large as the mean; several times that is left from larger errors.
OLD_STD_RATIO = 5.0
# An intrinsic reward in less than half of the learner steps did not drive the run.
SELDOM = 0.5
# Share of the mixed reward once the task's reward was found: below, curiosity is gone; above, the task is.
LITTLE_INTRINSIC, MUCH_INTRINSIC = 1e-3, 0.95


def check_intrinsic_reward(evidence: Evidence) -> Finding:
    """Check how many transitions get an intrinsic reward, in which share of the run, and in every task."""
    config = evidence.config
    if not has_intrinsic_reward(config):
        return skipped("the reward is extrinsic alone" if evidence.method.has_reward else NO_CURIOSITY)
    share = evidence.recent_mean("intrinsic_nonzero_fraction")
    if share is None and evidence.probe is not None:
        share = evidence.probe.intrinsic_nonzero_fraction
    if share is None:
        return no_data(evidence)
    remembered = 1.0 / (1.0 - config.curiosity.normalizer_decay)
    settled = evidence.normalizer_updates(evidence.learner_steps) >= MEMORIES * remembered
    active = evidence.history("active_update_fraction")
    seldom = settled and bool(active) and active[-1] < SELDOM
    silent = _silent_tasks(evidence) if settled else []
    little, much = share < LITTLE_PAID, is_prioritized(config) and share > MUCH_PAID
    fail = (settled and share < NOTHING_PAID) or (is_prioritized(config) and share > ALL_PAID)
    detail = f"{share:.1%} of the transitions are paid for"
    if active:
        detail += f"; curiosity paid in {active[-1]:.0%} of the learner steps so far"
    if silent:
        detail += f"; next to nothing in {', '.join(silent)}"
    advice = _advice(evidence, silent, little=little, much=much)
    return make_finding(share, detail, advice, fail=fail, warn=little or much or seldom or bool(silent))


def _advice(evidence: Evidence, silent: list[str], *, little: bool, much: bool) -> str:
    mean, std = evidence.history("uncertainty"), evidence.history("uncertainty_running_std")
    if mean and std and std[-1] > OLD_STD_RATIO * mean[-1]:
        return (
            f"the running deviation ({std[-1]:.3g}) is still that of larger errors (now {mean[-1]:.3g}): "
            f"{shorter_memory_advice(evidence)}"
        )
    if much:
        return "the clipping threshold does not follow the uncertainty: see the normalizer"
    if silent and not little:
        return unpaid_task_advice(evidence.config, silent)
    if little:
        return "nothing is more uncertain than the mean: see embedding_collapse and normalizer"
    return f"curiosity paid late: where runs are short, {shorter_memory_advice(evidence)}"


def _silent_tasks(evidence: Evidence) -> list[str]:
    """Return the tasks with almost no intrinsic reward while others have one."""
    names = evidence.tasks
    logged = [row.get("intrinsic_reward_per_task") or () for row in evidence.rows]
    recent = [rewards for rewards in logged if len(rewards) == len(names)][-RECENT:]
    known = {name: [rewards[i] for rewards in recent if rewards[i] is not None] for i, name in enumerate(names)}
    paid = {name: sum(rewards) / len(rewards) for name, rewards in known.items() if rewards}
    if not paid or sum(paid.values()) / len(paid) < MIN_ACTIVE_REWARD:
        return []
    return [name for name, reward in paid.items() if reward < MIN_ACTIVE_REWARD]


def unpaid_task_advice(config: Config, silent: list[str]) -> str:
    """Return the advice for tasks with almost no intrinsic reward beside others that have one."""
    names = ", ".join(silent)
    if not config.curiosity.normalize_per_task:
        return (
            f"everything in {names} is below the mean uncertainty of all tasks: turn on curiosity.normalize_per_task, "
            "which is off"
        )
    if config.intrinsic_rms_step_size(len(silent) + 1) == 0.0:
        return (
            f"rewards in {names} are small beside those of others: set agent.intrinsic_rms_step_size (it is 0) to "
            "0.01, so that each task is paid on its own scale"
        )
    return (
        f"{names} has statistics of its own already: its running deviation is of larger errors than it has now (lower "
        "curiosity.normalizer_decay), or nothing in it is new any more (train it apart)"
    )


def check_mixing(evidence: Evidence) -> Finding:
    """Check the share of the intrinsic reward in the mixed reward."""
    config = evidence.config
    if not evidence.method.has_reward or config.regime != "mixed":
        return skipped(f"the reward is {config.regime} alone" if evidence.method.has_reward else NO_CURIOSITY)
    if evidence.probe is None:
        return no_data(evidence)
    tasks = evidence.probe.tasks
    totals = {name: task.intrinsic_magnitude + task.extrinsic_magnitude for name, task in tasks.items()}
    shares = {name: tasks[name].intrinsic_magnitude / total if total > 0 else 0.0 for name, total in totals.items()}
    rewarded = [share for name, share in shares.items() if tasks[name].extrinsic_magnitude > 0]
    detail = f"curiosity's share of the reward: {', '.join(f'{share:.1%} in {name}' for name, share in shares.items())}"
    return make_finding(
        min(shares.values()), detail if rewarded else f"{detail}; no reward of the task in the rollout",
        _mixing_advice(config, shares),
        fail=any(not total > 0 for total in totals.values()),
        warn=any(share < LITTLE_INTRINSIC or share > MUCH_INTRINSIC for share in rewarded),
    )  # fmt: skip


def _mixing_advice(config: Config, shares: dict[str, float]) -> str:
    silent = [task for task, share in shares.items() if share == 0]
    if is_prioritized(config) and 0 < len(silent) < len(shares):
        return unpaid_task_advice(config, silent)
    if len(silent) == len(shares):
        return "there is no intrinsic reward to mix: see intrinsic_reward, embedding_collapse and normalizer"
    return "change curiosity.mixing: up if curiosity is drowned, down if it drowns the task"
