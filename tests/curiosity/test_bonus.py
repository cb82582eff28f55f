"""`byol_explore.Bonus`: equal to `Curiosity`, masks and counts, and every way of JAX to call it."""

import doctest
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces as gym_spaces
from jax.sharding import Mesh

import byol_explore.curiosity.bonus
from builders import assert_trees_close, jit, small_network
from byol_explore import Bonus, BonusConfig, BonusState, Curiosity, Transition, UserError, spaces
from byol_explore.config.sections import CuriosityConfig
from byol_explore.curiosity.bonus import BonusStream
from byol_explore.curiosity.stream import StreamPosition
from byol_explore.registry import METHODS
from byol_explore.types import Action
from dropins import ACTIONS, ENVS, FEATURES, OBSERVATIONS, Rollout, rollout, small

STEPS = 12  # with four more slots for episode ends these are two sequences of eight transitions, as in `dropins`
CONFIG = BonusConfig(small_network(), CuriosityConfig(horizon=3), sequence_length=8)
OWN_SPACES = spaces.Vector(FEATURES), spaces.ActionSpec((ACTIONS,))

update, rewards, step, reset = (
    jit(method, static_argnums=0) for method in (Bonus.update, Bonus.rewards, Bonus.step, Bonus.reset)
)


def make(method: str = "byol-explore", num_envs: int = ENVS, **changes: Any) -> Bonus:
    return Bonus(*OWN_SPACES, num_envs, method, BonusConfig(**{**vars(CONFIG), **changes}))


@functools.cache
def init(bonus: Bonus, seed: int = 0) -> BonusState:
    obs = np.random.default_rng(seed).normal(size=(64, FEATURES)).astype(np.float32)
    return jit(bonus.init)(jax.random.key(seed), obs, obs[: bonus.num_envs])


def transitions(given: Rollout, **changes: Any) -> Transition:
    return Transition(given.obs, given.actions, given.ended, given.next_obs)._replace(**changes)


# One implementation


def state_of(curiosity: Curiosity) -> BonusState:
    """Return the state of a Curiosity that has learned, as that of a Bonus."""
    progress = curiosity.progress
    assert progress.state is not None
    learned, rewarded = (
        jax.tree.map(jnp.asarray, BonusStream(memory, StreamPosition(*position)))  # pyright: ignore[reportArgumentType]
        for position, memory in (progress.learn_position, progress.reward_position)
    )
    return BonusState(progress.state, learned, rewarded, progress.carry, jax.random.key(0))


