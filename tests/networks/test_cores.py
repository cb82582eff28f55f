"""Recurrent cores against Python loops."""

from typing import Any

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
    make,
    make_spec,
    numpy_action_rows,
    numpy_belief,
    numpy_core,
    numpy_gru,
    numpy_lstm,
    random_action,
    shaken,
)
from byol_explore.config.sections import NetworkConfig
from byol_explore.networks.core_inputs import CoreInputs
from byol_explore.networks.cores import CORES, GRU, LSTM, LSTMState, closed_loop, open_loop, reset_where

SIZE = 6
step = jit(lambda core, state, projected: core.step(state, projected))
run_closed_loop = jit(closed_loop)
run_open_loop = jit(open_loop, static_argnums=3)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.fixture(scope="module", params=["gru", "lstm"])
def core(request: pytest.FixtureRequest) -> Any:
    return make(lambda key: CORES[request.param](SIZE, key))


@pytest.fixture(scope="module")
def carried(core: Any) -> Any:
    """A state from before the sequence, far from the initial one."""
    return shaken(core.initial_state((BATCH,)), seed=3, scale=1.0)


def zeros_like_state(state: Any) -> Any:
    return tuple(np.zeros(SIZE) for _ in state) if isinstance(state, tuple) else np.zeros(SIZE)


def slow_closed_loop(core: Any, projected: np.ndarray, is_first: np.ndarray, carried: Any) -> np.ndarray:
    """Beliefs [T, B, M], one environment and one step at a time."""
    beliefs = np.zeros((TIME, BATCH, SIZE))
    for env in range(BATCH):
        state = at(carried, env)
        for t in range(TIME):
            if is_first[t, env]:
                state = zeros_like_state(state)
            state = numpy_core(core, state, projected[t, env])
            beliefs[t, env] = numpy_belief(state)
    return beliefs


