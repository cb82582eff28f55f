"""The paper's equations as slow NumPy loops, which the tests compare the package with."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]
Ints = NDArray[np.integer]


def cosine_distance(prediction: Floats, target: Floats) -> Floats:
    """Section 3.2 (iii): |g / |g| - f / |f||^2, one vector after the other."""
    out = np.zeros(prediction.shape[:-1])
    for index in np.ndindex(*out.shape):
        g, f = np.float64(prediction[index]), np.float64(target[index])
        g_length = math.sqrt(sum(x * x for x in g))
        f_length = math.sqrt(sum(x * x for x in f))
        out[index] = sum((a / g_length - b / f_length) ** 2 for a, b in zip(g, f, strict=True))
    return out


def squared_distance(prediction: Floats, target: Floats) -> Floats:
    """Appendix B, RND and ICM: |g - f|^2, one vector after the other."""
    out = np.zeros(prediction.shape[:-1])
    for index in np.ndindex(*out.shape):
        out[index] = sum((float(a) - float(b)) ** 2 for a, b in zip(prediction[index], target[index], strict=True))
    return out


def prediction_validity(is_first: Bools, horizon: int) -> Bools:
    """Section 3.2 (iii): o_{t+k} is in the sequence, and no episode begins between o_t and o_{t+k}."""
    length = len(is_first)
    valid = np.zeros((length - 1, horizon), bool)
    for t in range(length - 1):
        for k in range(1, horizon + 1):
            inside = t + k <= length - 1
            valid[t, k - 1] = inside and not any(is_first[step] for step in range(t + 1, t + k + 1))
    return valid


def mean_over_horizon(losses: Floats, is_first: Bools) -> dict[int, float]:
    """Section 3.2 (iii): 1/K(t) sum_k loss(t, k) of each start that has a valid k."""
    valid = prediction_validity(is_first, losses.shape[1])
    means = {}
    for t in range(losses.shape[0]):
        kept = [float(losses[t, k]) for k in range(losses.shape[1]) if valid[t, k]]
        if kept:
            means[t] = sum(kept) / len(kept)
    return means


def uncertainty(losses: Floats, is_first: Bools) -> Floats:
    """Section 3.2 (iv): l_t = sum of loss(p, q) over all p + q = t + 1."""
    starts, horizon = losses.shape
    valid = prediction_validity(is_first, horizon)
    out = np.zeros(starts)
    for t in range(starts):
        for p in range(starts):
            for q in range(1, horizon + 1):
                if p + q == t + 1 and valid[p, q - 1]:
                    out[t] += losses[p, q - 1]
    return out


def corrected_average(values: Sequence[float], decay: float) -> float:
    """Appendix A.3: a bias-corrected EMA after n values is their mean with weights decay^(n - i)."""
    weights = [decay ** (len(values) - 1 - i) for i in range(len(values))]
    return sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)


def batch_means(batches: Sequence[Floats], valids: Sequence[Bools]) -> tuple[list[float], list[float]]:
    """Appendix A.3: mean and mean of squares of each batch that has a valid entry."""
    means, squares = [], []
    for batch, valid in zip(batches, valids, strict=True):
        kept = [float(x) for x, v in zip(batch.ravel(), valid.ravel(), strict=True) if v]
        if kept:
            means.append(sum(kept) / len(kept))
            squares.append(sum(x * x for x in kept) / len(kept))
    return means, squares


def standard_deviation(batches: Sequence[Floats], valids: Sequence[Bools], decay: float) -> float:
    """Appendix A.3: sqrt(max(mu2 - mu^2, (mu / 100)^2) + 1e-8) after all the batches; in the paper max(..., 0)."""
    means, squares = batch_means(batches, valids)
    mean = corrected_average(means, decay)
    variance = corrected_average(squares, decay) - mean**2
    return math.sqrt(max(variance, (mean / 100) ** 2) + 1e-8)


def intrinsic_rewards(
    batches: Sequence[Floats], valids: Sequence[Bools], decay: float, prioritize: bool
) -> list[Floats]:
    """Section 3.3: max(l / sigma - mu, 0) or l / sigma for one batch after the other; 0 where invalid."""
    normalized, rewards = [], []
    for n, (batch, valid) in enumerate(zip(batches, valids, strict=True), start=1):
        normalized.append(np.float64(batch) / standard_deviation(batches[:n], valids[:n], decay))
        reward = normalized[-1]
        if prioritize:
            threshold = corrected_average(batch_means(normalized, valids[:n])[0], decay)
            reward = np.maximum(reward - threshold, 0.0)
        rewards.append(np.where(valid, reward, 0.0))
    return rewards


def value_targets(value: Floats, reward: Floats, discount: Floats, valid: Bools) -> Floats:
    """Appendix C: for each t, the rewards until the episode or the sequence ends, plus the value there."""
    out = np.zeros(len(reward))
    for t in range(len(reward)):
        product, step = 1.0, t
        while step < len(reward) and valid[step]:
            out[t] += product * reward[step]
            product *= discount[step]
            step += 1
        out[t] += product * value[step]
    return out


def top_samples(advantage: Floats, valid: Bools, top_fraction: float) -> list[int]:
    """Section 4.1, V-MPO's E-step: the best fraction of the valid samples in the batch, at least one."""
    order = sorted((i for i in range(len(advantage)) if valid[i]), key=lambda i: -advantage[i])
    return sorted(order[: max(int(top_fraction * len(order)), 1)])


