"""BYOL-Explore against the sums of section 3.2 in slow loops, one prediction at a time."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from builders import (
    BATCH,
    IS_FIRST,
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
    numpy_action_rows,
    numpy_belief,
    numpy_core,
    numpy_linear,
    numpy_mlp,
    permute_environments,
    replace_observations,
    shaken,
    small_actor,
    small_config,
)
from byol_explore.agent.learner import Learner
from byol_explore.agent.state import Batch, LearnerState, init_hyperparams
from byol_explore.curiosity.byol_explore import BYOLExplore
from byol_explore.curiosity.method import BuildContext, MethodOutput
from byol_explore.envs.interface import EnvSpec
from byol_explore.networks.representation import Actor, Networks, Representation, RepresentationOutput
from byol_explore.types import Trajectory

Losses = dict[tuple[int, int, int], float]


class Case(NamedTuple):
    spec: EnvSpec
    actor: Actor
    curiosity: BYOLExplore
    target: Any  # an encoder that differs from the online one

    def trajectory(self, seed: int = 0, is_first: np.ndarray = IS_FIRST) -> Trajectory:
        return make_trajectory(self.spec, self.actor, seed, is_first)

    def forward(self, trajectory: Trajectory) -> tuple[RepresentationOutput, MethodOutput]:
        return at(_compiled_forward(self.actor.representation, self.curiosity, self.target, trajectory))


def _forward(
    representation: Representation, curiosity: BYOLExplore, target: Any, trajectory: Trajectory
) -> tuple[RepresentationOutput, MethodOutput]:
    view = representation.unroll(trajectory.sequence, trajectory.previous, trajectory.initial_state.policy_core)
    return view, curiosity(target, view, trajectory.sequence)


_compiled_forward = jit(_forward)


def make_curiosity(spec: EnvSpec, core: str = "gru", **settings: Any) -> BYOLExplore:
    config = small_config(core=core, **settings)
    return make(lambda key: BYOLExplore.create(materials_for(config, spec), key), seed=1)


def make_case(observation: str, action: str, core: str, horizon: int) -> Case:
    spec = make_spec(observation, action)
    actor = small_actor(spec, core)
    target = shaken(actor.representation.encoder, seed=2)
    return Case(spec, actor, make_curiosity(spec, core, horizon=horizon), target)


CASES = {
    "grid, gru, K=3": ("grid", "discrete", "gru", 3),
    "vector, lstm, K=T-1": ("vector", "hybrid", "lstm", TIME - 1),
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return make_case(*CASES[request.param])


@pytest.fixture(scope="module")
def grid() -> Case:
    return make_case("grid", "discrete", "gru", 3)


# The loss and the uncertainty


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.sum(x**2))


def slow_losses(case: Case, trajectory: Trajectory, view: RepresentationOutput) -> Losses:
    """Return loss(j, t, k) of every prediction that stays inside its episode and the sequence."""
    curiosity, losses = case.curiosity, {}
    targets = [np.asarray(call(case.target, at(trajectory.observation, t)), np.float64) for t in range(TIME)]
    for j in range(BATCH):
        for t in range(TIME - 1):
            state = at(view.core_state, t, j)
            for k in range(1, min(curiosity.horizon, TIME - 1 - t) + 1):
                if trajectory.is_first[t + k, j]:
                    break
                rows = numpy_action_rows(curiosity.action, at(trajectory.action, t + k - 1, j))
                state = numpy_core(curiosity.core, state, numpy_linear(curiosity.project_action, rows))
                prediction = numpy_mlp(curiosity.predictor, numpy_belief(state))
                losses[j, t, k] = float(np.sum((unit(prediction) - unit(targets[t + k][j])) ** 2))
    return losses


def slow_loss(losses: Losses) -> float:
    """Return the mean over starts that have a prediction of the mean over their K(t) predictions."""
    starts = sorted({(j, t) for j, t, _ in losses})
    per_start = [np.mean([loss for (j, t, _), loss in losses.items() if (j, t) == start]) for start in starts]
    return float(np.mean(per_start))


def slow_uncertainty(losses: Losses) -> np.ndarray:
    """Return l_t = sum over p + q = t + 1 of loss(p, q)."""
    uncertainty = np.zeros((TIME - 1, BATCH))
    for (j, p, q), loss in losses.items():
        uncertainty[p + q - 1, j] += loss
    return uncertainty


def boundaries(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random((TIME, BATCH)) < 0.25


@pytest.mark.parametrize(
    "is_first", [IS_FIRST, boundaries(0), boundaries(1), np.zeros_like(IS_FIRST)], ids=["fixed", "0", "1", "none"]
)
def test_loss_and_uncertainty_equal_slow_sums(case: Case, is_first: np.ndarray) -> None:
    trajectory = case.trajectory(3, is_first)
    view, output = case.forward(trajectory)
    losses = slow_losses(case, trajectory, view)
    np.testing.assert_allclose(output.loss, slow_loss(losses), rtol=1e-4)
    np.testing.assert_allclose(output.uncertainty, slow_uncertainty(losses), rtol=1e-4, atol=1e-5)
    by_horizon = [[loss for (_, _, k), loss in losses.items() if k == horizon] for horizon in range(1, TIME)]
    means = [np.mean(values) if values else 0.0 for values in by_horizon[: case.curiosity.horizon]]
    np.testing.assert_allclose(output.metrics["prediction_error"], means, rtol=1e-4)


def test_starts_have_equal_weight_without_boundaries(grid: Case) -> None:
    """1 / (B (T-1)) sum_j sum_t 1 / K(t) sum_k, with K(t) = min(K, T - 1 - t)."""
    trajectory = grid.trajectory(0, np.zeros_like(IS_FIRST))
    view, output = grid.forward(trajectory)
    losses = slow_losses(grid, trajectory, view)
    total = sum(loss / min(3, TIME - 1 - t) for (_, t, _), loss in losses.items())
    assert len(losses) == BATCH * (3 + 3 + 3 + 3 + 2 + 1)
    np.testing.assert_allclose(output.loss, total / (BATCH * (TIME - 1)), rtol=1e-4)


def test_uncertainty_is_zero_at_dummy_transitions_only(case: Case) -> None:
    trajectory = case.trajectory()
    _, output = case.forward(trajectory)
    np.testing.assert_array_equal(output.uncertainty > 0, trajectory.valid)


def test_a_sequence_of_dummies_has_zero_loss(grid: Case) -> None:
    _, output = grid.forward(grid.trajectory(0, np.ones_like(IS_FIRST)))
    assert output.loss == 0
    assert largest(output) == 0


# Episode boundaries and environments


def test_an_episode_does_not_change_the_one_before(case: Case) -> None:
    """The third episode of environment 0 begins at 4: transitions 0 to 2 lie before it, 3 leads to it."""
    trajectory = case.trajectory()
    _, before = case.forward(trajectory)
    where = np.zeros((TIME, BATCH), bool)
    where[4:, 0] = True
    _, after = case.forward(replace_observations(case.spec, trajectory, where))
    moved = np.abs(after.uncertainty - before.uncertainty) > 1e-6
    np.testing.assert_array_equal(moved, where[1:] & np.asarray(trajectory.valid))


def test_an_episode_does_not_change_the_one_after(case: Case) -> None:
    trajectory = case.trajectory()
    _, before = case.forward(trajectory)
    where = np.zeros((TIME, BATCH), bool)
    where[:4, 0] = True
    _, after = case.forward(replace_observations(case.spec, trajectory, where))
    moved = np.abs(after.uncertainty - before.uncertainty) > 1e-6
    np.testing.assert_array_equal(moved, where[1:] & np.asarray(trajectory.valid))


def test_the_ignored_action_changes_nothing(case: Case) -> None:
    trajectory, other = case.trajectory(), case.trajectory(7)
    dummy = ~np.asarray(trajectory.valid)
    action = jax.tree.map(lambda a, b: np.where(dummy[..., None], b, a), trajectory.action, other.action)
    assert any(np.any(np.asarray(a) != b) for a, b in zip(trajectory.action, action, strict=True))
    _, before = case.forward(trajectory)
    _, after = case.forward(trajectory._replace(action=action))
    assert_trees_close(after, before, rtol=0, atol=1e-6)


def test_permuted_environments_give_permuted_uncertainties(case: Case) -> None:
    trajectory, order = case.trajectory(), [2, 0, 1]
    _, output = case.forward(trajectory)
    _, permuted = case.forward(permute_environments(trajectory, order))
    np.testing.assert_allclose(permuted.uncertainty, output.uncertainty[:, order], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(permuted.loss, output.loss, rtol=1e-5)


# Gradients


@jit
def gradients(
    networks: tuple[Representation, BYOLExplore, Any], trajectory: Trajectory, of_loss: float, of_uncertainty: float
) -> tuple[Representation, BYOLExplore, Any]:
    def objective(networks: tuple[Representation, BYOLExplore, Any]) -> jax.Array:
        _, output = _forward(*networks, trajectory)
        return of_loss * output.loss + of_uncertainty * output.uncertainty.sum()

    return jax.grad(objective)(networks)


def test_the_loss_trains_all_but_the_target(grid: Case) -> None:
    networks = grid.actor.representation, grid.curiosity, grid.target
    representation, curiosity, target = gradients(networks, grid.trajectory(), 1.0, 0.0)
    assert largest(target) == 0
    trained = {**leaves_with_names((representation.encoder, representation.core, representation.inputs)),
               **leaves_with_names((curiosity.core, curiosity.predictor, curiosity.project_action))}  # fmt: skip
    assert {name for name, leaf in trained.items() if not np.any(leaf)} == set()
    assert np.any(curiosity.action.tables)


def test_the_uncertainty_carries_no_gradient(grid: Case) -> None:
    networks = grid.actor.representation, grid.curiosity, grid.target
    assert largest(gradients(networks, grid.trajectory(), 0.0, 1.0)) == 0


# The target encoder


def context_with_target(case: Case) -> BuildContext:
    """Return a context whose `make_encoder` returns the target of the case."""
    return materials_for(small_config(), case.spec)._replace(make_encoder=lambda _: case.target)


def test_target_starts_as_the_online_encoder(grid: Case) -> None:
    encoder = grid.actor.representation.encoder
    target = grid.curiosity.init_state(context_with_target(grid), encoder, jax.random.key(0))
    assert leaves_with_names(target).keys() == leaves_with_names(encoder).keys()
    assert_trees_close(target, encoder, rtol=0, atol=0)


def test_target_is_an_ema_of_the_online_encoder(grid: Case) -> None:
    encoder = grid.actor.representation.encoder
    curiosity = make_curiosity(grid.spec, target_decay=0.9)
    moved = curiosity.update_state(grid.target, encoder, grid.trajectory().sequence)
    assert leaves_with_names(moved).keys() == leaves_with_names(encoder).keys()
    for name, leaf in leaves_with_names(moved).items():
        phi, theta = leaves_with_names(grid.target)[name], leaves_with_names(encoder)[name]
        np.testing.assert_allclose(leaf, 0.9 * phi + 0.1 * theta, rtol=1e-5, atol=1e-6)


def test_fixed_target_has_its_own_weights_and_never_changes(grid: Case) -> None:
    encoder = grid.actor.representation.encoder
    curiosity = make_curiosity(grid.spec, target_decay=1.0)
    target = curiosity.init_state(context_with_target(grid), encoder, jax.random.key(0))
    assert_trees_close(target, grid.target, rtol=0, atol=0)
    assert_trees_close(curiosity.update_state(target, encoder, grid.trajectory().sequence), grid.target, rtol=0, atol=0)


# Inside the learner


class Learning(NamedTuple):
    learner: Learner
    state: LearnerState
    trajectory: Trajectory


def init_learning(share: bool) -> Learning:
    """Return a learner's initial state, with parameters that need no compilation."""
    spec = make_spec()
    learner = Learner(small_config(share_representation=share), spec, 1)
    shapes = jax.eval_shape(learner.init, jax.random.key(0))
    online, target = make(lambda key: (learner.init(key).online, learner.init(key).method_state))
    state = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
    state = state._replace(
        online=online, method_state=target, target_actor=online.actor, duals=learner.algorithm.initial_duals(),
        hyperparams=init_hyperparams(learner.config),
    )  # fmt: skip
    return Learning(learner, state, make_trajectory(spec, online.actor))