def test_gru_step() -> None:
    core = make(lambda key: GRU(SIZE, key))
    state, projected = normal(2, SIZE), normal(2, 3 * SIZE, seed=1)
    expected = numpy_gru(core, np.asarray(state), np.asarray(projected))
    np.testing.assert_allclose(step(core, state, projected), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(core.belief(jnp.asarray(state)), state)


def test_lstm_step() -> None:
    core = make(lambda key: LSTM(SIZE, key))
    state, projected = LSTMState(normal(2, SIZE), normal(2, SIZE, seed=1)), normal(2, 4 * SIZE, seed=2)
    hidden, cell = numpy_lstm(core, at(state), np.asarray(projected))
    new = step(core, state, projected)
    np.testing.assert_allclose(new.hidden, hidden, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(new.cell, cell, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(core.belief(new), new.hidden)


def test_a_fresh_lstm_remembers_more_than_it_forgets() -> None:
    core = jit(lambda key: LSTM(SIZE, key))(jax.random.key(0))
    state = LSTMState(jnp.zeros((1, SIZE)), jnp.ones((1, SIZE)))
    kept = step(core, state, jnp.zeros((1, 4 * SIZE))).cell
    np.testing.assert_allclose(kept, 1 / (1 + np.exp(-1.0)), rtol=1e-6)


def test_reset_where_resets_only_masked_entries(core: Any, carried: Any) -> None:
    state = jit(reset_where)(core, np.asarray([True, False, True]), carried)
    for before, after in zip(jax.tree.leaves(at(carried)), jax.tree.leaves(at(state)), strict=True):
        np.testing.assert_array_equal(after[1], before[1])
        assert before[[0, 2]].any()
        assert not after[[0, 2]].any()


def test_closed_loop_equals_a_loop_with_resets_inside(core: Any, carried: Any) -> None:
    projected = normal(TIME, BATCH, core.gate_size)
    states = run_closed_loop(core, projected, IS_FIRST, carried)
    expected = slow_closed_loop(core, projected, IS_FIRST, carried)
    np.testing.assert_allclose(core.belief(states), expected, rtol=1e-4, atol=1e-5)


def test_closed_loop_remembers_until_an_episode_begins(core: Any, carried: Any) -> None:
    projected = normal(TIME, BATCH, core.gate_size)
    belief = np.asarray(core.belief(run_closed_loop(core, projected, IS_FIRST, carried)))
    other = jax.tree.map(lambda x: x + 1, at(carried))
    changed = np.asarray(core.belief(run_closed_loop(core, projected, IS_FIRST, other)))
    began = np.cumsum(IS_FIRST, axis=0) > 0
    moved = np.any(np.abs(changed - belief) > 1e-6, axis=-1)
    np.testing.assert_array_equal(moved, ~began)


def test_closed_loop_in_two_halves_equals_one(core: Any, carried: Any) -> None:
    projected, is_first = normal(TIME, BATCH, core.gate_size), IS_FIRST
    whole = run_closed_loop(core, projected, is_first, carried)
    first = at(run_closed_loop(core, projected[:3], is_first[:3], carried))
    second = at(run_closed_loop(core, projected[3:], is_first[3:], at(first, -1)))
    assert_trees_close(jax.tree.map(lambda *x: np.concatenate(x), first, second), whole)


def test_closed_loop_has_the_gradients_of_a_loop(core: Any, carried: Any) -> None:
    projected, wanted = normal(TIME, BATCH, core.gate_size), normal(TIME, BATCH, SIZE, seed=1)

    def looped(core: Any, projected: Any, is_first: Any, state: Any) -> Any:
        states = []
        for t in range(TIME):
            state = core.step(reset_where(core, is_first[t], state), projected[t])
            states.append(state)
        return jax.tree.map(lambda *x: jnp.stack(x), *states)

    def gradients(unroll: Any) -> Any:
        def weighed(core: Any, projected: Any, state: Any) -> Any:
            states = unroll(core, projected, IS_FIRST, state)
            return sum(jnp.sum(wanted * (1 + i) * x) for i, x in enumerate(jax.tree.leaves(states)))

        return jit(jax.grad(weighed, argnums=(0, 1, 2)))(core, projected, carried)

    expected = gradients(looped)
    assert all(np.abs(leaf).max() > 0.1 for leaf in jax.tree.leaves(at(expected)))
    assert_trees_close(gradients(closed_loop), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("horizon", [1, 4, TIME - 1])
def test_open_loop_equals_a_loop_over_starts_and_horizons(core: Any, horizon: int) -> None:
    starts = TIME - 1
    projected = normal(starts, BATCH, core.gate_size)
    state = shaken(core.initial_state((starts, BATCH)), seed=4, scale=1.0)
    beliefs = at(run_open_loop(core, projected, state, horizon))
    assert [b.shape for b in beliefs] == [(starts - k + 1, BATCH, SIZE) for k in range(1, horizon + 1)]
    for env in range(BATCH):
        for t in range(starts):
            simulated = at(state, t, env)
            for k in range(1, min(horizon, starts - t) + 1):
                simulated = numpy_core(core, simulated, projected[t + k - 1, env])
                expected = numpy_belief(simulated)
                np.testing.assert_allclose(beliefs[k - 1][t, env], expected, rtol=1e-4, atol=1e-5)


def test_split_input_projection_is_one_layer_on_the_concatenation() -> None:
    spec, config = make_spec("vector", "hybrid"), NetworkConfig(action_embedding_size=5, action_bins=4)
    core = make(lambda key: GRU(SIZE, key))
    inputs = make(lambda key: CoreInputs(config, spec, 8, core.gate_size, key))
    weight = np.concatenate([inputs.project.weight, inputs.project_action.weight])
    embedding, state = normal(BATCH, 8), normal(BATCH, SIZE, seed=1)
    action = random_action(np.random.default_rng(0), spec.action, (BATCH,))
    projected = call(inputs, embedding, (), action, np.zeros(BATCH), np.zeros(BATCH, bool))
    new = at(step(core, state, projected))
    for env in range(BATCH):
        read = np.concatenate([embedding[env], numpy_action_rows(inputs.action, at(action, env))])
        expected = numpy_gru(core, state[env], read @ weight + np.asarray(inputs.project.bias))
        np.testing.assert_allclose(new[env], expected, rtol=1e-4, atol=1e-5)
