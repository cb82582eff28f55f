"""Human-normalised scores, against the tables of the paper's appendix."""

import numpy as np
import pytest

from byol_explore.envs.atari_games import HARD_GAMES
from byol_explore.evaluation.scores import clipped, human_normalized

MAXIMA = {  # best score over training: alien, freeway, gravitar, hero, montezuma, pitfall, private eye, qbert, ...
    "byol-explore": (124524.02, 32.12, 17014.51, 153124.29, 13518.18, 25175.53, 33130.85, 358269.62, 11060.24, 1980.24),
    "rnd": (74717.02, 33.74, 5885.23, 36452.78, 4554.37, 0.0, 33150.09, 34341.06, 5262.55, 1879.68),
    "icm": (5664.83, 32.61, 4657.20, 18753.97, 300.0, 0.0, 1419.49, 44294.63, 3924.22, 1860.19),
    "none": (18252.69, 33.97, 13541.10, 37235.84, 160.11, 0.0, 5704.99, 91920.56, 8147.67, 670.61),
}
STATISTICS = {  # mean clipped, superhuman games, mean, median
    "byol-explore": (93.62, 8, 661.14, 331.98),
    "rnd": (78.32, 6, 209.08, 116.44),
    "icm": (57.43, 4, 91.42, 69.14),
    "none": (63.38, 5, 174.22, 88.55),
}


@pytest.mark.parametrize("method", MAXIMA)
def test_the_papers_statistics_follow_from_its_scores(method: str) -> None:
    percents = [
        human_normalized(score, (game.random, game.human))
        for score, game in zip(MAXIMA[method], HARD_GAMES.values(), strict=True)
    ]
    mean_clipped, superhuman, mean, median = STATISTICS[method]
    assert np.mean([clipped(percent) for percent in percents]) == pytest.approx(mean_clipped, abs=0.02)
    assert len([percent for percent in percents if percent > 100.0]) == superhuman
    assert np.mean(percents) == pytest.approx(mean, abs=0.02)
    assert np.median(percents) == pytest.approx(median, abs=0.02)


@pytest.mark.parametrize(
    ("score", "percent", "within"),
    [(-229.4, 0.0, 0.0), (6463.7, 100.0, 100.0), (3117.15, 50.0, 50.0), (13156.8, 200.0, 100.0), (-898.71, -10.0, 0.0)],
)
def test_scores_of_pitfall_by_hand(score: float, percent: float, within: float) -> None:
    result = human_normalized(score, (-229.4, 6463.7))
    assert result == pytest.approx(percent)
    assert clipped(result) == pytest.approx(within)
