"""`byol_explore.Curiosity`: the trainer's numbers, the contract of its windows, boundaries by hand, and learning."""

import itertools
from typing import Any

import jax
import numpy as np
import pytest

from builders import BATCH, IS_FIRST, assert_trees_close, jit, make_spec, make_trajectory, small_config, update_of
from byol_explore import Curiosity
from byol_explore.curiosity.bonus import BonusMemory, BonusState, Trained
from byol_explore.dropin.learning import minibatches
from byol_explore.dropin.settings import Settings
from byol_explore.dropin.stream import Place
from byol_explore.errors import DivergenceError
from byol_explore.learner import Learner
from byol_explore.learner_state import LearnerState
from byol_explore.ops import moments
from byol_explore.registries import METHODS
from byol_explore.types import Action, Sequence, Trajectory
from dropins import ENVS, assert_same, experienced, rollout, small

# The two paths agree


def same_networks(learner: Learner, state: LearnerState) -> Curiosity:
    """A curiosity with the curious part of a learner's state."""
    config = learner.config
    settings = Settings(config.network, config.curiosity, config.optimizer)
    curiosity = Curiosity(learner.spec.observation, learner.spec.action, BATCH, config.method, settings=settings)
    actor = state.online.actor
    assert actor.curious is not None
    networks = Trained(actor.curious, state.online.curiosity)
    own = BonusState(
        networks, actor.normalizer, state.curiosity, curiosity.bonus.optimizer.init(networks),  # pyright: ignore[reportArgumentType]
        moments.initial_normalizer(),
    )  # fmt: skip
    curiosity.progress = curiosity.progress._replace(state=own)
    return curiosity


def learn_as_given(curiosity: Curiosity, trajectory: Trajectory) -> tuple[np.ndarray, dict[str, Any]]:
    """From a trainer's trajectory, whose dummy transitions are steps that were skipped."""
    observation = np.asarray(trajectory.observation)
    first = np.asarray(trajectory.is_first)
    over = np.concatenate([first[2:], np.zeros((1, BATCH), bool)])
    here = (Place(first[0], observation[0]), BonusMemory(*trajectory.memory[1:3], trajectory.memory.episode))
    curiosity.progress = curiosity.progress._replace(learned=here)
    return curiosity.learn(
        observation[:-1], trajectory.action, observation[1:], over, np.zeros_like(over), skipped=first[1:]
    )


@pytest.mark.parametrize("method", ["byol-explore", pytest.param("icm", marks=pytest.mark.slow)])
def test_it_computes_what_the_trainer_computes(method: str) -> None:
    """One minibatch of the trainer's own trajectory: uncertainties, normalizer, rewards, and then all parameters."""
    learner = Learner(small_config(method, share=False, horizon=3), make_spec("vector", "hybrid"), 1)
    state = jit(learner.init)(jax.random.key(1))
    learn, curiosity = update_of(learner), same_networks(learner, state)
    for seed in range(3):
        trajectory = make_trajectory(learner.spec, state.online.actor, seed)
        state, theirs = learn(state, trajectory)
        ours, metrics = learn_as_given(curiosity, trajectory)
        np.testing.assert_allclose(ours, theirs.intrinsic_reward, rtol=1e-4, atol=1e-5)
        for name in ("uncertainty", "prediction_error", "loss_curiosity", "uncertainty_stddev", "embedding_spread"):
            np.testing.assert_allclose(metrics[name], theirs.metrics[name], rtol=1e-4, err_msg=name)
    own = curiosity.progress.state
    assert own is not None
    assert_trees_close(own.networks, Trained(state.online.actor.curious, state.online.curiosity), rtol=1e-4)
    assert_trees_close(own.method, state.curiosity, rtol=1e-4)
    normalizer = jax.tree.map(lambda x: x[0], state.statistics.reward.normalizer)
    assert_trees_close(own.rewards, normalizer, rtol=1e-4)
    assert_trees_close(own.observations, state.online.actor.normalizer)


def test_the_trainers_trajectory_has_all_kinds_of_boundaries() -> None:
    assert IS_FIRST[0].tolist() == [False, True, False]
    assert IS_FIRST[1:].sum(axis=0).tolist() == [2, 1, 0]


# Windows


