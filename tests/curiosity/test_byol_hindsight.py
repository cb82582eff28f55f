"""BYOL-Hindsight against loops, the signs of its two players, and where gradients flow."""

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
from byol_explore.curiosity.byol_explore import BYOLExplore, Landings
from byol_explore.curiosity.byol_hindsight import BOUND, BYOLHindsight, Critic, invariance_loss
from byol_explore.networks.assembly import View
from byol_explore.networks.layers import MLP
from byol_explore.types import Array
from methods import Case, explore, make_case


@pytest.fixture(scope="module")
def case() -> Case:
    return make_case("byol-hindsight")


@pytest.fixture(scope="module")
def paper() -> Case:
    return make_case("byol-hindsight", forecasts=False)


# Against loops


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.sum(x**2))


def slow_parts(case: Case, view: View) -> dict[tuple[int, int, int], tuple[np.ndarray, np.ndarray, float]]:
    """c, z and L_rec of (j, t, k), of every prediction that stays inside its episode and the sequence."""
    method, trajectory, parts = case.method, case.trajectory, {}
    targets = [np.asarray(call(case.state.target, at(trajectory.observation, t)), np.float64) for t in range(TIME)]
    noise = np.asarray(method.noise(case.state, BATCH), np.float64)
    for j, t in np.ndindex(BATCH, TIME - 1):
        state = at(view.state, t, j)
        for k in range(1, min(method.horizon, TIME - 1 - t) + 1):
            if trajectory.is_first[t + k, j]:
                break
            rows = numpy_action_rows(method.action, at(trajectory.action, t + k - 1, j))
            action, w = numpy_linear(method.project_action, rows), targets[t + k][j]
            c = np.concatenate([numpy_belief(state), action])
            state = numpy_core(method.core, state, action)
            eps = noise[k - 1, j]
            if method.forecaster is None:
                z = numpy_mlp(method.generator, np.concatenate([c, w, eps]))
            else:
                z = eps + numpy_mlp(method.generator, np.concatenate([c, w]))
            guess = numpy_mlp(method.predictor, np.concatenate([numpy_belief(state), z]))
            if method.forecaster is not None:
                guess = unit(numpy_mlp(method.forecaster, numpy_belief(state))) + guess
            parts[j, t, k] = c, z, float(np.sum((unit(guess) - unit(w)) ** 2))
    return parts


def slow_score(critic: Any, c: np.ndarray, z: np.ndarray) -> float:
    u, v = numpy_mlp(critic.of_condition, c), numpy_mlp(critic.of_hindsight, z)
    return float(BOUND * unit(u) @ unit(v))


