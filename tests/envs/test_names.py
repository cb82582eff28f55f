"""Settings and keyword arguments of environments, from a configuration to the environment."""

import dataclasses
import sys
import types
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byol_explore.config.config import Config, external_code
from byol_explore.config.presets import make_config
from byol_explore.envs.atari import Atari
from byol_explore.envs.families import AtariSettings, GymnasiumSettings
from byol_explore.envs.gymnasium_env import GymnasiumEnv
from byol_explore.envs.names import EnvSettings, format_kwargs, parse_kwargs
from byol_explore.envs.registry import make_env, make_envs, register_env
from byol_explore.errors import UserError
from byol_explore.registry import ENVIRONMENTS, TRUST_ENV_VAR
from byol_explore.storage.run_directory import load_config, write_config
from command_line import call
from envs.scripted import number, open_batch, register_scripted
from hosts import Scripted

CARTPOLE = "gymnasium:CartPole-v1"


class Doubled(gymnasium.RewardWrapper):
    def reward(self, reward: Any) -> Any:
        return 2 * reward


class OneMore(gymnasium.RewardWrapper):
    def reward(self, reward: Any) -> Any:
        return reward + 1


def make_lock(length: int, *, name: str = "lock", extras: dict[str, Any] | None = None) -> Scripted:
    lock = Scripted(lambda _: length, name=name)
    lock.extras = extras  # pyright: ignore[reportAttributeAccessIssue]
    return lock


def make_anything(**settings: Any) -> Scripted:
    return make_lock(1, name="+".join(sorted(settings)))


@pytest.fixture(autouse=True)
def workshop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Provide a user's module."""
    module = types.ModuleType("workshop")
    for part in (Doubled, OneMore, make_lock, make_anything):
        setattr(module, part.__name__, part)
    monkeypatch.setitem(sys.modules, "workshop", module)
    monkeypatch.setattr(ENVIRONMENTS, "_added", {})
    monkeypatch.delenv(TRUST_ENV_VAR, raising=False)


# Settings


