"""The presets' values, against the paper's tables."""

import dataclasses
from typing import Any

import pytest

from byol_explore.cli.train import parse_train
from byol_explore.config.config import Config, is_prioritized
from byol_explore.config.presets import PRESETS, Preset, make_config, validate_config
from byol_explore.config.sections import RuntimeConfig, VMPOConfig
from byol_explore.envs.families import AtariSettings, HardEightSettings
from byol_explore.envs.hard_eight.tasks import SPECS
from byol_explore.envs.registry import make_envs
from byol_explore.errors import UserError
from byol_explore.networks.core_inputs import action_bins
from byol_explore.networks.cores import CORES
from byol_explore.registry import ENCODERS
from byol_explore.study.file import read_study


def values(part: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(part, name) for name in names}


@pytest.fixture(scope="module")
def atari() -> Config:
    return make_config("atari")


def test_the_networks_of_the_papers_atari_agent(atari: Config) -> None:
    """Appendix A.1: N = 512, a GRU of M = 256, action embeddings of 32, one hidden layer of 256 in every head."""
    assert values(atari.network, "encoder", "embedding_size", "core", "belief_size", "action_embedding_size") == {
        "encoder": "atari", "embedding_size": 512, "core": "gru", "belief_size": 256, "action_embedding_size": 32,
    }  # fmt: skip
    heads = ("policy_hidden", "value_hidden", "predictor_hidden")
    assert values(atari.network, *heads) == dict.fromkeys(heads, (256,))


def test_the_curiosity_of_the_papers_atari_agent(atari: Config) -> None:
    expected = {"horizon": 8, "target_decay": 0.99, "mixing": 0.1, "loss_weight": 5.0, "normalizer_decay": 0.99}
    assert values(atari.curiosity, *expected) == expected
    assert atari.curiosity.share_representation
    assert is_prioritized(atari)


def test_the_learner_of_the_papers_atari_agent(atari: Config) -> None:
    expected = {
        "init_temperature": 0.5, "epsilon_temperature": 0.01, "init_alpha_categorical": 0.5,
        "epsilon_categorical": 0.005,
        "top_fraction": 0.5, "target_period": 10,
    }  # fmt: skip
    assert values(atari.vmpo, *expected) == expected
    shared = {"gamma": 0.999, "value_weight": 0.5, "entropy_weight": 0.001, "popart_step_size": 0.01}
    assert values(atari.agent, *shared) == shared
    assert atari.algorithm == "v-mpo"
    assert values(atari.optimizer, "learning_rate", "b1") == {"learning_rate": 1e-4, "b1": 0.9}
    assert values(atari.runtime, "batch_size", "sequence_length") == {"batch_size": 32, "sequence_length": 64}


def test_the_games_of_the_papers_atari_agent(atari: Config) -> None:
    """As the kind of agents do that it follows: nothing clipped, no life counted, no sticky action; half an hour."""
    games = atari.atari
    assert games == AtariSettings(
        action_repeat=4, frame_stack=1, sticky_action_prob=0.0, full_action_set=True, max_noops=30,
        max_frames=108_000, clip_rewards=False,
        terminal_on_life_loss=False,
    )  # fmt: skip
    assert atari.steps * games.action_repeat == 1_000_000_000
    assert atari.log.evaluate_every > 0
    assert atari.log.evaluate_episodes == 10


def test_the_sequences_of_appendix_c_are_one_option_away(atari: Config) -> None:
    """128 there, where the main text has 64."""
    asked = parse_train(["--preset", "atari", "--runtime.sequence-length", "128"]).config
    expected = dataclasses.replace(atari, runtime=dataclasses.replace(atari.runtime, sequence_length=128))
    assert asked.validate() == expected


def test_the_papers_agent_for_hard_eight() -> None:
    """Appendix A.2 and C: N = 256, an LSTM of M = 512, K = 10."""
    config = make_config("hard-eight")
    sizes = {"embedding_size": 256, "core": "lstm", "belief_size": 512, "policy_hidden": (512,), "value_hidden": (512,),
             "predictor_hidden": (128, 256, 512), "core_input_size": 20, "core_mix_size": 512,
             "action_embedding_size": 76}  # fmt: skip
    assert values(config.network, *sizes) == sizes
    assert sum(action_bins(SPECS["continuous"], config.network.action_bins)) + 2 == 76
    assert config.network.use_prev_reward
    assert not config.network.normalize_vectors
    assert values(config.curiosity, "horizon", "target_decay", "mixing", "loss_weight") == {
        "horizon": 10, "target_decay": 0.99, "mixing": 0.01, "loss_weight": 1.0,
    }  # fmt: skip
    scales = {"gamma": 0.99, "entropy_weight": 0.0, "extrinsic_rms_step_size": 1e-5, "intrinsic_rms_step_size": 0.01}
    assert values(config.agent, *scales) == scales
    assert config.vmpo == VMPOConfig(
        init_temperature=1.0, epsilon_temperature=0.1, init_alpha_categorical=5.0, epsilon_categorical=0.0016,
        init_alpha_mean=1.0,
        epsilon_mean=0.001, init_alpha_covariance=1.0, epsilon_covariance=0.0001,
    )  # fmt: skip
    assert (config.optimizer.learning_rate, config.optimizer.b1) == (1e-4, 0.0)
    assert (config.runtime.batch_size, config.runtime.sequence_length) == (48, 80)
    assert config.env_ids == list(read_study("hard-eight").tasks)
    assert config.task_sampling == "random"