def vmpo_weights(advantage: Floats, top: Sequence[int], temperature: float) -> dict[int, float]:
    """Section 4.1, V-MPO's E-step: psi = exp(A / eta) / sum exp(A / eta) over the top samples."""
    best = max(float(advantage[i]) for i in top)
    unnormalized = {i: math.exp((float(advantage[i]) - best) / temperature) for i in top}
    total = sum(unnormalized.values())
    return {i: weight / total for i, weight in unnormalized.items()}


def policy_loss(log_prob: Floats, weights: dict[int, float]) -> float:
    """Section 4.1, V-MPO's M-step: -sum psi log pi."""
    return -sum(weight * float(log_prob[i]) for i, weight in weights.items())


def temperature_loss(advantage: Floats, top: Sequence[int], temperature: float, epsilon: float) -> float:
    """Section 4.1, V-MPO's dual: eta eps + eta log mean exp(A / eta)."""
    mean = sum(math.exp(float(advantage[i]) / temperature) for i in top) / len(top)
    return temperature * epsilon + temperature * math.log(mean)


def temperature_gradient(weights: dict[int, float], epsilon: float) -> float:
    """Derivative of `temperature_loss`: eps minus the divergence of psi from uniform over the top samples."""
    return epsilon - sum(w * math.log(w * len(weights)) for w in weights.values() if w > 0.0)


def of_task(arrays: Sequence[Floats], tasks: Sequence[Ints], valids: Sequence[Bools], task: int) -> list[list[float]]:
    """The valid numbers of one task in each batch."""
    return [
        [float(x) for x, j, v in zip(array, index, valid, strict=True) if v and j == task]
        for array, index, valid in zip(arrays, tasks, valids, strict=True)
    ]


def corrected_mean(batches: Sequence[Sequence[float]], step_size: float) -> float:
    """Bias-corrected EMA of the means of the batches that are not empty; 0 without any."""
    means = [sum(batch) / len(batch) for batch in batches if batch]
    return corrected_average(means, 1.0 - step_size) if means else 0.0


def popart_statistics(
    targets: Sequence[Floats], tasks: Sequence[Ints], valids: Sequence[Bools], task: int, step_size: float
) -> tuple[float, float]:
    """Appendix C: bias-corrected EMAs of one task's targets and of their squares; zeros before its first target."""
    mine = of_task(targets, tasks, valids, task)
    return corrected_mean(mine, step_size), corrected_mean([[x * x for x in batch] for batch in mine], step_size)


