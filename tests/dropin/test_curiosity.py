"""`byol_explore.Curiosity`: equal to the trainer; predictions and positions of its calls; boundaries by hand."""

import itertools
from typing import Any

import jax
import numpy as np
import pytest

from builders import BATCH, IS_FIRST, assert_trees_close, jit, make_spec, make_trajectory, small_config, update_of
from byol_explore import Curiosity
from byol_explore.agent.learner import Learner
from byol_explore.agent.state import LearnerState
from byol_explore.curiosity.method_learner import MethodLearnerState, MethodNetworks, StreamState
from byol_explore.curiosity.stream import StreamPosition
from byol_explore.dropin.learning import CuriositySettings, minibatches
from byol_explore.errors import DivergenceError
from byol_explore.ops import rewards
from byol_explore.registry import METHODS
from byol_explore.types import Action, SequenceBatch, Trajectory
from dropins import ENVS, assert_same, experienced, rollout, small

# The two paths agree


def curiosity_with_networks_of(learner: Learner, state: LearnerState) -> Curiosity:
    """Return a Curiosity with the networks of a learner's curiosity."""
    config = learner.config
    settings = CuriositySettings(config.network, config.curiosity, config.optimizer)
    curiosity = Curiosity(learner.spec.observation, learner.spec.action, BATCH, config.method, settings=settings)
    actor = state.online.actor
    assert actor.curiosity_representation is not None
    networks = MethodNetworks(actor.curiosity_representation, state.online.curiosity)
    own = MethodLearnerState(
        networks, actor.obs_normalizer, state.method_state, curiosity.learner.optimizer.init(networks),  # pyright: ignore[reportArgumentType]
        rewards.init_normalizer(),
    )  # fmt: skip
    curiosity.progress = curiosity.progress._replace(state=own)
    return curiosity


def learn_from_trajectory(curiosity: Curiosity, trajectory: Trajectory) -> tuple[np.ndarray, dict[str, Any]]:
    """Learn from a trainer's trajectory, whose dummy transitions are skipped steps."""
    observation = np.asarray(trajectory.observation)
    first = np.asarray(trajectory.is_first)
    over = np.concatenate([first[2:], np.zeros((1, BATCH), bool)])
    here = (
        StreamPosition(first[0], observation[0]),
        StreamState(*trajectory.initial_state[1:3], trajectory.initial_state.episodic_memory),
    )
    curiosity.progress = curiosity.progress._replace(learn_position=here)
    return curiosity.learn(
        observation[:-1], trajectory.action, observation[1:], over, np.zeros_like(over), skipped=first[1:]
    )


@pytest.mark.parametrize("method", ["byol-explore", pytest.param("icm", marks=pytest.mark.slow)])
def test_learn_equals_the_trainer(method: str) -> None:
    """For one minibatch: uncertainties, normalizer, rewards, and then all parameters."""
    learner = Learner(small_config(method, share_representation=False, horizon=3), make_spec("vector", "hybrid"), 1)
    state = jit(learner.init)(jax.random.key(1))
    learn, curiosity = update_of(learner), curiosity_with_networks_of(learner, state)
    for seed in range(3):
        trajectory = make_trajectory(learner.spec, state.online.actor, seed)
        state, theirs = learn(state, trajectory)
        ours, metrics = learn_from_trajectory(curiosity, trajectory)
        np.testing.assert_allclose(ours, theirs.intrinsic_reward, rtol=1e-4, atol=1e-5)
        for name in (
            "uncertainty",
            "prediction_error",
            "loss_curiosity",
            "uncertainty_running_std",
            "embedding_spread",
        ):
            np.testing.assert_allclose(metrics[name], theirs.metrics[name], rtol=1e-4, err_msg=name)
    own = curiosity.progress.state
    assert own is not None
    assert_trees_close(
        own.networks, MethodNetworks(state.online.actor.curiosity_representation, state.online.curiosity), rtol=1e-4
    )
    assert_trees_close(own.method_state, state.method_state, rtol=1e-4)
    normalizer = jax.tree.map(lambda x: x[0], state.statistics.reward.normalizer)
    assert_trees_close(own.reward_normalizer, normalizer, rtol=1e-4)
    assert_trees_close(own.obs_normalizer, state.online.actor.obs_normalizer)


def test_the_trajectory_has_all_kinds_of_boundaries() -> None:
    assert IS_FIRST[0].tolist() == [False, True, False]
    assert IS_FIRST[1:].sum(axis=0).tolist() == [2, 1, 0]


