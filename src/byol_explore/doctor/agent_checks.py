"""Checks of rewards and of the agent: policy, value, gradients. Each is a pure function of the evidence."""

import math
from statistics import median

from byol_explore.config.config import Config, has_intrinsic_reward, is_prioritized
from byol_explore.curiosity.method import MIN_ACTIVE_REWARD
from byol_explore.doctor.curiosity_checks import shorter_memory_advice
from byol_explore.doctor.evidence import (
    NO_CURIOSITY,
    RECENT,
    Evidence,
    Finding,
    TaskMeasurement,
    make_finding,
    no_data,
    skipped,
)
from byol_explore.registry import ALGORITHMS
from byol_explore.storage.metrics import flatten_scalars

# The temperature and multipliers are projected to at least 1e-8; a value within a hundred times that is at its floor.
DUAL_FLOOR = 1e-6
# Temperature in units of the advantages' std: below, one sample has all the weight; above, all weigh the same.
COLD, HOT = 0.01, 1000.0
# Advantages are in units of PopArt's std. Smaller ones are rounding errors: no reward tells actions apart.
NO_ADVANTAGE = 1e-5
# Constraints are soft: a few times the bound happens, ten times means that the constraint does not hold.
LOOSE_KL, BROKEN_KL = 10.0, 100.0
# Multipliers move by the dual learning rate: they reach hundreds of times their start if a constraint fails for long.
LARGE_MULTIPLIER, HUGE_MULTIPLIER = 100.0, 10_000.0
# One rollout varies less than all of training: PopArt's scale is several times the std of its targets, not tens.
OFF_POPART, FAR_OFF_POPART = 30.0, 1000.0
# Explained variance. Below zero is usual while rewards change; a hundred times the mean's error is a broken value.
POOR_VALUE, BROKEN_VALUE = -10.0, -100.0
# Share of the largest entropy; below, one action is taken nearly always.
LOW_ENTROPY, NO_ENTROPY = 0.05, 0.005
# Success rate above which a policy may be deterministic.
SOLVED = 0.9
# Standard deviation of a continuous action whose range is 2 wide.
NARROW, POINT = 0.01, 0.001
# Squares overflow float32 beyond 1.8e19; parameters of trained networks are of order 1 to 100.
LARGE_NUMBER, HUGE_NUMBER = 1e6, 1e15
# Gradient norms of healthy runs change about tenfold in training.
RISING, EXPLODING = 30.0, 1000.0
MIN_ROWS = 4  # of the log, for a trend
# Metrics that may be large: counts, times and scores.
UNBOUNDED_METRICS = ("steps", "learner_steps", "episode", "elapsed_seconds", "return", "episode_return_max",
                     "evaluation", "tasks", "human_", "rooms_", "cells_", "policy_lag", "num_episodes")  # fmt: skip
NO_DUALS = "the algorithm has no temperature and no KL constraint"


def _has_duals(evidence: Evidence) -> bool:
    return ALGORITHMS.get(evidence.config.algorithm).has_kl_constraints


def check_temperature(evidence: Evidence) -> Finding:
    """Check V-MPO's temperature against its floor and against the advantages that it divides."""
    if not _has_duals(evidence):
        return skipped(NO_DUALS)
    advantage = evidence.recent_mean("advantage_std")
    now = evidence.probe.temperature if evidence.probe else evidence.recent_mean("temperature")
    if now is None:
        return no_data(evidence)
    if advantage is not None and advantage < NO_ADVANTAGE:
        return make_finding(now, f"{now:.3g}; advantages are zero: no reward has told actions apart yet")
    ratio = now / advantage if advantage else None
    detail = f"{now:.3g}" + ("" if ratio is None else f", {ratio:.3g} times the advantages' deviation")
    if not math.isfinite(now) or now <= DUAL_FLOOR:
        advice = (
            "one sample of a batch has all the weight: raise vmpo.epsilon_temperature or lower "
            "optimizer.dual_learning_rate"
        )
        return make_finding(now, detail + (": at its floor" if now <= DUAL_FLOOR else ""), advice, fail=True)
    advice = (
        "it should be of the order of the advantages, which are in units of PopArt's scale: raise "
        "optimizer.dual_learning_rate so that it can follow them, or start vmpo.init_temperature nearer to them"
    )
    return make_finding(now, detail, advice, warn=ratio is not None and not COLD <= ratio <= HOT)


