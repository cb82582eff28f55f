"""The table [search] of a study file: what it accepts, and the trials that are drawn from it."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from byol_explore.errors import UserError
from byol_explore.study.file import Study, describe_difference, parse_study, read_study
from byol_explore.study.search import Choice, Uniform, stratified

HEAD = "name = 'mine'\ntasks = ['probe:memory']\nsteps = 96\nmethods = ['rnd', 'icm']\n"
RANGES = "[search.ranges]\ncuriosity.mixing = { log-uniform = [0.003, 1.0] }\n"


def searching(head: str = "", ranges: str = RANGES, file: str = HEAD) -> Study:
    table = {"seeds": "[0, 1]", "report_seeds": "[5, 6]", "trials": "4"}
    given = dict(line.split(" = ", 1) for line in head.splitlines())
    lines = [f"{key} = {value}" for key, value in {**table, **given}.items()]
    return parse_study(f"{file}[search]\n" + "\n".join(lines) + "\n" + ranges, "mine.toml")


def search_of(study: Study) -> Any:
    assert study.search is not None
    return study.search


def test_search_reads_all_keys() -> None:
    ranges = (
        RANGES
        + "agent.gamma = { uniform = [0.9, 0.99] }\n[search.own.icm]\ncuriosity.prioritize.choice = [true, false]"
    )
    search = search_of(searching("tasks = ['rooms-4']\nsuccess_rate = 0.9\ndraw_seed = 3", ranges))
    assert (search.trials, search.seeds, search.report_seeds, search.tasks) == (4, (0, 1), (5, 6), ("rooms-4",))
    assert (search.success_rate, search.draw_seed) == (0.9, 3)
    assert search.ranges == {"curiosity.mixing": Uniform(0.003, 1.0, True), "agent.gamma": Uniform(0.9, 0.99)}
    assert search.own == {"icm": {"curiosity.prioritize": Choice((True, False))}}


def test_the_study_reports_on_the_report_seeds() -> None:
    assert searching().seeds == (5, 6)


def test_the_first_trial_changes_nothing() -> None:
    assert search_of(searching()).values_of("rnd")[0] == {}
    assert len(search_of(searching("trials = 1")).values_of("rnd")) == 1


def test_equal_trials_of_variants_have_equal_common_values() -> None:
    """A setting of a variant's own changes no other value."""
    search = search_of(searching(ranges=RANGES + "[search.own.icm]\ncuriosity.prioritize.choice = [true, false]"))
    rnd, icm = search.values_of("rnd"), search.values_of("icm")
    assert [each.get("curiosity.mixing") for each in rnd] == [each.get("curiosity.mixing") for each in icm]
    assert "curiosity.prioritize" in icm[1]
    assert "curiosity.prioritize" not in rnd[1]


def test_draws_repeat_and_depend_on_the_seed() -> None:
    first = search_of(searching()).values_of("rnd")
    assert first == search_of(searching()).values_of("rnd")
    assert first != search_of(searching("draw_seed = 1")).values_of("rnd")


def test_a_sampler_of_another_kind_draws_the_other_trials() -> None:
    search = search_of(searching())
    drawn = search.values_of("rnd", lambda ranges, count: [dict.fromkeys(ranges, number) for number in range(count)])
    assert drawn == [{}, *({"curiosity.mixing": number} for number in range(3))]


@pytest.mark.parametrize("count", [1, 2, 7, 15])
def test_every_part_of_a_range_has_one_trial(count: int) -> None:
    ranges = {"a": Uniform(2.0, 5.0), "b": Uniform(0.003, 1.0, logarithmic=True)}
    trials = stratified(ranges, count, seed=3)
    flat = sorted((trial["a"] - 2.0) / 3.0 for trial in trials)
    logs = sorted(math.log(trial["b"] / 0.003) / math.log(1.0 / 0.003) for trial in trials)
    for place, shares in enumerate(zip(flat, logs, strict=True)):
        assert all(place / count - 0.01 <= share <= (place + 1) / count + 0.01 for share in shares)


def test_choices_are_drawn_equally_often() -> None:
    counts = Counter(trial["a"] for trial in stratified({"a": Choice((1, 2, 3))}, 15, seed=0))
    assert counts == {1: 5, 2: 5, 3: 5}


def test_settings_are_drawn_independently() -> None:
    trials = stratified({"a": Uniform(0.0, 1.0), "b": Uniform(0.0, 1.0)}, 200, seed=0)
    assert abs(np.corrcoef([each["a"] for each in trials], [each["b"] for each in trials])[0, 1]) < 0.2


def test_numbers_have_three_digits_and_stay_inside() -> None:
    values = [Uniform(0.00312345, 0.98765, logarithmic=True).value_at(share) for share in (0.0, 0.5, 1 - 1e-12)]
    assert values == [0.00312345, 0.0555, 0.98765]