# Predictions


@pytest.mark.parametrize("method", [name for name in METHODS.names() if METHODS.get(name).has_reward])
def test_step_and_reward_agree(method: str) -> None:
    """For 20 steps with random ends, more than two sequences of 8."""
    ends = (
        0.0 if METHODS.get(method).uses_batch_negatives else 0.15
    )  # with dummies, rollouts and steps would compare other pairs
    at_once, by_steps, given = experienced(method), experienced(method), rollout(20, seed=3, ends=ends)
    together = at_once.reward(*given)
    one_by_one = np.stack([by_steps.step(*given.at(t)) for t in range(20)])
    assert together.shape == one_by_one.shape == (20, ENVS)
    assert np.max(together) > 0.1
    np.testing.assert_allclose(one_by_one, together, rtol=1e-4, atol=1e-5)
    memory = at_once.progress.reward_position[1]
    assert memory is not None
    assert np.any(memory.core) == METHODS.get(method).uses_representation  # otherwise nothing is unrolled


def test_reward_starts_new_predictions() -> None:
    """The recurrent state continues. With K = 3, the first two steps of the second call lack older predictions."""
    whole, halves, given = experienced(), experienced(), rollout(12, seed=4, ends=0.0)
    together = whole.reward(*given)
    apart = np.concatenate([halves.reward(*given.cut(0, 6)), halves.reward(*given.cut(6, 12))])
    same = np.isclose(together, apart, rtol=1e-4, atol=1e-5)
    assert same[:6].all()
    assert same[8:].all()
    assert np.all(together[6:8] >= apart[6:8] - 1e-5)
    assert not same[6:8].all()


@pytest.mark.parametrize("method", ["e3b", "noveld", "ngu"])
def test_episodic_memory_continues_through_all_calls(method: str) -> None:
    """Also through `learn`, which continues where the latest `learn` ended."""
    whole, parts, given = experienced(method), experienced(method), rollout(12, seed=4, ends=0.05)
    given.next_obs[7, 0] = given.obs[8, 0] = given.obs[2, 0]  # seen before, in another call
    together = whole.reward(*given)
    apart = [parts.reward(*given.cut(0, 5)), parts.step(*given.at(5))[None], parts.reward(*given.cut(6, 12))]
    np.testing.assert_allclose(np.concatenate(apart), together, rtol=1e-4, atol=1e-5)
    whole.reset()
    assert not np.allclose(whole.reward(*given.cut(6, 12)), together[6:], rtol=1e-3)
    learned = parts.progress.learn_position[1]
    assert learned is not None
    parts.learn(*given.cut(0, 5))
    assert_trees_close(parts.progress.learn_position, parts.progress.reward_position, rtol=0)
    later = parts.progress.learn_position[1]
    assert later is not None
    pairs = zip(jax.tree.leaves(later.episodic_memory), jax.tree.leaves(learned.episodic_memory), strict=True)
    assert any(np.any(np.asarray(new) != np.asarray(old)) for new, old in pairs)


def test_steps_continue_pending_predictions() -> None:
    one, other, given = experienced(), experienced(), rollout(6, seed=4, ends=0.0)
    for t in range(3):
        one.step(*given.at(t))
    other.reward(*given.cut(0, 3))
    assert np.all(one.step(*given.at(3)) > other.step(*given.at(3)))  # three predictions land there, or one


@pytest.mark.parametrize("steps", [1, 2, 5, 8, 9, 17])
def test_rollouts_of_any_length_equal_single_steps(steps: int) -> None:
    """Also if shorter than K = 3, or longer than the sequence length of 8."""
    curiosity, given = experienced(), rollout(steps, seed=5)
    expected = np.stack([curiosity.step(*given.at(t)) for t in range(steps)])
    curiosity.reset()
    np.testing.assert_allclose(curiosity.reward(*given), expected, rtol=1e-4, atol=1e-5)


def test_rewards_of_learn_do_not_depend_on_the_sequence_length() -> None:
    """Sequences of 8 or one of 32: predictions continue from one sequence to the next."""
    given = rollout(24, seed=6)
    short, long = small(sequence_length=8, batch_size=64), small(sequence_length=32, batch_size=64)
    one, other = short.learn(*given), long.learn(*given)
    np.testing.assert_allclose(one[0], other[0], rtol=1e-4, atol=1e-5)


# Boundaries by hand


