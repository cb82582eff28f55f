"""Human-normalised scores (section 4 and appendix D)."""


def human_normalized(score: float, scores: tuple[float, float]) -> float:
    """In percent: 0 is the score of random actions, 100 that of a human; `scores` are (random, human)."""
    random, human = scores
    return 100.0 * (score - random) / (human - random)


def clipped(percent: float) -> float:
    """Between 0 and 100, so that one superhuman task cannot make up for many that are not."""
    return min(max(percent, 0.0), 100.0)
