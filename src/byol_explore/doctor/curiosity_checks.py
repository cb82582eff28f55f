"""Checks of the intrinsic method: target encoder, normalizer, episode boundaries, collapse of the embeddings.

In a collapse all embeddings are alike and every prediction is right: the loss is close to zero, and the normalised
reward is noise. Two checks look for it: whether embeddings differ, and whether errors grow with the horizon. Both need
the log alone, from the first row on; a checkpoint tells more.
"""

from byol_explore.config.config import Config
from byol_explore.doctor.evidence import (
    NO_CURIOSITY,
    Evidence,
    Finding,
    TargetMeasurement,
    TaskMeasurement,
    make_finding,
    no_data,
    skipped,
)
from byol_explore.registry import METHODS

# A moving target closes 1 - alpha of its distance per update; half of that is too little.
MIN_STEP = 0.5
# Distance as a share of the encoder's norm; beyond this the target is a different network than the trained one.
FAR_TARGET = 0.5
# Float32 keeps seven digits: closer than this, target and online encoder are equal.
EQUAL_TARGET = 1e-6
# Statistics average about a hundred batches; a method that learns quickly is a few times off, not ten times.
OFF_SCALE, FAR_OFF_SCALE = 10.0, 100.0
# Statistics that forget within ten batches cannot keep an old scale alive.
QUICK_DECAY = 0.9
# The normalizer adds 1e-8 to the variance, a std of 1e-4: below ten times that it divides by its own epsilon.
VANISHED_SIGMA = 1e-3
# Rewards are in units of their own std: a mean of tens is a wrong scale.
LARGE_REWARD, HUGE_REWARD = 20.0, 200.0
# Relative; the mean over valid transitions is exact up to float32's rounding.
ROUNDING = 1e-4
LOOK_FOR_JUMP = "look for a jump of uncertainty in metrics.jsonl"


def check_target(evidence: Evidence) -> Finding:
    """Check that the target encoder moves as the method defines it."""
    config = evidence.config
    if not evidence.method.has_target_encoder:
        return skipped(f"{config.method} has no target network" if evidence.method.has_reward else NO_CURIOSITY)
    probe = evidence.probe.target if evidence.probe else None
    if not evidence.method.has_ema_target or config.ablation == "fixed-targets":
        return no_data(evidence) if probe is None else _fixed_target(config, probe)
    distance = probe.relative_distance if probe else evidence.recent_mean("target_relative_distance")
    if config.curiosity.target_decay == 1.0:
        detail = "curiosity.target_decay is 1: the target is a random network that never moves"
        advice = "set curiosity.target_decay to 0.99, or name it: --ablation fixed-targets"
        return make_finding(distance, detail, advice, fail=True)
    if distance is None:
        return no_data(evidence)
    detail = f"the target is {distance:.3g} of the encoder's size away from it"
    moved = probe.relative_change if probe else None
    least = MIN_STEP * (1.0 - config.curiosity.target_decay)
    stuck = probe is not None and distance >= EQUAL_TARGET and probe.step_fraction < least
    if stuck or moved == 0.0:
        detail += f" and has not moved {'since the checkpoint before' if moved == 0.0 else 'in an update'}"
        return make_finding(distance, detail, "the target must follow the encoder after every learner step", fail=True)
    if distance < EQUAL_TARGET:
        advice = "check that learning rate and curiosity.target_decay are above 0"
        return make_finding(distance, "target and encoder are equal", advice, warn=True)
    detail += "" if moved is None else f"; it moved by {moved:.3g} since the last checkpoint"
    advice = "the encoder outruns its target: lower the learning rate or curiosity.target_decay"
    return make_finding(distance, detail, advice, warn=distance > FAR_TARGET)


def _fixed_target(config: Config, target: TargetMeasurement) -> Finding:
    origin = config.method if config.ablation == "none" else f"the {config.ablation} ablation"
    moved = max(target.relative_change or 0.0, target.step_fraction)
    detail = f"the target of {origin} {'is frozen on purpose' if moved == 0.0 else 'moves'}"
    return make_finding(moved, detail, "it must stay as it was drawn", fail=moved > 0.0)