@pytest.mark.parametrize("way", ["case", "paper"])
def test_loss_and_uncertainty_are_the_sums_of_both_parts(way: str, request: pytest.FixtureRequest) -> None:
    case: Case = request.getfixturevalue(way)
    view, output = case.look()
    parts = slow_parts(case, view)
    told, losses = {}, {}
    for (j, t, k), (c, z, error) in parts.items():
        others = [slow_score(case.method.critic, c, parts[i, t, k][1]) for i in range(BATCH) if (i, t, k) in parts]
        told[j, t, k] = slow_score(case.method.critic, c, z) - np.log(np.mean(np.exp(others)))
        losses[j, t, k] = error + case.method.invariance * told[j, t, k]
    uncertainty = np.zeros((TIME - 1, BATCH))
    for (j, p, q), loss in losses.items():
        uncertainty[p + q - 1, j] += loss
    starts = {(j, t) for j, t, _ in losses}
    means = [np.mean([loss for (j, t, _), loss in losses.items() if (j, t) == start]) for start in starts]
    np.testing.assert_allclose(output.uncertainty, uncertainty, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(output.loss, np.mean(means), rtol=1e-3)
    np.testing.assert_allclose(output.metrics["invariance"], np.mean(list(told.values())), rtol=1e-3, atol=1e-4)
    errors = [error for _, _, error in parts.values()]
    np.testing.assert_allclose(output.metrics["reconstruction_error"], np.mean(errors), rtol=1e-4)
    assert np.ptp(list(told.values())) > 0.1
    assert case.method.invariance == 1.0


def test_noise_is_drawn_anew_by_every_learner_step_and_the_target_follows(case: Case) -> None:
    encoder = case.representation.encoder
    after = case.method.after(case.state, encoder, case.trajectory.sequence)
    assert not np.allclose(case.method.noise(after, BATCH), case.method.noise(case.state, BATCH))
    moved = jax.tree.map(lambda phi, theta: 0.99 * phi + 0.01 * theta, case.state.target, encoder)
    assert_trees_close(case.method.target(after), moved, rtol=1e-5)
    noise = np.asarray(case.method.noise(case.state, 500))
    assert noise.shape == (3, 500, case.method.size)
    assert abs(noise.mean()) < 0.05 > abs(noise.std() - 1.0)


# The critic's sign


def played(critic: Critic, draw: Callable[[Array], tuple[Array, Array]], steps: int = 200) -> float:
    """L_inv after the critic alone has raised it, on conditions and hindsights that are new at every step."""
    optimizer = optax.adam(1e-2)

    def mean(critic: Critic, key: Array) -> Array:
        condition, hindsight = draw(key)
        return jnp.mean(invariance_loss(critic(condition, hindsight), jnp.ones(condition.shape[0], bool)))

    @jit
    def play(critic: Critic) -> Array:
        def step(carry: Any, key: Array) -> tuple[Any, None]:
            critic, state = carry
            updates, state = optimizer.update(jax.grad(lambda c: -mean(c, key))(critic), state)
            return (optax.apply_updates(critic, updates), state), None

        keys = jax.random.split(jax.random.key(1), steps + 20)
        (critic, _), _ = jax.lax.scan(step, (critic, optimizer.init(critic)), keys[:steps])
        return jnp.mean(jax.lax.map(lambda key: mean(critic, key), keys[steps:]))

    return float(play(critic))


MANY = 16


@pytest.mark.parametrize(("tells", "low", "high"), [(True, 0.8 * np.log(MANY), np.log(MANY)), (False, -0.1, 0.1)])
def test_a_critic_finds_all_that_hindsight_tells_and_nothing_that_it_does_not(
    tells: bool, low: float, high: float
) -> None:
    """Log B where z = c, 0 where they are independent."""
    critic = make(lambda key: Critic(MLP(6, (32,), 16, key), MLP(6, (32,), 16, key)))

    def draw(key: Array) -> tuple[Array, Array]:
        condition, other = jax.random.normal(key, (2, MANY, 6))
        return condition, condition if tells else other

    assert low < played(critic, draw) < high


def descended(case: Case, part: Callable[[Any], Any]) -> tuple[float, float]:
    """L_inv before and after one part of the method follows the gradient of the method's own loss a little."""
    gradient = gradients(case, 1.0, 0.0)[1]
    moved = jax.tree.map(lambda x, g: x - 0.02 * g, part(case.method), part(gradient))
    _, before = case.look()
    _, after = case._replace(method=eqx.tree_at(part, case.method, moved)).look()
    return float(before.metrics["invariance"]), float(after.metrics["invariance"])


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


def test_the_methods_own_loss_teaches_the_critic_to_raise_what_the_generator_lowers(case: Case) -> None:
    """A critic that is trained with the generator's sign lowers it too: then nothing is invariant, and nobody knows."""
    before, critic = descended(case, lambda method: method.critic)
    assert critic > before + 1e-4
    strict = case._replace(method=eqx.tree_at(lambda m: m.predictor, case.method, blind(case.method)))
    before, generator = descended(strict, lambda method: method.generator)
    assert generator < before - 1e-4


def blind(method: BYOLHindsight) -> MLP:
    """A reconstructor that reads nothing of z, so that reconstruction asks nothing of the generator."""
    weight = method.predictor.layers[0].weight
    return eqx.tree_at(lambda m: m.layers[0].weight, method.predictor, weight.at[-method.size :].set(0.0))


# Gradients


def test_the_loss_trains_all_but_the_target_and_the_uncertainty_nothing(case: Case) -> None:
    representation, method, target = gradients(case, 1.0, 0.0)
    assert largest(target) == 0
    trained = leaves_with_names((representation.encoder, method.core, method.generator, method.predictor))
    trained |= leaves_with_names((method.critic.of_hindsight, method.critic.of_condition.layers[0]))
    assert {name for name, leaf in trained.items() if not np.any(leaf)} == set()
    assert largest(gradients(case, 0.0, 1.0)) == 0


@jit
def _gradients_of_explore(networks: Any, target: Any, trajectory: Any) -> Any:
    return jax.grad(lambda networks: explore(*networks, target, trajectory)[1].loss)(networks)


def test_the_world_model_learns_by_byol_explores_own_loss(case: Case) -> None:
    """Nothing of the reconstruction reaches it: as long as no critic knows, z tells all, and b would be idle."""
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


def test_without_a_forecaster_the_reconstruction_trains_it(case: Case, paper: Case) -> None:
    representation, method, _ = gradients(paper, 1.0, 0.0)
    other, _, _ = gradients(case, 1.0, 0.0)
    assert largest(method.core) > 0 < largest(representation.encoder)
    assert largest(jax.tree.map(np.subtract, representation, other)) > 1e-3


def test_at_the_start_hindsight_tells_nothing() -> None:
    materials = materials_for(small_config("byol-hindsight"), make_spec("vector", "hybrid"))
    method, rng = BYOLHindsight.make(materials, jax.random.key(0)), np.random.default_rng(0)
    sizes = (materials.network.belief_size + method.core.gates, materials.embedding_size, method.size)
    condition, target, noise = (jnp.asarray(rng.normal(size=(BATCH, size)), jnp.float32) for size in sizes)
    np.testing.assert_array_equal(method.generate(condition, target, noise), noise)


def test_what_is_told_does_not_depend_on_the_noise_that_it_is_told_in(case: Case, paper: Case) -> None:
    """Else noise could be taken away, and the price would be less than kappa for a nat."""
    rng, found = np.random.default_rng(0), []
    for method in (case.method, paper.method):
        sizes = (6 + method.core.gates, 8)
        condition, target = (jnp.asarray(rng.normal(size=(BATCH, size)), jnp.float32) for size in sizes)
        noises = jnp.asarray(rng.normal(size=(2, BATCH, method.size)), jnp.float32)
        one, other = (method.generate(condition, target, noise) - noise for noise in noises)
        found.append(float(jnp.max(jnp.abs(one - other))))
        assert float(jnp.max(jnp.abs(one))) > 0.01
    assert found[0] < 1e-5
    assert found[1] > 0.1


def test_telling_costs_the_generator_and_nobody_is_paid_for_it(case: Case) -> None:
    """The cost is of its gradient alone; what is reported and paid stays the same."""
    free, dear = (case._replace(method=dataclasses.replace(case.method, cost=cost)) for cost in (0.0, 0.5))
    (_, cheap), (_, output) = free.look(), dear.look()
    np.testing.assert_allclose(output.loss, cheap.loss, rtol=1e-6)
    np.testing.assert_allclose(output.uncertainty, cheap.uncertainty, rtol=1e-5, atol=1e-6)
    (rest, method, _), (other, without, _) = gradients(dear, 1.0, 0.0), gradients(free, 1.0, 0.0)
    generator = jax.tree.map(np.subtract, method.generator, without.generator)
    assert np.sum(generator.layers[-1].weight * np.asarray(case.method.generator.layers[-1].weight)) > 1e-3
    assert_trees_close((rest, method.critic, method.predictor), (other, without.critic, without.predictor), rtol=1e-5)


def flows(case: Case, weight: float) -> tuple[BYOLHindsight, Landings]:
    """Gradients to the method and to what it compares; of the loss only L_inv and what trains others is left."""
    silent = jax.tree.map(jnp.zeros_like, case.method.predictor)  # says 0, and passes no gradient on
    method = dataclasses.replace(case.method, predictor=silent, invariance=weight, cost=0.0)
    rng = np.random.default_rng(0)
    sizes = (6, case.method.core.gates, 6, 8)
    arrays = [jnp.asarray(rng.normal(size=(4, BATCH, size)), jnp.float32) for size in sizes]
    valid = jnp.asarray(rng.random((4, BATCH)) < 0.8)

    @jit
    def gradient(method: BYOLHindsight, arrays: list[Array]) -> Any:
        def objective(method: BYOLHindsight, arrays: list[Array]) -> Array:
            return method.compare(case.state, Landings(*arrays, np.asarray([1, 1, 2, 3]), valid))[0].sum()

        return jax.grad(objective, argnums=(0, 1))(method, arrays)

    own, given = at(gradient(method, arrays))
    return own, Landings(*given, np.zeros(0), np.zeros(0))  # pyright: ignore[reportArgumentType]


def test_each_player_has_its_own_gradient(case: Case) -> None:
    """No gradient of L_inv into c, neither by the critic's condition nor by what the generator is given.

    The critic's does not depend on lambda: it is frozen for the generator. The generator's is lambda's alone: what the
    critic learns from is stopped.
    """
    once, given = flows(case, 1.0)
    assert largest((given.before, given.action)) == 0
    assert largest(once.generator) > 0 < largest(once.critic)
    never, _ = flows(case, 0.0)
    assert largest(never.generator) == 0
    assert_trees_close(never.critic, once.critic, rtol=1e-5)
