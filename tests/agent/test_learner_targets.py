"""Tests of the unit of advantages: PopArt's standard deviation of their task."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from builders import TIME, jit, make_spec, make_trajectory, shaken, small_config, unroll, update_of
from byol_explore.agent.learner import Learner
from byol_explore.agent.state import LearnerState
from byol_explore.config.sections import AgentConfig
from byol_explore.types import Trajectory

RAW_REWARDS = AgentConfig(popart_step_size=0.5, extrinsic_rms_step_size=0.0)


def setup(algorithm: str = "v-mpo", tasks: int = 1) -> tuple[Learner, LearnerState, Trajectory]:
    spec = make_spec("vector")
    config = dataclasses.replace(small_config("none"), algorithm=algorithm, agent=RAW_REWARDS)
    learner = Learner(config, spec, tasks)
    state = learner.init(jax.random.key(1))
    return learner, state, make_trajectory(spec, state.target_actor)


@pytest.mark.parametrize("algorithm", ["v-mpo", "ppo"])
def test_advantages_are_in_units_of_the_values_of_their_task(algorithm: str) -> None:
    """The second task pays a thousand times as much: its advantages are no larger."""
    learner, state, trajectory = setup(algorithm, tasks=2)
    task = np.tile([0, 1, 0], (TIME, 1))
    reward = trajectory.reward * np.where(task[:-1] == 1, 1000.0, 1.0)
    trajectory = trajectory._replace(task_id=jnp.asarray(task, jnp.int32), reward=jnp.asarray(reward, jnp.float32))
    compute_targets = jit(learner.compute_rollout_targets)
    state = eqx.tree_at(lambda s: s.online.value_head, compute_targets(state, trajectory)[0], replace_fn=shaken)
    head = state.online.value_head
    hidden = head.hidden(unroll(state.online.actor, trajectory).belief)
    value = learner.critic.values(head.layers[-1], state.statistics.popart, hidden, trajectory.task_id)
    after, batch, _ = compute_targets(state, trajectory)
    stats, valid, sizes = after.statistics.popart, np.asarray(trajectory.valid), []
    for index in range(2):
        scale = np.sqrt(float(stats.mean_square[index]) - float(stats.mean[index]) ** 2)
        mine = valid & (task[:-1] == index)
        expected = (np.asarray(batch.targets.value_target) - np.asarray(value)[:-1])[mine] / scale
        np.testing.assert_allclose(np.asarray(batch.targets.advantage)[mine], expected, rtol=1e-3, atol=1e-3)
        sizes.append(np.sqrt(np.mean(expected**2)))
    assert 0.1 < min(sizes) < max(sizes) < 10.0


def test_temperature_waits_for_the_first_advantage() -> None:
    """Without rewards values and advantages are 0, and the temperature loss alone would lower the temperature."""
    learner, state, trajectory = setup()
    update = update_of(learner)
    after, output = update(state, trajectory._replace(reward=jnp.zeros_like(trajectory.reward)))
    assert output.metrics["advantage_std"] == output.metrics["loss_temperature"] == 0.0
    assert after.duals.log_temperature == state.duals.log_temperature
    assert update(after, trajectory)[0].duals.log_temperature != state.duals.log_temperature
