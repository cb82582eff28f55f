"""From a study to its runs and their commands."""

import re
from pathlib import Path

import pytest

from byol_explore.cli.train import parse_train
from byol_explore.envs.adapters.atari_games import HARD_GAMES
from byol_explore.errors import UserError
from byol_explore.evaluation.paper import TABLES, paper_scores
from byol_explore.registries import METHODS
from byol_explore.settings.presets import make_config
from byol_explore.settings.trust import VARIABLE
from byol_explore.study.file import parse_study, read_study
from byol_explore.study.plan import PlannedRun, check_tasks, folder_name, plan_runs, shell_line
from study.helpers import study_of, study_with, write_json

PLACE = Path("place")


def asked_for(run: PlannedRun) -> object:
    """The configuration that the command line makes of a run's options."""
    return parse_train(run.train_arguments(PLACE)[1:]).config


def test_every_task_variant_and_seed_is_a_run() -> None:
    runs = plan_runs(study_of("methods = ['rnd', 'none']", tasks="['rooms-4', 'atari:hero']", seeds="[5, 7]"))
    tasks = ("rooms-4", "atari-hero")
    expected = [f"{task}/{v}-seed{seed}" for seed in (5, 7) for task in tasks for v in ("rnd", "none")]
    assert [run.name for run in runs] == expected
    assert [run.config.env for run in runs[:4]] == ["rooms-4", "rooms-4", "atari:hero", "atari:hero"]
    assert {run.config.steps for run in runs} == {96}


def test_all_tasks_can_be_one_run() -> None:
    [run] = plan_runs(study_of("multitask = true", tasks="['rooms-4', 'rooms-6']"))
    assert (run.name, run.config.env) == ("2-tasks/byol-explore-seed0", "rooms-4,rooms-6")


@pytest.mark.parametrize(
    ("tasks", "folder"),
    [("['rooms-4,rooms-6', 'rooms-4,rooms-8']", "2-tasks"), ("['probe:memory', 'probe-memory']", "probe-memory")],
)
def test_runs_on_other_tasks_never_share_a_directory(tasks: str, folder: str) -> None:
    with pytest.raises(UserError, match=rf"^small.toml: runs on the tasks .* both be kept in {folder}/byol-explore-se"):
        plan_runs(study_of(tasks=tasks))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("processes = 2", "distributed.processes is 2"),
        ("coordinator = '10.0.0.1:4711'\nsettings.distributed.processes = 2", "distributed.coordinator is '10.0.0.1:"),
        ("timeout = 5", "distributed.timeout is 5"),
    ],
)
def test_a_run_of_a_study_is_one_process(settings: str, words: str) -> None:
    """Others would never come, or be those of another run."""
    with pytest.raises(UserError, match=f"^small.toml: variant 'byol-explore': {words}") as error:
        plan_runs(study_of(f"settings.distributed.{settings}"))
    assert "every run of a study is one process: leave distributed.* out" in str(error.value)
    assert plan_runs(study_of("settings.distributed.processes = 1"))


def test_a_variant_has_fewer_seeds_on_another_task() -> None:
    again = "[[variants]]\nname = 'far'\n[[variants]]\nname = 'far'\ntasks = ['rooms-4']\nseeds = [1]"
    runs = plan_runs(study_of(again, tasks="['rooms-6']", seeds="2"))
    assert [run.name for run in runs] == ["rooms-6/far-seed0", "rooms-6/far-seed1", "rooms-4/far-seed1"]


def test_runs_can_be_chosen() -> None:
    study = study_with("a", "b", seeds="2")
    assert [run.name for run in plan_runs(study, only="b-")] == ["probe-memory/b-seed0", "probe-memory/b-seed1"]
    assert [run.config.seed for run in plan_runs(study, seeds=3, only="/a")] == [0, 1, 2]
    with pytest.raises(UserError, match="--only 'c-seed' fits none of the 4 runs: they are called like probe-memory/a"):
        plan_runs(study, only="c-seed")
    with pytest.raises(UserError, match="--seeds is 0"):
        plan_runs(study, seeds=0)


