"""The networks put together: the learner's unroll and the actor's steps must see the same."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from builders import (
    BATCH,
    SENSES,
    TIME,
    assert_trees_close,
    at,
    call,
    jit,
    leaves_with_names,
    make,
    make_spec,
    make_trajectory,
    network_of,
    permute_environments,
    random_observation,
    replace_observations,
    shaken,
    small_actor,
    small_network,
    unroll,
)
from byol_explore.agent.acting import select_action
from byol_explore.config.presets import make_config
from byol_explore.envs.interface import EnvSpec
from byol_explore.errors import UserError
from byol_explore.networks.paper_encoders import HardEightEncoder
from byol_explore.networks.representation import Actor, make_representation
from byol_explore.spaces import ActionSpec, Image, Tokens, Vector
from byol_explore.types import RecurrentState, TimeStep, Trajectory

run_act = jit(select_action)


@jit
def unroll_world(actor: Actor, trajectory: Trajectory) -> Any:
    assert actor.curiosity_representation is not None
    return actor.curiosity_representation.unroll(
        actor.normalize(trajectory).sequence, trajectory.previous, trajectory.initial_state.curiosity_core
    )


class Case(NamedTuple):
    spec: EnvSpec
    actor: Actor


CASES = {
    "grid": ("grid", "discrete", "gru", False),
    "vector, own world": ("vector", "continuous", "lstm", True),
    "hard-eight": ("hard-eight", "hybrid", "lstm", False),
    "dict": ("dict", "hybrid", "gru", False),
    "minigrid": ("minigrid", "discrete", "gru", False),
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    observation, action, core, apart = CASES[request.param]
    spec = make_spec(observation, action)
    return Case(spec, small_actor(spec, apart=apart, network=network_of(observation, core)))


def random_stream(spec: EnvSpec, length: int, seed: int = 0) -> TimeStep:
    """Time steps [length, B] with episodes that end here and there."""
    rng = np.random.default_rng(seed)
    is_first = np.zeros((length, BATCH), bool)
    is_first[[0, 4, 6], 0] = is_first[[3, TIME - 1, TIME + 2], 1] = True
    is_last = np.concatenate([is_first[1:], np.zeros((1, BATCH), bool)])
    reward = rng.normal(size=(length, BATCH)).astype(np.float32)
    observation = at(random_observation(rng, spec, (length, BATCH)))
    return TimeStep(
        observation, reward, (~is_last).astype(np.float32), is_first, is_last, np.zeros(is_last.shape, np.int8)
    )


def play(
    case: Case, recurrent_state: RecurrentState, stream: TimeStep, start: int, key: jax.Array
) -> tuple[RecurrentState, Trajectory]:
    """Acts on T - 1 observations of a stream; the sequence that the learner would get."""
    before = recurrent_state._replace(prev_reward=at(stream.reward, start))
    policies, actions = [], []
    for t in range(start, start + TIME - 1):
        recurrent_state, policy, action = run_act(
            case.actor, recurrent_state, at(stream, t), jax.random.fold_in(key, t)
        )
        policies.append(policy)
        actions.append(action)
    policy, action = (jax.tree.map(lambda *x: np.stack(x), *steps) for steps in (policies, actions))
    part = jax.tree.map(lambda x: x[start : start + TIME], stream)
    task = np.zeros(BATCH, np.int32)
    return recurrent_state, Trajectory(
        part.observation, part.is_first, action, part.reward[1:], part.discount[1:], policy, task, before
    )


def stored_state(case: Case) -> RecurrentState:
    """In the middle of something: not the initial one."""
    return shaken(case.actor.initial_state(case.spec, BATCH), seed=5, scale=1.0)


def test_learner_recomputes_the_policy_that_acted(case: Case) -> None:
    """Over two sequences that share their boundary observation, with episodes that begin at and inside it."""
    stream = random_stream(case.spec, 2 * TIME - 1)
    recurrent_state = stored_state(case)
    for start in (0, TIME - 1):
        recurrent_state, trajectory = play(case, recurrent_state, stream, start, jax.random.key(0))
        view = unroll(case.actor, trajectory)
        recomputed = jax.tree.map(lambda x: x[:-1], at(call(case.actor.policy_head, view.belief)))
        assert_trees_close(recomputed, trajectory.behaviour_policy, rtol=1e-4, atol=1e-5)
        assert_trees_close(at(view.core_state, TIME - 2), recurrent_state.policy_core, rtol=1e-4, atol=1e-5)
        if case.actor.curiosity_representation is not None:
            world = unroll_world(case.actor, trajectory)
            assert_trees_close(at(world.core_state, TIME - 2), recurrent_state.curiosity_core, rtol=1e-4, atol=1e-5)


def test_unroll_equals_perceiving_step_by_step(case: Case) -> None:
    trajectory = make_trajectory(case.spec, case.actor)
    view = unroll(case.actor, trajectory)
    recurrent_state = trajectory.initial_state
    for t in range(TIME):
        reward = recurrent_state.prev_reward if t == 0 else trajectory.reward[t - 1]
        nothing = np.zeros(BATCH, np.float32)
        timestep = TimeStep(at(trajectory.observation, t), reward, nothing, trajectory.is_first[t], nothing, nothing)
        recurrent_state, policy, _ = run_act(case.actor, recurrent_state, timestep, jax.random.key(0))
        assert_trees_close(recurrent_state.policy_core, at(view.core_state, t), rtol=1e-4, atol=1e-5)
        assert_trees_close(policy, at(call(case.actor.policy_head, view.belief), t), rtol=1e-4, atol=1e-5)
        if t < TIME - 1:
            recurrent_state = recurrent_state._replace(prev_action=at(trajectory.action, t))


def test_embeddings_are_those_of_single_frames() -> None:
    spec = make_spec()
    actor = small_actor(spec)
    trajectory = make_trajectory(spec, actor)
    embedding = np.asarray(unroll(actor, trajectory).embedding)
    assert embedding.shape == (TIME, BATCH, 8)
    for t in range(TIME):
        alone = call(actor.representation.encoder, at(trajectory.observation, t))
        np.testing.assert_allclose(embedding[t], alone, rtol=1e-4, atol=1e-5)


def test_permuted_environments_give_permuted_views(case: Case) -> None:
    trajectory, order = make_trajectory(case.spec, case.actor), [2, 0, 1]
    view = at(unroll(case.actor, trajectory))
    permuted = unroll(case.actor, permute_environments(trajectory, order))
    assert_trees_close(permuted, jax.tree.map(lambda x: x[:, order], view))
    assert np.abs(view.belief[:, order] - view.belief).max() > 1e-2


def test_an_observation_reaches_its_own_environment_and_nothing_earlier(case: Case) -> None:
    """And later beliefs up to the next episode: the first environment's episodes begin at 2 and 4."""
    trajectory = make_trajectory(case.spec, case.actor)
    where = np.zeros((TIME, BATCH), bool)
    where[2, 0] = True
    view = at(unroll(case.actor, trajectory))
    other = at(unroll(case.actor, replace_observations(case.spec, trajectory, where)))
    moved = np.any(np.abs(other.embedding - view.embedding) > 1e-7, axis=-1)
    np.testing.assert_array_equal(moved, where)
    moved = np.any(np.abs(other.belief - view.belief) > 1e-7, axis=-1)
    where[3, 0] = True
    np.testing.assert_array_equal(moved, where)


