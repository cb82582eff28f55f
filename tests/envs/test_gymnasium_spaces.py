"""Conversion of Gymnasium's spaces, against Gymnasium's own `contains` and `flatten`."""

from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np

from byol_explore.envs.gymnasium_spaces import convert_action_space, convert_observation_space
from byol_explore.errors import UserError
from byol_explore.spaces import ActionSpec, Grid, Image, Tokens, Vector
from byol_explore.types import Action

ENVS = 3
SHAPES = st_np.array_shapes(min_dims=0, max_dims=3, max_side=3)
quick = settings(max_examples=60, deadline=None)


def discrete() -> st.SearchStrategy[spaces.Space]:
    return st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 6), st.integers(-5, 5))


@st.composite
def multi_discrete(draw: st.DrawFn) -> spaces.Space:
    shape = draw(st_np.array_shapes(max_dims=2, max_side=3))
    counts = draw(st_np.arrays(np.int64, shape, elements=st.integers(1, 5)))
    return spaces.MultiDiscrete(counts, start=draw(st_np.arrays(np.int64, shape, elements=st.integers(-4, 4))))


def multi_binary() -> st.SearchStrategy[spaces.Space]:
    return st.one_of(st.integers(1, 4), st.just((2, 3))).map(spaces.MultiBinary)


@st.composite
def box(draw: st.DrawFn, dtypes: tuple[type, ...] = (np.float32, np.float64, np.int32, np.uint8)) -> spaces.Space:
    shape, dtype = draw(SHAPES), draw(st.sampled_from(dtypes))
    low = draw(st_np.arrays(np.int64, shape, elements=st.integers(0 if dtype is np.uint8 else -50, 50)))
    highest = np.iinfo(dtype).max if np.issubdtype(dtype, np.integer) else np.inf
    high = np.minimum(low + draw(st_np.arrays(np.int64, shape, elements=st.integers(0, 100))), highest)
    return spaces.Box(low.astype(dtype), high.astype(dtype), dtype=dtype)


def nested(leaf: st.SearchStrategy[spaces.Space]) -> st.SearchStrategy[spaces.Space]:
    def inside(parts: st.SearchStrategy[spaces.Space]) -> st.SearchStrategy[spaces.Space]:
        names = st.text("abc", min_size=1, max_size=2)
        return st.one_of(
            st.dictionaries(names, parts, min_size=1, max_size=3).map(spaces.Dict),
            st.lists(parts, min_size=1, max_size=3).map(spaces.Tuple),
        )

    return st.recursive(leaf, inside, max_leaves=5)


def random_actions(spec: ActionSpec, rng: np.random.Generator, reach: float = 1.5) -> Action:
    """Draw actions, also beyond [-1, 1] like a Gaussian policy."""
    chosen = [rng.integers(0, n, ENVS) for n in spec.discrete]
    discrete = np.stack(chosen, -1) if chosen else np.zeros((ENVS, 0))
    return Action(
        discrete.astype(np.int32), rng.uniform(-reach, reach, (ENVS, spec.continuous)).astype(np.float32)
    )  # fmt: skip


def batched(space: spaces.Space, samples: list[Any]) -> Any:
    """Batch observations like a vector environment."""
    return concatenate(space, samples, create_empty_array(space, len(samples)))


def flat_size(space: spaces.Space) -> int:
    return gymnasium.spaces.flatdim(space)


def one_line(error: pytest.ExceptionInfo[UserError]) -> str:
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500
    return str(error.value)


# Actions


@quick
@given(nested(st.one_of(discrete(), multi_discrete(), multi_binary(), box())), st.integers(0, 2**32 - 1))
def test_every_action_is_in_its_space(space: spaces.Space, seed: int) -> None:
    actions = convert_action_space(space, "test")
    native = actions.to_native(random_actions(actions.spec, np.random.default_rng(seed)))
    rows = list(iterate(batch_space(space, ENVS), native))
    assert len(rows) == ENVS
    for row in rows:
        assert space.contains(row), (space, row)


@quick
@given(discrete() | multi_discrete() | multi_binary())
def test_categories_are_counted_from_the_start(space: spaces.Space) -> None:
    """Check each component from its first category to its last."""
    actions = convert_action_space(space, "test")
    counts = np.asarray(actions.spec.discrete)
    rows = np.minimum(np.arange(counts.max())[:, None], counts - 1)
    native = actions.to_native(Action(rows.astype(np.int32), np.zeros((len(rows), 0), np.float32)))
    start = np.asarray(getattr(space, "start", 0))
    np.testing.assert_array_equal(native, rows.reshape(native.shape) + start)
    assert native.dtype == space.dtype


