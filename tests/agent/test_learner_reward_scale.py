"""Actions do not depend on the scale of rewards: tested with powers of two, which are exact in floating point."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from builders import assert_trees_close, jit, small_config
from byol_explore.config.config import Config
from byol_explore.config.sections import AgentConfig, RuntimeConfig
from byol_explore.envs.probes.base import Probe, ProbeState, ProbeStep
from byol_explore.runtime.anakin import Anakin, AnakinState
from byol_explore.spaces import ActionSpec
from byol_explore.types import Action, Array, PyTree

UPDATES = 200
EXPONENTS = (-10, -3, 3, 10)
ALGORITHMS = ("v-mpo", "ppo")


class FrequentReward(Probe):
    """The right action depends on the time and pays a number drawn for the episode; others cost a quarter."""

    def __init__(self) -> None:
        super().__init__("frequent", 6, ActionSpec(discrete=(3,)), 5)

    def _begin(self, key: Array) -> Array:
        return jax.random.uniform(key)

    def _act(self, state: ProbeState, action: Action) -> ProbeStep:
        is_right = action.discrete[0] == state.time % 3
        return ProbeStep(state.inner, jnp.where(is_right, state.inner, -0.25), jnp.array(False))


def config_for(algorithm: str, *, scaled: bool) -> Config:
    """Configure a tiny run; with `scaled`, extrinsic rewards are divided by their root mean square."""
    return dataclasses.replace(
        small_config(horizon=2),
        algorithm=algorithm,
        agent=AgentConfig() if scaled else AgentConfig(extrinsic_rms_step_size=0.0),
        runtime=RuntimeConfig(num_envs=8, batch_size=4, sequence_length=5),
    )


@functools.cache
def training(algorithm: str, scaled: bool) -> tuple[AnakinState, Any]:
    """Return the first state of a run, and a function (state, factor of rewards) -> (last state, all actions)."""
    config = config_for(algorithm, scaled=scaled)
    runtime = Anakin(config, [FrequentReward()], jax.devices()[:1])
    rounds = UPDATES // runtime.learner.updates_per_rollout

    def train(state: AnakinState, factor: Array) -> tuple[AnakinState, Array]:
        def one_round(state: AnakinState, _: None) -> tuple[AnakinState, Array]:
            actor, trajectory, _ = runtime.rollout(state.learner.target_actor, state.actor)
            trajectory = trajectory._replace(reward=factor * trajectory.reward)
            learner, _ = runtime.learner.learn_rollout(state.learner, trajectory)
            return AnakinState(learner, actor), trajectory.action.discrete

        return jax.lax.scan(one_round, state, length=rounds)

    return runtime.init_on_host(0), jit(train)


@functools.cache
def run(algorithm: str, *, scaled: bool = True, reward: float = 1.0, mixing: float = 1.0) -> tuple[np.ndarray, PyTree]:
    """Train with rewards and `mixing` times a factor. Returns all actions, and the networks at the end."""
    state, train = training(algorithm, scaled)
    hyperparams = state.learner.hyperparams
    hyperparams = hyperparams._replace(mixing=mixing * hyperparams.mixing)
    state, actions = train(state._replace(learner=state.learner._replace(hyperparams=hyperparams)), jnp.asarray(reward))
    assert int(state.learner.step) == UPDATES
    return np.asarray(actions), state.learner.online


def assert_same_runs(one: tuple[np.ndarray, PyTree], other: tuple[np.ndarray, PyTree]) -> None:
    np.testing.assert_array_equal(one[0], other[0])
    assert_trees_close(one[1], other[1], rtol=0, atol=0)


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_factor_of_extrinsic_rewards_changes_nothing(algorithm: str, exponent: int) -> None:
    assert_same_runs(run(algorithm, reward=2.0**exponent), run(algorithm))


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_mixing_changes_nothing_before_the_first_extrinsic_reward(algorithm: str, exponent: int) -> None:
    assert_same_runs(run(algorithm, reward=0.0, mixing=2.0**exponent), run(algorithm, reward=0.0))


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_factor_of_both_rewards_changes_nothing_without_a_running_scale(algorithm: str, exponent: int) -> None:
    factor = 2.0**exponent
    assert_same_runs(run(algorithm, scaled=False, reward=factor, mixing=factor), run(algorithm, scaled=False))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_actions_depend_on_which_rewards_there_are(algorithm: str) -> None:
    """Otherwise the tests above would pass for an agent that does not learn."""
    actions, networks = run(algorithm)
    for other, other_networks in (run(algorithm, reward=0.0), run(algorithm, mixing=4.0)):
        assert np.any(actions != other)
        with pytest.raises(AssertionError):
            assert_trees_close(networks, other_networks, rtol=0.01, atol=0.01)