@pytest.mark.parametrize("method", METHODS.names())
def test_rewards_equal_those_of_curiosity(method: str) -> None:
    """On one stream with episode ends at random steps, before and after a learner step."""
    curiosity, bonus, given = small(method, batch_size=10_000), make(method), rollout(36, seed=7)
    curiosity.learn(*given.cut(0, 12))
    state = state_of(curiosity)
    # Noise and negatives depend on the size of the minibatch, which has more padding here.
    learns_alike = not METHODS.get(method).uses_batch_negatives
    for start in (12, 24) if learns_alike else (12,):
        part = given.cut(start, start + STEPS)
        state, output = update(bonus, state, transitions(part))
        expected, metrics = curiosity.learn(*part)
        np.testing.assert_allclose(output.reward, expected, rtol=1e-3, atol=1e-4)
        assert (np.max(expected) > 0.1) == METHODS.get(method).has_reward
        for name in ("uncertainty", "intrinsic_nonzero_fraction", "uncertainty_running_std", "prediction_error"):
            if learns_alike or name != "prediction_error":
                np.testing.assert_allclose(output.metrics[name], metrics[name], rtol=1e-3, atol=1e-5, err_msg=name)
        assert int(output.metrics["masked_episode_ends"]) == int(output.metrics["skipped_updates"]) == 0
    if learns_alike:
        assert curiosity.progress.state is not None
        assert_trees_close(state.learner.networks, curiosity.progress.state.networks, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("method", ["byol-explore", "e3b", "counts"])  # with pending predictions, memory, and both
def test_rewards_without_learning_equal_those_of_curiosity(method: str) -> None:
    """Step by step during a rollout, then for the whole rollout, and after a reset by hand."""
    curiosity, bonus, given = small(method), make(method), rollout(36, seed=8)
    curiosity.learn(*given.cut(0, 12))
    state, part = state_of(curiosity), given.cut(12, 24)
    for t in range(4):
        state, reward = step(bonus, state, jax.tree.map(lambda x, t=t: x[t], transitions(part)))
        np.testing.assert_allclose(reward, curiosity.step(*part.at(t)), rtol=1e-3, atol=1e-4)
    state = reset(bonus, state, jnp.asarray([False, True]))
    curiosity.reset(np.asarray([False, True]))
    for start in (16, 24):
        part = given.cut(start, start + STEPS)
        state, output = rewards(bonus, state, transitions(part))
        np.testing.assert_allclose(output.reward, curiosity.reward(*part), rtol=1e-3, atol=1e-4)
        assert np.max(output.reward) > 0.1
    learned = state_of(curiosity)
    assert_trees_close(state.learner, learned.learner, rtol=0, atol=0)
    assert_trees_close(state.step_stream, learned.step_stream, rtol=1e-3, atol=1e-4)
    assert_trees_close(state.update_stream, learned.update_stream, rtol=0, atol=0)


def test_rewards_are_zero_before_the_first_update() -> None:
    bonus, given = make("rnd"), transitions(rollout(STEPS))
    state, output = rewards(bonus, init(bonus), given)
    assert not np.any(output.reward)
    assert np.any(output.uncertainty)
    state, output = update(bonus, state, given)
    assert np.any(output.reward)


# Masks and counts


def test_masked_transitions_are_counted_and_not_rewarded() -> None:
    """Three kinds: an end too many, NaN, and a stream that is interrupted; rewards of the others stay."""
    bonus, given = make("rnd", max_episode_ends=2), rollout(STEPS, ends=0.0)
    given.terminations[[1, 3, 5], 0] = True
    given.obs[8, 1] = given.next_obs[7, 1] = np.nan
    given.obs[10, 1] = 0.5  # is not the next_obs before
    _, output = update(bonus, init(bonus), transitions(given))
    masked = np.argwhere(np.asarray(output.uncertainty) == 0.0).tolist()
    assert masked == [[5, 0], [7, 1], [8, 1]]
    counts = {name: int(x) for name, x in output.metrics.items() if np.ndim(x) == 0 and "int" in x.dtype.name}
    assert counts == {
        "transitions": 2 * STEPS - 3, "masked_episode_ends": 1, "nonfinite_transitions": 2,
        "stream_discontinuities": 1, "actions_out_of_range": 0, "skipped_updates": 0,
    }  # fmt: skip
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(output))


def test_without_final_observations_only_episode_ends_are_masked() -> None:
    """Rewards of all other transitions are those with final observations, for a method that reads single ones."""
    bonus, given = make("rnd"), rollout(STEPS, seed=2, ends=0.2)
    state, last = init(bonus), given.next_obs[-1]
    _, known = rewards(bonus, state, transitions(given))
    _, output = rewards(bonus, state, transitions(given, next_obs=None), last)
    np.testing.assert_array_equal(np.asarray(output.uncertainty) == 0.0, given.ended)
    kept = ~given.ended
    np.testing.assert_allclose(np.asarray(output.uncertainty)[kept], np.asarray(known.uncertainty)[kept], rtol=1e-4)
    assert int(output.metrics["masked_episode_ends"]) == given.ended.sum() > 0


def test_actions_out_of_range_are_counted() -> None:
    bonus, given = make("rnd"), rollout(STEPS)
    given.actions[2, 0], given.actions[3, 1] = ACTIONS, -1
    _, output = rewards(bonus, init(bonus), transitions(given))
    assert int(output.metrics["actions_out_of_range"]) == 2


# Learning


def test_each_transition_is_learned_from_once_per_epoch() -> None:
    """In minibatches that do not divide the sequences; the observation normalizer counts observations, not padding."""
    bonus, given = make("icm", 3, minibatches=4, epochs=2), rollout(13, seed=2, ends=0.2, num_envs=3)
    state = init(bonus)
    before = float(state.learner.obs_normalizer.entries[""].count)
    after, output = update(bonus, state, transitions(given))
    slots = 13 + 1 + given.ended[:-1].sum(axis=0)
    assert slots.max() <= 18
    cuts = (slots > 10).astype(int)  # sequences of 9 transitions; where they meet, an observation is in both
    assert float(after.learner.obs_normalizer.entries[""].count) - before == 2 * np.sum(slots + cuts)
    assert int(output.metrics["skipped_updates"]) == 0