@quick
@given(box())
def test_boxes_are_spanned_from_bound_to_bound(space: spaces.Box) -> None:
    actions = convert_action_space(space, "test")
    units = np.asarray([-7.0, -1.0, 0.0, 1.0, 7.0], np.float32)
    continuous = np.broadcast_to(units[:, None], (5, actions.spec.continuous))
    below, low, middle, high, above = actions.to_native(Action(np.zeros((5, 0), np.int32), continuous))
    for actual, expected in ((below, space.low), (low, space.low), (high, space.high), (above, space.high)):
        np.testing.assert_array_equal(actual, expected)
    rounding = 0.0 if np.issubdtype(space.dtype, np.floating) else 0.5
    np.testing.assert_allclose(middle, (space.low / 2.0 + space.high / 2.0), rtol=1e-6, atol=rounding)
    assert low.dtype == space.dtype


def test_wide_and_uneven_bounds() -> None:
    largest = np.finfo(np.float32).max
    space = spaces.Box(np.asarray([-largest, 0.0], np.float32), np.asarray([largest, 3.0], np.float32))
    native = convert_action_space(space, "test").to_native
    answer = native(Action(np.zeros((2, 0), np.int32), np.asarray([[0.0, -1 / 3], [1.0, 0.5]], np.float32)))
    np.testing.assert_allclose(answer, [[0.0, 1.0], [largest, 2.25]], rtol=1e-6, atol=1e-6)


def test_parts_of_a_hybrid_action_get_their_own_components() -> None:
    space = spaces.Dict(
        {
            "arm": spaces.Tuple([spaces.Box(0.0, 10.0, (2,)), spaces.Discrete(3, start=7)]),
            "grip": spaces.MultiBinary(2),
            "head": spaces.Box(-1, 1, (1, 1), np.float64),
        }
    )
    actions = convert_action_space(space, "test")
    assert actions.spec == ActionSpec((3, 2, 2), 3)
    discrete = np.asarray([[2, 0, 1], [0, 1, 0]], np.int32)
    continuous = np.asarray([[-1.0, 1.0, 0.25], [0.0, 0.5, -0.5]], np.float32)
    native = actions.to_native(Action(discrete, continuous))
    np.testing.assert_allclose(native["arm"][0], [[0.0, 10.0], [5.0, 7.5]])
    np.testing.assert_array_equal(native["arm"][1], [9, 7])
    np.testing.assert_array_equal(native["grip"], [[0, 1], [1, 0]])
    np.testing.assert_allclose(native["head"], [[[0.25]], [[-0.5]]])


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Box(-np.inf, np.inf, (2,)), r"the action space, Box\(.*\), has no finite bounds"),
        (spaces.Box(np.zeros(40), np.r_[np.ones(39), np.inf], dtype=np.float64), "has no finite bounds"),
        (spaces.Text(5), r"Text\(.*is not supported; supported are Box, Discrete, .*Dict and Tuple"),
        (spaces.Sequence(spaces.Discrete(2)), "Sequence.*not supported"),
        (spaces.Graph(spaces.Discrete(2), None), "Graph.*not supported"),
        (spaces.OneOf([spaces.Discrete(2), spaces.Discrete(3)]), "OneOf.*not supported"),
        (spaces.Dict({"a": spaces.Tuple([spaces.Discrete(2), spaces.Text(5)])}), "entry 'a/1', Text.*not supported"),
        (spaces.Dict({}), "not supported"),
        (spaces.Box(0.0, 1.0, (0,)), "leaves nothing to choose"),
        (spaces.Discrete(10**12), "more than 65536 categories"),
    ],
)
def test_unsupported_action_spaces_are_named(space: spaces.Space, words: str) -> None:
    with pytest.raises(UserError, match=f"environment 'gymnasium:X-v0': .*{words}") as error:
        convert_action_space(space, "gymnasium:X-v0")
    one_line(error)


# Observations


@quick
@given(discrete() | multi_discrete() | multi_binary() | box((np.float32, np.float64, np.int32, np.int8)))
def test_vectors_equal_gymnasiums_flatten(space: spaces.Space) -> None:
    observations = convert_observation_space(space, "test")
    samples = [space.sample() for _ in range(ENVS)]
    read = observations.from_native(batched(space, samples))
    assert observations.spec == Vector(flat_size(space))
    assert read.dtype == np.float32
    np.testing.assert_allclose(read, [gymnasium.spaces.flatten(space, sample) for sample in samples], rtol=1e-6)


