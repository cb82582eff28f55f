"""Planned runs of a study and their commands."""

import re
from pathlib import Path

import pytest

from byol_explore.cli.train import parse_train
from byol_explore.config.presets import make_config
from byol_explore.envs.families import HARD_GAMES, AtariSettings, HardEightSettings
from byol_explore.errors import UserError
from byol_explore.evaluation.scores import TABLES, paper_scores
from byol_explore.registry import METHODS, TRUST_ENV_VAR
from byol_explore.study.file import parse_study, read_study
from byol_explore.study.plan import PlannedRun, check_environments, command_line, plan_runs, task_dir_name
from study.helpers import study_of, study_with, write_json

PLACE = Path("place")


def parse_arguments(run: PlannedRun) -> object:
    """Parse the options of a run into its configuration."""
    return parse_train(run.train_arguments(PLACE)[1:]).config


def test_every_task_variant_and_seed_is_a_run() -> None:
    runs = plan_runs(study_of("methods = ['rnd', 'none']", tasks="['rooms-4', 'atari:hero']", seeds="[5, 7]"))
    tasks = ("rooms-4", "atari-hero")
    expected = [f"{task}/{v}-seed{seed}" for seed in (5, 7) for task in tasks for v in ("rnd", "none")]
    assert [run.name for run in runs] == expected
    assert [run.config.env for run in runs[:4]] == ["rooms-4", "rooms-4", "atari:hero", "atari:hero"]
    assert {run.config.steps for run in runs} == {96}


def test_multitask_study_is_one_run() -> None:
    [run] = plan_runs(study_of("multitask = true", tasks="['rooms-4', 'rooms-6']"))
    assert (run.name, run.config.env) == ("2-tasks/byol-explore-seed0", "rooms-4,rooms-6")


@pytest.mark.parametrize(
    ("tasks", "folder"),
    [("['rooms-4,rooms-6', 'rooms-4,rooms-8']", "2-tasks"), ("['probe:memory', 'probe-memory']", "probe-memory")],
)
def test_tasks_with_the_same_directory_are_refused(tasks: str, folder: str) -> None:
    with pytest.raises(UserError, match=rf"^small.toml: runs on the tasks .* both be kept in {folder}/byol-explore-se"):
        plan_runs(study_of(tasks=tasks))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("num_processes = 2", "distributed.num_processes is 2"),
        (
            "coordinator_address = '10.0.0.1:4711'\nsettings.distributed.num_processes = 2",
            "distributed.coordinator_address is '10.0.0.1:",
        ),
        ("heartbeat_timeout = 5", "distributed.heartbeat_timeout is 5"),
    ],
)
def test_distributed_runs_are_refused(settings: str, words: str) -> None:
    with pytest.raises(UserError, match=f"^small.toml: variant 'byol-explore': {words}") as error:
        plan_runs(study_of(f"settings.distributed.{settings}"))
    assert "every run of a study is one process: leave distributed.* out" in str(error.value)
    assert plan_runs(study_of("settings.distributed.num_processes = 1"))


def test_variant_with_fewer_seeds_on_another_task() -> None:
    again = "[[variants]]\nname = 'far'\n[[variants]]\nname = 'far'\ntasks = ['rooms-4']\nseeds = [1]"
    runs = plan_runs(study_of(again, tasks="['rooms-6']", seeds="2"))
    assert [run.name for run in runs] == ["rooms-6/far-seed0", "rooms-6/far-seed1", "rooms-4/far-seed1"]


def test_plan_runs_filters_by_name_and_seeds() -> None:
    study = study_with("a", "b", seeds="2")
    assert [run.name for run in plan_runs(study, only="b-")] == ["probe-memory/b-seed0", "probe-memory/b-seed1"]
    assert [run.config.seed for run in plan_runs(study, seeds=3, only="/a")] == [0, 1, 2]
    with pytest.raises(UserError, match="--filter 'c-seed' matches none of the 4 runs; a name looks like probe-m"):
        plan_runs(study, only="c-seed")
    with pytest.raises(UserError, match="--seeds is 0"):
        plan_runs(study, seeds=0)