@pytest.mark.parametrize("method", [name for name in METHODS.names() if METHODS.get(name).is_curious])
def test_step_pays_what_reward_pays(method: str) -> None:
    """Over 20 steps with ends anywhere, longer than two of the sequences that a rollout is cut into."""
    ends = 0.0 if METHODS.get(method).contrasts else 0.15  # dummies would shift environments against each other
    at_once, by_steps, given = experienced(method), experienced(method), rollout(20, seed=3, ends=ends)
    together = at_once.reward(*given)
    one_by_one = np.stack([by_steps.step(*given.at(t)) for t in range(20)])
    assert together.shape == one_by_one.shape == (20, ENVS)
    assert np.max(together) > 0.1
    np.testing.assert_allclose(one_by_one, together, rtol=1e-4, atol=1e-5)
    memory = at_once.progress.paid[1]
    assert memory is not None
    assert np.any(memory.core) == METHODS.get(method).reads_representation  # nothing is unrolled for nobody


def test_two_rewards_are_one_but_for_the_windows_that_are_opened_anew() -> None:
    """Recurrent state goes on; of K = 3, what was predicted before the second call is missing in its first two."""
    whole, halves, given = experienced(), experienced(), rollout(12, seed=4, ends=0.0)
    together = whole.reward(*given)
    apart = np.concatenate([halves.reward(*given.cut(0, 6)), halves.reward(*given.cut(6, 12))])
    same = np.isclose(together, apart, rtol=1e-4, atol=1e-5)
    assert same[:6].all()
    assert same[8:].all()
    assert np.all(together[6:8] >= apart[6:8] - 1e-5)
    assert not same[6:8].all()


@pytest.mark.parametrize("method", ["e3b", "noveld", "ngu"])
def test_an_episode_is_remembered_from_one_call_to_the_next(method: str) -> None:
    """Of any kind, also by `learn`, which goes on where the latest `learn` ended."""
    whole, parts, given = experienced(method), experienced(method), rollout(12, seed=4, ends=0.05)
    given.next_obs[7, 0] = given.obs[8, 0] = given.obs[2, 0]  # seen before, in another call
    together = whole.reward(*given)
    apart = [parts.reward(*given.cut(0, 5)), parts.step(*given.at(5))[None], parts.reward(*given.cut(6, 12))]
    np.testing.assert_allclose(np.concatenate(apart), together, rtol=1e-4, atol=1e-5)
    whole.reset()
    assert not np.allclose(whole.reward(*given.cut(6, 12)), together[6:], rtol=1e-3)
    learned = parts.progress.learned[1]
    assert learned is not None
    parts.learn(*given.cut(0, 5))
    assert_trees_close(parts.progress.learned, parts.progress.paid, rtol=0)
    later = parts.progress.learned[1]
    assert later is not None
    pairs = zip(jax.tree.leaves(later.episode), jax.tree.leaves(learned.episode), strict=True)
    assert any(np.any(np.asarray(new) != np.asarray(old)) for new, old in pairs)


def test_steps_go_on_over_calls_until_something_else_opens_windows() -> None:
    one, other, given = experienced(), experienced(), rollout(6, seed=4, ends=0.0)
    for t in range(3):
        one.step(*given.at(t))
    other.reward(*given.cut(0, 3))
    assert np.all(one.step(*given.at(3)) > other.step(*given.at(3)))  # three predictions land there, or one


@pytest.mark.parametrize("steps", [1, 2, 5, 8, 9, 17])
def test_rollouts_of_any_length_are_paid_as_one(steps: int) -> None:
    """Also shorter than K = 3, and longer than the sequences of 8 that they are cut into."""
    curiosity, given = experienced(), rollout(steps, seed=5)
    expected = np.stack([curiosity.step(*given.at(t)) for t in range(steps)])
    curiosity.reset()
    np.testing.assert_allclose(curiosity.reward(*given), expected, rtol=1e-4, atol=1e-5)


def test_learn_pays_as_if_the_rollout_had_not_been_cut() -> None:
    """Sequences of 8 or one of 32: what is paid is the same, as both open one window at the beginning."""
    given = rollout(24, seed=6)
    short, long = small(sequence_length=8, batch_size=64), small(sequence_length=32, batch_size=64)
    one, other = short.learn(*given), long.learn(*given)
    np.testing.assert_allclose(one[0], other[0], rtol=1e-4, atol=1e-5)