@quick
@given(nested(st.one_of(discrete(), multi_discrete(), multi_binary(), box())))
def test_observations_are_as_specified(space: spaces.Space) -> None:
    observations = convert_observation_space(space, "test")
    read = observations.from_native(batched(space, [space.sample() for _ in range(ENVS)]))
    described = jax.tree.map(lambda x: (x.shape[1:], x.dtype), read)
    assert described == jax.tree.map(lambda kind: (kind.shape, kind.dtype), observations.spec)
    assert isinstance(read, dict) == isinstance(space, spaces.Dict | spaces.Tuple)
    assert all(len(x) == ENVS for x in jax.tree.leaves(read))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((64, 48, 3), (64, 48, 3)),
        ((64, 48, 12), (64, 48, 12)),
        ((64, 48), (64, 48, 1)),
        ((3, 64, 48), (64, 48, 3)),
        ((1, 64, 48), (64, 48, 1)),
        ((4, 84, 84), (84, 84, 4)),
        ((5, 84, 84), (5, 84, 84)),
        ((3, 7, 3), (3, 7, 3)),
        ((4, 4, 6), (4, 4, 6)),
        ((7, 7, 2), (7, 7, 2)),
    ],
)
def test_images_have_their_channels_last(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    space = spaces.Box(0, 255, shape, np.uint8)
    observations = convert_observation_space(space, "test")
    assert observations.spec == Image(*expected)
    samples = [space.sample() for _ in range(ENVS)]
    read = observations.from_native(batched(space, samples))
    assert (read.shape, read.dtype) == ((ENVS, *expected), np.uint8)
    for image, sample in zip(read, samples, strict=True):
        if expected == shape:
            np.testing.assert_array_equal(image, sample)
        elif expected[:2] == shape[:2]:
            np.testing.assert_array_equal(image[..., 0], sample)
        else:
            for channel in range(expected[2]):
                np.testing.assert_array_equal(image[..., channel], sample[channel])


def test_bytes_with_symbol_counts_are_a_grid() -> None:
    cells = spaces.Box(0, 255, (5, 4, 3), np.uint8)
    space = spaces.Dict({"map": cells, "eye": cells})
    observations = convert_observation_space(space, "test", {"map": (11, 6, 4)})
    assert observations.spec == {"map": Grid(5, 4, (11, 6, 4)), "eye": Image(5, 4, 3)}
    samples = [space.sample() for _ in range(ENVS)]
    np.testing.assert_array_equal(observations.from_native(batched(space, samples))["map"], [x["map"] for x in samples])


def test_texts_become_tokens() -> None:
    space = spaces.Dict({"mission": spaces.Text(200), "x": spaces.Discrete(2)})
    observations = convert_observation_space(space, "test")
    assert observations.spec == {"mission": Tokens(32, 256), "x": Vector(2)}
    texts = ["Get the red ball.", "get THE  red ball", ""]
    read = observations.from_native(batched(space, [{"mission": text, "x": 0} for text in texts]))["mission"]
    assert (read.shape, read.dtype) == ((3, 32), np.int32)
    np.testing.assert_array_equal(read[0], read[1])
    assert (read[0] > 0).tolist() == [True] * 4 + [False] * 28
    assert not read[2].any()


def test_bytes_without_the_shape_of_an_image_are_scaled() -> None:
    space = spaces.Box(np.asarray([0, 10, 7], np.uint8), np.asarray([255, 20, 7], np.uint8), dtype=np.uint8)
    read = convert_observation_space(space, "test").from_native(
        np.asarray([[0, 10, 7], [255, 20, 7], [51, 15, 7]], np.uint8)
    )
    np.testing.assert_allclose(read, [[0, 0, 0], [1, 1, 0], [0.2, 0.5, 0]], rtol=1e-6)


def test_entries_are_named_by_their_path() -> None:
    space = spaces.Dict(
        {
            "arm": spaces.Tuple([spaces.Box(-1, 1, (2, 2)), spaces.Dict({"on": spaces.Discrete(2, start=1)})]),
            "eye": spaces.Box(0, 255, (3, 9, 8), np.uint8),
            "nothing": spaces.Box(0, 1, (0,)),
        }
    )
    observations = convert_observation_space(space, "test")
    assert observations.spec == {
        "arm/0": Vector(4),
        "arm/1/on": Vector(2),
        "eye": Image(9, 8, 3),
    }
    samples = [space.sample() for _ in range(ENVS)]
    read = observations.from_native(batched(space, samples))
    for i, sample in enumerate(samples):
        np.testing.assert_array_equal(read["arm/0"][i], sample["arm"][0].reshape(-1))
        np.testing.assert_array_equal(read["arm/1/on"][i], np.eye(2)[sample["arm"][1]["on"] - 1])
        np.testing.assert_array_equal(read["eye"][i, ..., 2], sample["eye"][2])


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Sequence(spaces.Box(0, 1, (2,))), r"the observation space, Sequence.*supported are Text, Box, .*Tuple"),
        (spaces.Graph(spaces.Discrete(2), None), "Graph.*not supported"),
        (
            spaces.Dict({"way": spaces.Sequence(spaces.Text(9)), "x": spaces.Discrete(2)}),
            "entry 'way', Sequence.*not supported",
        ),
        (spaces.Dict({}), "has no numbers in it"),
        (spaces.Box(0.0, 1.0, (0,)), "has no numbers in it"),
        (spaces.MultiDiscrete(np.full((64, 64), 256)), "more than 65536 categories"),
        (
            spaces.Dict({"a/b": spaces.Discrete(2), "a": spaces.Dict({"b": spaces.Discrete(2)})}),
            "two entries of one name",
        ),
    ],
)
def test_unsupported_observation_spaces_are_named(space: spaces.Space, words: str) -> None:
    with pytest.raises(UserError, match=f"environment 'gymnasium:X-v0': .*{words}") as error:
        convert_observation_space(space, "gymnasium:X-v0")
    one_line(error)