def test_settings_of_a_variant_override_those_of_the_study() -> None:
    settings = "settings = { curiosity.horizon = 2, agent.gamma = 0.9 }"
    [run] = plan_runs(
        study_of("settings.agent.gamma = 0.5\nsettings.vmpo.top_fraction = 0.25", "[[variants]]", settings)
    )
    assert (run.config.curiosity.horizon, run.config.agent.gamma, run.config.vmpo.top_fraction) == (2, 0.9, 0.25)


def test_command_line_parses_to_the_planned_config() -> None:
    study = parse_study(
        "name = 'x'\ntasks = ['rooms-4']\nseeds = [3]\n[settings]\nnetwork.value_hidden = [4, 5]\n"
        "log.tensorboard = true\noptimizer.learning_rate = 1e-5\n"
        "[[variants]]\nmethod = 'rnd'\nregime = 'intrinsic'\n"
        "settings = { curiosity.share_representation = false, curiosity.prioritize = true }\n"
        "[[variants]]\nablation = 'horizon-1'",
        "x.toml",
    )
    runs = plan_runs(study)
    assert [parse_arguments(run) for run in runs] == [run.config for run in runs]
    assert [run.name for run in runs] == ["rooms-4/rnd-intrinsic-seed3", "rooms-4/byol-explore-horizon-1-seed3"]


def test_env_settings_of_studies_and_variants() -> None:
    study = parse_study(
        "name = 'x'\npreset = 'atari-small'\ntasks = ['atari:freeway']\nseeds = [3]\n"
        "settings.atari = { max_noops = 5, sticky_action_prob = 0.5 }\n[[variants]]\n"
        "settings = { atari.sticky_action_prob = 0.25 }\n[[variants]]\nname = 'plain'",
        "x.toml",
    )
    runs = plan_runs(study)
    assert [run.config.atari for run in runs] == [
        AtariSettings(max_noops=5, sticky_action_prob=0.25),
        AtariSettings(max_noops=5, sticky_action_prob=0.5),
    ]
    assert [parse_arguments(run) for run in runs] == [run.config for run in runs]
    check_environments(study, runs)
    for wrong, message in (
        ("atari.nops = 5", "unknown setting 'atari.nops' .*; choose from: atari.action_repeat, atari.frame_stack"),
        ("atari.max_noops = -5", "atari.max_noops is -5: it must not be negative"),
        ("gymnasium.max_steps = 5", "gymnasium.max_steps is 5, but atari:freeway does not use it"),
    ):
        with pytest.raises(UserError, match=f"^small.toml: .*{message}"):
            plan_runs(study_of(f"[[variants]]\nsettings.{wrong}", tasks="['atari:freeway']"))


def test_external_code_in_settings_needs_consent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TRUST_ENV_VAR, raising=False)
    study = study_of("[[variants]]\nsettings.gymnasium.wrappers = ['evil:Wrapper']", tasks="['gymnasium:CartPole-v1']")
    with pytest.raises(UserError, match="names code outside this package: evil:Wrapper"):
        plan_runs(study)
    monkeypatch.setenv(TRUST_ENV_VAR, "1")
    assert plan_runs(study)


def test_begun_run_is_resumed(tmp_path: Path) -> None:
    [run] = plan_runs(study_of())
    assert "--resume" not in run.train_arguments(tmp_path)
    write_json(run.directory(tmp_path) / "config.json", {})
    assert run.train_arguments(tmp_path)[-2:] == ["--resume", "--quiet"]


def test_command_line_quotes_arguments() -> None:
    assert command_line(["train", "--run-dir", "my place"]) == "byol-explore train --run-dir 'my place'"


