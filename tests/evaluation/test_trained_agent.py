"""Loaded agents act as the target policy of their run; runs start from the networks of other runs."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from builders import assert_trees_close
from byol_explore.agent.acting import select_action
from byol_explore.envs.registry import make_env
from byol_explore.envs.vector import AutoReset
from byol_explore.errors import UserError
from byol_explore.evaluation.trained_agent import TrainedAgent, load_agent
from byol_explore.storage.checkpoint import Checkpoints
from byol_explore.training.train import train
from runs import quickly, run, shared_runtime, tiny


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("playing") / "run"
    run(tiny(dispatches=2), directory)
    return directory


def greedy_by_hand(agent: TrainedAgent, episodes: int, steps: int) -> list[np.ndarray]:
    """Return the target policy's actions, computed step by step in an auto-reset environment."""
    batch = AutoReset(make_env("probe:memory"), episodes)
    state, timestep = batch.reset(jax.random.split(jax.random.key(5), episodes))
    recurrent_state, actions = agent.actor.initial_state(agent.spec, episodes), []
    for _ in range(steps):
        recurrent_state, _, action = select_action(
            agent.actor, recurrent_state, timestep, jax.random.key(0), greedy=True
        )
        actions.append(np.asarray(action.discrete))
        state, timestep = batch.step(state, action)
    return actions


def test_loaded_agent_acts_as_the_target_policy(trained: Path) -> None:
    """Batched and recurrent: it remembers within an episode, and `reset` clears the state of some environments."""
    with quickly():
        agent = load_agent(trained)
        expected = greedy_by_hand(agent, 3, 14)
    batch = AutoReset(make_env("probe:memory"), 3)
    state, timestep = batch.reset(jax.random.split(jax.random.key(5), 3))
    ends = 0
    for right in expected:
        agent.reset(np.asarray(timestep.is_first))
        action = agent.act(timestep.observation, timestep.reward)
        np.testing.assert_array_equal(action.discrete, right)
        ends += int(np.sum(timestep.is_last))
        state, timestep = batch.step(state, action)
    assert ends > 0


def test_wrong_shapes_are_user_errors(trained: Path) -> None:
    """They are found before anything is computed."""
    agent = load_agent(trained)
    shape = agent.spec.observation.shape
    for wrong in (
        np.zeros(shape),
        np.zeros((2, 99)),
        np.zeros((2, *shape, 1)),
        {"eye": np.zeros((2, *shape))},
        [],
        None,
    ):
        with pytest.raises(UserError, match=r"^observations of shape .*: each must be \("):
            agent.act(wrong)
    agent.act(np.zeros((2, *shape), np.float32))
    with pytest.raises(UserError, match=r"rewards of shape \(3,\) for 2 observations: it must be \(2,\)"):
        agent.act(np.zeros((2, *shape), np.float32), np.zeros(3))
    with pytest.raises(UserError, match=r"a mask of shape \(5,\) for 2 environments"):
        agent.reset(np.ones(5, bool))


def test_reset_clears_the_recurrent_state(trained: Path) -> None:
    agent = load_agent(trained)
    observation = np.zeros((2, *agent.spec.observation.shape), np.float32)
    first = agent.act(observation).discrete
    agent.act(observation + 1.0)
    agent.reset()
    np.testing.assert_array_equal(agent.act(observation).discrete, first)
    with pytest.raises(UserError, match="3 observations for 2 environments"):
        agent.act(np.zeros((3, *agent.spec.observation.shape), np.float32))


def test_unknown_checkpoint_of_an_agent_is_a_user_error(trained: Path) -> None:
    with pytest.raises(UserError, match="unknown checkpoint '7'; choose from: last, best, "):
        load_agent(trained, checkpoint="7")


def test_run_starts_from_the_networks_of_another(trained: Path, tmp_path: Path) -> None:
    config = dataclasses.replace(tiny(dispatches=1, regime="extrinsic"), init_from=str(trained))
    first: list[jax.Array] = []
    runtime = shared_runtime(config)
    dispatch = runtime.dispatch

    def record(state: Any) -> Any:
        first.append(jax.tree.map(np.array, state.learner))
        return dispatch(state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "dispatch", record)
        run(config, tmp_path / "second")
    template = jax.eval_shape(lambda: runtime.first(0).learner)
    saved = Checkpoints(trained / "checkpoints").restore(template, part="learner").state
    for name in ("online", "method_state", "target_actor", "statistics"):
        assert_trees_close(getattr(first[0], name), getattr(saved, name), rtol=0, atol=0)
    assert int(first[0].step) == 0


def test_missing_run_of_init_from_is_a_user_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with quickly(), pytest.raises(UserError, match=r"init_from: .*nowhere holds no run"):
        train(dataclasses.replace(tiny(), init_from=str(tmp_path / "nowhere")), tmp_path / "run")
    assert capsys.readouterr().out == "", "no training is announced"


def test_init_from_other_networks_is_a_user_error(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wider = dataclasses.replace(tiny(), network=dataclasses.replace(tiny().network, belief_size=24))
    found = pytest.raises(UserError, match=r"init_from: .*step_\d+ is of another network: actor.* is float32\[")
    with quickly(), found as raised:
        train(dataclasses.replace(wider, init_from=str(trained)), tmp_path / "run")
    assert "damaged" not in str(raised.value)
    assert not (tmp_path / "run" / "config.json").exists()
    assert capsys.readouterr().out == "", "no training is announced"