# Boundaries by hand


def episodes(ended: np.ndarray, env: int) -> list[tuple[int, int]]:
    """First transition and the one after the last, of each episode of an environment."""
    ends = [0, *(np.flatnonzero(ended[:, env]) + 1).tolist(), len(ended)]
    return [(a, b) for a, b in itertools.pairwise(ends) if b > a]


def uncertainties_by_hand(curiosity: Curiosity, given: Any) -> np.ndarray:
    """Every episode as a sequence of its own, with nothing before or after it."""
    bonus, state = curiosity.bonus, curiosity.progress.state
    assert state is not None

    @jit
    def ask(sequence: Sequence) -> Any:
        view, seen = bonus.view(state.networks, state, bonus.initial_memory(state, 1), sequence)
        return state.networks.method(state.method, view, seen).uncertainty

    uncertainty = np.zeros(given.ended.shape)
    for env in range(given.ended.shape[1]):
        for a, b in episodes(given.ended, env):
            observation = np.concatenate([given.obs[a:b, [env]], given.next_obs[b - 1 : b, [env]]])
            action = Action(given.actions[a:b, [env], None], np.zeros((b - a, 1, 0), np.float32))
            first = np.arange(b - a + 1)[:, None] == 0
            uncertainty[a:b, [env]] = ask(Sequence(observation, action, first))
    return uncertainty


@pytest.mark.parametrize("method", ["byol-explore", "icm", "e3b"])
def test_episodes_know_nothing_of_each_other(method: str) -> None:
    """The rewards are those of episodes that were looked at one by one, each to its true last observation."""
    curiosity, given = experienced(method), rollout(14, seed=7, ends=0.3)
    expected = uncertainties_by_hand(curiosity, given)
    raw, normalized = curiosity.progress.state.rewards
    mean, square = (float(x) / (1 - 0.99 ** int(raw.batches)) for x in (raw.mean, raw.mean_square))
    expected = expected / np.sqrt(square - mean**2 + 1e-8)
    if method == "byol-explore":
        expected = np.maximum(expected - float(normalized.mean) / (1 - 0.99 ** int(normalized.batches)), 0.0)
    np.testing.assert_allclose(curiosity.reward(*given), expected, rtol=2e-3, atol=1e-4)


def test_the_last_observation_is_what_is_paid_for() -> None:
    """Another last observation, another reward there, and nowhere else."""
    given = rollout(6, seed=8, ends=0.0)
    given.terminations[2, 0] = True
    given.next_obs[2, 0] = 0.5
    other = given._replace(next_obs=given.next_obs.copy())
    other.next_obs[2, 0] = -2.0
    one, two = experienced("rnd").reward(*given), experienced("rnd").reward(*other)
    changed = ~np.isclose(one, two, rtol=1e-5, atol=1e-6)
    assert np.argwhere(changed).tolist() == [[2, 0]]


def test_steps_that_only_reset_are_paid_nothing_and_change_nothing() -> None:
    """One environment in NEXT_STEP mode, with a step in between in which it is reset."""
    plain, given = experienced("byol-explore", 1), rollout(8, seed=9, ends=0.0, num_envs=1)
    given.truncations[3] = True
    given.next_obs[3] = 0.25
    expected = plain.reward(*given)
    between = [given.next_obs[3:4], given.actions[3:4], given.obs[4:5], *[np.zeros((1, 1), bool)] * 2]
    longer = [np.concatenate([x[:4], extra, x[4:]]) for x, extra in zip(given, between, strict=True)]
    skipped = (np.arange(9) == 4)[:, None]
    paid = experienced("byol-explore", 1).reward(*longer, skipped=skipped)
    assert paid[4] == 0.0
    np.testing.assert_allclose(np.delete(paid, 4, axis=0), expected, rtol=1e-4, atol=1e-5)


# Learning


def test_before_anything_is_learned_nothing_is_paid() -> None:
    curiosity, given = small(), rollout(5)
    assert not np.any(curiosity.reward(*given))
    assert not np.any(curiosity.step(*given.at(0)))
    intrinsic, _ = curiosity.learn(*given)
    assert np.any(intrinsic)