def test_minibatches_without_transitions_are_skipped() -> None:
    """One sequence for four minibatches: one learner step per epoch, and nothing becomes NaN."""
    bonus, given = make("rnd", 1, minibatches=4, sequence_length=32), rollout(8, num_envs=1)
    after, output = update(bonus, init(bonus), transitions(given))
    assert int(output.metrics["skipped_updates"]) == 3
    assert float(output.metrics["loss_curiosity"]) > 0
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves((after.learner, output)))


def test_a_learner_step_that_diverges_changes_nothing_and_is_counted() -> None:
    bonus, given = make("rnd"), transitions(rollout(STEPS))
    state = init(bonus)
    weights = jax.tree.map(lambda x: x * jnp.nan, state.learner.networks.method)
    networks = state.learner.networks
    broken = networks.__class__(networks.representation, weights)
    after, output = update(bonus, state._replace(learner=state.learner._replace(networks=broken)), given)
    assert int(output.metrics["skipped_updates"]) == 1
    assert_trees_close(after.learner.opt_state, state.learner.opt_state, rtol=0, atol=0)


def test_learning_lowers_the_loss() -> None:
    bonus, given = make(epochs=3), transitions(rollout(STEPS, ends=0.05))
    state, losses = init(bonus), []
    for _ in range(20):
        state, output = update(bonus, reset(bonus, state, np.ones(ENVS, bool)), given)
        losses.append(float(output.metrics["loss_curiosity"]))
    assert losses[-1] < 0.8 * losses[0]


# Ways to call it


def stacked_rollouts(count: int) -> Transition:
    """Return consecutive rollouts of one stream, [count, T, N, ...]."""
    whole = transitions(rollout(count * STEPS, seed=5))
    return jax.tree.map(lambda x: np.reshape(x, (count, STEPS, *x.shape[1:])), whole)


@functools.cache
def one_by_one(seed: int = 0) -> tuple[BonusState, Any]:
    """Return the state after two updates, and their outputs [2, ...]."""
    bonus, given = make("icm"), stacked_rollouts(2)
    state, outputs = init(bonus, seed), []
    for index in range(2):
        state, output = update(bonus, state, jax.tree.map(lambda x, i=index: x[i], given))
        outputs.append(output)
    return state, jax.tree.map(lambda *xs: jnp.stack(xs), *outputs)


def without_keys(state: BonusState) -> BonusState:
    return state._replace(key=jax.random.key_data(state.key))


def assert_results_close(found: tuple[BonusState, Any], expected: tuple[BonusState, Any]) -> None:
    assert_trees_close((without_keys(found[0]), found[1]), (without_keys(expected[0]), expected[1]), 1e-3, 1e-4)


def scan_updates(bonus: Bonus, state: BonusState, given: Transition) -> tuple[BonusState, Any]:
    return jax.lax.scan(bonus.update, state, given)


def stack_seeds(*trees: Any) -> Any:
    return jax.tree.map(lambda *xs: jnp.stack(xs), *trees)


def test_scan_over_updates_in_a_donating_program() -> None:
    """The buffers of the state are donated, so none of them may be in it twice."""
    bonus = make("icm")
    state = jax.tree.map(jnp.copy, init(bonus))
    program = jit(scan_updates, static_argnums=0, donate_argnums=1)
    found = program(bonus, state, stacked_rollouts(2))
    assert_results_close(found, one_by_one())
    assert state.update_stream.position.is_first.is_deleted()
    program(bonus, found[0], stacked_rollouts(2))
    fresh = jax.jit(bonus.init)(jax.random.key(0), rollout(9).obs[:, 0], rollout(1).obs[0])
    program(bonus, fresh, stacked_rollouts(2))


def test_seeds_side_by_side_on_two_devices() -> None:
    """`vmap` over seeds inside `shard_map`, so that each device has its own seeds."""
    bonus, given = make("icm"), stacked_rollouts(2)
    mesh = Mesh(np.asarray(jax.devices()[:2]), ("seeds",))
    states = stack_seeds(init(bonus, 0), init(bonus, 1))
    many = jax.vmap(functools.partial(scan_updates, bonus), (0, None))
    seeds, everywhere = jax.P("seeds"), jax.P()
    program = jax.shard_map(many, mesh=mesh, in_specs=(seeds, everywhere), out_specs=seeds, check_vma=False)
    assert_results_close(jit(program)(states, given), stack_seeds(one_by_one(0), one_by_one(1)))


