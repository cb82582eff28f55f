"""Configuration fields by dotted names, checked before anything runs."""

import pytest

from byol_explore.config.config import Config
from byol_explore.config.overrides import field_types, flatten, override, parse_overrides, to_cli_args
from byol_explore.config.sections import RuntimeConfig
from byol_explore.envs.families import AtariSettings
from byol_explore.errors import UserError


def test_tables_inside_tables_become_dotted_names() -> None:
    table = {"steps": 3, "agent": {"gamma": 0.9}, "curiosity.horizon": 2}
    assert flatten(table) == {"steps": 3, "agent.gamma": 0.9, "curiosity.horizon": 2}


def test_every_field_of_the_configuration_is_a_setting() -> None:
    kinds = field_types()
    assert {"seed", "curiosity.prioritize", "runtime.num_envs", "atari.frame_stack", "env_kwargs"} <= kinds.keys()
    assert (kinds["agent.gamma"], kinds["log.wandb"]) == (float, bool)
    assert not kinds.keys() & {"curiosity", "agent"}


def test_settings_change_their_fields_and_no_others() -> None:
    settings = parse_overrides({"agent.gamma": 0, "curiosity.prioritize": True, "network.encoder_hidden": [4, 5]})
    settings |= parse_overrides({"network.core_inputs": ["arm", "leg"]})
    config = override(Config(), {**settings, "stop_at_success_rate": 0.5})
    assert (config.agent.gamma, config.curiosity.prioritize, config.network.encoder_hidden) == (0.0, True, (4, 5))
    assert isinstance(config.agent.gamma, float)
    assert config.network.core_inputs == ("arm", "leg")
    assert (config.stop_at_success_rate, config.curiosity.horizon) == (0.5, Config().curiosity.horizon)


@pytest.mark.parametrize("order", [1, -1])
def test_settings_of_a_section_are_changed_together(order: int) -> None:
    """`envs_per_actor` of the old configuration does not override `num_envs` of the new one."""
    config = Config(runtime=RuntimeConfig(num_actors=4, envs_per_actor=2))
    changes = list({"runtime.num_envs": 64, "runtime.envs_per_actor": 0}.items())[::order]
    assert override(config, dict(changes)).runtime.num_envs == 64


def test_a_whole_number_may_be_written_short() -> None:
    settings = parse_overrides({"steps": 1e6})
    assert settings == {"steps": 1_000_000}
    assert type(settings["steps"]) is int


def test_options_are_those_of_the_command_line() -> None:
    settings = {
        "agent.gamma": 0.5,
        "curiosity.share_representation": False,
        "log.wandb": True,
        "network.value_hidden": (4, 5),
    }
    words = (
        "--agent.gamma 0.5 --curiosity.no-share-representation --log.wandb --network.value-hidden 4 5 "
        "--curiosity.prioritize False"
    )
    assert to_cli_args({**settings, "curiosity.prioritize": False}) == words.split()


def test_settings_of_environments_have_dotted_names_too() -> None:
    settings = parse_overrides(flatten({"atari": {"frame_stack": 4, "clip_rewards": True}, "env_kwargs": ["length=7"]}))
    words = "--atari.frame-stack 4 --atari.clip-rewards --env-kwargs length=7"
    assert to_cli_args(settings) == words.split()
    config = override(Config(), settings)
    assert (config.atari, config.env_kwargs) == (AtariSettings(frame_stack=4, clip_rewards=True), ("length=7",))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("curiosity.horizn", 3, "unknown setting 'curiosity.horizn' .*horizon.*; choose from: curiosity.horizon, "),
        ("brain.size", 3, "unknown setting 'brain.size'; choose from: preset, env, "),
        ("curiosity.horizon", 2.5, "setting curiosity.horizon is 2.5: it must be a whole number"),
        ("curiosity.horizon", True, "setting curiosity.horizon is True: it must be a whole number"),
        ("curiosity.share_representation", 1, "setting curiosity.share_representation is 1: it must be true or false"),
        ("curiosity.prioritize", "yes", "setting curiosity.prioritize is 'yes': it must be true or false"),
        ("agent.gamma", "high", "setting agent.gamma is 'high': it must be a number"),
        ("env_kwargs", 3, "setting env_kwargs is 3: it must be a list of texts"),
        ("atari.stack", 3, "unknown setting 'atari.stack' .*; choose from: atari.action_repeat, atari.frame_stack"),
        ("network.core", 3, "setting network.core is 3: it must be a text"),
        ("network.core_inputs", ["arm", 3], r"setting network.core_inputs is \['arm', 3\]: it must be a list of texts"),
        ("network.core_inputs", "arm", "setting network.core_inputs is 'arm': it must be a list of texts"),
        ("network.value_hidden", [1.5], r"setting network.value_hidden is \[1.5\]: it must be a list of whole numbers"),
    ],
)
def test_a_wrong_name_or_type_is_refused(name: str, value: object, message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}"):
        parse_overrides({name: value})