def test_the_large_agent_looks_one_step_ahead_in_longer_sequences(atari: Config) -> None:
    """For half the learner steps: as many environment steps."""
    big = make_config("atari-big")
    assert (big.curiosity.horizon, big.runtime.sequence_length) == (1, 128)
    back = dataclasses.replace(
        big,
        preset="atari",
        curiosity=dataclasses.replace(big.curiosity, horizon=8),
        runtime=dataclasses.replace(big.runtime, sequence_length=64),
    )
    assert back == atari


def test_the_small_agent_is_small(atari: Config) -> None:
    """Everything about the games is as in the paper; only sizes and speeds of learning are not."""
    small = make_config("atari-small")
    assert small.network.encoder == "image"
    assert (small.env, small.atari) == (atari.env, atari.atari)
    assert small.runtime.num_envs < atari.runtime.num_envs
    assert small.network.embedding_size < atari.network.embedding_size
    assert small.network.belief_size < atari.network.belief_size
    assert small.steps_per_dispatch < 10_000


@pytest.mark.parametrize("preset", PRESETS.names())
def test_a_preset_names_existing_parts_and_has_a_description(preset: str) -> None:
    config = make_config(preset)
    assert config.network.encoder in ("auto", *ENCODERS.names())
    assert config.validate() == config
    assert config.network.core in CORES
    assert PRESETS.get(preset).description
    assert config.log.log_every <= config.log.checkpoint_every <= config.steps
    assert config.log.log_every >= config.steps_per_dispatch


def test_the_grid_preset_has_less_curiosity_and_a_quicker_policy() -> None:
    grid = make_config()
    assert grid.preset == "grid"
    assert (grid.curiosity.mixing, grid.stop_at_success_rate) == (0.05, 0.95)
    assert (grid.vmpo, grid.runtime) == (VMPOConfig(epsilon_temperature=0.5), RuntimeConfig())
    assert (grid.agent.value_weight, grid.agent.entropy_weight) == (0.01, 0.01)
    assert grid.optimizer.learning_rate == 2e-3


@pytest.mark.parametrize(
    "changes",
    [{"method": 3}, {"preset": None}, {"ablation": []}, {"algorithm": None}, {"env_kwargs": 5},
     {"env_kwargs": None}, {"env_kwargs": {"a": object()}}, {"atari": None}, {"dm_hard_eight": {"resolution": 3}},
     {"network": {"core": "rnn"}}, {"network": {"core_inputs": (1,)}}, {"curiosity": None}],
)  # fmt: skip
def test_values_of_impossible_types_are_errors_of_one_line(changes: dict[str, Any]) -> None:
    with pytest.raises(UserError) as caught:
        validate_config(make_config(**changes))
    assert "\n" not in str(caught.value)


SMALL = ("--preset", "hard-eight-small")


def test_settings_of_environments_are_joined_to_the_presets() -> None:
    expected = HardEightSettings("48x36", "continuous")
    assert parse_train([*SMALL, "--hard-eight.action-set", "continuous"]).config.hard_eight == expected
    assert make_config("hard-eight-small", hard_eight={"action_set": "continuous"}).hard_eight == expected
    assert parse_train(SMALL).config.hard_eight == HardEightSettings("48x36", "discrete")


def test_settings_of_a_presets_environment_are_not_those_of_another_family() -> None:
    assert parse_train([*SMALL, "--env", "rooms-4"]).config.hard_eight == HardEightSettings()
    game = parse_train([*SMALL, "--env", "atari:hero", "--atari.sticky-action-prob", "0.5"]).config.validate()
    assert (game.hard_eight, game.atari.sticky_action_prob) == (HardEightSettings(), 0.5)
    same = parse_train([*SMALL, "--env", "hard-eight:baseball"]).config
    assert same.hard_eight == HardEightSettings("48x36", "discrete")


def test_a_setting_that_the_environment_does_not_use_is_refused() -> None:
    config = parse_train([*SMALL, "--env", "rooms-4", "--hard-eight.action-repeat", "2"]).config
    with pytest.raises(UserError, match=r"^hard_eight.action_repeat is 2, but rooms-4 does not use it: .*hard-eight:"):
        validate_config(config)
    usual = parse_train([*SMALL, "--env", "rooms-4", "--hard-eight.action-set", "continuous"]).config
    assert validate_config(usual) == usual


def test_keyword_arguments_of_a_preset_are_those_of_its_environment() -> None:
    PRESETS.register("mine", Preset("it", Config(env="my.envs:Lock", env_kwargs=("length=7",))), replace=True)
    try:
        assert make_config("mine").env_kwargs == ("length=7",)
        assert make_config("mine", env="my.envs:Other").env_kwargs == ()
        assert make_config("mine", env_kwargs={"length": 8}).env_kwargs == ("length=8",)
    finally:
        PRESETS._added.pop("mine")


def test_the_error_names_a_missing_environment() -> None:
    config = validate_config(parse_train([*SMALL, "--env", "hard-eigth"]).config)
    with pytest.raises(UserError, match="unknown environment 'hard-eigth'"):
        make_envs(config.env_ids, config.env_settings)