def test_the_action_before_a_first_observation_has_no_influence(case: Case) -> None:
    trajectory = make_trajectory(case.spec, case.actor)
    dummy = ~np.asarray(trajectory.valid)
    other = make_trajectory(case.spec, case.actor, seed=7).action
    mixed = jax.tree.map(lambda a, b: np.where(dummy[..., None], b, a), trajectory.action, other)
    assert any(np.any(np.asarray(a) != b) for a, b in zip(trajectory.action, mixed, strict=True))
    view = unroll(case.actor, trajectory)
    assert_trees_close(unroll(case.actor, trajectory._replace(action=mixed)), view, rtol=0, atol=0)


def test_only_an_actor_with_its_own_world_has_one() -> None:
    spec = make_spec()
    shared, apart = small_actor(spec), small_actor(spec, apart=True)
    assert shared.curiosity_representation is None
    assert shared.initial_state(spec, BATCH).curiosity_core == ()
    assert leaves_with_names(apart.curiosity_representation).keys() == leaves_with_names(apart.representation).keys()
    assert apart.initial_state(spec, BATCH).curiosity_core.shape == (BATCH, 6)


def test_initial_recurrent_state_is_zero_everywhere() -> None:
    spec = make_spec("vector", "hybrid")
    recurrent_state = small_actor(spec, "lstm").initial_state(spec, BATCH)
    assert recurrent_state.policy_core.hidden.shape == recurrent_state.policy_core.cell.shape == (BATCH, 6)
    assert (recurrent_state.prev_action.discrete.shape, recurrent_state.prev_action.continuous.shape) == (
        (BATCH, 2),
        (BATCH, 2),
    )
    assert recurrent_state.prev_action.discrete.dtype == jnp.int32
    assert recurrent_state.prev_reward.shape == (BATCH,)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(recurrent_state))


