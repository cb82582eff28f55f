"""RND against slow loops (appendix B)."""

from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from builders import (
    BATCH,
    TIME,
    assert_trees_close,
    at,
    call,
    jit,
    largest,
    leaves_with_names,
    make,
    make_spec,
    make_trajectory,
    materials_for,
    numpy_mlp,
    permute_environments,
    replace_observations,
    small_actor,
    small_config,
    small_network,
)
from byol_explore.agent.learner import Learner
from byol_explore.config.config import embedding_size, has_own_representation
from byol_explore.curiosity.method import MethodOutput
from byol_explore.curiosity.rnd import RND
from byol_explore.networks.encoders import make_encoder
from byol_explore.networks.representation import RepresentationOutput
from byol_explore.ops.rewards import Rewards, RewardStatistics, compute_rewards
from byol_explore.types import Array, Trajectory

SPEC = make_spec("vector", "discrete")


def explore(rnd: RND, target: Any, trajectory: Trajectory) -> MethodOutput:
    unused = RepresentationOutput(
        trajectory.reward, trajectory.reward, trajectory.reward
    )  # RND reads observations only
    return rnd(target, unused, trajectory.sequence)


run_explore = jit(explore)


class Case(NamedTuple):
    rnd: RND
    target: Any
    trajectory: Trajectory


@pytest.fixture(scope="module")
def case() -> Case:
    predictor, target = make(lambda key: [make_encoder(small_network(), SPEC, key) for _ in range(2)])
    return Case(RND(predictor), target, make_trajectory(SPEC, small_actor(SPEC)))


def slow_errors(case: Case) -> np.ndarray:
    """Return squared distances [T, B], computed one observation at a time."""
    errors = np.zeros((TIME, BATCH))
    for t, j in np.ndindex(TIME, BATCH):
        observation = at(case.trajectory.observation, t, j)
        prediction, goal = (numpy_mlp(encoder.mlp, observation) for encoder in (case.rnd.predictor, case.target))
        errors[t, j] = np.sum((prediction - goal) ** 2)
    return errors


def test_loss_is_the_mean_error_and_uncertainty_the_next_error(case: Case) -> None:
    output, errors = at(run_explore(*case)), slow_errors(case)
    np.testing.assert_allclose(output.loss, errors.sum() / (BATCH * TIME), rtol=1e-4)
    np.testing.assert_allclose(output.uncertainty, errors[1:], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(output.metrics["prediction_error"], [errors.mean()], rtol=1e-4)


def test_an_observation_changes_only_the_transition_that_leads_to_it(case: Case) -> None:
    where = np.zeros((TIME, BATCH), bool)
    where[3, 1] = True
    before = at(run_explore(*case))
    after = at(run_explore(case.rnd, case.target, replace_observations(SPEC, case.trajectory, where)))
    np.testing.assert_array_equal(np.abs(after.uncertainty - before.uncertainty) > 1e-6, where[1:])


def test_permuted_environments_give_permuted_uncertainties(case: Case) -> None:
    order = [2, 0, 1]
    before = at(run_explore(*case))
    after = at(run_explore(case.rnd, case.target, permute_environments(case.trajectory, order)))
    np.testing.assert_allclose(after.uncertainty, before.uncertainty[:, order], rtol=1e-5)


def test_only_the_loss_trains_and_only_the_predictor(case: Case) -> None:
    @jit
    def gradients(of_loss: float, of_uncertainty: float) -> tuple[RND, Any]:
        def objective(rnd: RND, target: Any) -> jax.Array:
            output = explore(rnd, target, case.trajectory)
            return of_loss * output.loss + of_uncertainty * output.uncertainty.sum()

        return jax.grad(objective, argnums=(0, 1))(case.rnd, case.target)

    predictor, target = gradients(1.0, 0.0)
    assert largest(target) == 0
    assert {name for name, leaf in leaves_with_names(predictor).items() if not np.any(leaf)} == set()
    assert largest(gradients(0.0, 1.0)) == 0


def test_the_target_never_changes(case: Case) -> None:
    encoder = small_actor(SPEC).representation.encoder
    context = materials_for(small_config("rnd"), SPEC)._replace(make_encoder=lambda _: case.target)
    target = case.rnd.init_state(context, encoder, jax.random.key(0))
    assert_trees_close(target, case.target, rtol=0, atol=0)
    assert_trees_close(case.rnd.update_state(target, encoder, case.trajectory.sequence), case.target, rtol=0, atol=0)


def test_predictor_and_target_differ_and_have_one_width() -> None:
    learner = Learner(small_config("rnd", embedding_size=5), SPEC, 1)

    @jit
    def encoders(key: jax.Array) -> tuple[Any, Any]:
        state = learner.init(key)
        return state.method_state, state.online.curiosity.predictor

    target, predictor = encoders(jax.random.key(0))
    assert leaves_with_names(target).keys() == leaves_with_names(predictor).keys()
    assert target.mlp.layers[-1].weight.shape == predictor.mlp.layers[-1].weight.shape == (10, 5)
    for first, second in zip(target.mlp.layers, predictor.mlp.layers, strict=True):
        assert not np.allclose(first.weight, second.weight)


def test_embedding_size_applies_without_a_representation() -> None:
    config = small_config("rnd", embedding_size=5, share_representation=False)
    assert embedding_size(config) == 5
    assert not has_own_representation(config)
    assert embedding_size(small_config("rnd")) == 8
    curiosity = make(lambda key: RND.create(materials_for(config, SPEC), key))
    assert call(curiosity.predictor, np.zeros((2, 6), np.float32)).shape == (2, 5)


def test_dummy_transitions_have_no_reward(case: Case) -> None:
    """The statistics ignore them too, whatever the error at the first observation of an episode."""
    learner = Learner(small_config("rnd"), SPEC, 1)
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), jax.eval_shape(learner.init, jax.random.key(0)))
    valid, uncertainty = np.asarray(case.trajectory.valid), at(run_explore(*case)).uncertainty
    no_reward = case.trajectory._replace(reward=np.zeros_like(uncertainty))

    @jit
    def rewards_of(uncertainty: Array) -> tuple[RewardStatistics, Rewards]:
        task = no_reward.task_id[:-1]
        return compute_rewards(
            zeros.statistics.reward, uncertainty, no_reward.reward, task, valid, learner.target_computer.settings
        )

    statistics, rewards = at(rewards_of(uncertainty))
    np.testing.assert_array_equal(rewards.total > 0, valid)
    np.testing.assert_array_equal(rewards.normalized > 0, valid)
    spoiled = np.where(valid, uncertainty, np.float32(1e6))
    assert_trees_close(at(rewards_of(spoiled)), (statistics, rewards), rtol=0, atol=0)
