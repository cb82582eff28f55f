"""BYOL-Hindsight against slow loops; the signs of generator and critic; the paths of gradients."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
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
    materials_for,
    numpy_action_rows,
    numpy_belief,
    numpy_core,
    numpy_linear,
    numpy_mlp,
    small_config,
)
from byol_explore.curiosity.byol_explore import BYOLExplore, Predictions
from byol_explore.curiosity.byol_hindsight import (
    MAX_LOGIT,
    BYOLHindsight,
    BYOLHindsightPaper,
    InvarianceCritic,
    invariance_loss,
)
from byol_explore.networks.layers import MLP
from byol_explore.networks.representation import RepresentationOutput
from byol_explore.types import Array
from methods import Case, explore, make_case


@pytest.fixture(scope="module")
def case() -> Case:
    return make_case("byol-hindsight")


@pytest.fixture(scope="module")
def paper() -> Case:
    return make_case("byol-hindsight", use_forecaster=False)


# Against loops


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.sum(x**2))


def slow_parts(
    case: Case, view: RepresentationOutput
) -> dict[tuple[int, int, int], tuple[np.ndarray, np.ndarray, float]]:
    """Return c, z and L_rec by (j, t, k) of every prediction that stays inside its episode and the sequence."""
    method, trajectory, parts = case.method, case.trajectory, {}
    targets = [np.asarray(call(case.state.target, at(trajectory.observation, t)), np.float64) for t in range(TIME)]
    noise = np.asarray(method.noise(case.state, BATCH), np.float64)
    for j, t in np.ndindex(BATCH, TIME - 1):
        state = at(view.core_state, t, j)
        for k in range(1, min(method.horizon, TIME - 1 - t) + 1):
            if trajectory.is_first[t + k, j]:
                break
            rows = numpy_action_rows(method.action, at(trajectory.action, t + k - 1, j))
            action, w = numpy_linear(method.project_action, rows), targets[t + k][j]
            c = np.concatenate([numpy_belief(state), action])
            state = numpy_core(method.core, state, action)
            eps = noise[k - 1, j]
            if isinstance(method, BYOLHindsightPaper):
                z = numpy_mlp(method.generator, np.concatenate([c, w, eps]))
            else:
                z = eps + numpy_mlp(method.generator, np.concatenate([c, w]))
            reconstruction = numpy_mlp(method.predictor, np.concatenate([numpy_belief(state), z]))
            if not isinstance(method, BYOLHindsightPaper):
                reconstruction = unit(numpy_mlp(method.forecaster, numpy_belief(state))) + reconstruction
            parts[j, t, k] = c, z, float(np.sum((unit(reconstruction) - unit(w)) ** 2))
    return parts


def slow_score(critic: Any, c: np.ndarray, z: np.ndarray) -> float:
    u, v = numpy_mlp(critic.condition_net, c), numpy_mlp(critic.latent_net, z)
    return float(MAX_LOGIT * unit(u) @ unit(v))


@pytest.mark.parametrize("variant", ["case", "paper"])
def test_loss_and_uncertainty_are_the_sums_of_both_parts(variant: str, request: pytest.FixtureRequest) -> None:
    case: Case = request.getfixturevalue(variant)
    view, output = case.look()
    parts = slow_parts(case, view)
    invariance, losses = {}, {}
    for (j, t, k), (c, z, error) in parts.items():
        others = [slow_score(case.method.critic, c, parts[i, t, k][1]) for i in range(BATCH) if (i, t, k) in parts]
        invariance[j, t, k] = slow_score(case.method.critic, c, z) - np.log(np.mean(np.exp(others)))
        losses[j, t, k] = error + case.method.invariance * invariance[j, t, k]
    uncertainty = np.zeros((TIME - 1, BATCH))
    for (j, p, q), loss in losses.items():
        uncertainty[p + q - 1, j] += loss
    starts = {(j, t) for j, t, _ in losses}
    means = [np.mean([loss for (j, t, _), loss in losses.items() if (j, t) == start]) for start in starts]
    np.testing.assert_allclose(output.uncertainty, uncertainty, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(output.loss, np.mean(means), rtol=1e-3)
    np.testing.assert_allclose(
        output.metrics["invariance_loss"], np.mean(list(invariance.values())), rtol=1e-3, atol=1e-4
    )
    errors = [error for _, _, error in parts.values()]
    np.testing.assert_allclose(output.metrics["reconstruction_error"], np.mean(errors), rtol=1e-4)
    assert np.ptp(list(invariance.values())) > 0.1
    assert case.method.invariance == 1.0


def test_a_learner_step_changes_the_noise_and_updates_the_target(case: Case) -> None:
    encoder = case.representation.encoder
    after = case.method.update_state(case.state, encoder, case.trajectory.sequence)
    assert not np.allclose(case.method.noise(after, BATCH), case.method.noise(case.state, BATCH))
    moved = jax.tree.map(lambda phi, theta: 0.99 * phi + 0.01 * theta, case.state.target, encoder)
    assert_trees_close(case.method.target_encoder(after), moved, rtol=1e-5)
    noise = np.asarray(case.method.noise(case.state, 500))
    assert noise.shape == (3, 500, case.method.size)
    assert abs(noise.mean()) < 0.05 > abs(noise.std() - 1.0)


# The critic's sign


def train_critic(critic: InvarianceCritic, draw: Callable[[Array], tuple[Array, Array]], steps: int = 200) -> float:
    """Return L_inv after a critic was trained alone, on new samples (c, z) at every step."""
    optimizer = optax.adam(1e-2)

    def mean(critic: InvarianceCritic, key: Array) -> Array:
        condition, z = draw(key)
        return jnp.mean(invariance_loss(critic(condition, z), jnp.ones(condition.shape[0], bool)))

    @jit
    def train(critic: InvarianceCritic) -> Array:
        def step(carry: Any, key: Array) -> tuple[Any, None]:
            critic, state = carry
            updates, state = optimizer.update(jax.grad(lambda c: -mean(c, key))(critic), state)
            return (optax.apply_updates(critic, updates), state), None

        keys = jax.random.split(jax.random.key(1), steps + 20)
        (critic, _), _ = jax.lax.scan(step, (critic, optimizer.init(critic)), keys[:steps])
        return jnp.mean(jax.lax.map(lambda key: mean(critic, key), keys[steps:]))

    return float(train(critic))


SAMPLES = 16


@pytest.mark.parametrize(
    ("contains", "low", "high"), [(True, 0.8 * np.log(SAMPLES), np.log(SAMPLES)), (False, -0.1, 0.1)]
)
def test_a_critic_estimates_how_much_of_c_z_contains(contains: bool, low: float, high: float) -> None:
    """About log B if z = c, 0 if they are independent."""
    critic = make(lambda key: InvarianceCritic(MLP(6, (32,), 16, key), MLP(6, (32,), 16, key)))

    def draw(key: Array) -> tuple[Array, Array]:
        condition, other = jax.random.normal(key, (2, SAMPLES, 6))
        return condition, condition if contains else other

    assert low < train_critic(critic, draw) < high


def invariance_after_descent(case: Case, part: Callable[[Any], Any]) -> tuple[float, float]:
    """Return L_inv before and after a small step of one part along the gradient of the method's loss."""
    gradient = gradients(case, 1.0, 0.0)[1]
    moved = jax.tree.map(lambda x, g: x - 0.02 * g, part(case.method), part(gradient))
    _, before = case.look()
    _, after = case._replace(method=eqx.tree_at(part, case.method, moved)).look()
    return float(before.metrics["invariance_loss"]), float(after.metrics["invariance_loss"])