@pytest.mark.parametrize(
    ("observation", "changes", "has_extras"),
    [
        ("image", {}, False),
        ("dict", {}, False),
        ("image", {"use_prev_reward": True}, True),
        ("image", {"core_mix_size": 7}, True),
        ("dict", {"core_inputs": ("arm/joints",)}, True),
    ],
)
def test_core_inputs_have_extras_only_if_configured(
    observation: str, changes: dict[str, Any], has_extras: bool
) -> None:
    network = dataclasses.replace(small_network(), **changes)
    representation = make(lambda key: make_representation(network, make_spec(observation), key))
    assert representation.inputs.has_extras is has_extras


def test_an_unknown_core_is_the_users_error() -> None:
    network = dataclasses.replace(small_network(), core="transformer")
    with pytest.raises(UserError, match=r"'transformer'.*gru, lstm"):
        make_representation(network, make_spec(), jax.random.key(0))


def test_core_only_entries_are_not_in_the_embedding() -> None:
    """But in the belief, and in what acts."""
    spec, network = make_spec("hard-eight", "hybrid"), network_of("hard-eight")
    actor = small_actor(spec, network=network)
    trajectory = make_trajectory(spec, actor)
    view = unroll(actor, trajectory)
    for name in network.core_inputs:
        observation = {**trajectory.observation, name: (trajectory.observation[name] + 1) % 3}
        other = unroll(actor, trajectory._replace(observation=observation))
        np.testing.assert_array_equal(other.embedding, view.embedding)
        assert np.abs(np.asarray(other.belief) - view.belief).max() > 1e-4, name


def test_the_preset_is_the_papers_network_for_hard_eight() -> None:
    """Appendix A.2: only the image is encoded and predicted; everything else is mixed to 512 for an LSTM of 512."""
    entries = {**dict.fromkeys(SENSES[:3], Vector(1)), "rgb": Image(72, 96, 3), "instruction": Tokens(16, 256)}
    spec = EnvSpec("test", entries, ActionSpec((2,), 8), max_steps=10)
    network = make_config("hard-eight").network
    representation = jax.eval_shape(lambda key: make_representation(network, spec, key), jax.random.key(0))
    encoder, inputs = representation.encoder, representation.inputs
    assert {name: type(entry) for name, entry in encoder.entries.items()} == {"rgb": HardEightEncoder}
    assert encoder.entries["rgb"].linear.weight.shape == (1024, 256)
    assert inputs.mixer.weight.shape == (256 + 3 * 20 + 64 + 20 + 1, 512)
    assert inputs.project.weight.shape == (512, 4 * 512)
    assert representation.core.size == 512