@pytest.fixture(scope="module")
def shared() -> Learning:
    return init_learning(share=True)


@pytest.fixture(scope="module")
def apart() -> Learning:
    return init_learning(share=False)


def curiosity_gradient(learning: Learning) -> Networks:
    """Return the part of the learner's gradient that comes from the curiosity loss."""

    @jit
    def gradient(weight: float) -> Networks:
        loss = learning.learner.loss_function.loss
        state = learning.state._replace(
            hyperparams=learning.state.hyperparams._replace(loss_weight=jnp.asarray(weight))
        )
        return jax.grad(loss, has_aux=True)(state.online, state.duals, state, Batch(learning.trajectory))[0]

    return jax.tree.map(lambda x, y: np.asarray(x) - np.asarray(y), gradient(1.0), gradient(0.0))


def test_curiosity_loss_trains_a_shared_representation(shared: Learning) -> None:
    gradient = curiosity_gradient(shared)
    assert shared.state.online.actor.curiosity_representation is None
    representation = gradient.actor.representation
    parts = leaves_with_names((representation.encoder, representation.core))
    assert {name for name, leaf in parts.items() if np.max(np.abs(leaf)) < 1e-5} == set()
    assert largest((gradient.actor.policy_head, gradient.value_head)) < 1e-6


def test_curiosity_loss_trains_only_its_own_representation(apart: Learning) -> None:
    gradient = curiosity_gradient(apart)
    assert largest((gradient.actor.representation, gradient.actor.policy_head, gradient.value_head)) < 1e-6
    parts = leaves_with_names(
        (gradient.actor.curiosity_representation.encoder, gradient.actor.curiosity_representation.core)
    )
    assert {name for name, leaf in parts.items() if np.max(np.abs(leaf)) < 1e-5} == set()