def check_normalizer(evidence: Evidence) -> Finding:
    """Check that the running statistics of the uncertainty fit the rollout."""
    probe = evidence.probe
    if not evidence.method.has_reward:
        return skipped(NO_CURIOSITY)
    if probe is None:
        return _logged_normalizer(evidence)
    (mean, stddev), (running_mean, sigma) = probe.uncertainty_moments, probe.normalizer_moments
    off, reward = max(_factor(mean, running_mean), _factor(stddev, sigma)), probe.intrinsic_reward
    detail = (
        f"uncertainty is {mean:.3g} ± {stddev:.3g} now, {running_mean:.3g} ± {sigma:.3g} in the statistics; "
        f"mean intrinsic reward {reward:.3g}"
    )
    if sigma < VANISHED_SIGMA:
        advice = "the statistics have vanished: rewards are noise divided by almost nothing"
        return make_finding(sigma, detail, advice, fail=stddev > OFF_SCALE * sigma, warn=True)
    fail = not off < FAR_OFF_SCALE or not reward < HUGE_REWARD
    advice = f"statistics and uncertainty are on different scales: {shorter_memory_advice(evidence)}"
    return make_finding(off, detail, advice, fail=fail, warn=off > OFF_SCALE or reward > LARGE_REWARD)


def _logged_normalizer(evidence: Evidence) -> Finding:
    sigma, reward = evidence.recent_mean("uncertainty_running_std"), evidence.recent_mean("intrinsic_reward")
    if sigma is None or reward is None:
        return no_data(evidence)
    detail = f"standard deviation {sigma:.3g} and mean intrinsic reward {reward:.3g}, as logged"
    warn = sigma < VANISHED_SIGMA or reward > LARGE_REWARD
    return make_finding(sigma, detail, LOOK_FOR_JUMP, fail=reward > HUGE_REWARD, warn=warn)


def shorter_memory_advice(evidence: Evidence) -> str:
    """Return the advice for statistics that lag behind the uncertainty."""
    decay = evidence.config.curiosity.normalizer_decay
    if decay <= QUICK_DECAY:
        return LOOK_FOR_JUMP
    return f"lower curiosity.normalizer_decay (it is {decay:g}) so that they forget sooner, and {LOOK_FOR_JUMP}"


def _factor(one: float, other: float) -> float:
    """Return the ratio of the larger to the smaller; 1 if both are zero, infinite if one is not finite."""
    low, high = sorted((abs(one), abs(other)))
    if not high < float("inf"):
        return float("inf")
    return 1.0 if high < VANISHED_SIGMA else high / max(low, 1e-12)


def check_boundaries(evidence: Evidence) -> Finding:
    """Check that dummy transitions between episodes earn no reward, are not counted and carry no information."""
    if not evidence.method.has_reward:
        return skipped(NO_CURIOSITY)
    if evidence.probe is None:
        return no_data(evidence)
    boundary = evidence.probe.boundary
    if boundary.episode_ends == 0:
        return no_data(evidence, f"no episode ended in {boundary.transitions:,} transitions")
    faults = {
        f"are paid {boundary.max_reward:.3g}": boundary.max_reward > 0.0,
        f"are counted by the normalizer ({boundary.normalizer_error:.1%} off)": boundary.normalizer_error > ROUNDING,
        f"let predictions through ({boundary.uncertainty_leak:.1%} of the uncertainty)": boundary.uncertainty_leak
        > ROUNDING,
    }
    found = " and ".join(fault for fault, holds in faults.items() if holds)
    detail = f"{boundary.episode_ends:,} steps between episodes {found or 'are worth nothing, as they must be'}"
    advice = "the environment's is_first or a mask is wrong: see the convention in envs/vector.py"
    return make_finding(boundary.max_reward, detail, advice, fail=bool(found))


# A collapsed encoder of first-person images logged 0.002; the smallest spread that recovered was 0.03.
COLLAPSED_SPREAD, LOW_SPREAD = 5e-3, 5e-2
# If the first row logged less, curiosity was of little use for half a million steps of the eight laptop tasks. Centred
# encoders log several times this.
LOW_INITIAL_SPREAD = 0.2
# Embeddings on one line have rank 1; healthy runs use four directions and more.
COLLAPSED_RANK, LOW_RANK = 1.05, 2.0
# Fewer different observations than this cannot fill the directions.
MIN_OBSERVATIONS = 8
# From the shortest to the longest prediction, errors grew 1.09 times and more in every row of 12 runs of the laptop
# tasks and 1.6 times in the first-person rooms; in a collapse they shrank to 0.9.
FLAT_GROWTH = 1.02
# Before this learner step predictions are random, hence equally wrong at all horizons.
FIRST_UPDATES = 200
# With a target this slow, encoder and target do not agree on a constant.
SLOW_TARGET = 0.999