def test_task_dir_name_has_no_special_characters() -> None:
    assert task_dir_name("gymnasium:a/B-v1") == "gymnasium-a-B-v1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("preset = 'big'", "small.toml: unknown preset 'big'; choose from: grid, atari"),
        ("[[variants]]\nmethod = 'vae'", "variant 'vae': unknown method 'vae'; choose from: byol-explore"),
        ("[[variants]]\nregime = 'both'", "variant 'byol-explore-both': unknown regime 'both'; choose from: mixed"),
        ("[[variants]]\nmethod = 'rnd'\nablation = 'horizon-1'", "variant 'rnd-horizon-1': ablation 'horizon-1'"),
        ("[[variants]]\nsettings = { agent.gamma = 1.0 }", "variant 'byol-explore': agent.gamma is 1.0"),
        ("[[variants]]\nsettings = { network.core = 'rnn' }", "unknown network.core 'rnn'; choose from: gru, lstm"),
        ("[[variants]]\nname = 'x'\nablation = 'horizon-1'\nsettings = { curiosity.horizon = 2 }",
         "variant 'x': ablation 'horizon-1' is named but"),
    ],
)  # fmt: skip
def test_invalid_configs_are_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        plan_runs(study_of(text))
    assert str(error.value).startswith("small.toml: ")


@pytest.mark.parametrize(
    ("tasks", "setting", "message"),
    [
        ("['rooms-x']", "agent.gamma = 0.5", "small.toml: unknown environment 'rooms-x'"),
        ("['probe:memory']", "network.encoder = 'atari'", "network.encoder 'atari' does not fit"),
    ],
)
def test_check_environments_refuses_what_does_not_fit(tasks: str, setting: str, message: str) -> None:
    study = study_of(f"[[variants]]\nsettings = {{ {setting} }}", tasks=tasks)
    with pytest.raises(UserError, match=message):
        check_environments(study, plan_runs(study))


# What comes with the package


@pytest.mark.parametrize(
    "name", ["laptop", "rooms", "horizon-sweep", "ema-sweep", "prioritized-baselines", "bonuses", "noise"]
)
def test_laptop_studies_can_be_planned(name: str) -> None:
    study = read_study(name)
    runs = plan_runs(study)
    check_environments(study, runs)
    assert study.needs.startswith("two CPU cores")
    assert parse_arguments(runs[-1]) == runs[-1].config
    assert all(run.config.stop_at_success_rate == 0 for run in runs)


def test_atari_study_equals_the_paper() -> None:
    runs = plan_runs(read_study("atari-hard10"))
    assert {run.config.env for run in runs} == {f"atari:{game}" for game in HARD_GAMES}
    assert len(runs) == 10 * 12 * 3
    [big] = plan_runs(read_study("atari-hard10"), seeds=1, only="montezuma_revenge/big")
    assert (big.config.curiosity.horizon, big.config.runtime.sequence_length) == (1, 128)
    assert parse_arguments(big) == big.config


def test_atari_study_has_every_column_of_the_paper_tables() -> None:
    """Curiosity alone is there too, for every method that the paper tried."""
    planned = {(run.config.regime, run.variant) for run in plan_runs(read_study("atari-hard10"), seeds=1)}
    tables = {table: facts.regime for table, facts in TABLES.items() if table.startswith("atari-")}
    assert set(tables.values()) == {"mixed", "intrinsic"}
    printed = {(regime, name) for table, regime in tables.items() for name in paper_scores(table)}
    assert {(regime, name.removesuffix("-intrinsic")) for regime, name in planned} == printed


def test_bonuses_study_has_every_method() -> None:
    planned = {run.config.method for run in plan_runs(read_study("bonuses"), seeds=1)}
    assert planned == {name for name in METHODS.names() if ":" not in name}


def test_sweeps_of_horizons_and_decays() -> None:
    horizons = [run.config.curiosity.horizon for run in plan_runs(read_study("horizon-sweep"), seeds=1)]
    decays = [run.config.curiosity.target_decay for run in plan_runs(read_study("ema-sweep"), seeds=1)]
    assert (horizons, decays) == ([1, 2, 4, 8, 16], [0.0, 0.9, 0.99, 0.999, 1.0])


def test_longest_horizon_fits_several_times_into_a_sequence() -> None:
    """Transitions per batch and rollout, and updates per rollout, equal those of the preset."""
    plain = make_config()
    updates = plain.runtime.num_envs // plain.runtime.batch_size
    for run in plan_runs(read_study("horizon-sweep"), seeds=1):
        runtime, transitions = run.config.runtime, run.config.runtime.sequence_length - 1
        assert transitions >= 4 * 16
        assert runtime.batch_size * transitions == plain.runtime.batch_size * (plain.runtime.sequence_length - 1)
        assert run.config.steps_per_round == plain.steps_per_round
        assert run.config.runtime.num_envs // run.config.runtime.batch_size == updates