def test_a_variants_settings_come_before_the_studys() -> None:
    settings = "settings = { curiosity.horizon = 2, agent.gamma = 0.9 }"
    [run] = plan_runs(
        study_of("settings.agent.gamma = 0.5\nsettings.vmpo.top_fraction = 0.25", "[[variants]]", settings)
    )
    assert (run.config.curiosity.horizon, run.config.agent.gamma, run.config.vmpo.top_fraction) == (2, 0.9, 0.25)


def test_the_command_line_understands_a_run_as_planned() -> None:
    study = parse_study(
        "name = 'x'\ntasks = ['rooms-4']\nseeds = [3]\n[settings]\nnetwork.value_hidden = [4, 5]\n"
        "log.tensorboard = true\noptimizer.learning_rate = 1e-5\n"
        "[[variants]]\nmethod = 'rnd'\nregime = 'intrinsic'\n"
        "settings = { curiosity.share = false, curiosity.prioritize = true }\n"
        "[[variants]]\nablation = 'horizon-1'",
        "x.toml",
    )
    runs = plan_runs(study)
    assert [asked_for(run) for run in runs] == [run.config for run in runs]
    assert [run.name for run in runs] == ["rooms-4/rnd-intrinsic-seed3", "rooms-4/byol-explore-horizon-1-seed3"]


def test_environments_have_settings_in_a_study_too() -> None:
    study = parse_study(
        "name = 'x'\npreset = 'atari-small'\ntasks = ['atari:freeway']\nseeds = [3]\n"
        "settings.env_settings = { noops = 5, sticky = 0.5 }\n[[variants]]\n"
        "settings = { env_settings = ['sticky=0.25'] }\n[[variants]]\nname = 'plain'",
        "x.toml",
    )
    runs = plan_runs(study)
    assert [run.config.env_settings for run in runs] == [("noops=5", "sticky=0.25"), ("noops=5", "sticky=0.5")]
    assert [asked_for(run) for run in runs] == [run.config for run in runs]
    check_tasks(study, runs)
    for wrong, message in (("nops = 5", "unknown environment setting 'nops'"), ("noops = -5", "noops is -5")):
        with pytest.raises(UserError, match=f"^small.toml: .*{message}"):
            plan_runs(study_of(f"[[variants]]\nsettings.env_settings.{wrong}", tasks="['atari:freeway']"))


def test_code_that_settings_name_needs_consent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    study = study_of(
        "[[variants]]\nsettings.env_settings = { wrappers = 'evil:Wrapper' }", tasks="['gymnasium:CartPole-v1']"
    )
    with pytest.raises(UserError, match="names code outside this package: wrappers=evil:Wrapper"):
        plan_runs(study)
    monkeypatch.setenv(VARIABLE, "1")
    assert plan_runs(study)


def test_a_run_that_has_begun_is_resumed(tmp_path: Path) -> None:
    [run] = plan_runs(study_of())
    assert "--resume" not in run.train_arguments(tmp_path)
    write_json(run.directory(tmp_path) / "config.json", {})
    assert run.train_arguments(tmp_path)[-2:] == ["--resume", "--quiet"]


def test_a_command_can_be_typed() -> None:
    assert shell_line(["train", "--run-dir", "my place"]) == "byol-explore train --run-dir 'my place'"


def test_folders_have_plain_names() -> None:
    assert folder_name("gymnasium:a/B-v1") == "gymnasium-a-B-v1"


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
def test_a_run_that_cannot_be_is_refused(text: str, message: str) -> None:
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
def test_what_only_environments_know_is_checked_too(tasks: str, setting: str, message: str) -> None:
    study = study_of(f"[[variants]]\nsettings = {{ {setting} }}", tasks=tasks)
    with pytest.raises(UserError, match=message):
        check_tasks(study, plan_runs(study))


# What comes with the package


@pytest.mark.parametrize(
    "name", ["laptop", "rooms", "horizon-sweep", "ema-sweep", "prioritized-baselines", "bonuses", "noise"]
)
def test_studies_for_a_laptop_can_be_run(name: str) -> None:
    study = read_study(name)
    runs = plan_runs(study)
    check_tasks(study, runs)
    assert study.needs.startswith("two CPU cores")
    assert asked_for(runs[-1]) == runs[-1].config
    assert all(run.config.stop_at_success == 0 for run in runs)