def test_environments_spread_over_two_devices() -> None:
    """As one program over all devices: learner steps are those of the whole batch."""
    bonus, given = make("icm"), stacked_rollouts(2)
    mesh = Mesh(np.asarray(jax.devices()[:2]), ("envs",))
    spread = jax.device_put(given, jax.NamedSharding(mesh, jax.P(None, None, "envs")))
    found = jit(scan_updates, static_argnums=0)(bonus, init(bonus), spread)
    assert_results_close(found, one_by_one())


def test_checkpointed_and_differentiated_programs() -> None:
    """An agent may differentiate a program that asks for rewards; no gradient flows through them."""
    bonus, given = make("icm"), jax.tree.map(lambda x: x[0], stacked_rollouts(2))

    def objective(weight: jax.Array, state: BonusState) -> tuple[jax.Array, BonusState]:
        state, output = jax.checkpoint(bonus.update)(state, given._replace(obs=given.obs * weight))
        return jnp.sum(output.reward * weight), state

    gradient, _ = jit(jax.grad(objective, has_aux=True))(jnp.ones(()), init(bonus))
    np.testing.assert_allclose(gradient, jnp.sum(one_by_one()[1].reward[0]), rtol=1e-3)


def test_programs_call_nothing_on_the_host() -> None:
    for method in METHODS.names():
        bonus = make(method)
        program = str(jax.make_jaxpr(bonus.update)(init_shapes(bonus), transitions(rollout(STEPS))))
        assert "callback" not in program
        assert "scan" in program


def init_shapes(bonus: Bonus) -> BonusState:
    obs = np.zeros((bonus.num_envs, FEATURES), np.float32)
    return jax.eval_shape(bonus.init, jax.random.key(0), obs, obs)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_other_float_types_give_the_results_of_float32(dtype: str) -> None:
    """With 64 bits enabled, or observations of 16 bits."""
    bonus, given = make("byol-explore"), rollout(STEPS, seed=3)
    rounded = [np.asarray(jnp.asarray(x, dtype).astype(jnp.float32)) for x in (given.obs, given.next_obs)]
    given = transitions(given, obs=rounded[0], next_obs=rounded[1])
    obs = np.asarray(given.obs[:, 0])

    def run(dtype: Any) -> Any:
        read = given._replace(obs=jnp.asarray(given.obs, dtype), next_obs=jnp.asarray(given.next_obs, dtype))
        state = jit(bonus.init)(jax.random.key(0), jnp.asarray(obs, dtype), jnp.asarray(obs[:ENVS], dtype))
        return jit(bonus.update)(state, read)

    expected = run(jnp.float32)
    with jax.enable_x64(dtype == "float64"):
        found = run(dtype)
    assert_results_close(found, expected)
    types = {x.dtype.name for x in jax.tree.leaves((without_keys(found[0]), found[1]))}
    assert types <= {"float32", "int32", "uint32", "bool"}


def test_equal_bonuses_share_a_program() -> None:
    one, same = make("rnd"), Bonus(*OWN_SPACES, ENVS, "rnd", vars(CONFIG))
    assert one == same
    assert hash(one) == hash(same)
    box = [gym_spaces.Box(-high, high, (2,)) for high in (1.0, 2.0)]
    others = [make("rnd", 3), make("icm"), make("rnd", epochs=2), *(Bonus(OBSERVATIONS, each, ENVS) for each in box)]
    assert len({one, *others}) == 1 + len(others)


# Spaces


def test_actions_of_own_spaces_may_be_plain_arrays() -> None:
    """[T, N] of one component, [T, N, D] and [T, N, C] equal an Action."""
    rng = np.random.default_rng(0)
    discrete, continuous = rng.integers(0, 2, (5, ENVS, 2)), rng.uniform(-1, 1, (5, ENVS, 2)).astype(np.float32)
    none = np.zeros((5, ENVS, 0))
    cases = {
        spaces.ActionSpec((2,)): (discrete[..., 0], Action(discrete[..., :1], none)),
        spaces.ActionSpec((2, 2)): (discrete, Action(discrete, none)),
        spaces.ActionSpec(continuous=2): (continuous, Action(none.astype(int), continuous)),
    }
    for spec, (plain, action) in cases.items():
        reader = Bonus(OWN_SPACES[0], spec, ENVS).reader
        assert_trees_close(reader.action(plain, (5, ENVS)), reader.action(action, (5, ENVS)), rtol=0, atol=0)


