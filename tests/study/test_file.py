"""Parsing of study files, and errors of one line for mistakes in them."""

from pathlib import Path

import pytest

from byol_explore.errors import UserError
from byol_explore.study.file import Study, Variant, builtin_studies, describe_difference, parse_study, read_study
from study.helpers import study_of

HEAD = "name = 'mine'\ntasks = ['rooms-6']\n"
TWINS = "[[variants]]\nname = 'far'\n[[variants]]\nname = 'far'\n"


def test_parse_study_reads_all_fields() -> None:
    study = study_of("[[variants]]\nname = 'far'\nregime = 'intrinsic'\nsettings = { curiosity.horizon = 8 }",
                     tasks="['rooms-4', 'rooms-6']", seeds="[4, 2]")  # fmt: skip
    assert (study.name, study.preset, study.tasks, study.multitask) == ("small", "grid", ("rooms-4", "rooms-6"), False)
    assert (study.seeds, study.steps, study.settings) == ((4, 2), 96, {"stop_at_success_rate": 0.0})
    assert study.variants == (Variant("far", regime="intrinsic", settings={"curiosity.horizon": 8}),)


def test_parse_study_defaults() -> None:
    study = parse_study(HEAD, "mine.toml")
    assert (study.seeds, study.steps, study.variants) == ((0, 1, 2), None, (Variant("byol-explore"),))


def test_methods_and_ablations_add_variants() -> None:
    text = HEAD + "ablations = ['horizon-1']\nmethods = ['rnd']\n[[variants]]\nmethod = 'icm'\nablation = 'prioritized'"
    assert parse_study(text, "").variants == (
        Variant("rnd", "rnd"), Variant("horizon-1", ablation="horizon-1"),
        Variant("icm-prioritized", "icm", "prioritized"),
    )  # fmt: skip


def test_ablation_none_is_named_after_the_method() -> None:
    variants = parse_study(HEAD + "ablations = ['none', 'horizon-1']", "x").variants
    assert [(each.name, each.method) for each in variants] == [
        ("byol-explore", "byol-explore"), ("horizon-1", "byol-explore"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = mine", "is not TOML: Invalid value .*line 1"),
        ("tasks = ['rooms-6']", ": name is missing: it must be a text"),
        ("name = 'a/b'\ntasks = ['rooms-6']", ": name 'a/b': letters"),
        ("name = 'mine'", r": tasks is missing or empty"),
        ("name = 'mine'\ntasks = 'rooms-6'", ": tasks is 'rooms-6': it must be a list"),
        ("name = 'mine'\ntasks = [6]", r": tasks is \[6\]: it must be a list of texts"),
        ("name = 'mine'\ntasks = ['a', 'b', 'a']", ": tasks names 'a' twice"),
        (HEAD + "task = 'rooms-6'", ": unknown key 'task' .*; choose from: name, description, preset, tasks"),
        (HEAD + "seeds = 0", r": seeds is 0: give how many, or a list such as \[0, 1, 2\]"),
        (HEAD + "seeds = [1, 1]", ": seeds names 1 twice"),
        (HEAD + "seeds = [-1]", r": seeds is \[-1\]"),
        (HEAD + "steps = 0", ": steps is 0: it must be positive"),
        (HEAD + "steps = 1.5", ": steps is 1.5: it must be a whole number"),
        (HEAD + "multitask = 1", ": multitask is 1: it must be true or false"),
        (HEAD + "methods = ['vae']", ": unknown method 'vae'; choose from: byol-explore, rnd, icm, none"),
        (HEAD + "ablations = ['no-brain']", ": unknown ablation 'no-brain' .*; choose from: none, fixed-targets"),
        (HEAD + "settings = { agent.gama = 1 }", ": unknown setting 'agent.gama' .*; choose from: agent.gamma"),
        (HEAD + "settings = { seed = 1 }", ": setting 'seed' has a key of its own in a study: seeds"),
        (HEAD + "variants = ['rnd']", ": variants holds 'rnd': every variant is a table"),
        (HEAD + "[[variants]]\nhorizon = 3", ": unknown key of a variant 'horizon'; choose from: name, method"),
        (HEAD + "[[variants]]\nname = 'a-seed1'", ": variant name 'a-seed1': .* no -seed at the end"),
        (
            HEAD + "[[variants]]\nname = 'x'\nsettings = { agent.gamma = '' }",
            ": variant 'x': setting agent.gamma is ''",
        ),
        (HEAD + "methods = ['rnd']\n[[variants]]\nmethod = 'rnd'", ": two variants are called 'rnd'"),
        (
            HEAD + TWINS + "tasks = ['rooms-4']\nsettings = { curiosity.mixing = 1.0 }",
            ": two variants are called 'far'",
        ),
        (HEAD + TWINS + "tasks = ['rooms-4']\nmethod = 'rnd'", ": two variants are called 'far'"),
        (HEAD + TWINS + "seeds = 1", ": two variants are called 'far': a name comes again only for the same method"),
    ],
)
def test_errors_name_file_and_value_in_one_line(text: str, message: str) -> None:
    with pytest.raises(UserError, match="^mine.toml ?" + message) as error:
        parse_study(text, "mine.toml")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"steps": "97"}, "steps was 96, now 97"),
        ({"seeds": "2"}, "seeds was 0, now 0, 1"),
        ({"tasks": "['rooms-6']"}, "tasks was probe:memory, now rooms-6"),
    ],
)
def test_describe_difference_names_the_first_field(changes: dict[str, str], expected: str | None) -> None:
    assert describe_difference(study_of(), study_of(**changes)) == expected


def test_describe_difference_names_variant_and_field() -> None:
    old, other = study_of("[[variants]]\nname = 'a'"), study_of("[[variants]]\nname = 'b'")
    changed = study_of("[[variants]]\nname = 'a'\nsettings = { agent.gamma = 0.5 }")
    assert describe_difference(old, other) == "variants was a, now b"
    assert describe_difference(old, changed) == "variant 'a': settings was empty, now agent.gamma = 0.5"


def test_comments_and_descriptions_are_no_difference() -> None:
    assert (
        describe_difference(parse_study(HEAD, "a"), parse_study(HEAD + "# or so\ndescription = 'x'\nseeds = 3", "b"))
        is None
    )


def test_read_study_by_path_or_by_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(HEAD)
    assert read_study(path) == read_study(str(path)) == parse_study(HEAD, "")
    assert isinstance(read_study("laptop"), Study)
    with pytest.raises(UserError, match=r"unknown study 'desktop'; choose from: algorithms, .*, or give the path"):
        read_study("desktop")


def test_read_study_refuses_binary_files(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"mine\.toml cannot be read"):
        read_study(tmp_path / "mine.toml")


def test_built_in_studies_have_name_description_and_needs() -> None:
    studies = builtin_studies()
    assert {"laptop", "atari-hard10", "hard-eight", "horizon-sweep", "ema-sweep", "prioritized-baselines"} <= set(
        studies
    )
    assert all(len(study.description) > 40 and study.needs for study in studies.values())
    assert all(read_study(name).name == name for name in studies)


def test_steps_may_be_a_whole_float() -> None:
    steps = parse_study(HEAD + "methods = ['rnd']\nsteps = 1e6", "it").steps
    assert (steps, type(steps)) == (1_000_000, int)