@pytest.mark.parametrize(
    ("env", "settings", "message"),
    [
        ("rooms-4,rooms-6", {"atari": {"frame_stack": 4}}, "atari.frame_stack is 4, but rooms-4, rooms-6 does not use"),
        ("atari:alien", {"gymnasium": {"max_steps": 4}}, "but atari:alien does not use it: .* environments gymnasium:"),
        (CARTPOLE, {"gymnasium": {"max_steps": 0}}, "gymnasium.max_steps is 0: it must be positive"),
        ("atari:alien", {"atari": {"max_noops": 2.5}}, "atari.max_noops is 2.5: it must be a whole number"),
        ("atari:alien", {"env_kwargs": ["size=1"]}, "env_kwargs has 'size=1', but atari:alien takes no keyword arg"),
        (CARTPOLE, {"env_kwargs": ["a=1", "a=2"]}, "env_kwargs names 'a' twice"),
        (CARTPOLE, {"env_kwargs": ["a"]}, "env_kwargs has 'a': it must be like name=value"),
    ],
)
def test_settings_of_other_families_are_rejected(env: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        make_config(env=env, **settings).validate()
    assert "\n" not in str(caught.value)


def test_settings_apply_to_all_tasks_of_a_family() -> None:
    config = Config(env=f"atari:alien,{CARTPOLE}", atari=AtariSettings(max_noops=3), gymnasium=GymnasiumSettings())
    assert config.validate().env_settings == EnvSettings(atari=AtariSettings(max_noops=3))
    envs = make_envs(["atari:freeway", "atari:alien"], config.env_settings)
    assert [env.settings.max_noops for env in envs if isinstance(env, Atari)] == [3, 3]


def test_make_env_takes_the_settings_of_the_family() -> None:
    env = make_env("atari:freeway", max_noops=3)
    assert isinstance(env, Atari)
    assert env.settings == AtariSettings(max_noops=3)
    with pytest.raises(
        UserError, match=r"unknown setting of atari:freeway 'nops' .*; choose from: action_repeat, frame_s"
    ):
        make_env("atari:freeway", nops=3)
    with pytest.raises(UserError, match="env_kwargs has 'size=3', but rooms-4 takes no keyword arguments"):
        make_env("rooms-4", size=3)


@pytest.mark.parametrize(("workers", "actors", "expected"), [(0, 2, 3), (0, 1, 6), (0, 9, 1), (5, 2, 5)])
def test_actors_share_the_cores(monkeypatch: pytest.MonkeyPatch, workers: int, actors: int, expected: int) -> None:
    """Evaluations use all cores."""
    monkeypatch.setattr("byol_explore.envs.atari.available_cores", lambda: 6)
    settings = EnvSettings(atari=AtariSettings(num_workers=workers))
    [env] = make_envs(["atari:freeway"], settings, actors=actors)
    assert isinstance(env, Atari)
    assert env.num_workers == expected
    assert env.for_evaluation().num_workers == (workers or 6)


# Gymnasium


def test_keyword_arguments_and_limits_reach_gymnasium() -> None:
    env = make_env(CARTPOLE, sutton_barto_reward=True, max_steps=3)
    assert isinstance(env, GymnasiumEnv)
    assert env.spec.max_steps == 3
    with open_batch(env, 2) as batch:
        batch.reset()
        steps = [batch.step(number([0, 1])) for _ in range(3)]
    assert [step.is_last.tolist() for step in steps] == [[False] * 2, [False] * 2, [True] * 2]
    assert {float(reward) for step in steps for reward in step.reward} == {0.0}, "the other reward pays at the end only"


def test_a_given_render_mode_is_kept() -> None:
    """It cannot be rendered then, except with rgb_array."""
    env = make_env("gymnasium:FrozenLake-v1", render_mode="ansi")
    assert isinstance(env, GymnasiumEnv)
    with open_batch(env, 1) as batch:
        batch.reset()
        with pytest.raises(UserError, match="cannot be rendered: its render mode is 'ansi'"):
            batch.render()


def test_a_limit_can_be_above_the_registered_one() -> None:
    with register_scripted():
        assert make_env("gymnasium:scripted/OnlyVector-v0", max_steps=30).spec.max_steps == 30
    env = make_env("gymnasium:MountainCar-v0", max_steps=205)
    assert isinstance(env, GymnasiumEnv)
    with open_batch(env, 1) as batch:
        batch.reset()
        ended = [bool(batch.step(number([1])).is_last[0]) for _ in range(205)]
    assert (sum(ended), ended[-1]) == (1, True)


def test_wrappers_apply_to_every_environment_the_first_innermost() -> None:
    env = make_env(CARTPOLE, wrappers=("workshop:Doubled", "workshop:OneMore"))
    assert isinstance(env, GymnasiumEnv)
    with open_batch(env, 2) as batch:
        batch.reset()
        np.testing.assert_array_equal(batch.step(number([0, 1])).reward, [3.0, 3.0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"wrappers": ("Doubled",)},
            "gymnasium.wrappers names 'Doubled': it must be an import path like my_pack",
        ),
        ({"wrappers": ("workshop:Tripled",)}, "wrapper 'workshop:Tripled': module 'workshop' has no 'Tripled'"),
        ({"colour": 3}, "'gymnasium:CartPole-v1' cannot be made: .*colour"),
        (
            {"wrappers": ("workshop:Doubled",), "vectorization": "vector_entry_point"},
            "cannot be made: .*wrappers argument",
        ),
    ],
)
def test_failures_of_gymnasium_give_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        make_env(CARTPOLE, **settings)
    assert "\n" not in str(caught.value)


# Environments of users


def test_keyword_arguments_reach_the_factory() -> None:
    config = Config(env="workshop:make_lock", env_kwargs=("length=7", "extras={'colour': 'red'}")).validate()
    env: Any = make_envs(config.env_ids, config.env_settings)[0]
    assert (env.length(0), env.extras) == (7, {"colour": "red"})
    register_env("anything", make_anything)
    assert make_env("anything", b=1, a=2).spec.name == "a+b"