@jit
def _gradients(networks: Any, state: Any, trajectory: Any, of_loss: float, of_uncertainty: float) -> Any:
    def objective(networks: Any) -> Array:
        representation, method, target = networks
        _, output = explore(representation, method, state._replace(target=target), trajectory)
        return of_loss * output.loss + of_uncertainty * output.uncertainty.sum()

    return jax.grad(objective)(networks)


def gradients(case: Case, of_loss: float, of_uncertainty: float) -> Any:
    networks = case.representation, case.method, case.state.target
    return at(_gradients(networks, case.state, case.trajectory, of_loss, of_uncertainty))


def test_the_loss_makes_the_critic_raise_and_the_generator_lower_l_inv(case: Case) -> None:
    """A critic with the generator's sign lowers it too: it would then miss that z contains c."""
    before, critic = invariance_after_descent(case, lambda method: method.critic)
    assert critic > before + 1e-4
    without_z = case._replace(method=eqx.tree_at(lambda m: m.predictor, case.method, without_z_weights(case.method)))
    before, generator = invariance_after_descent(without_z, lambda method: method.generator)
    assert generator < before - 1e-4


def without_z_weights(method: BYOLHindsight) -> MLP:
    """Return a reconstructor that ignores z, so L_rec has no gradient for the generator."""
    weight = method.predictor.layers[0].weight
    return eqx.tree_at(lambda m: m.layers[0].weight, method.predictor, weight.at[-method.size :].set(0.0))


# Gradients


def test_the_loss_trains_all_but_the_target(case: Case) -> None:
    representation, method, target = gradients(case, 1.0, 0.0)
    assert largest(target) == 0
    trained = leaves_with_names((representation.encoder, method.core, method.generator, method.predictor))
    trained |= leaves_with_names((method.critic.latent_net, method.critic.condition_net.layers[0]))
    assert {name for name, leaf in trained.items() if not np.any(leaf)} == set()
    assert largest(gradients(case, 0.0, 1.0)) == 0


@jit
def _gradients_of_explore(networks: Any, target: Any, trajectory: Any) -> Any:
    return jax.grad(lambda networks: explore(*networks, target, trajectory)[1].loss)(networks)


def test_the_world_model_has_the_gradient_of_byol_explore(case: Case) -> None:
    """L_rec does not reach it: before the critic has learned, z contains all of w, and b would learn nothing."""
    ours = case.method
    plain = BYOLExplore(
        ours.core, ours.action, ours.project_action, ours.forecaster, ours.horizon, ours.target_decay
    )  # fmt: skip
    representation, method, _ = gradients(case, 1.0, 0.0)
    theirs, other = at(_gradients_of_explore((case.representation, plain), case.state.target, case.trajectory))
    assert_trees_close(representation, theirs, rtol=1e-3, atol=1e-6)
    found = method.core, method.action, method.project_action, method.forecaster
    assert_trees_close(found, (other.core, other.action, other.project_action, other.predictor), rtol=1e-3, atol=1e-6)
    assert largest(theirs.encoder) > 1e-3


