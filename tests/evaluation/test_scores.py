"""Human-normalised scores by hand; test_scores_paper.py has the tables of the paper."""

import pytest

from byol_explore.evaluation.scores import clipped, human_normalized


@pytest.mark.parametrize(
    ("score", "percent", "within"),
    [(-229.4, 0.0, 0.0), (6463.7, 100.0, 100.0), (3117.15, 50.0, 50.0), (13156.8, 200.0, 100.0), (-898.71, -10.0, 0.0)],
)
def test_normalised_scores_of_pitfall_by_hand(score: float, percent: float, within: float) -> None:
    result = human_normalized(score, (-229.4, 6463.7))
    assert result == pytest.approx(percent)
    assert clipped(result) == pytest.approx(within)
