"""Settings of environments, from a configuration to the environment that is made."""

import json
import sys
import types
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from byol_explore.envs.adapters.atari import Atari
from byol_explore.envs.adapters.gymnasium import Gymnasium
from byol_explore.envs.families import FAMILIES
from byol_explore.envs.registry import make_env, make_envs, register_env
from byol_explore.envs.settings import described
from byol_explore.errors import UserError
from byol_explore.registries import ENVIRONMENTS
from byol_explore.run.directory import load_config, write_config
from byol_explore.settings.config import Config
from byol_explore.settings.trust import VARIABLE, outside_code
from command_line import call
from envs.scripted import number, open_batch, registered
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
    """A module of somebody's own."""
    module = types.ModuleType("workshop")
    for part in (Doubled, OneMore, make_lock, make_anything):
        setattr(module, part.__name__, part)
    monkeypatch.setitem(sys.modules, "workshop", module)
    monkeypatch.setattr(ENVIRONMENTS, "_added", {})
    monkeypatch.delenv(VARIABLE, raising=False)


# In Python, in a file


def test_a_table_becomes_words_wherever_a_configuration_is_made(tmp_path: Path) -> None:
    words = ("sticky=0.25", "life_loss=true")
    config = Config(env="atari:alien", env_settings={"sticky": 0.25, "life_loss": True})  # pyright: ignore[reportArgumentType]
    assert config == Config(env="atari:alien", env_settings=words)
    assert hash(config.env_settings)
    write_config(tmp_path, config.validate())
    assert load_config(tmp_path) == config
    data = json.loads((tmp_path / "config.json").read_text())
    assert data["env_settings"] == list(words)
    (tmp_path / "config.json").write_text(json.dumps({**data, "env_settings": {"sticky": 0.25, "life_loss": True}}))
    assert load_config(tmp_path) == config


@pytest.mark.parametrize(
    ("env", "words", "message"),
    [
        ("atari:alien", ("stick=1",), "unknown environment setting 'stick'; those of Atari are action_repeat, stack"),
        ("rooms-4,rooms-6", ("size=1",), "unknown environment setting 'size': rooms-4, rooms-6 takes none"),
        (CARTPOLE, ("kwarg.a=1",), "'kwarg.a'; those of Gymnasium are kwargs.NAME, wrappers, vectorization, max_steps"),
        (CARTPOLE, ("max_steps=0",), "env_settings.max_steps is 0: it must be positive"),
        (f"{CARTPOLE},atari:alien", ("x=0",), "those of Atari are .*; those of Gymnasium are kwargs.NAME"),
        ("atari:alien", ("noops=1", "noops=2"), "env_settings names 'noops' twice"),
    ],
)
def test_a_configuration_knows_which_settings_there_are(env: str, words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        Config(env=env, env_settings=words).validate()
    assert "\n" not in str(caught.value)


def test_settings_hold_for_all_tasks_of_a_family_and_each_takes_its_own() -> None:
    envs = make_envs(["atari:freeway", "atari:alien"], {"noops": 3})
    assert [env.settings.noops for env in envs if isinstance(env, Atari)] == [3, 3]
    Config(env=f"atari:alien,{CARTPOLE}", env_settings=("noops=3", "max_steps=4")).validate()


@pytest.mark.parametrize(("workers", "actors", "expected"), [(0, 2, 3), (0, 1, 6), (0, 9, 1), (5, 2, 5)])
def test_actors_share_the_cores(monkeypatch: pytest.MonkeyPatch, workers: int, actors: int, expected: int) -> None:
    """Evaluations have all of them."""
    for module in ("adapters.atari", "registry"):
        monkeypatch.setattr(f"byol_explore.envs.{module}.available_cores", lambda: 6)
    [env] = make_envs(["atari:freeway"], {"workers": workers}, actors=actors)
    assert isinstance(env, Atari)
    assert env.workers == expected
    assert env.for_evaluation().workers == (workers or 6)


# Gymnasium


def test_keyword_arguments_and_limits_reach_gymnasium() -> None:
    env = make_env(CARTPOLE, ["kwargs.sutton_barto_reward=true", "max_steps=3"])
    assert isinstance(env, Gymnasium)
    assert env.spec.max_steps == 3
    with open_batch(env, 2) as batch:
        batch.reset()
        steps = [batch.step(number([0, 1])) for _ in range(3)]
    assert [step.is_last.tolist() for step in steps] == [[False] * 2, [False] * 2, [True] * 2]
    assert {float(reward) for step in steps for reward in step.reward} == {0.0}, "the other reward pays at the end only"


def test_who_chooses_a_render_mode_gets_it() -> None:
    """No film then, unless it is the one that films are made of."""
    env = make_env("gymnasium:FrozenLake-v1", {"kwargs": {"render_mode": "ansi"}})
    assert isinstance(env, Gymnasium)
    with open_batch(env, 1) as batch:
        batch.reset()
        with pytest.raises(UserError, match="cannot be rendered: its render mode is 'ansi'"):
            batch.render()


def test_a_limit_can_be_above_the_registered_one() -> None:
    with registered():
        assert make_env("gymnasium:scripted/OnlyVector-v0", {"max_steps": 30}).spec.max_steps == 30
    env = make_env("gymnasium:MountainCar-v0", {"max_steps": 205})
    assert isinstance(env, Gymnasium)
    with open_batch(env, 1) as batch:
        batch.reset()
        ended = [bool(batch.step(number([1])).is_last[0]) for _ in range(205)]
    assert (sum(ended), ended[-1]) == (1, True)


def test_wrappers_are_around_every_environment_the_first_inside() -> None:
    env = make_env(CARTPOLE, {"wrappers": "workshop:Doubled+workshop:OneMore"})
    assert isinstance(env, Gymnasium)
    with open_batch(env, 2) as batch:
        batch.reset()
        np.testing.assert_array_equal(batch.step(number([0, 1])).reward, [3.0, 3.0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"wrappers": "Doubled"},
            "env_settings.wrappers names 'Doubled': it must be an import path like my_pack",
        ),
        ({"wrappers": "workshop:Tripled"}, "wrapper 'workshop:Tripled': module 'workshop' has no 'Tripled'"),
        ({"kwargs": {"colour": 3}}, "'gymnasium:CartPole-v1' cannot be made: .*colour"),
        (
            {"wrappers": "workshop:Doubled", "vectorization": "vector_entry_point"},
            "cannot be made: .*wrappers argument",
        ),
    ],
)
def test_what_gymnasium_cannot_make_is_said_in_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        make_env(CARTPOLE, settings)
    assert "\n" not in str(caught.value)