def episodes(ended: np.ndarray, env: int) -> list[tuple[int, int]]:
    """Return (start, stop) of the transitions of each episode of an environment."""
    ends = [0, *(np.flatnonzero(ended[:, env]) + 1).tolist(), len(ended)]
    return [(a, b) for a, b in itertools.pairwise(ends) if b > a]


def uncertainties_by_hand(curiosity: Curiosity, given: Any) -> np.ndarray:
    """Compute the uncertainties of each episode in a sequence of its own."""
    learner, state = curiosity.learner, curiosity.progress.state
    assert state is not None

    @jit
    def ask(sequence: SequenceBatch) -> Any:
        view, seen = learner.forward(state.networks, state, learner.init_stream(state, 1), sequence)
        return state.networks.method(state.method_state, view, seen).uncertainty

    uncertainty = np.zeros(given.ended.shape)
    for env in range(given.ended.shape[1]):
        for a, b in episodes(given.ended, env):
            observation = np.concatenate([given.obs[a:b, [env]], given.next_obs[b - 1 : b, [env]]])
            action = Action(given.actions[a:b, [env], None], np.zeros((b - a, 1, 0), np.float32))
            first = np.arange(b - a + 1)[:, None] == 0
            uncertainty[a:b, [env]] = ask(SequenceBatch(observation, action, first))
    return uncertainty


@pytest.mark.parametrize("method", ["byol-explore", "icm", "e3b"])
def test_episodes_are_independent(method: str) -> None:
    """The rewards are those of each episode alone, up to its true last observation."""
    curiosity, given = experienced(method), rollout(14, seed=7, ends=0.3)
    expected = uncertainties_by_hand(curiosity, given)
    raw, normalized = curiosity.progress.state.reward_normalizer
    mean, square = (float(x) / (1 - 0.99 ** int(raw.num_updates)) for x in (raw.mean, raw.mean_square))
    expected = expected / np.sqrt(square - mean**2 + 1e-8)
    if method == "byol-explore":
        expected = np.maximum(expected - float(normalized.mean) / (1 - 0.99 ** int(normalized.num_updates)), 0.0)
    np.testing.assert_allclose(curiosity.reward(*given), expected, rtol=2e-3, atol=1e-4)


def test_the_final_observation_changes_only_its_own_reward() -> None:
    """Another final observation changes the reward of its transition only."""
    given = rollout(6, seed=8, ends=0.0)
    given.terminations[2, 0] = True
    given.next_obs[2, 0] = 0.5
    other = given._replace(next_obs=given.next_obs.copy())
    other.next_obs[2, 0] = -2.0
    one, two = experienced("rnd").reward(*given), experienced("rnd").reward(*other)
    changed = ~np.isclose(one, two, rtol=1e-5, atol=1e-6)
    assert np.argwhere(changed).tolist() == [[2, 0]]


def test_skipped_steps_have_no_reward_and_change_nothing() -> None:
    """One environment in NEXT_STEP mode, with one step that only resets."""
    plain, given = experienced("byol-explore", 1), rollout(8, seed=9, ends=0.0, num_envs=1)
    given.truncations[3] = True
    given.next_obs[3] = 0.25
    expected = plain.reward(*given)
    between = [given.next_obs[3:4], given.actions[3:4], given.obs[4:5], *[np.zeros((1, 1), bool)] * 2]
    longer = [np.concatenate([x[:4], extra, x[4:]]) for x, extra in zip(given, between, strict=True)]
    skipped = (np.arange(9) == 4)[:, None]
    rewards = experienced("byol-explore", 1).reward(*longer, skipped=skipped)
    assert rewards[4] == 0.0
    np.testing.assert_allclose(np.delete(rewards, 4, axis=0), expected, rtol=1e-4, atol=1e-5)


# Learning


def test_rewards_are_zero_before_the_first_learn() -> None:
    curiosity, given = small(), rollout(5)
    assert not np.any(curiosity.reward(*given))
    assert not np.any(curiosity.step(*given.at(0)))
    intrinsic, _ = curiosity.learn(*given)
    assert np.any(intrinsic)


def test_reward_and_step_change_no_network_and_no_statistic() -> None:
    curiosity = experienced()
    before = curiosity.progress
    curiosity.reward(*rollout(5))
    curiosity.step(*rollout(1, seed=2).at(0))
    for name in ("state", "learn_position", "record"):
        assert getattr(curiosity.progress, name) is getattr(before, name)


def test_learn_continues_where_the_latest_learn_ended() -> None:
    one, other, given = experienced(), experienced(), rollout(10, seed=3)
    for t in range(10):
        one.step(*given.at(t))
    np.testing.assert_array_equal(one.learn(*given)[0], other.learn(*given)[0])
    assert_same(one, other)


