"""Gymnasium's environments: rendering, closing, and errors in one line."""

from collections.abc import Iterator

import gymnasium
import numpy as np
import pytest

from byol_explore.envs.gymnasium_env import GymnasiumEnv
from byol_explore.envs.registry import make_env
from byol_explore.errors import UserError
from envs.scripted import Counted, number, open_batch, register_scripted

pytestmark = pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")


@pytest.fixture(autouse=True)
def _scripted() -> Iterator[None]:
    with register_scripted():
        yield


# Rendering and closing


def test_all_environments_are_closed() -> None:
    env = GymnasiumEnv("scripted/Counted-v0")
    assert (Counted.made, Counted.opened) == (1, 0)
    batch = env.make_vector_env(3, seed=0)
    assert (Counted.made, Counted.opened) == (4, 3)
    batch.close()
    assert Counted.opened == 0


def test_only_render_draws_a_picture_of_the_first_environment() -> None:
    with open_batch(GymnasiumEnv("scripted/Counted-v0"), 3) as batch:
        first = batch.reset().observation[0, 0]
        batch.step(number([0, 0, 0]))
        assert Counted.rendered == 0
        picture = batch.render()
        assert Counted.rendered == 1
    assert (picture.shape, picture.dtype) == ((4, 5, 3), np.uint8)
    assert np.all(picture == 50 * first + 1)


@pytest.mark.parametrize("env_id", ["scripted/Scripted-v0", "scripted/Undrawable-v0"])
def test_environment_that_cannot_be_rendered_can_be_stepped(env_id: str) -> None:
    with open_batch(GymnasiumEnv(env_id), 2) as batch:
        batch.reset()
        with pytest.raises(UserError, match=f"'gymnasium:{env_id}' cannot be rendered: .*render") as error:
            batch.render()
    assert "\n" not in str(error.value)


# Errors


@pytest.mark.parametrize(
    ("env_id", "words"),
    [
        ("CartPol-v1", "unknown environment 'gymnasium:CartPol-v1': .*Did you mean: `CartPole`"),
        ("CartPole-v9", "unknown environment 'gymnasium:CartPole-v9': .*`v0`, `v1`"),
        ("Taxi-v3", "unknown environment 'gymnasium:Taxi-v3': .*use `Taxi-v4`"),
        ("nowhere/Thing-v0", "unknown environment 'gymnasium:nowhere/Thing-v0': .*nowhere"),
        ("no_such_module:Thing-v0", "'gymnasium:no_such_module:Thing-v0' cannot be made: .*no_such_module"),
        ("", "'gymnasium:' cannot be made: Malformed environment ID"),
        ("scripted/Broken-v0", "'gymnasium:scripted/Broken-v0' cannot be made: OSError: no such robot"),
        ("scripted/Speaking-v0", "'gymnasium:scripted/Speaking-v0': the observation space of entry 'words', Sequence"),
        ("scripted/Boundless-v0", "'gymnasium:scripted/Boundless-v0': the action space, Box.*no finite bounds"),
    ],
)
def test_failures_to_make_an_environment_give_one_line(env_id: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as error:
        make_env(f"gymnasium:{env_id}")
    assert "\n" not in str(error.value)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry_point(**_: object) -> None:
        raise gymnasium.error.DependencyNotInstalled('run `pip install "gymnasium[box2d]"`')

    monkeypatch.setitem(gymnasium.registry, "Needy-v0", gymnasium.envs.registration.EnvSpec("Needy-v0", entry_point))
    with pytest.raises(UserError, match=r"'gymnasium:Needy-v0' cannot be made: run `pip install .gymnasium\[box2d\]"):
        GymnasiumEnv("Needy-v0")


def test_unknown_vectorisation_is_named() -> None:
    with pytest.raises(UserError, match=r"unknown gymnasium\.vectorization 'magic'; .*sync, async, vector"):
        make_env("gymnasium:CartPole-v1", vectorization="magic")


def test_make_env_makes_gymnasium_environments() -> None:
    env = make_env("gymnasium:CartPole-v1")
    assert isinstance(env, GymnasiumEnv)
    assert env.spec.name == "gymnasium:CartPole-v1"
