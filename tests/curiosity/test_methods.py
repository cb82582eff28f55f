"""What holds for every method: episodes and environments know nothing of each other."""

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
from byol_explore.curiosity.e3b import Ellipse
from byol_explore.doctor.measuring import leak
from byol_explore.learner import Learner
from byol_explore.registries import METHODS
from byol_explore.types import Trajectory
from methods import Case, look, make_case

NEW = ["e3b", "noveld", "disagreement", "counts", "re3", "ngu", "byol-hindsight"]


@pytest.fixture(scope="module", params=NEW)
def case(request: pytest.FixtureRequest) -> Case:
    return make_case(request.param)


def moved(case: Case, where: np.ndarray) -> np.ndarray:
    """Valid transitions whose uncertainties change with other observations there."""
    _, before = case.look()
    _, after = case.look(replace_observations(case.spec, case.trajectory, where))
    return (np.abs(after.uncertainty - before.uncertainty) > 1e-6) & np.asarray(case.trajectory.valid)


@pytest.mark.parametrize("part", [slice(4, None), slice(None, 4)], ids=["the next", "the former"])
def test_an_episode_does_not_change_another(case: Case, part: slice) -> None:
    """The first environment's third episode begins at 4; others may follow it if the method contrasts them."""
    where = np.zeros((TIME, BATCH), bool)
    where[part, 0] = True
    changed = moved(case, where)
    mine = slice(1) if case.method.contrasts else slice(None)
    assert changed[:, mine].any()
    assert not np.any((changed & ~where[1:])[:, mine])


def test_the_ignored_action_changes_nothing(case: Case) -> None:
    trajectory, other = case.trajectory, make_trajectory(case.spec, small_actor(case.spec), 7)
    dummy = ~np.asarray(trajectory.valid)
    action = jax.tree.map(lambda a, b: np.where(dummy[..., None], b, a), trajectory.action, other.action)
    _, before = case.look()
    _, after = case.look(trajectory._replace(action=action))
    np.testing.assert_allclose(after.loss, before.loss, rtol=1e-6)
    valid = np.asarray(trajectory.valid)
    np.testing.assert_allclose(after.uncertainty[valid], before.uncertainty[valid], rtol=1e-6)


@pytest.mark.parametrize("name", [name for name in NEW if not METHODS.get(name).contrasts])
def test_permuted_environments_give_permuted_uncertainties(name: str) -> None:
    """But for byol-hindsight, whose noise is drawn for each place in the batch."""
    case, order = make_case(name), [2, 0, 1]
    _, before = case.look()
    _, after = case.look(permute_environments(case.trajectory, order))
    np.testing.assert_allclose(after.uncertainty, before.uncertainty[:, order], rtol=1e-4, atol=1e-6)
    assert_trees_close(after.metrics, before.metrics, rtol=1e-4)


def test_the_doctor_finds_no_leak(case: Case) -> None:
    """Though a method that contrasts environments would look like one if all were changed at once."""

    def uncertainty_of(trajectory: Trajectory) -> np.ndarray:
        return case.look(trajectory)[1].uncertainty

    before, contrasts = uncertainty_of(case.trajectory), case.method.contrasts
    assert leak(case.trajectory, before, uncertainty_of, alone=contrasts) < 1e-5
    assert (leak(case.trajectory, before, uncertainty_of) > 1e-3) is contrasts


def test_methods_are_known_by_their_names() -> None:
    assert set(NEW) < set(METHODS.names())


def test_a_learner_goes_on_from_what_its_sequences_remember() -> None:
    """The uncertainties of a batch are those of the method that is shown the episodes so far."""
    case = make_case("e3b", "discrete")
    learner = Learner(small_config("e3b"), case.spec, 1)
    shapes = jax.eval_shape(learner.init, jax.random.key(0))
    assert shapes.acting.recall == Ellipse(8)
    online = make(lambda key: learner.init(key).online)
    networks = online.actor.representation, online.curiosity
    state = shapes._replace(online=online, curiosity=())
    seen = at(jit(lambda trajectory: learner.objective.see(online, state, trajectory))(case.trajectory))
    trajectory = online.actor.normalized(case.trajectory)
    _, expected = at(look(*networks, (), trajectory))
    np.testing.assert_allclose(seen.curiosity.uncertainty, expected.uncertainty, rtol=1e-4)
    assert_trees_close(seen.curious.episode, case.trajectory.memory.episode, rtol=0, atol=0)