def test_paying_changes_no_network_and_no_statistic() -> None:
    curiosity = experienced()
    before = curiosity.progress
    curiosity.reward(*rollout(5))
    curiosity.step(*rollout(1, seed=2).at(0))
    for name in ("state", "learned", "record"):
        assert getattr(curiosity.progress, name) is getattr(before, name)


def test_learning_goes_on_where_learning_ended_whatever_was_paid_meanwhile() -> None:
    one, other, given = experienced(), experienced(), rollout(10, seed=3)
    for t in range(10):
        one.step(*given.at(t))
    np.testing.assert_array_equal(one.learn(*given)[0], other.learn(*given)[0])
    assert_same(one, other)


def test_it_learns_what_it_sees() -> None:
    """The same rollout again and again becomes known, and there are as many updates as it was promised."""
    curiosity, given, losses = small(epochs=2), rollout(32, seed=1, ends=0.05), []
    for _ in range(30):
        curiosity.reset()
        intrinsic, metrics = curiosity.learn(*given)
        losses.append(metrics["loss_curiosity"])
    assert losses[-1] < 0.8 * losses[0]
    assert np.all(np.isfinite(intrinsic))
    count, _ = minibatches(10, 2)
    assert metrics["learner_steps"] == 30 * 2 * count


def test_all_transitions_are_learned_from_once_per_epoch() -> None:
    """Statistics of vectors count the observations of all sequences, those that fill up left out."""
    curiosity, given = small(num_envs=3), rollout(13, seed=2, ends=0.3, num_envs=3)
    curiosity.learn(*given)
    state = curiosity.progress.state
    assert state is not None
    lengths = 13 + given.ended[:-1].sum(axis=0)  # transitions of each stream, with dummies
    sequences = -(-lengths // 8)
    assert float(state.observations.entries[""].count) == 2 * np.sum(lengths + 1) + np.sum(sequences - 1)


@pytest.mark.parametrize(
    ("sequences", "usual", "expected"),
    [(1, 16, (1, 1)), (3, 16, (1, 4)), (8, 16, (1, 8)), (17, 16, (1, 20)), (33, 16, (2, 20)), (512, 16, (32, 16)),
     (5, 2, (2, 3)), (9, 1, (9, 1))],
)  # fmt: skip
def test_minibatches_are_about_as_large_as_usual(sequences: int, usual: int, expected: tuple[int, int]) -> None:
    assert minibatches(sequences, usual) == expected


def test_the_usual_settings_make_minibatches_of_512_transitions() -> None:
    """An SB3 rollout of 2,048 steps of eight environments: 32 updates."""
    settings = Settings()
    usual = settings.batch_size // settings.sequence_length
    assert minibatches(2048 // settings.sequence_length * 8, usual) == (32, 16)


def test_networks_begin_with_what_is_seen_first() -> None:
    """Embeddings of the first rollout are zero on average, whatever it looks like."""
    curiosity, given = small(), rollout(60, seed=3)
    shifted = given._replace(obs=given.obs + 100.0, next_obs=given.next_obs + 100.0)
    _, metrics = curiosity.learn(*shifted)
    assert metrics["embedding_spread"] > 0.8


def test_equal_seeds_are_equal_and_others_differ() -> None:
    one, same, other = small(seed=5), small(seed=5), small(seed=6)
    for curiosity in (one, same, other):
        curiosity.learn(*rollout(20))
    assert_same(one, same)
    with pytest.raises(AssertionError):
        assert_same(one, other)


def test_nothing_is_kept_of_a_rollout_that_breaks_the_networks() -> None:
    curiosity = experienced()
    before, state = curiosity.progress, curiosity.progress.state
    assert state is not None
    broken = jax.tree.map(lambda x: x * np.nan, state.networks)
    curiosity.progress = before._replace(state=state._replace(networks=broken))
    kept = curiosity.progress
    with pytest.raises(DivergenceError, match="became NaN or infinite; nothing of this rollout was kept"):
        curiosity.learn(*rollout(16, seed=100))
    assert curiosity.progress is kept


def test_a_rollout_in_which_nothing_happened_is_nothing() -> None:
    curiosity, given = experienced(), rollout(2)
    before = curiosity.progress
    intrinsic, metrics = curiosity.learn(*given, skipped=np.ones((2, ENVS), bool))
    assert (intrinsic.tolist(), metrics) == ([[0.0] * ENVS] * 2, {})
    assert curiosity.progress is before
