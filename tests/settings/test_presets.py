"""The presets' values, against the paper's tables."""

import dataclasses
from typing import Any

import pytest

from byol_explore.cli.train import parse_train
from byol_explore.envs.adapters.atari_settings import AtariSettings
from byol_explore.envs.registry import make_envs
from byol_explore.envs.settings import fill, read_words
from byol_explore.envs.worlds.hard_eight.controls import SPECS
from byol_explore.errors import UserError
from byol_explore.networks.actions import bins_per_dimension
from byol_explore.networks.cores import CORES
from byol_explore.registries import ENCODERS
from byol_explore.settings.config import Config
from byol_explore.settings.methods import prioritizes
from byol_explore.settings.parts import RuntimeConfig, VMPOConfig
from byol_explore.settings.presets import PRESETS, checked, make_config
from byol_explore.study.file import read_study


def values(part: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(part, name) for name in names}


@pytest.fixture(scope="module")
def atari() -> Config:
    return make_config("atari")


def test_the_networks_of_the_papers_atari_agent(atari: Config) -> None:
    """Appendix A.1: N = 512, a GRU of M = 256, action embeddings of 32, one hidden layer of 256 in every head."""
    assert values(atari.network, "encoder", "embedding_size", "core", "belief_size", "action_size") == {
        "encoder": "atari", "embedding_size": 512, "core": "gru", "belief_size": 256, "action_size": 32,
    }  # fmt: skip
    heads = ("policy_hidden", "value_hidden", "predictor_hidden")
    assert values(atari.network, *heads) == dict.fromkeys(heads, (256,))


def test_the_curiosity_of_the_papers_atari_agent(atari: Config) -> None:
    expected = {"horizon": 8, "target_decay": 0.99, "mixing": 0.1, "loss_weight": 5.0, "normalizer_decay": 0.99}
    assert values(atari.curiosity, *expected) == expected
    assert atari.curiosity.share
    assert prioritizes(atari)


def test_the_learner_of_the_papers_atari_agent(atari: Config) -> None:
    expected = {
        "temperature": 0.5, "temperature_epsilon": 0.01, "kl_categorical": 0.5, "kl_categorical_epsilon": 0.005,
        "top_fraction": 0.5, "target_period": 10,
    }  # fmt: skip
    assert values(atari.vmpo, *expected) == expected
    shared = {"gamma": 0.999, "value_weight": 0.5, "entropy_weight": 0.001, "popart_step": 0.01}
    assert values(atari.agent, *shared) == shared
    assert atari.algorithm == "v-mpo"
    assert values(atari.optimizer, "learning_rate", "b1") == {"learning_rate": 1e-4, "b1": 0.9}
    assert values(atari.runtime, "batch_size", "sequence_length") == {"batch_size": 32, "sequence_length": 64}


def test_the_games_of_the_papers_atari_agent(atari: Config) -> None:
    """As the kind of agents do that it follows: nothing clipped, no life counted, no sticky action; half an hour."""
    games = fill(AtariSettings, read_words(atari.env_settings))
    assert games == AtariSettings(
        action_repeat=4, stack=1, sticky=0.0, full_action_set=True, noops=30, max_frames=108_000, clip_rewards=False,
        life_loss=False,
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
             "predictor_hidden": (128, 256, 512), "sense_size": 20, "mix_size": 512, "action_size": 76}  # fmt: skip
    assert values(config.network, *sizes) == sizes
    assert sum(bins_per_dimension(SPECS["continuous"], config.network.action_bins)) + 2 == 76
    assert config.network.reads_reward
    assert not config.network.normalize_vectors
    assert values(config.curiosity, "horizon", "target_decay", "mixing", "loss_weight") == {
        "horizon": 10, "target_decay": 0.99, "mixing": 0.01, "loss_weight": 1.0,
    }  # fmt: skip
    scales = {"gamma": 0.99, "entropy_weight": 0.0, "extrinsic_scale_step": 1e-5, "intrinsic_scale_step": 0.01}
    assert values(config.agent, *scales) == scales
    assert config.vmpo == VMPOConfig(
        temperature=1.0, temperature_epsilon=0.1, kl_categorical=5.0, kl_categorical_epsilon=0.0016, kl_mean=1.0,
        kl_mean_epsilon=0.001, kl_covariance=1.0, kl_covariance_epsilon=0.0001,
    )  # fmt: skip
    assert (config.optimizer.learning_rate, config.optimizer.b1) == (1e-4, 0.0)
    assert (config.runtime.batch_size, config.runtime.sequence_length) == (48, 80)
    assert config.env_ids == list(read_study("hard-eight").tasks)
    assert config.tasks == "drawn"


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
    assert (small.env, small.env_settings) == (atari.env, atari.env_settings)
    assert small.runtime.num_envs < atari.runtime.num_envs
    assert small.network.embedding_size < atari.network.embedding_size
    assert small.network.belief_size < atari.network.belief_size
    assert small.steps_per_dispatch < 10_000


