"""The paper's tables: the printed statistics follow from the printed scores."""

import csv
from importlib.resources import files

import pytest

from byol_explore.config.presets import ABLATIONS
from byol_explore.envs.families import HARD_GAMES, LEVELS
from byol_explore.envs.hard_eight.env import HardEight
from byol_explore.errors import UserError
from byol_explore.evaluation.scores import (
    HARD_EIGHT,
    LABELS,
    REFERENCES,
    STATISTICS,
    TABLES,
    paper_scores,
    paper_statistics,
    paper_statistics_of,
)

WITH_STATISTICS = [name for name, table in TABLES.items() if table.has_statistics]
CELLS = [
    (table, variant, statistic)
    for table in WITH_STATISTICS
    for variant in paper_scores(table)
    for statistic in STATISTICS
]


def test_tables_have_nine_statistics_of_eighteen_columns() -> None:
    assert len(CELLS) == 9 * (5 + 5 + 4 + 4)


@pytest.mark.parametrize(("table", "variant", "statistic"), CELLS)
def test_printed_statistic_follows_from_the_printed_scores(table: str, variant: str, statistic: str) -> None:
    computed = paper_statistics_of(paper_scores(table)[variant], REFERENCES)[statistic]
    tolerance = 0.02 if table.startswith("atari") else 0.1
    assert computed == pytest.approx(paper_statistics(table)[variant][statistic], abs=tolerance)


@pytest.mark.parametrize("table", WITH_STATISTICS)
def test_remaining_differences_are_the_rounding_of_scores(table: str) -> None:
    """Statistics are monotone in the scores: rounding scores by half a digit bounds them on both sides."""
    half = 0.005 + 1e-6
    for variant, scores in paper_scores(table).items():
        lowest = paper_statistics_of({task: score - half for task, score in scores.items()}, REFERENCES)
        highest = paper_statistics_of({task: score + half for task, score in scores.items()}, REFERENCES)
        for statistic, printed in paper_statistics(table)[variant].items():
            assert lowest[statistic] - half <= printed <= highest[statistic] + half, (variant, statistic)


@pytest.mark.parametrize("table", TABLES)
def test_tasks_and_variants_have_our_names(table: str) -> None:
    tasks = [f"atari:{game}" for game in HARD_GAMES] if table.startswith("atari") else list(HARD_EIGHT)
    for variant, scores in paper_scores(table).items():
        assert list(scores) == tasks
        assert variant in ("byol-explore", "rnd", "icm", "none", "big", *ABLATIONS)
        assert variant in LABELS


@pytest.mark.parametrize("table", TABLES)
def test_human_scores_are_those_of_the_paper(table: str) -> None:
    text = files("byol_explore").joinpath("data", "paper", f"{table.replace('-', '_')}.csv").read_text()
    printed = [float(row["Average Human"]) for row in csv.DictReader(text.splitlines())]
    assert [REFERENCES[task][1] for task in paper_scores(table)["byol-explore"]] == printed


def test_scores_are_read_from_their_column() -> None:
    assert paper_scores("atari-mixed-baselines")["none"]["atari:qbert"] == 91920.56
    assert paper_scores("atari-intrinsic-baselines")["rnd"]["atari:pitfall"] == -83.55
    assert paper_scores("hard-eight-ablations")["horizon-1"]["dm-hard-eight:throw-across"] == 3.87


def test_both_tables_of_a_suite_agree_on_byol_explore() -> None:
    for suite in ("atari-mixed", "hard-eight"):
        baselines, ablations = f"{suite}-baselines", f"{suite}-ablations"
        assert paper_scores(baselines)["byol-explore"] == paper_scores(ablations)["byol-explore"]
        assert paper_statistics(baselines)["byol-explore"] == paper_statistics(ablations)["byol-explore"]


def test_unknown_tables_are_user_errors() -> None:
    with pytest.raises(UserError, match=r"unknown table of the paper 'atari'; choose from: atari-mixed-baselines, "):
        paper_scores("atari")
    with pytest.raises(UserError, match=r"no statistics of 'atari-intrinsic-baselines'; only of: atari-mixed-base"):
        paper_statistics("atari-intrinsic-baselines")


def test_hard_eight_references_have_the_humans_of_dm_hard_eight() -> None:
    for task, level in LEVELS.items():
        assert REFERENCES[f"hard-eight:{task}"][1] == level.human
        assert HardEight(task).spec.reference_scores == REFERENCES[f"hard-eight:{task}"]
    assert HardEight("all").spec.reference_scores is None
