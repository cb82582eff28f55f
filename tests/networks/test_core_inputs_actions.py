"""Actions as inputs."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from builders import ACTIONS, IS_FIRST, at, call, make, numpy_action_rows, numpy_linear, random_action
from byol_explore.errors import UserError
from byol_explore.networks.core_inputs import ActionEmbedding
from byol_explore.networks.layers import Linear
from byol_explore.spaces import ActionSpec
from byol_explore.types import Action

LEAD = IS_FIRST.shape


def embedding_and_layer(spec: ActionSpec, use_bias: bool = True) -> tuple[ActionEmbedding, Linear]:
    return make(lambda key: (ActionEmbedding(spec, 5, key, bins=4), Linear(5, 6, key, use_bias=use_bias)))


def continuous(*values: float) -> Action:
    column = np.asarray(values, np.float32)[:, None]
    return Action(jnp.zeros((len(values), 0), jnp.int32), jnp.asarray(column))


def binned(embedding: Any, *values: float) -> list[int]:
    one_hots = np.asarray(embedding.one_hots(continuous(*values)))
    np.testing.assert_array_equal(one_hots.sum(axis=1), np.ones(len(values)))
    return one_hots.argmax(axis=1).tolist()


def test_bins_share_the_span_evenly_and_include_their_lower_border() -> None:
    embedding = make(lambda key: ActionEmbedding(ActionSpec((), 1), 5, key, bins=4))
    below = np.nextafter(np.float32(-0.5), np.float32(-1))
    assert binned(embedding, -1.0, below, -0.5, -0.01, 0.0, 0.49, 0.5, 0.99) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_actions_outside_the_span_fall_into_the_outer_bins() -> None:
    embedding = make(lambda key: ActionEmbedding(ActionSpec((), 1), 5, key, bins=4))
    assert binned(embedding, 1.0, 1.01, 80.0, -1.01, -80.0) == [3, 3, 3, 0, 0]


def test_one_hots_of_a_hybrid_action_lie_side_by_side() -> None:
    embedding = make(lambda key: ActionEmbedding(ACTIONS["hybrid"], 5, key, bins=4))
    action = Action(jnp.asarray([2, 1], jnp.int32), jnp.asarray([-0.9, 0.9]))
    expected = np.concatenate([[0, 0, 1], [0, 1], [1, 0, 0, 0], [0, 0, 0, 1]])
    np.testing.assert_array_equal(embedding.one_hots(action), expected)


def test_each_dimension_may_have_bins_of_its_own() -> None:
    embedding = make(lambda key: ActionEmbedding(ActionSpec((2,), 2), 5, key, bins=(3, 4)))
    action = Action(jnp.asarray([1], jnp.int32), jnp.asarray([0.5, 0.4]))
    np.testing.assert_array_equal(embedding.one_hots(action), np.concatenate([[0, 1], [0, 0, 1], [0, 0, 1, 0]]))
    chosen = embedding.one_hots(action) @ embedding.tables
    np.testing.assert_allclose(chosen, numpy_action_rows(embedding, action), rtol=1e-4, atol=1e-5)


def test_actions_without_continuous_dimensions_need_no_bins() -> None:
    assert make(lambda key: ActionEmbedding(ActionSpec((3,)), 5, key, bins=(3, 4))).tables.shape == (3, 5)


def test_other_bins_than_dimensions_are_refused() -> None:
    with pytest.raises(UserError, match=r"action_bins has 2 numbers, \(3, 4\), but .* 3 continuous dimensions"):
        make(lambda key: ActionEmbedding(ActionSpec((), 3), 5, key, bins=(3, 4)))


@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.parametrize("use_bias", [True, False])
def test_embedding_is_a_sum_of_rows_put_through_the_layer(kind: str, use_bias: bool) -> None:
    embedding, layer = embedding_and_layer(ACTIONS[kind], use_bias)
    action = random_action(np.random.default_rng(0), ACTIONS[kind], LEAD)
    out = np.asarray(call(embedding, action, IS_FIRST, layer))
    for index in np.ndindex(*LEAD):
        rows = np.asarray(embedding.no_action) if IS_FIRST[index] else numpy_action_rows(embedding, at(action, *index))
        np.testing.assert_allclose(out[index], numpy_linear(layer, rows), rtol=1e-4, atol=1e-5)


def test_without_flags_every_action_counts() -> None:
    embedding, layer = embedding_and_layer(ACTIONS["discrete"])
    action = random_action(np.random.default_rng(0), ACTIONS["discrete"], LEAD)
    never = call(embedding, action, np.zeros(LEAD, bool), layer)
    np.testing.assert_allclose(call(embedding, action, None, layer), never, rtol=1e-5, atol=1e-6)


def test_no_action_is_learned_and_not_action_zero() -> None:
    embedding, layer = embedding_and_layer(ACTIONS["discrete"])
    zero = Action(np.zeros((1, 1), np.int32), np.zeros((1, 0), np.float32))
    first, later = (np.asarray(call(embedding, zero, np.asarray([flag]), layer)) for flag in (True, False))
    assert np.abs(first - later).max() > 1e-2
    assert embedding.size == embedding.no_action.shape[0] == 5