def check_embedding(evidence: Evidence) -> Finding:
    """Check that different observations have different embeddings, now and from the start."""
    config = evidence.config
    if not evidence.method.has_reward:
        return skipped(NO_CURIOSITY)
    # The log has the spread of the policy's encoder; methods with networks of their own do not use that encoder.
    logged = evidence.history("embedding_spread") if evidence.method.uses_representation else []
    narrow_start = bool(logged) and logged[0] < LOW_INITIAL_SPREAD
    if evidence.probe is None:
        if not logged:
            return no_data(evidence)
        spread, detail = logged[-1], f"spread as logged, of at most 1: {_format_trend(logged)}"
        fail, warn = spread < COLLAPSED_SPREAD, spread < LOW_SPREAD
    else:
        task, worst = max(
            evidence.probe.tasks.items(), key=lambda item: (*_collapse(item[1]), -item[1].embedding_spread)
        )
        if worst.distinct_observations < 2:
            return no_data(evidence, f"all observations of {task} in the rollout are the same")
        spread, (fail, warn) = worst.embedding_spread, _collapse(worst)
        detail = (
            f"{worst.distinct_observations} different observations of {task}: spread {spread:.3g} of at most 1, in "
            f"{worst.effective_rank:.1f} directions" + (f"; logged: {_format_trend(logged)}" if logged else "")
        )
    if spread < LOW_SPREAD:
        advice = _collapse_advice(config)
    elif warn:
        advice = (
            "the embeddings lie along few directions: the observations have no more that matter, or the encoder is "
            f"collapsing; if it stays so, {_remedies(config)}"
        )
    else:
        advice = f"the embeddings started nearly parallel, and curiosity was slow to begin; {_remedies(config)}"
    return make_finding(spread, detail, advice, fail=fail, warn=warn or narrow_start)


def _format_trend(spread: list[float]) -> str:
    return f"{spread[0]:.3g} in the first line, {min(spread):.3g} at the lowest, {spread[-1]:.3g} now"


def _collapse(task: TaskMeasurement) -> tuple[bool, bool]:
    """Return whether the embeddings of a task have collapsed, and whether they are close to it."""
    many = task.distinct_observations >= MIN_OBSERVATIONS
    collapsed = task.embedding_spread < COLLAPSED_SPREAD or (many and task.effective_rank < COLLAPSED_RANK)
    return collapsed, task.embedding_spread < LOW_SPREAD or (many and task.effective_rank < LOW_RANK)


def _collapse_advice(config: Config) -> str:
    return f"the encoder has collapsed: all embeddings are alike and nothing is uncertain; {_remedies(config)}"


def _remedies(config: Config) -> str:
    """Return the advice against a collapse, without settings that are on already."""
    if not config.network.center_encoders:
        return "start again with network.center_encoders, which is off"
    curiosity, steps = config.curiosity, ["check that observations vary"]
    if METHODS.get(config.method).has_ema_target and curiosity.target_decay < SLOW_TARGET:
        steps.append(f"raise curiosity.target_decay nearer to 1 (it is {curiosity.target_decay:g})")
    if curiosity.loss_weight > 1.0:
        steps.append(f"lower curiosity.loss_weight (it is {curiosity.loss_weight:g})")
    steps.append(f"lower optimizer.learning_rate (it is {config.optimizer.learning_rate:g})")
    return ", ".join(steps[:-1]) + f", or {steps[-1]}"


def check_horizon(evidence: Evidence) -> Finding:
    """Check that errors grow with the horizon. Flat errors of embeddings that hardly differ are a collapse."""
    config = evidence.config
    if "horizon" not in evidence.method.config_fields:
        curious = evidence.method.has_reward
        return skipped(f"{config.method} looks one step ahead at most" if curious else NO_CURIOSITY)
    if config.curiosity.horizon == 1:
        return skipped("curiosity.horizon is 1: there is nothing to compare")
    growth, spread = evidence.recent_mean("prediction_error_growth"), _spread(evidence)
    if growth is None:
        return no_data(evidence)
    detail = f"the error of the longest prediction is {growth:.3g} times that of the shortest"
    if evidence.learner_steps < FIRST_UPDATES:
        return make_finding(growth, f"{detail}; the first {FIRST_UPDATES} learner steps say little")
    flat = growth < FLAT_GROWTH
    if spread is not None and spread < LOW_INITIAL_SPREAD:
        detail += f", and embeddings hardly differ (spread {spread:.3g})" if flat else ""
        return make_finding(growth, detail, _collapse_advice(config), fail=flat)
    advice = (
        "predictions further ahead are no harder: fine if everything is known or everything is noise, else check that "
        "actions change the observations"
    )
    return make_finding(growth, detail, advice, warn=flat)


def _spread(evidence: Evidence) -> float | None:
    """Return the spread of the checkpoint's narrowest task, else the logged one, where repeats make it smaller."""
    if evidence.probe is not None:
        return min(task.embedding_spread for task in evidence.probe.tasks.values())
    return next(reversed(evidence.history("embedding_spread")), None)