def test_the_atari_study_is_the_papers() -> None:
    runs = plan_runs(read_study("atari-hard10"))
    assert {run.config.env for run in runs} == {f"atari:{game}" for game in HARD_GAMES}
    assert len(runs) == 10 * 12 * 3
    [big] = plan_runs(read_study("atari-hard10"), seeds=1, only="montezuma_revenge/big")
    assert (big.config.curiosity.horizon, big.config.runtime.sequence_length) == (1, 128)
    assert asked_for(big) == big.config


def test_the_atari_study_has_every_column_of_the_papers_tables() -> None:
    """Curiosity alone too, which the paper tried with every method that has any."""
    planned = {(run.config.regime, run.variant) for run in plan_runs(read_study("atari-hard10"), seeds=1)}
    tables = {table: facts.regime for table, facts in TABLES.items() if table.startswith("atari-")}
    assert set(tables.values()) == {"mixed", "intrinsic"}
    printed = {(regime, name) for table, regime in tables.items() for name in paper_scores(table)}
    assert {(regime, name.removesuffix("-intrinsic")) for regime, name in planned} == printed


def test_the_study_of_bonuses_has_every_one_of_them() -> None:
    planned = {run.config.method for run in plan_runs(read_study("bonuses"), seeds=1)}
    assert planned == {name for name in METHODS.names() if ":" not in name}


def test_horizons_and_decays_are_swept() -> None:
    horizons = [run.config.curiosity.horizon for run in plan_runs(read_study("horizon-sweep"), seeds=1)]
    decays = [run.config.curiosity.target_decay for run in plan_runs(read_study("ema-sweep"), seeds=1)]
    assert (horizons, decays) == ([1, 2, 4, 8, 16], [0.0, 0.9, 0.99, 0.999, 1.0])


def test_the_longest_horizon_fits_several_times_into_a_sequence() -> None:
    """With as many transitions in a batch and a rollout, and as many updates, as the preset has."""
    plain = make_config()
    updates = plain.runtime.num_envs // plain.runtime.batch_size
    for run in plan_runs(read_study("horizon-sweep"), seeds=1):
        runtime, transitions = run.config.runtime, run.config.runtime.sequence_length - 1
        assert transitions >= 4 * 16
        assert runtime.batch_size * transitions == plain.runtime.batch_size * (plain.runtime.sequence_length - 1)
        assert run.config.steps_per_rollout == plain.steps_per_rollout
        assert run.config.runtime.num_envs // run.config.runtime.batch_size == updates


def test_the_study_of_hard_eight_finds_its_levels() -> None:
    study = read_study("hard-eight")
    assert study.needs == "accelerators"
    check_tasks(study, plan_runs(study))


def test_a_variant_may_have_tasks_seeds_and_steps_of_its_own() -> None:
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
def test_what_a_variant_says_for_itself_is_checked(line: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        parse_study(f"name = 'x'\ntasks = ['rooms-4']\n[[variants]]\nname = 'v'\n{line}\n", "it")


def test_hard_eight_has_all_that_the_paper_shows() -> None:
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


def test_settings_of_a_study_are_joined_to_the_presets() -> None:
    study = parse_study(
        "name = 'x'\npreset = 'hard-eight-small'\ntasks = ['hard-eight:baseball', 'rooms-4']\nseeds = 1\n"
        "[[variants]]\nname = 'far'\ntasks = ['hard-eight:baseball']\n"
        "settings = {env_settings.actions = 'continuous'}\n"
        "[[variants]]\nname = 'other'\ntasks = ['rooms-4']\nsettings = {network.action_bins = [3, 4]}\n",
        "it",
    )
    far, other = plan_runs(study)
    assert far.config.env_settings == ("resolution=48x36", "actions=continuous")
    assert other.config.env_settings == ()
    assert other.config.network.action_bins == (3, 4)
    for run in (far, other):
        assert parse_train(run.options).config == run.config
