"""Conversion of Gymnasium's and own spaces; wrong inputs are refused in one line that says what is accepted."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from gymnasium import spaces

from byol_explore import Curiosity, UserError
from byol_explore.curiosity.method_learner import make_config
from byol_explore.dropin.inputs import SpaceReader
from byol_explore.dropin.learning import CuriositySettings
from byol_explore.envs.gymnasium_spaces import convert_action_space
from byol_explore.spaces import ActionSpec, Grid, Image, Tokens, Vector
from byol_explore.types import Action
from dropins import ENVS, SMALL, rollout, small

EYE = spaces.Box(0, 255, (8, 9, 3), np.uint8)
SEEN = spaces.Dict({"eye": EYE, "arm": spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.Discrete(3, start=-1)]),
                    "buttons": spaces.MultiBinary(2)})  # fmt: skip
DONE = spaces.Dict({
    "turn": spaces.Discrete(3, start=1), "push": spaces.Box(-2.0, np.asarray([2.0, 6.0]), dtype=np.float64),
    "keys": spaces.Tuple([spaces.MultiDiscrete([2, 4]), spaces.MultiBinary(2)]),
})  # fmt: skip


def sampled(space: spaces.Space[Any], steps: int, envs: int) -> Any:
    """Sample [T, B, ...] from a space, nested like the space."""
    if isinstance(space, spaces.Dict):
        return {name: sampled(part, steps, envs) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(sampled(part, steps, envs) for part in space.spaces)
    space.seed(0)
    return np.asarray([[space.sample() for _ in range(envs)] for _ in range(steps)])


def test_nested_spaces_are_converted() -> None:
    reader = SpaceReader(SEEN, DONE)
    assert reader.spec.observation == {
        "arm/0": Vector(2), "arm/1": Vector(3), "buttons": Vector(2), "eye": Image(8, 9, 3),
    }  # fmt: skip
    given = sampled(SEEN, 4, 2)
    read = reader.observations(given, "obs", (4, 2))
    np.testing.assert_array_equal(read["eye"], given["eye"])
    np.testing.assert_array_equal(np.argmax(read["arm/1"], axis=-1) - 1, given["arm"][1])
    assert reader.spec.action == ActionSpec((2, 4, 2, 2, 3), 2)


def test_actions_are_converted_to_policy_units_and_back() -> None:
    """To native actions and back is the identity; actions beyond the bounds of a Box are clipped."""
    actions, given = convert_action_space(DONE, "test"), sampled(DONE, 1, 6)
    flat = jax.tree.map(lambda x: x[0], given)
    again = actions.to_native(actions.from_native(flat))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5), again, flat)
    read = convert_action_space(spaces.Box(-1.0, 3.0, (1,)), "test").from_native(
        np.asarray([[-1.0], [1.0], [3.0], [9.0], [-9.0]])
    )
    assert read.continuous.ravel().tolist() == [-1.0, 0.0, 1.0, 1.0, -1.0]


def test_learn_accepts_nested_spaces() -> None:
    curiosity = Curiosity(SEEN, DONE, 2, settings=SMALL)
    seen = sampled(SEEN, 6, 2)
    obs, after = (jax.tree.map(lambda x, cut=cut: x[cut], seen) for cut in (slice(0, 5), slice(1, 6)))
    nothing = np.zeros((5, 2), bool)
    intrinsic, metrics = curiosity.learn(obs, sampled(DONE, 5, 2), after, nothing, nothing)
    assert intrinsic.shape == (5, 2)
    assert np.isfinite(metrics["loss_curiosity"])
    one = [jax.tree.map(lambda x: x[0], tree) for tree in (obs, sampled(DONE, 5, 2), after)]
    assert curiosity.step(*one, nothing[0], nothing[0]).shape == (2,)


def test_grids_texts_and_channels_first_images_are_converted() -> None:
    box = spaces.Box(0, 255, (4, 3, 2), np.uint8)
    assert SpaceReader(box, DONE, {"": (11, 6)}).spec.observation == Grid(4, 3, (11, 6))
    assert SpaceReader(spaces.Box(0, 255, (3, 84, 84), np.uint8), DONE).spec.observation == Image(84, 84, 3)
    texts = SpaceReader(spaces.Dict({"mission": spaces.Text(20), "x": spaces.Discrete(2)}), DONE)
    given = {"mission": np.asarray([["go there", "stay"]]), "x": np.zeros((1, 2), int)}
    assert texts.observations(given, "obs", (1, 2))["mission"].shape == (1, 2, 32)


@pytest.mark.parametrize(
    ("symbols", "message"),
    [
        ((11, 6), r"symbol_counts is \(11, 6\): it must be a dict, such as {'image': \(11, 6, 4\)}$"),
        ({"image": (11, 6)}, "unknown entry of symbol_counts 'image'; choose from: 'eye/0'$"),
        ({"far": (11, 6)}, "unknown entry of symbol_counts 'far'; choose from: 'eye/0'$"),
        ({"eye/0": (11,)}, r"symbol_counts\['eye/0'\] is \(11,\): it must be 2 whole numbers from 1 to 256, one "),
        ({"eye/0": 11}, r"symbol_counts\['eye/0'\] is 11: it must be 2 whole numbers"),
        ({"eye/0": (11, "a")}, r"symbol_counts\['eye/0'\] is \(11, 'a'\): it must be 2 whole numbers"),
        ({"eye/0": (0, 257)}, r"symbol_counts\['eye/0'\] is \(0, 257\): it must be 2 whole numbers"),
    ],
)  # fmt: skip
def test_wrong_symbol_counts_are_refused(symbols: Any, message: str) -> None:
    eye = spaces.Tuple([spaces.Box(0, 255, (4, 3, 2), np.uint8)])
    space = spaces.Dict({"eye": eye, "far": spaces.Box(0.0, 1.0, (4, 3, 2))})
    assert SpaceReader(space, DONE, {"eye/0": (11, 6)}).spec.observation["eye/0"] == Grid(4, 3, (11, 6))
    with pytest.raises(UserError, match=f"^{message}"):
        SpaceReader(space, DONE, symbols)


def test_own_spaces_are_converted_to_their_dtypes() -> None:
    kinds = {"grid": Grid(2, 2, (5,)), "words": Tokens(3, 9), "numbers": Vector(2)}
    reader = SpaceReader(kinds, ActionSpec((3,), 2))
    given = {
        "grid": np.full((1, 2, 2, 2, 1), 4, np.uint8),
        "words": np.ones((1, 2, 3), int),
        "numbers": np.ones((1, 2, 2)),
    }
    read = reader.observations(given, "obs", (1, 2))
    assert {name: x.dtype for name, x in read.items()} == {name: kind.dtype for name, kind in kinds.items()}
    action = reader.actions(Action(np.full((1, 2, 1), 2), np.zeros((1, 2, 2))), "actions", (1, 2))
    assert (action.discrete.dtype, action.continuous.dtype) == (np.int32, np.float32)


# Refused inputs


def changed(index: int, change: Callable[[np.ndarray], Any]) -> list[Any]:
    given: list[Any] = [x.copy() for x in rollout(5)]
    given[index] = change(given[index])
    return given


def put(value: Any, *place: int) -> Callable[[np.ndarray], np.ndarray]:
    def change(x: np.ndarray) -> np.ndarray:
        x[place] = value
        return x

    return change


@pytest.mark.parametrize(
    ("index", "change", "message"),
    [
        (0, lambda x: x[:4], r"obs is of shape \(4, 2, 4\): it must be \(5, 2, 4\)$"),
        (2, lambda x: x[..., :3], r"next_obs is of shape \(5, 2, 3\): it must be \(5, 2, 4\)$"),
        (1, lambda x: x[..., None], r"actions is of shape \(5, 2, 1\): it must be \(5, 2\)$"),
        (3, lambda x: x[:, :1], r"terminations is of shape \(5, 1\): it must be \(T, 2\), of at least one step of 2 "),
        (3, lambda x: x[:0], r"terminations is of shape \(0, 2\): it must be \(T, 2\), of at least one step of 2 "),
        (3, lambda x: x[0], r"terminations is of shape \(2,\): it must be \(T, 2\)"),
        (4, lambda x: x[:2], r"truncations is of shape \(2, 2\): it must be \(5, 2\)$"),
        (0, lambda x: x.astype(complex), "obs is of dtype complex128: it must be numbers, such as float32$"),
        (1, lambda x: x.astype(float), "actions is of dtype float64: it must be whole numbers, such as int64$"),
        (4, lambda x: x.astype(str), "truncations is of dtype <U5: it must be bool$"),
        (0, put(np.nan, 3, 1, 2), r"obs has nan at \[3, 1, 2\]: it must be finite everywhere$"),
        (2, put(-np.inf, 0, 0, 0), r"next_obs has -inf at \[0, 0, 0\]: it must be finite everywhere$"),
        (1, put(3, 2, 0), r"actions has 3 in it: it must lie in Discrete\(3\)$"),
        (1, put(-1, 2, 0), r"actions has -1 in it: it must lie in Discrete\(3\)$"),
        (3, lambda x: np.full(x.shape, 2), "terminations has 2 in it: it must be True or False everywhere$"),
    ],
)  # fmt: skip
def test_a_wrong_rollout_is_refused(index: int, change: Callable[..., Any], message: str) -> None:
    curiosity = small()
    before = curiosity.progress
    for ask in (curiosity.learn, curiosity.reward):
        with pytest.raises(UserError, match=f"^{message}"):
            ask(*changed(index, change))
    assert curiosity.progress is before


def test_a_wrong_step_is_refused() -> None:
    given = list(rollout(1).at(0))
    given[0] = given[0][:1]
    with pytest.raises(UserError, match=r"^obs is of shape \(1, 1, 4\): it must be \(1, 2, 4\)$"):
        small().step(*given)
    with pytest.raises(UserError, match=r"^terminated is of shape \(3, 2\): it must be \(2,\), of all environments"):
        small().step(*rollout(3))


def test_lists_are_accepted_if_their_rows_have_one_length() -> None:
    given = rollout(5)
    assert isinstance(small().reward(*(x.tolist() for x in given)), np.ndarray)
    with pytest.raises(UserError, match=r"^a list was given whose rows differ in length: it must be an array, or "):
        small().learn([[1.0], [1.0, 2.0]], *given[1:])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"eye": np.zeros((1, 1, 8, 9, 3))}, r"obs\['eye'\] is of dtype float64: it must be uint8$"),
        ({"arm": (np.zeros((1, 1, 2)),)}, r"obs\['arm'\] has no entry 1: it must have 0, 1$"),
        ({"buttons": np.full((1, 1, 2), 2)}, r"obs\['buttons'\] has 2 in it: it must lie in MultiBinary\(2\)$"),
        (None, "obs has no entry 'buttons': it must have 'arm', 'buttons', 'eye'$"),
    ],
)
def test_a_wrong_entry_is_named(given: Any, message: str) -> None:
    whole = sampled(SEEN, 1, 1)
    wrong = {"arm": whole["arm"]} if given is None else {**whole, **given}
    with pytest.raises(UserError, match=f"^{message}"):
        SpaceReader(SEEN, DONE).observations({key: wrong[key] for key in SEEN if key in wrong}, "obs", (1, 1))


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (Grid(1, 1, (5,)), np.full((1, 1, 1, 1, 1), 7, np.uint8), r"obs has the symbol 7 in it: symbols must be below"),
        (Tokens(2, 9), np.full((1, 1, 2), 9), r"obs has 9 in it: it must lie in MultiDiscrete\(\[9 9\]\)"),
        (Image(1, 1, 1), np.zeros((1, 1, 1, 1, 1), int), "obs is of dtype int64: it must be uint8"),
        (Vector(1), np.full((1, 1, 1), 1e300), r"obs has inf at \[0, 0, 0\]: it must be finite everywhere"),
    ],
)  # fmt: skip
def test_values_of_own_spaces_are_checked(kind: Any, value: np.ndarray, message: str) -> None:
    with pytest.raises(UserError, match=message), np.errstate(over="ignore"):
        SpaceReader(kind, DONE).observations(value, "obs", (1, 1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"observation_space": spaces.Graph(spaces.Discrete(2), None)}, "observation space, Graph.*is not supported; "
         "supported are Text, Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these$"),
        ({"action_space": spaces.Text(3)}, "action space, Text.*is not supported; supported are Box, Discrete, "),
        ({"action_space": spaces.Box(-np.inf, np.inf, (1,))}, "has no finite bounds to scale actions to"),
        ({"observation_space": 4}, "the observation space is 4: it must be a space of Gymnasium, or an Image"),
        ({"action_space": None}, "the action space is None: it must be a space of Gymnasium, or an ActionSpec"),
        ({"num_envs": 0}, "num_envs is 0: it must be a whole number of at least 1"),
        ({"num_envs": 2.0}, "num_envs is 2.0: it must be a whole number"),
        ({"seed": -1}, "seed is -1: it must be a whole number of at least 0"),
        ({"method": "curious"}, "unknown method 'curious' .*; choose from: byol-explore, rnd, icm, none, "),
        ({"settings": 3}, "settings is 3: it must be a dict of settings, or None"),
        ({"settings": {"epoch": 3}}, "unknown setting 'epoch' .*; choose from: network, curiosity, optimizer"),
        ({"settings": {"epochs": 0}}, "epochs is 0: it must be positive"),
        ({"settings": {"curiosity": {"horizon": -1}}}, "curiosity.horizon is -1: it must be positive"),
        ({"settings": {"network": {"encoder": "eye"}}}, "unknown encoder 'eye'; choose from: auto, grid"),
        ({"settings": {"network": {"use_prev_reward": True}}}, "network.use_prev_reward is True: it must be False"),
    ],
)  # fmt: skip
def test_wrong_arguments_of_a_curiosity_are_refused(arguments: dict[str, Any], message: str) -> None:
    usual = {"observation_space": EYE, "action_space": spaces.Discrete(2), "num_envs": ENVS}
    with pytest.raises(UserError, match=message) as refusal:
        Curiosity(**{**usual, **arguments})
    assert "\n" not in str(refusal.value)


def test_settings_may_be_changed_in_part() -> None:
    settings = make_config({"curiosity": {"horizon": 8}, "epochs": 2}, CuriositySettings(), "settings")
    assert (settings.curiosity.horizon, settings.epochs, settings.batch_size) == (8, 2, 512)
