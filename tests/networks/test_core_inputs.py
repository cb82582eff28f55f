"""Inputs of the closed-loop core besides the embedding."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from builders import (
    ACTIONS,
    BATCH,
    IS_FIRST,
    SENSES,
    TIME,
    WORDS,
    at,
    call,
    jit,
    make,
    make_spec,
    numpy_action_rows,
    numpy_linear,
    numpy_words,
    random_action,
    random_observation,
)
from byol_explore.config.sections import NetworkConfig
from byol_explore.networks.core_inputs import CoreInputs, signed_hyperbolic
from byol_explore.types import Action, PyTree

SPEC = make_spec("hard-eight", "hybrid")
LEAD = (TIME, BATCH)


class Read:
    """Arguments of a call, each replaceable on its own."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.embedding = rng.normal(size=(*LEAD, 8)).astype(np.float32)
        self.observation: PyTree = at(random_observation(rng, SPEC, LEAD))
        self.action = at(random_action(rng, SPEC.action, LEAD))
        self.reward = (3.0 * rng.normal(size=LEAD)).astype(np.float32)
        self.is_first = IS_FIRST

    def through(self, inputs: Any, **changes: Any) -> np.ndarray:
        values = {**vars(self), **changes}
        order = ("embedding", "observation", "action", "reward", "is_first")
        return np.asarray(call(inputs, *(values[name] for name in order)))


def other_action(action: Action) -> Action:
    """Differs from the given one in every component."""
    sizes = np.asarray(SPEC.action.discrete)
    return Action((action.discrete + 1) % sizes, np.where(action.continuous > 0, -1.0, 1.0).astype(np.float32))


def moved(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """[T, B]: where the result changed."""
    return np.any(np.abs(after - before) > 1e-6, axis=-1)


def make_inputs(**settings: Any) -> Any:
    config = NetworkConfig(action_embedding_size=5, action_bins=4, **settings)
    return make(lambda key: CoreInputs(config, SPEC, 8, 18, key))


PAPER = {"core_inputs": SENSES, "use_prev_reward": True, "core_mix_size": 512}
UNMIXED = {"core_inputs": ("hand_force",), "core_input_size": 3}


@pytest.fixture(scope="module", params=[{}, PAPER, UNMIXED], ids=["atari", "hard-eight", "unmixed"])
def inputs(request: pytest.FixtureRequest) -> Any:
    return make_inputs(**request.param)


@pytest.fixture(scope="module")
def hard_eight() -> CoreInputs:
    return make_inputs(**PAPER)


def test_the_previous_action_counts_exactly_where_no_episode_begins(inputs: Any) -> None:
    read = Read()
    changed = read.through(inputs, action=other_action(read.action))
    np.testing.assert_array_equal(moved(read.through(inputs), changed), ~IS_FIRST)


def test_the_embedding_counts_everywhere(inputs: Any) -> None:
    read = Read()
    changed = read.through(inputs, embedding=read.embedding + 1.0)
    assert moved(read.through(inputs), changed).all()


def test_longer_embeddings_read_with_as_much_smaller_weights_are_the_same(inputs: Any) -> None:
    read = Read()
    longer = read.through(inputs.rescale_for_std(16.0), embedding=16.0 * read.embedding)
    np.testing.assert_allclose(longer, read.through(inputs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("settings", [{}, UNMIXED])
def test_the_reward_is_ignored_unless_configured(settings: dict[str, Any]) -> None:
    read, module = Read(), make_inputs(**settings)
    np.testing.assert_array_equal(read.through(module), read.through(module, reward=read.reward + 1.0))


def test_hard_eight_reward_counts_exactly_where_no_episode_begins(hard_eight: CoreInputs) -> None:
    read = Read()
    changed = read.through(hard_eight, reward=read.reward + 1.0)
    np.testing.assert_array_equal(moved(read.through(hard_eight), changed), ~IS_FIRST)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("hand_force", lambda x: x + 1.0),
        ("hand_is_holding", lambda x: 1.0 - x),
        ("hand_distance", lambda x: x + 1.0),
        ("instruction", lambda x: 1 + x % (WORDS - 1)),
    ],
)
def test_hard_eight_senses_count(hard_eight: CoreInputs, name: str, other: Callable[[np.ndarray], np.ndarray]) -> None:
    read = Read()
    changed = read.through(hard_eight, observation={**read.observation, name: other(read.observation[name])})
    assert moved(read.through(hard_eight), changed).all()


def test_hard_eight_sizes_are_the_papers(hard_eight: CoreInputs) -> None:
    assert [hard_eight.extra_inputs[name].weight.shape for name in SENSES[:3]] == [(1, 20)] * 3
    assert hard_eight.project_action.weight.shape == (5, 20)
    assert hard_eight.extra_inputs["instruction"].words.shape == (WORDS, 20)
    assert hard_eight.extra_inputs["instruction"].core.size == 64
    assert hard_eight.mixer.weight.shape == (8 + 4 * 20 + 1 + 64, 512)
    assert hard_eight.project.weight.shape == (512, 18)


def numpy_hard_eight(module: CoreInputs, read: Read, index: tuple[int, ...]) -> np.ndarray:
    """Appendix A.2's list for one observation, entries in the order of their names."""
    observation, is_first = at(read.observation, *index), read.is_first[index]
    parts = [read.embedding[index]]
    for name in ("hand_distance", "hand_force", "hand_is_holding"):
        parts.append(np.maximum(numpy_linear(module.extra_inputs[name], observation[name]), 0.0))
    parts.append(numpy_words(module.extra_inputs["instruction"], observation["instruction"]))
    nothing = np.asarray(module.action.no_action)
    action = nothing if is_first else numpy_action_rows(module.action, at(read.action, *index))
    parts.append(np.maximum(numpy_linear(module.project_action, action), 0.0))
    reward = 0.0 if is_first else float(read.reward[index])
    parts.append(np.asarray([np.sign(reward) * (np.sqrt(abs(reward) + 1) - 1) + 1e-3 * reward]))
    return numpy_linear(module.project, numpy_linear(module.mixer, np.concatenate(parts)))


def test_hard_eight_inputs_equal_numpy(hard_eight: CoreInputs) -> None:
    read = Read()
    out = read.through(hard_eight)
    for index in np.ndindex(*LEAD):
        expected = numpy_hard_eight(hard_eight, read, index)
        np.testing.assert_allclose(out[index], expected, rtol=1e-3, atol=1e-4)


def test_signed_hyperbolic_values() -> None:
    x = np.asarray([0.0, 3.0, -3.0, 8.0, -8.0, 99.0], np.float32)
    expected = [0.0, 1.003, -1.003, 2.008, -2.008, 9.099]
    np.testing.assert_allclose(jit(signed_hyperbolic)(x), expected, rtol=1e-6)


def test_action_kinds_all_give_gates() -> None:
    config = NetworkConfig(action_embedding_size=5, action_bins=4)
    for name in ACTIONS:
        spec = make_spec("vector", name)
        module = make(lambda key, spec=spec: CoreInputs(config, spec, 8, 18, key))
        action = random_action(np.random.default_rng(0), spec.action, (BATCH,))
        arguments = np.zeros((BATCH, 8), np.float32), (), action, np.zeros(BATCH), np.zeros(BATCH, bool)
        assert jax.eval_shape(module, *arguments).shape == (BATCH, 18)
