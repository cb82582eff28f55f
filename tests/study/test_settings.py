"""Configuration fields by dotted names, checked before anything runs."""

import pytest

from byol_explore.errors import UserError
from byol_explore.settings.config import Config, flatten
from byol_explore.settings.words import options, setting_kinds
from byol_explore.study.settings import apply_settings, check_settings, joined_settings


def test_tables_inside_tables_become_dotted_names() -> None:
    table = {"steps": 3, "agent": {"gamma": 0.9}, "curiosity.horizon": 2}
    assert flatten(table) == {"steps": 3, "agent.gamma": 0.9, "curiosity.horizon": 2}


def test_every_field_of_the_configuration_is_a_setting() -> None:
    kinds = setting_kinds()
    assert {"seed", "curiosity.prioritize", "runtime.num_envs", "env_settings"} <= kinds.keys()
    assert (kinds["agent.gamma"], kinds["log.wandb"]) == (float, bool)
    assert not kinds.keys() & {"curiosity", "agent"}


def test_settings_change_their_fields_and_no_others() -> None:
    settings = check_settings({"agent.gamma": 0, "curiosity.prioritize": True, "network.encoder_hidden": [4, 5]})
    settings |= check_settings({"network.core_reads": ["arm", "leg"]})
    config = apply_settings(Config(), {**settings, "stop_at_success": 0.5})
    assert (config.agent.gamma, config.curiosity.prioritize, config.network.encoder_hidden) == (0.0, True, (4, 5))
    assert isinstance(config.agent.gamma, float)
    assert config.network.core_reads == ("arm", "leg")
    assert (config.stop_at_success, config.curiosity.horizon) == (0.5, Config().curiosity.horizon)


def test_a_whole_number_may_be_written_short() -> None:
    settings = check_settings({"steps": 1e6})
    assert settings == {"steps": 1_000_000}
    assert type(settings["steps"]) is int


def test_options_are_those_of_the_command_line() -> None:
    settings = {"agent.gamma": 0.5, "curiosity.share": False, "log.wandb": True, "network.value_hidden": (4, 5)}
    words = "--agent.gamma 0.5 --curiosity.no-share --log.wandb --network.value-hidden 4 5 --curiosity.prioritize False"
    assert options({**settings, "curiosity.prioritize": False}) == words.split()


def test_settings_of_environments_are_a_table_or_words() -> None:
    table = flatten({"env_settings": {"sticky": 0.25, "life_loss": True, "kwargs": {"mode": "1"}}})
    words = ("sticky=0.25", "life_loss=true", "kwargs.mode='1'")
    assert check_settings(table) == check_settings({"env_settings": list(words)}) == {"env_settings": words}
    assert options({"env_settings": words}) == ["--env-settings", *words]
    assert apply_settings(Config(), {"env_settings": words}).env_settings == words


def test_a_variant_changes_single_settings_of_environments() -> None:
    first, second = {"steps": 3, "env_settings": ("noops=5", "sticky=0.5")}, {"env_settings": ("sticky=0.25",)}
    assert joined_settings(first, second) == {"steps": 3, "env_settings": ("noops=5", "sticky=0.25")}
    assert joined_settings({"steps": 3}, {"steps": 4}) == {"steps": 4}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("curiosity.horizn", 3, "unknown setting 'curiosity.horizn'; choose from: curiosity.horizon, "),
        ("brain.size", 3, "unknown setting 'brain.size'; choose from: preset, env, "),
        ("curiosity.horizon", 2.5, "setting curiosity.horizon is 2.5: it must be a whole number"),
        ("curiosity.horizon", True, "setting curiosity.horizon is True: it must be a whole number"),
        ("curiosity.share", 1, "setting curiosity.share is 1: it must be true or false"),
        ("curiosity.prioritize", "yes", "setting curiosity.prioritize is 'yes': it must be true or false"),
        ("agent.gamma", "high", "setting agent.gamma is 'high': it must be a number"),
        ("env_settings", 3, "setting env_settings is 3: it must be a table, or a list of words like name=value"),
        ("env_settings", ["noops"], "env_settings has 'noops': it must be a word like name=value"),
        ("network.core", 3, "setting network.core is 3: it must be a text"),
        ("network.core_reads", ["arm", 3], r"setting network.core_reads is \['arm', 3\]: it must be a list of texts"),
        ("network.core_reads", "arm", "setting network.core_reads is 'arm': it must be a list of texts"),
        ("network.value_hidden", [1.5], r"setting network.value_hidden is \[1.5\]: it must be a list of whole numbers"),
    ],
)
def test_a_wrong_name_or_type_is_refused(name: str, value: object, message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}"):
        check_settings({name: value})
