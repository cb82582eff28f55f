"""Properties of all methods: episodes and environments are independent."""

import jax
import numpy as np
import pytest

from builders import (
    BATCH,
    TIME,
    assert_trees_close,
    at,
    jit,
    make,
    make_trajectory,
    permute_environments,
    replace_observations,
    small_actor,
    small_config,
)
from byol_explore.agent.learner import Learner
from byol_explore.curiosity.e3b import InverseCovariance
from byol_explore.doctor.measurements import cross_episode_leak
from byol_explore.registry import METHODS
from byol_explore.types import Trajectory
from methods import Case, look, make_case

METHODS_TESTED = [name for name in METHODS.names() if METHODS.get(name).has_reward]


@pytest.fixture(scope="module", params=METHODS_TESTED)
def case(request: pytest.FixtureRequest) -> Case:
    return make_case(request.param)


def changed_transitions(case: Case, where: np.ndarray) -> np.ndarray:
    """Return the valid transitions whose uncertainties change with other observations at `where`."""
    _, before = case.look()
    _, after = case.look(replace_observations(case.spec, case.trajectory, where))
    return (np.abs(after.uncertainty - before.uncertainty) > 1e-6) & np.asarray(case.trajectory.valid)


@pytest.mark.parametrize("part", [slice(4, None), slice(None, 4)], ids=["next", "previous"])
def test_an_episode_does_not_change_another(case: Case, part: slice) -> None:
    """The third episode of environment 0 begins at 4. Other environments may change if they are negatives."""
    where = np.zeros((TIME, BATCH), bool)
    where[part, 0] = True
    changed = changed_transitions(case, where)
    envs = slice(1) if case.method.uses_batch_negatives else slice(None)
    assert changed[:, envs].any()
    assert not np.any((changed & ~where[1:])[:, envs])


def test_the_ignored_action_changes_nothing(case: Case) -> None:
    trajectory, other = case.trajectory, make_trajectory(case.spec, small_actor(case.spec), 7)
    dummy = ~np.asarray(trajectory.valid)
    action = jax.tree.map(lambda a, b: np.where(dummy[..., None], b, a), trajectory.action, other.action)
    _, before = case.look()
    _, after = case.look(trajectory._replace(action=action))
    np.testing.assert_allclose(after.loss, before.loss, rtol=1e-6)
    valid = np.asarray(trajectory.valid)
    np.testing.assert_allclose(after.uncertainty[valid], before.uncertainty[valid], rtol=1e-6)


@pytest.mark.parametrize("name", [name for name in METHODS_TESTED if not METHODS.get(name).uses_batch_negatives])
def test_permuted_environments_give_permuted_uncertainties(name: str) -> None:
    """Not byol-hindsight: its noise belongs to a place in the batch."""
    case, order = make_case(name), [2, 0, 1]
    _, before = case.look()
    _, after = case.look(permute_environments(case.trajectory, order))
    np.testing.assert_allclose(after.uncertainty, before.uncertainty[:, order], rtol=1e-4, atol=1e-6)
    assert_trees_close(after.metrics, before.metrics, rtol=1e-4)


def test_the_doctor_finds_no_leak(case: Case) -> None:
    """With batch negatives a leak would be found if all environments changed at once."""

    def uncertainty_of(trajectory: Trajectory) -> np.ndarray:
        return case.look(trajectory)[1].uncertainty

    before, has_negatives = uncertainty_of(case.trajectory), case.method.uses_batch_negatives
    assert cross_episode_leak(case.trajectory, before, uncertainty_of, single_env=has_negatives) < 1e-5
    assert (cross_episode_leak(case.trajectory, before, uncertainty_of) > 1e-3) is has_negatives


def test_a_learner_continues_from_stored_episodic_memories() -> None:
    """The uncertainties of a batch depend on the observations of its episodes before the batch."""
    case = make_case("e3b", "discrete")
    learner = Learner(small_config("e3b"), case.spec, 1)
    shapes = jax.eval_shape(learner.init, jax.random.key(0))
    assert shapes.target_actor.episodic_memory == InverseCovariance(8)
    online = make(lambda key: learner.init(key).online)
    networks = online.actor.representation, online.curiosity
    state = shapes._replace(online=online, method_state=())
    seen = at(jit(lambda trajectory: learner.loss_function.forward(online, state, trajectory))(case.trajectory))
    trajectory = online.actor.normalize(case.trajectory)
    _, expected = at(look(*networks, (), trajectory))
    np.testing.assert_allclose(seen.method_output.uncertainty, expected.uncertainty, rtol=1e-4)
    assert_trees_close(
        seen.curiosity_view.episodic_memory, case.trajectory.initial_state.episodic_memory, rtol=0, atol=0
    )