def test_learning_lowers_the_loss() -> None:
    """The loss of a repeated rollout falls, and the number of updates is that of `minibatches`."""
    curiosity, given, losses = small(epochs=2), rollout(32, seed=1, ends=0.05), []
    for _ in range(30):
        curiosity.reset()
        intrinsic, metrics = curiosity.learn(*given)
        losses.append(metrics["loss_curiosity"])
    assert losses[-1] < 0.8 * losses[0]
    assert np.all(np.isfinite(intrinsic))
    count, _ = minibatches(10, 2)
    assert metrics["learner_steps"] == 30 * 2 * count


def test_each_transition_is_learned_from_once_per_epoch() -> None:
    """The observation normalizer counts the observations of all sequences, without padding."""
    curiosity, given = small(num_envs=3), rollout(13, seed=2, ends=0.3, num_envs=3)
    curiosity.learn(*given)
    state = curiosity.progress.state
    assert state is not None
    lengths = 13 + given.ended[:-1].sum(axis=0)  # transitions of each stream, with dummies
    sequences = -(-lengths // 8)
    assert float(state.obs_normalizer.entries[""].count) == 2 * np.sum(lengths + 1) + np.sum(sequences - 1)


@pytest.mark.parametrize(
    ("sequences", "usual", "expected"),
    [(1, 16, (1, 1)), (3, 16, (1, 4)), (8, 16, (1, 8)), (17, 16, (1, 20)), (33, 16, (2, 20)), (512, 16, (32, 16)),
     (5, 2, (2, 3)), (9, 1, (9, 1))],
)  # fmt: skip
def test_minibatch_sizes_are_close_to_the_usual(sequences: int, usual: int, expected: tuple[int, int]) -> None:
    assert minibatches(sequences, usual) == expected


def test_default_minibatches_have_512_transitions() -> None:
    """A rollout of 2,048 steps of eight environments (PPO in Stable-Baselines3) gives 32 updates."""
    settings = CuriositySettings()
    usual = settings.batch_size // settings.sequence_length
    assert minibatches(2048 // settings.sequence_length * 8, usual) == (32, 16)


def test_encoders_are_centred_on_the_first_rollout() -> None:
    """Embeddings of the first rollout are zero on average, for any observations."""
    curiosity, given = small(), rollout(60, seed=3)
    shifted = given._replace(obs=given.obs + 100.0, next_obs=given.next_obs + 100.0)
    _, metrics = curiosity.learn(*shifted)
    assert metrics["embedding_spread"] > 0.8


def test_equal_seeds_give_equal_results() -> None:
    one, same, other = small(seed=5), small(seed=5), small(seed=6)
    for curiosity in (one, same, other):
        curiosity.learn(*rollout(20))
    assert_same(one, same)
    with pytest.raises(AssertionError):
        assert_same(one, other)


def test_a_rollout_that_diverges_leaves_the_state_unchanged() -> None:
    curiosity = experienced()
    before, state = curiosity.progress, curiosity.progress.state
    assert state is not None
    broken = jax.tree.map(lambda x: x * np.nan, state.networks)
    curiosity.progress = before._replace(state=state._replace(networks=broken))
    kept = curiosity.progress
    with pytest.raises(DivergenceError, match="became NaN or infinite; nothing of this rollout was kept"):
        curiosity.learn(*rollout(16, seed=100))
    assert curiosity.progress is kept


def test_a_rollout_of_skipped_steps_changes_nothing() -> None:
    curiosity, given = experienced(), rollout(2)
    before = curiosity.progress
    intrinsic, metrics = curiosity.learn(*given, skipped=np.ones((2, ENVS), bool))
    assert (intrinsic.tolist(), metrics) == ([[0.0] * ENVS] * 2, {})
    assert curiosity.progress is before


# Compiled programs


@pytest.mark.parametrize(("before", "after"), [(None, "/mine"), ("/own", "/own")])
def test_compiled_programs_are_kept_where_the_user_wants(
    monkeypatch: pytest.MonkeyPatch, before: str | None, after: str
) -> None:
    monkeypatch.setenv("BYOL_EXPLORE_CACHE", "/mine")
    of_tests = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    try:
        jax.config.update("jax_compilation_cache_dir", before)
        small()
        assert jax.config.jax_compilation_cache_dir == after  # pyright: ignore[reportAttributeAccessIssue]
    finally:
        jax.config.update("jax_compilation_cache_dir", of_tests)