@pytest.mark.parametrize("preset", PRESETS.names())
def test_a_preset_names_what_exists_and_says_what_it_is(preset: str) -> None:
    config = make_config(preset)
    assert config.network.encoder in ("auto", *ENCODERS.names())
    assert config.validate() == config
    assert config.network.core in CORES
    assert PRESETS.get(preset).description
    assert config.log.log_every <= config.log.checkpoint_every <= config.steps
    assert config.log.log_every >= config.steps_per_dispatch


def test_the_grid_preset_is_the_default_with_less_curiosity_and_a_quicker_policy() -> None:
    grid = make_config()
    assert grid.preset == "grid"
    assert (grid.curiosity.mixing, grid.stop_at_success) == (0.05, 0.95)
    assert (grid.vmpo, grid.runtime) == (VMPOConfig(temperature_epsilon=0.5), RuntimeConfig())
    assert grid.optimizer.learning_rate == 2e-3


@pytest.mark.parametrize(
    "changes",
    [{"method": 3}, {"preset": None}, {"ablation": []}, {"algorithm": None}, {"env_settings": 5},
     {"env_settings": None}, {"network": {"core": "rnn"}}, {"network": {"core_reads": (1,)}}, {"curiosity": None}],
)  # fmt: skip
def test_what_is_no_value_at_all_is_said_in_one_line(changes: dict[str, Any]) -> None:
    with pytest.raises(UserError) as caught:
        checked(make_config(**changes))
    assert "\n" not in str(caught.value)


SMALL = ("--preset", "hard-eight-small")


def test_settings_of_environments_are_joined_to_the_presets() -> None:
    expected = ("resolution=48x36", "actions=continuous")
    assert parse_train([*SMALL, "--env-settings", "actions=continuous"]).config.env_settings == expected
    assert make_config("hard-eight-small", env_settings={"actions": "continuous"}).env_settings == expected
    assert parse_train(SMALL).config.env_settings == ("resolution=48x36", "actions=discrete")


def test_settings_of_a_presets_environment_are_not_those_of_another_family() -> None:
    assert parse_train([*SMALL, "--env", "rooms-4"]).config.env_settings == ()
    assert parse_train([*SMALL, "--env", "atari:hero", "--env_settings", "sticky=0"]).config.env_settings == (
        "sticky=0",
    )
    assert parse_train([*SMALL, "--env", "hard-eight:baseball"]).config.env_settings == (
        "resolution=48x36", "actions=discrete",
    )  # fmt: skip


def test_an_environment_that_is_not_there_is_what_is_wrong_with_it() -> None:
    config = checked(parse_train([*SMALL, "--env", "hard-eigth"]).config)
    with pytest.raises(UserError, match="unknown environment 'hard-eigth'"):
        make_envs(config.env_ids, config.env_settings)