def test_without_a_forecaster_the_reconstruction_trains_the_world_model(case: Case, paper: Case) -> None:
    representation, method, _ = gradients(paper, 1.0, 0.0)
    other, _, _ = gradients(case, 1.0, 0.0)
    assert largest(method.core) > 0 < largest(representation.encoder)
    assert largest(jax.tree.map(np.subtract, representation, other)) > 1e-3


def test_z_is_pure_noise_at_the_start() -> None:
    context = materials_for(small_config("byol-hindsight"), make_spec("vector", "hybrid"))
    method, rng = BYOLHindsight.create(context, jax.random.key(0)), np.random.default_rng(0)
    sizes = (context.network.belief_size + method.core.gate_size, context.embedding_size, method.size)
    condition, target, noise = (jnp.asarray(rng.normal(size=(BATCH, size)), jnp.float32) for size in sizes)
    np.testing.assert_array_equal(method.generate(condition, target, noise), noise)


def test_the_generator_does_not_read_the_noise(case: Case, paper: Case) -> None:
    """If it did, it could remove noise, and the penalty would be less than kappa per nat."""
    rng, found = np.random.default_rng(0), []
    for method in (case.method, paper.method):
        sizes = (6 + method.core.gate_size, 8)
        condition, target = (jnp.asarray(rng.normal(size=(BATCH, size)), jnp.float32) for size in sizes)
        noises = jnp.asarray(rng.normal(size=(2, BATCH, method.size)), jnp.float32)
        one, other = (method.generate(condition, target, noise) - noise for noise in noises)
        found.append(float(jnp.max(jnp.abs(one - other))))
        assert float(jnp.max(jnp.abs(one))) > 0.01
    assert found[0] < 1e-5
    assert found[1] > 0.1


def test_the_latent_penalty_trains_the_generator_and_has_value_zero(case: Case) -> None:
    """Loss and uncertainty stay the same."""
    without, with_penalty = (
        case._replace(method=dataclasses.replace(case.method, latent_penalty=penalty)) for penalty in (0.0, 0.5)
    )
    (_, expected), (_, output) = without.look(), with_penalty.look()
    np.testing.assert_allclose(output.loss, expected.loss, rtol=1e-6)
    np.testing.assert_allclose(output.uncertainty, expected.uncertainty, rtol=1e-5, atol=1e-6)
    representation, method, _ = gradients(with_penalty, 1.0, 0.0)
    other_representation, other, _ = gradients(without, 1.0, 0.0)
    generator = jax.tree.map(np.subtract, method.generator, other.generator)
    assert np.sum(generator.layers[-1].weight * np.asarray(case.method.generator.layers[-1].weight)) > 1e-3
    found = representation, method.critic, method.predictor
    assert_trees_close(found, (other_representation, other.critic, other.predictor), rtol=1e-5)


def invariance_gradients(case: Case, weight: float) -> tuple[BYOLHindsight, Predictions]:
    """Return gradients of the method and of its predictions, without L_rec and the penalty."""
    zero = jax.tree.map(jnp.zeros_like, case.method.predictor)  # outputs 0, and has no gradient
    method = dataclasses.replace(case.method, predictor=zero, invariance=weight, latent_penalty=0.0)
    rng = np.random.default_rng(0)
    sizes = (6, case.method.core.gate_size, 6, 8)
    arrays = [jnp.asarray(rng.normal(size=(4, BATCH, size)), jnp.float32) for size in sizes]
    valid = jnp.asarray(rng.random((4, BATCH)) < 0.8)

    @jit
    def gradient(method: BYOLHindsight, arrays: list[Array]) -> Any:
        def objective(method: BYOLHindsight, arrays: list[Array]) -> Array:
            return method.prediction_loss(case.state, Predictions(*arrays, np.asarray([1, 1, 2, 3]), valid))[0].sum()

        return jax.grad(objective, argnums=(0, 1))(method, arrays)

    own, given = at(gradient(method, arrays))
    return own, Predictions(*given, np.zeros(0), np.zeros(0))  # pyright: ignore[reportArgumentType]


def test_generator_and_critic_have_separate_gradients(case: Case) -> None:
    """L_inv has no gradient into c, neither through the critic's input nor through the generator's.

    The critic's gradient does not depend on lambda: the critic is frozen in the generator's term. The generator's
    gradient comes from lambda L_inv only: z is stopped in the critic's term.
    """
    full, given = invariance_gradients(case, 1.0)
    assert largest((given.prev_belief, given.action)) == 0
    assert largest(full.generator) > 0 < largest(full.critic)
    off, _ = invariance_gradients(case, 0.0)
    assert largest(off.generator) == 0
    assert_trees_close(off.critic, full.critic, rtol=1e-5)
