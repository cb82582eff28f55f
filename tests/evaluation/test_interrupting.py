"""Evaluation outside jit can be given up, and ends where no episode does."""

import dataclasses

import jax
import numpy as np
import pytest

from byol_explore.envs.atari_settings import AtariSettings
from byol_explore.evaluation.periodic import Evaluations
from byol_explore.evaluation.play import Interrupted, play
from byol_explore.presets import make_config


class Endless:
    """An environment whose episodes never end by themselves."""

    def __init__(self, max_steps: int = 7) -> None:
        from byol_explore.envs.base import ActionSpec, EnvSpec

        observation = jax.ShapeDtypeStruct((3,), np.float32)
        self.spec = EnvSpec("endless", observation, ActionSpec((2,)), max_steps=max_steps)
        self.steps = self.closed = 0

    def batch(self, num_envs: int, seed: int) -> "Endless":
        self.num_envs = num_envs
        return self

    def _answer(self, *, first: bool) -> object:
        from byol_explore.types import TimeStep

        ones, flags = np.ones(self.num_envs, np.float32), np.full(self.num_envs, first)
        return TimeStep(np.zeros((self.num_envs, 3), np.float32), ones, ones, flags, np.zeros(self.num_envs, bool))

    def reset(self) -> object:
        return self._answer(first=True)

    def step(self, action: object) -> object:
        self.steps += 1
        return self._answer(first=False)

    def places(self) -> np.ndarray:
        return np.zeros((self.num_envs, 0), np.int32)

    def render(self) -> np.ndarray:
        return np.zeros((2, 2, 3), np.uint8)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture(scope="module")
def actor() -> object:
    from byol_explore.learner import Learner

    return Learner(make_config(), Endless().spec, 1).init(jax.random.key(0)).acting


def test_the_limit_of_an_episode_ends_it(actor: object) -> None:
    env = Endless(max_steps=7)
    results = play(actor, env, 2, jax.random.key(0))  # pyright: ignore[reportArgumentType]
    assert (env.steps, env.closed) == (7, 1)
    np.testing.assert_array_equal(results.episode_return, [7.0, 7.0])


def test_giving_up_closes_the_environments_and_changes_no_score(actor: object) -> None:
    env = Endless(max_steps=100)
    with pytest.raises(Interrupted):
        play(actor, env, 2, jax.random.key(0), should_stop=lambda: env.steps >= 3)  # pyright: ignore[reportArgumentType]
    assert (env.steps, env.closed) == (3, 1)
    evaluations = Evaluations(make_config(), [env])  # pyright: ignore[reportArgumentType]
    assert evaluations.run(actor, 10, should_stop=lambda: True) == "given up"  # pyright: ignore[reportArgumentType]
    assert evaluations.summary() == {}


def test_evaluation_plays_whole_games_for_raw_scores() -> None:
    trained = AtariSettings(clip_rewards=True, life_loss=True, sticky=0.25)
    assert trained.for_evaluation() == dataclasses.replace(trained, clip_rewards=False, life_loss=False)