def check_kl(evidence: Evidence) -> Finding:
    """Check the KL divergence from the policy that acted, in units of its bound."""
    kl, allowed = evidence.recent_mean("kl"), _allowed_kl(evidence)
    if not _has_duals(evidence):
        return skipped(NO_DUALS)
    if kl is None or allowed is None:
        return no_data(evidence)
    ratio, detail = kl / allowed, f"KL to the acting policy {kl:.3g}, allowed {allowed:.3g}"
    advice = "the policy jumps: lower the learning rate or vmpo.target_period, or raise optimizer.dual_learning_rate"
    return make_finding(ratio, detail, advice, fail=ratio > BROKEN_KL, warn=ratio > LOOSE_KL)


def _allowed_kl(evidence: Evidence) -> float | None:
    """Return the sum of all KL bounds; None without an environment or without constraints."""
    action, settings = evidence.action, evidence.config.vmpo
    if action is None:
        return None
    gaussian = settings.epsilon_mean + settings.epsilon_covariance
    return len(action.discrete) * settings.epsilon_categorical + action.continuous * gaussian or None


def check_multipliers(evidence: Evidence) -> Finding:
    """Check the multipliers of the KL constraints."""
    settings, logged = evidence.config.vmpo, evidence.recent_mean("kl_multiplier_mean")
    if not _has_duals(evidence):
        return skipped(NO_DUALS)
    starts = {kind: getattr(settings, f"init_alpha_{kind}") for kind in ("categorical", "mean", "covariance")}
    if evidence.probe is not None:
        kinds = evidence.probe.kl_multipliers
    elif logged is not None:
        kinds = {"mean of all": logged}
    else:
        return no_data(evidence)
    grown = max(value / max(starts.get(kind, max(starts.values())), DUAL_FLOOR) for kind, value in kinds.items())
    detail = ", ".join(f"{kind} {value:.3g}" for kind, value in kinds.items())
    largest, kl, allowed = max(kinds.values()), evidence.recent_mean("kl"), _allowed_kl(evidence)
    if largest <= DUAL_FLOOR:
        broken = kl is not None and allowed is not None and kl > LOOSE_KL * allowed
        detail += ": at the floor" + (", though the constraint is broken" if broken else ", the constraint is slack")
        return make_finding(largest, detail, "raise optimizer.dual_learning_rate", fail=broken)
    advice = "the constraint is broken all the time: lower the learning rate or vmpo.target_period"
    return make_finding(largest, detail, advice, fail=not grown < HUGE_MULTIPLIER, warn=grown > LARGE_MULTIPLIER)


def check_value(evidence: Evidence) -> Finding:
    """Check PopArt's statistics against the value targets, and the variance that the value explains."""
    if evidence.probe is None:
        scale = evidence.recent_mean("popart_std")
        if scale is None:
            return no_data(evidence)
        detail = f"PopArt's scale is {scale:.3g} as logged; {evidence.why_no_probe}"
        return no_data(evidence)._replace(value=scale, detail=detail)
    tasks = evidence.probe.tasks.values()
    parts = [_value_of_task(task, evidence.config.agent.popart_min_relative_std) for task in tasks]
    off = max(factor for factor, _ in parts)
    explained = min((task.explained_variance for task in tasks if task.explained_variance is not None), default=None)
    worst = explained if explained is not None and off > 0.0 else 0.0
    advice = (
        "value and targets are on different scales: raise agent.popart_step_size, or look for a jump of value_target "
        "in metrics.jsonl"
    )
    return make_finding(
        explained, "; ".join(text for _, text in parts), advice,
        fail=not off < FAR_OFF_POPART or not worst > BROKEN_VALUE, warn=off > OFF_POPART or worst < POOR_VALUE,
    )  # fmt: skip