def test_whole_numbers_are_equally_likely() -> None:
    values = [Uniform(1, 4, is_whole=True).value_at(share / 100) for share in range(100)]
    assert Counter(values) == {1: 25, 2: 25, 3: 25, 4: 25}
    logs = [Uniform(1, 64, True, is_whole=True).value_at(share) for share in (0.0, 0.5, 0.999)]
    assert (logs, {type(value) for value in logs}) == ([1, 8, 64], {int})


@pytest.mark.parametrize(
    ("head", "ranges", "message"),
    [
        ("trials = 0", RANGES, "search.trials is 0: it must be 1 to 1,000"),
        ("seeds = 2", RANGES, r"search.seeds is 2: it must be a list of different seeds, such as \[0, 1\]"),
        ("seeds = [0, 5]", RANGES, "search.seeds and search.report_seeds both have 5"),
        ("seeds = [0, 0]", RANGES, r"search.seeds is \[0, 0\]"),
        ("success_rate = 0", RANGES, "search.success_rate is 0.0: it must be above 0, and at most 1"),
        ("draw_seed = -1", RANGES, "search.draw_seed is -1"),
        ("tasks = []", RANGES, r"search.tasks is \[\]: name at least one"),
        ("trial = 3", RANGES, r"unknown key of \[search\] 'trial' \(did you mean trials\?\); choose from: tri"),
        ("", "", "search.ranges is missing"),
        ("", "[search.ranges]", r"search.ranges is \{\}: it must be a table of settings with their ranges"),
        ("", "[search.ranges]\nagent.gama.choice = [1, 2]", "unknown setting in search.ranges 'agent.gama'"),
        ("", "[search.ranges]\nseed.choice = [1, 2]", "search.ranges has seed: it is not a setting to search"),
        ("", "[search.ranges]\nagent.gamma = 0.9", "search.ranges: agent.gamma is 0.9: it must be a table with one of"),
        ("", "[search.ranges]\nagent.gamma.choice = 0.9", "agent.gamma is .*: choice needs a list"),
        ("", "[search.ranges]\nagent.gamma.choice = [0.9]", "choice needs at least two different values"),
        ("", "[search.ranges]\nagent.gamma.choice = [0.9, 'x']", "agent.gamma is 'x': it must be a number"),
        ("", "[search.ranges]\nagent.gamma.uniform = [0.9, 0.8]", "it must be lowest < highest, of a setting"),
        ("", "[search.ranges]\nagent.gamma.log-uniform = [0, 1]", "it must be 0 < lowest < highest"),
        ("", "[search.ranges]\nagent.gamma.uniform = [1]", "it must be the lowest and the highest number"),
        ("", RANGES + "[search.own.vae]\nagent.gamma.choice = [0, 1]", "unknown variant in search.own 'vae'; choose"),
        ("", RANGES + "[search.own.icm]\ncuriosity.mixing.choice = [0, 1]", "icm has curiosity.mixing, which search.r"),
        (
            "",
            RANGES + "[search.own.icm]\nagent.gamma.choice=[0,1]\nppo.epochs.choice=[1,2]\nppo.gae_lambda.choice=[0,1]",
            "search.own.icm has 3 settings: at most 2 are allowed",
        ),
    ],
)
def test_mistakes_are_named_in_one_line(head: str, ranges: str, message: str) -> None:
    with pytest.raises(UserError, match=r"^mine.toml: .*" + message) as error:
        searching(head, ranges)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("seeds = 3", "seeds is given beside"),
        ("variants = [{ method = 'e3b', seeds = [3] }]", "variant 'e3b' has seeds of its own"),
        ("variants = [{ method = 'e3b', steps = 3 }]", "variant 'e3b' has steps of its own"),
        ("variants = [{ method = 'e3b', tasks = ['rooms-4'] }]", "variant 'e3b' has tasks of its own"),
    ],
)
def test_keys_that_contradict_a_search_are_refused(line: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        searching(file=f"{HEAD}{line}\n")


def test_a_changed_search_is_another_study() -> None:
    assert describe_difference(searching(), searching()) is None
    assert describe_difference(searching(), searching("trials = 5")) == "search: trials was 4, now 5"
    other = RANGES.replace("0.003", "0.01")
    assert str(describe_difference(searching(), searching(ranges=other))).startswith(
        "search: ranges was curiosity.mixi"
    )
    assert describe_difference(parse_study(HEAD + "seeds = [5, 6]", ""), searching()) is not None


def test_the_study_of_all_methods_searches_each_equally() -> None:
    study = read_study("methods")
    search = search_of(study)
    assert (search.trials, search.seeds, search.report_seeds, len(study.variants)) == (16, (0, 1), (5, 6, 7, 8, 9), 11)
    assert set(search.ranges) == {"curiosity.mixing", "agent.entropy_weight", "optimizer.learning_rate"}
    with_own = {name for name, ranges in search.own.items() if len(ranges) == 2}
    assert with_own == {variant.name for variant in study.variants} - {"none"}