def initial_encoders(**curiosity: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the arrays of the target and the online encoder of a new learner, by name."""
    learner = Learner(small_config(**curiosity), make_spec(), 1)

    @jit
    def encoders(key: jax.Array) -> tuple[Any, Any]:
        state = learner.init(key)
        return state.method_state, state.online.actor.curiosity_encoder

    target, online = encoders(jax.random.key(0))
    return leaves_with_names(target), leaves_with_names(online)


@pytest.mark.parametrize("share", [True, False])
def test_learner_starts_the_target_at_the_curiosity_encoder(share: bool) -> None:
    target, online = initial_encoders(share_representation=share)
    assert_trees_close(target, online, rtol=0, atol=0)


def test_learner_gives_fixed_targets_weights_of_their_own() -> None:
    target, online = initial_encoders(target_decay=1.0)
    weights = {name for name, leaf in online.items() if np.any(leaf)}  # not biases: all start at zero
    assert weights
    assert {name for name in weights if np.allclose(target[name], online[name])} == set()


def test_curiosity_encoder_is_the_policys_if_shared(shared: Learning, apart: Learning) -> None:
    assert shared.state.online.actor.curiosity_encoder is shared.state.online.actor.representation.encoder
    assert apart.state.online.actor.curiosity_encoder is apart.state.online.actor.curiosity_representation.encoder


def test_learner_updates_the_target_after_its_step(apart: Learning) -> None:
    @jit
    def step(state: LearnerState) -> tuple[Any, Any]:
        after = apart.learner.update(state, Batch(apart.trajectory))[0]
        return after.method_state, after.online.actor.curiosity_encoder

    before = leaves_with_names(apart.state.online.actor.curiosity_encoder)
    phi = leaves_with_names(apart.state.method_state)
    target, theta = (leaves_with_names(tree) for tree in step(apart.state))
    for name, leaf in target.items():
        assert np.abs(theta[name] - before[name]).max() > 1e-4
        np.testing.assert_allclose(leaf, 0.99 * phi[name] + 0.01 * theta[name], rtol=1e-5, atol=1e-7)