def _value_of_task(task: TaskMeasurement, minimum: float) -> tuple[float, str]:
    """Return the factor by which PopArt's scale is off (0 before it has one), and the task in words."""
    detail = (
        f"targets {task.value_target_mean:.3g} ± {task.value_target_std:.3g}, "
        f"PopArt {task.popart_mean:.3g} ± {task.popart_std:.3g}"
    )
    if task.explained_variance is not None:
        detail += f", explained variance {task.explained_variance:.2f}"
    if task.popart_std == 0.0:
        return 0.0, detail + " (all targets before were 0)"
    if task.value_target_std <= minimum * math.hypot(task.value_target_mean, task.value_target_std):
        return 1.0, detail + " (targets hardly differ)"
    shift = abs(task.value_target_mean - task.popart_mean) / task.popart_std
    return max(task.popart_std / task.value_target_std, task.value_target_std / task.popart_std, shift), detail


def check_entropy(evidence: Evidence) -> Finding:
    """Check that the policy still explores."""
    success = evidence.recent_mean("success_rate") or 0.0
    if evidence.probe is None:
        entropy, action = evidence.recent_mean("entropy"), evidence.action
        if entropy is None or action is None or action.continuous or not action.discrete:
            return no_data(evidence)
        shares, widths = {evidence.config.env: entropy / sum(map(math.log, action.discrete))}, {}
    else:
        tasks = evidence.probe.tasks
        shares = {name: task.normalized_entropy for name, task in tasks.items() if task.normalized_entropy is not None}
        widths = {name: task.min_action_std for name, task in tasks.items() if task.min_action_std is not None}
    share, width = min(shares.values(), default=1.0), min(widths.values(), default=1.0)
    parts = [f"{value:.1%} of the largest entropy in {name}" for name, value in shares.items()]
    parts += [f"narrowest continuous action ± {value:.3g} in {name}" for name, value in widths.items()]
    value, detail = share if shares else width, ", ".join(parts)
    if success > SOLVED:
        return make_finding(value, f"{detail}; {success:.0%} of the episodes succeed")
    advice = "the policy has collapsed: raise agent.entropy_weight or lower vmpo.epsilon_categorical"
    fail, warn = share < NO_ENTROPY or width < POINT, share < LOW_ENTROPY or width < NARROW
    return make_finding(value, detail, advice, fail=fail, warn=warn)


def check_numbers(evidence: Evidence) -> Finding:
    """Check that all numbers are finite and far from the limits of float32."""
    advice = "lower the learning rate, or set optimizer.max_grad_norm"
    flat = [(name, value) for row in evidence.rows for name, value in flatten_scalars(row).items()]
    broken = [f"{name} in metrics.jsonl" for name, value in flat if not math.isfinite(value)]
    if evidence.probe and evidence.probe.first_nonfinite:
        broken = [f"{evidence.probe.first_nonfinite} in the checkpoint"]
    if broken:
        return make_finding(None, f"{broken[0]} is NaN or infinite", advice, fail=True)
    bounded = [abs(value) for name, value in flat if not name.startswith(UNBOUNDED_METRICS)]
    sizes = {"metrics": max(bounded, default=0.0)}
    if evidence.probe is not None:
        sizes |= evidence.probe.max_magnitude
    elif not flat:
        return no_data(evidence)
    largest = max(sizes.values())
    detail = "largest: " + ", ".join(f"{name} {size:.3g}" for name, size in sizes.items())
    return make_finding(largest, detail, advice, fail=largest > HUGE_NUMBER, warn=largest > LARGE_NUMBER)


def check_gradient(evidence: Evidence) -> Finding:
    """Check the trend of the gradient norm."""
    history = evidence.history("grad_norm")
    if len(history) < MIN_ROWS:
        detail = f"a trend needs {MIN_ROWS} log steps; there are {len(history)}"
        return no_data(evidence)._replace(value=history[-1] if history else None, detail=detail)
    usual, now = median(history[:-1]), history[-1]
    if now == 0.0:
        return make_finding(now, "the gradient is zero: nothing is learned", "look for a constant loss", fail=True)
    ratio, detail = now / usual if usual > 0 else 1.0, f"norm {now:.3g} now, {usual:.3g} usually"
    advice = "lower the learning rate, or set optimizer.max_grad_norm"
    return make_finding(now, detail, advice, fail=ratio > EXPLODING, warn=ratio > RISING)


# Rewards

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