def reward_scale(
    rewards: Sequence[Floats], tasks: Sequence[Ints], valids: Sequence[Bools], task: int, step_size: float,
    minimum: float,
) -> float:  # fmt: skip
    """Appendix C: root of the bias-corrected EMA of one task's squares; 1 before its first reward other than 0.

    It is at least `minimum` times the same of its rewards other than 0.
    """
    squares = [[x * x for x in batch] for batch in of_task(rewards, tasks, valids, task)]
    paid = [[x for x in batch if x > 0.0] for batch in squares]
    scale, size = (math.sqrt(corrected_mean(batches, step_size)) for batches in (squares, paid))
    return max(scale, minimum * size) or 1.0


def softmax(logits: Floats) -> list[float]:
    """Section 4.1, the categorical policy: exp(x) / sum exp(x)."""
    best = float(max(logits))
    unnormalized = [math.exp(float(x) - best) for x in logits]
    return [x / sum(unnormalized) for x in unnormalized]


def categorical_kl(p: Floats, q: Floats) -> float:
    """Section 4.1, V-MPO's constraint: sum p log(p / q) of two categoricals given by logits."""
    return sum(a * math.log(a / b) for a, b in zip(softmax(p), softmax(q), strict=True))


def gaussian_density(x: Floats, mean: float, stddev: float) -> Floats:
    """Section 4.1, the continuous policy: the normal density."""
    return np.exp(-(((x - mean) / stddev) ** 2) / 2) / (stddev * math.sqrt(2 * math.pi))


def gaussian_kl(mean_p: float, stddev_p: float, mean_q: float, stddev_q: float) -> float:
    """Section 4.1, V-MPO's constraint: the integral of p log(p / q), summed over a fine grid."""
    mean_p, stddev_p, mean_q, stddev_q = map(float, (mean_p, stddev_p, mean_q, stddev_q))
    x = np.linspace(mean_p - 12 * stddev_p, mean_p + 12 * stddev_p, 4001)
    log_ratio = math.log(stddev_q / stddev_p) + ((x - mean_q) / stddev_q) ** 2 / 2 - ((x - mean_p) / stddev_p) ** 2 / 2
    return float(np.sum(gaussian_density(x, mean_p, stddev_p) * log_ratio) * (x[1] - x[0]))


def gaussian_entropy(mean: float, stddev: float) -> float:
    """Appendix C, the entropy bonus: the integral of -p log p, summed over a fine grid."""
    x = np.linspace(mean - 12 * stddev, mean + 12 * stddev, 4001)
    p = gaussian_density(x, mean, stddev)
    return float(-np.sum(p * np.log(p)) * (x[1] - x[0]))


def fair_samples(
    lives: list[list[tuple[int, int]]], looks: Sequence[int], size: int, longest_before: int = 0
) -> list[list[tuple[int, int, int]]]:
    """Return the episodes (began, environment, number) counted at each look, ordered by their start.

    An episode is counted if it has ended, if all episodes that began no later have ended, and if it began at least as
    long ago as the longest of the last `size` counted episodes and of the ended ones that are not counted yet took.

    Args:
      lives: steps at which the episodes of each environment begin and end, also after the last look.
      looks: steps at which the window is updated.
      size: episodes in the window.
      longest_before: length of the longest episode before.
    """
    counted: list[tuple[int, int, int]] = []
    samples = []
    for now in looks:
        begun = [(began, env, i) for env, life in enumerate(lives) for i, (began, _) in enumerate(life) if began <= now]
        waiting = sorted(one for one in begun if lives[one[1]][one[2]][1] <= now and one not in counted)
        lengths = [lives[env][i][1] - began for began, env, i in (*counted[-size:], *waiting)]
        longest = max([longest_before, *lengths])
        for one in waiting:
            all_ended = all(lives[env][i][1] <= now for began, env, i in begun if began <= one[0])
            if all_ended and one[0] + longest <= now:
                counted.append(one)
        samples.append(list(counted))
    return samples