def test_each_factory_gets_the_arguments_it_takes() -> None:
    """Two factories in one run, and an argument that only one of them takes."""
    register_env("lock", make_lock)
    register_env("short", lambda length=2: make_lock(length, name="short"))
    one, other = make_envs(["lock", "short"], EnvSettings(("length=5", "name=five")))
    assert (one.spec.name, other.spec.name) == ("five", "short")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["length=1", "size=2"],
            "unknown keyword argument 'size' in env_kwargs; those of workshop:make_lock are length, name",
        ),
        (
            [],
            "environment 'workshop:make_lock': missing a required argument: 'length'; keyword arguments are given with",
        ),
    ],
)
def test_arguments_that_do_not_fit_a_factory_are_rejected(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_envs(["workshop:make_lock"], EnvSettings(tuple(words)))


# Consent


@pytest.mark.parametrize(
    ("env", "settings", "expected"),
    [
        (CARTPOLE, {"gymnasium": {"wrappers": ["a:B", "c:D"], "max_steps": 3}}, ["a:B", "c:D"]),
        (CARTPOLE, {"env_kwargs": ["inner=evil:X-v0", "b=1"]}, ["inner=evil:X-v0"]),
        ("a.b:Lock", {"env_kwargs": ["length=3"]}, ["a.b:Lock", "length=3"]),
        ("gymnasium:evil:X-v0", {"gymnasium": {"max_steps": 3}}, ["gymnasium:evil:X-v0"]),
        ("atari:alien", {"atari": {"max_noops": 3}}, []),
    ],
)
def test_external_code_of_settings_needs_consent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, env: str, settings: dict[str, Any], expected: list[str]
) -> None:
    config = make_config(env=env, **settings)
    assert external_code(config) == expected
    write_config(tmp_path, config)
    if expected:
        with pytest.raises(UserError, match=f"names code outside this package: {', '.join(expected)}"):
            load_config(tmp_path)
    monkeypatch.setenv(TRUST_ENV_VAR, "1")
    assert load_config(tmp_path) == config


# Keyword arguments as text


values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()


@given(kwargs=st.dictionaries(st.from_regex(r"[a-z_]{1,5}", fullmatch=True), values | st.lists(values, max_size=3)))
def test_keyword_arguments_survive_the_text_form(kwargs: dict[str, Any]) -> None:
    words = format_kwargs(kwargs)
    assert parse_kwargs(words) == kwargs
    assert format_kwargs(words) == words


@pytest.mark.parametrize(
    ("text", "value"),
    [("4", 4), ("-.5", -0.5), ("1e-3", 1e-3), ("true", True), ("false", False), ("none", None), ("human", "human"),
     ("'4'", "4"), ("(1, 2)", (1, 2)), ("", ""), ("a=b", "a=b"), ("__import__('os')", "__import__('os')")],
)  # fmt: skip
def test_values_of_texts(text: str, value: Any) -> None:
    read = parse_kwargs([f"name={text}"])["name"]
    assert (read, type(read)) == (value, type(value))


def test_values_without_a_text_form_are_rejected() -> None:
    with pytest.raises(UserError, match=r"env_kwargs has a=<object object at .*: a value must be a number, text"):
        format_kwargs({"a": object()})
    with pytest.raises(UserError, match="env_kwargs is 'length=1': it must be a list of texts like name=value"):
        format_kwargs("length=1")


# The command line


def test_all_settings_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "envs", "--settings")
    assert code == 0
    for section in ("atari", "gymnasium", "hard_eight", "dm_hard_eight"):
        for item in dataclasses.fields(getattr(EnvSettings(), section)):
            assert f"--{section}.{item.name}".replace("_", "-") in out
    assert "Probability that the emulator repeats" in out