OTHER = {"done": np.zeros((STEPS, 3), bool)}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another num_envs": (OTHER, r"done is of shape \(12, 3\): it must be \(T, 2\), of at least one step of 2 env"),
    "no time axis": ({"done": np.zeros(2, bool)}, r"done is of shape \(2,\): it must be \(T, 2\)"),
    "float actions": (
        {"action": np.zeros((STEPS, ENVS), np.float32)},
        r"action\[0\] is of dtype float32: it must be whole numbers",
    ),
    "two actions": (
        {"action": np.zeros((STEPS, ENVS, 2), int)},
        r"action\[0\] is of shape \(12, 2, 2\): it must be \(12, 2, 1\)",
    ),
    "other observations": (
        {"obs": np.zeros((STEPS, ENVS, 5), np.float32)},
        r"obs is of shape \(12, 2, 5\): it must be \(12, 2, 4\)",
    ),
    "texts": ({"obs": "north"}, "obs is north: it must be an array"),
    "a dict": ({"next_obs": {"eye": 1}}, r"next_obs is .*: it must be an array"),
    "no next observations": ({"next_obs": None}, "next_obs and last_obs are both None: give next_obs"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_rollouts_are_refused_when_traced(name: str) -> None:
    changes, message = REFUSED[name]
    bonus, given = make("rnd"), transitions(rollout(STEPS), **changes)
    with pytest.raises(UserError, match=message) as error:
        jax.eval_shape(lambda state: bonus.update(state, given), init_shapes(bonus))
    assert "\n" not in str(error.value)


def test_wrong_arguments_are_refused() -> None:
    seen, chosen = OWN_SPACES
    text = gym_spaces.Dict({"mission": gym_spaces.Text(9), "eye": OBSERVATIONS})
    makers: dict[str, Any] = {
        "the observation space is 4: it must be a space of Gymnasium, or an Image": lambda: Bonus(4, chosen, 2),
        "of entry 'mission'.*has texts in it, which jit cannot hold": lambda: Bonus(text, chosen, 2),
        "the action space is 4: it must be a space of Gymnasium, or an ActionSpec": lambda: Bonus(seen, 4, 2),
        "num_envs is 0: it must be a whole number of at least 1": lambda: Bonus(seen, chosen, 0),
        "unknown .*'rnds' .*; choose from": lambda: Bonus(seen, chosen, 2, "rnds"),
        "does not fit the observations": lambda: Bonus(seen, chosen, 2, config={"network": {"encoder": "grid"}}),
        "minibatches is 0: it must be positive": lambda: Bonus(seen, chosen, 2, config={"minibatches": 0}),
        "config is 3: it must be a dict of settings, or None": lambda: Bonus(seen, chosen, 2, config=3),  # pyright: ignore[reportArgumentType]
        r"done is of shape \(12, 2\): it must be \(2,\), of all": lambda: step(
            make("rnd"), init_shapes(make("rnd")), transitions(rollout(STEPS))
        ),
        r"mask is of shape \(3,\): it must be \(2,\)": lambda: reset(make("rnd"), init_shapes(make("rnd")), np.ones(3)),
        "a tuple was given: it must be a byol_explore.Transition": lambda: make("rnd").update(
            init_shapes(make("rnd")),
            (1, 2),  # pyright: ignore[reportArgumentType]
        ),
        r"last_obs is of shape \(3, 4\): it must be \(2, 4\)": lambda: make("rnd").init(
            jax.random.key(0), np.zeros((9, 4)), np.zeros((3, 4))
        ),
    }
    for message, maker in makers.items():
        with pytest.raises(UserError, match=message) as error:
            maker()
        assert "\n" not in str(error.value)


def test_examples_in_docstrings_are_right() -> None:
    assert doctest.testmod(byol_explore.curiosity.bonus).attempted > 5
    assert doctest.testmod(byol_explore.curiosity.bonus).failed == 0