# Environments of one's own


def test_settings_are_keyword_arguments_of_what_makes_an_environment() -> None:
    env: Any = make_env("workshop:make_lock", ["length=7", "extras.colour=red", "extras.size=2"])
    assert (env.length(0), env.extras) == (7, {"colour": "red", "size": 2})
    register_env("anything", make_anything)
    assert make_env("anything", {"b": 1, "a": 2}).spec.name == "a+b"
    Config(env="workshop:make_lock", env_settings=("length=7", "who=knows")).validate()


def test_each_maker_gets_what_it_takes() -> None:
    """Two kinds of environments in one run, and a setting that only one of them knows."""
    register_env("lock", make_lock)
    register_env("short", lambda length=2: make_lock(length, name="short"))
    one, other = make_envs(["lock", "short"], {"length": 5, "name": "five"})
    assert (one.spec.name, other.spec.name) == ("five", "short")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["length=1", "size=2"],
            "unknown environment setting 'size'; those of workshop:make_lock are length, name",
        ),
        (
            [],
            "environment 'workshop:make_lock': missing a required argument: 'length'; settings are given with",
        ),
    ],
)
def test_a_maker_that_cannot_be_called_so_is_not_called(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_env("workshop:make_lock", words)


# Consent


@pytest.mark.parametrize(
    ("env", "words", "expected"),
    [
        (CARTPOLE, ("wrappers=a:B+c:D", "max_steps=3"), ["wrappers=a:B+c:D"]),
        (CARTPOLE, ("kwargs.inner=evil:X-v0", "kwargs.b=1"), ["kwargs.inner=evil:X-v0"]),
        ("a.b:Lock", ("length=3",), ["a.b:Lock", "length=3"]),
        ("gymnasium:evil:X-v0", ("max_steps=3",), ["gymnasium:evil:X-v0"]),
        ("atari:alien", ("noops=3",), []),
    ],
)
def test_code_that_settings_lead_to_is_imported_after_consent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, env: str, words: tuple[str, ...], expected: list[str]
) -> None:
    config = Config(env=env, env_settings=words)
    assert outside_code(config) == expected
    write_config(tmp_path, config)
    if expected:
        with pytest.raises(
            UserError, match=f"names code outside this package: {', '.join(expected)}".replace("+", ".")
        ):
            load_config(tmp_path)
    monkeypatch.setenv(VARIABLE, "1")
    assert load_config(tmp_path) == config


# The command line


def test_all_settings_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "envs", "--settings")
    assert code == 0
    for family in FAMILIES:
        for name, default, text in described(family.settings):
            assert text
            assert f"\n  {name} = {default}\n" in out
    assert "\n  sticky = 0.0\n      Probability that" in out