def test_hard_eight_study_finds_its_levels() -> None:
    study = read_study("hard-eight")
    assert study.needs == "accelerators"
    check_environments(study, plan_runs(study))


def test_variant_with_own_tasks_seeds_and_steps() -> None:
    study = parse_study(
        "name = 'x'\ntasks = ['rooms-4', 'rooms-6']\nmultitask = true\nseeds = 2\nsteps = 100_000\nmethods = ['rnd']\n"
        "[[variants]]\nname = 'apart'\nmultitask = false\nsteps = 50_000\n"
        "[[variants]]\nname = 'other'\ntasks = ['corridor-4']\nseeds = [5]\n",
        "it",
    )  # fmt: skip
    runs = {run.name: run.config.steps for run in plan_runs(study)}
    assert runs == {
        "2-tasks/rnd-seed0": 100_000, "rooms-4/apart-seed0": 50_000, "rooms-6/apart-seed0": 50_000,
        "2-tasks/rnd-seed1": 100_000, "rooms-4/apart-seed1": 50_000, "rooms-6/apart-seed1": 50_000,
        "corridor-4/other-seed5": 100_000,
    }  # fmt: skip
    assert [run.name for run in plan_runs(study, seeds=3, only="other")] == ["corridor-4/other-seed5"]
    assert [run.name for run in plan_runs(study, seeds=3, only="rnd")] == [f"2-tasks/rnd-seed{n}" for n in range(3)]


@pytest.mark.parametrize(("line", "message"), [
    ("tasks = []", "variant 'v': tasks is missing or empty"),
    ("tasks = ['a', 'a']", "variant 'v': tasks names 'a' twice"),
    ("seeds = 0", "variant 'v': seeds is 0"),
    ("steps = 0", "variant 'v': steps is 0"),
    ("multitask = 1", "variant 'v': multitask is 1: it must be true or false"),
])  # fmt: skip
def test_fields_of_variants_are_checked(line: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        parse_study(f"name = 'x'\ntasks = ['rooms-4']\n[[variants]]\nname = 'v'\n{line}\n", "it")


def test_hard_eight_study_has_the_experiments_of_the_paper() -> None:
    runs = plan_runs(read_study("hard-eight"), seeds=1)
    single = [run for run in runs if run.variant == "single-task"]
    joint = next(run.config for run in runs if run.variant == "byol-explore")
    assert len(single) == 8
    assert sum(run.config.steps for run in single) == joint.steps
    batch = joint.runtime.batch_size * (joint.runtime.sequence_length - 1)
    assert {run.config.steps for run in single} == {320_000 * batch}
    horizons = {run.config.curiosity.horizon for run in runs if run.config.method == "byol-explore"}
    assert horizons == {1, 2, 4, 8, 10, 16}
    assert {run.config.method for run in runs if run.config.regime == "intrinsic"} == {"byol-explore", "rnd", "icm"}
    tuned = [run.config.curiosity for run in runs if "tuned" in run.variant]
    assert len(tuned) == 6
    assert {curiosity.embedding_size for curiosity in tuned} == {2 * joint.network.embedding_size}


def test_settings_of_a_study_are_merged_with_the_preset() -> None:
    study = parse_study(
        "name = 'x'\npreset = 'hard-eight-small'\ntasks = ['hard-eight:baseball', 'rooms-4']\nseeds = 1\n"
        "[[variants]]\nname = 'far'\ntasks = ['hard-eight:baseball']\n"
        "settings = {hard_eight.action_set = 'continuous'}\n"
        "[[variants]]\nname = 'other'\ntasks = ['rooms-4']\nsettings = {network.action_bins = [3, 4]}\n",
        "it",
    )
    far, other = plan_runs(study)
    assert far.config.hard_eight == HardEightSettings("48x36", "continuous")
    assert other.config.hard_eight == HardEightSettings()
    assert other.config.network.action_bins == (3, 4)
    for run in (far, other):
        assert parse_train(run.cli_args).config == run.config
