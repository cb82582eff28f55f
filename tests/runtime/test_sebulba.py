"""Tests of Sebulba: equal learning to Anakin, repeatable runs, published parameters."""

import dataclasses
import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from builders import SMALL_STEPS, assert_trees_close, call, small_actor, unroll
from byol_explore.agent.state import Batch, LearnerState
from byol_explore.config.config import Config
from byol_explore.config.sections import VMPOConfig
from byol_explore.envs.probes.worlds import CorridorProbe
from byol_explore.networks.representation import Actor
from byol_explore.runtime import actor_threads
from byol_explore.runtime.actor_threads import ParameterStore
from byol_explore.runtime.anakin import Anakin, AnakinState
from byol_explore.runtime.base import DispatchOutput
from byol_explore.runtime.rollouts import HostActor, Rollout
from byol_explore.runtime.sebulba import Sebulba, SebulbaState
from host_worlds import ENVS, LENGTH, LOADS, UPDATES, Outside, QuickSebulba, Scripted, host_config, timeline

LAYOUTS = {"one device": ([0], None), "two learners": ([0, 1], None), "actor and learner": ([0], [1])}


def host_copy(tree: Any) -> Any:
    """Copy to the host, because the next dispatch donates the original."""
    return jax.tree.map(np.array, tree)


def play(runtime: Sebulba, dispatches: int, seed: int = 0) -> tuple[SebulbaState, list[DispatchOutput]]:
    state, outputs = runtime.init(seed), []
    try:
        for _ in range(dispatches):
            state, output = runtime.dispatch(state)
            outputs.append(output)
    finally:
        runtime.close()
    return host_copy(state), outputs


# Comparison with Anakin


class Inside(NamedTuple):
    """Dispatches of Anakin, and its random keys."""

    config: Config
    env_key: jax.Array
    actor_keys: jax.Array  # [E]
    first: LearnerState
    learned: list[LearnerState]
    outputs: list[DispatchOutput]


def corridor() -> CorridorProbe:
    """Return an environment inside jit with the shapes of the scripted world: both share one compiled learner."""
    return CorridorProbe("short", 4)


@functools.cache
def inside() -> Inside:
    config = host_config(rounds_per_dispatch=2, synchronous=True)
    # The order of sums depends on the devices. Rounding decides which of two equal advantages are among the best.
    config = dataclasses.replace(config, vmpo=VMPOConfig(target_period=3, top_fraction=1.0), optimizer=SMALL_STEPS)
    anakin = Anakin(config, [corridor()], jax.devices()[:1])
    env_key, actor_key = jax.random.split(jax.random.key(0))
    learner = QuickSebulba(config, [Scripted()]).init(0).learner
    first, learned, outputs = host_copy(learner), [], []
    state = AnakinState(learner, anakin.init_actor(learner.target_actor, env_key, actor_key))
    actor_keys = jnp.copy(state.actor.key)  # a dispatch donates the original
    for _ in range(3):
        state, output = anakin.dispatch(state)
        learned.append(host_copy(state.learner))
        outputs.append(jax.device_get(output))
    return Inside(config, env_key, actor_keys, first, learned, outputs)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_learning_equals_that_of_anakin(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start from the same state and keys; compare actions, episodes, updates and refreshes of the target policy."""
    known = inside()
    learners, actors = ([jax.devices()[i] for i in which] if which else None for which in LAYOUTS[layout])
    acting = record_pulls(monkeypatch, key=known.actor_keys)
    runtime = QuickSebulba(known.config, [Outside(corridor(), known.env_key)], learners, actors)
    state = jax.device_put(SebulbaState(known.first, np.zeros((), np.int32)), runtime._replicated)
    for learned, expected in zip(known.learned, known.outputs, strict=True):
        state, output = runtime.dispatch(state)
        assert_trees_close(host_copy(state.learner), learned, rtol=1e-4, atol=2e-5)
        assert_trees_close(output.rollouts, expected.rollouts, rtol=1e-3, atol=1e-3)
        np.testing.assert_array_equal(output.finite.flags, expected.finite.flags)
        for name, values in expected.metrics.items():
            np.testing.assert_allclose(output.metrics[name], values, rtol=1e-3, atol=1e-3, err_msg=name)
    runtime.close()
    ended = np.concatenate([steps.episodes.ended for output in known.outputs for steps in output.rollouts])
    assert ended.any(), "no episode ended"
    assert first_weight(known.learned[0].target_actor) != first_weight(known.first.target_actor), (
        "the target policy has not changed"
    )
    assert {device for pulled in acting for device in pulled.actor.policy_head.mlp.layers[0].weight.devices()} == {
        (actors or learners or jax.devices())[0]
    }
    assert runtime._update._cache_size() == 1, "more than one compilation"


def test_batches_are_sharded_over_the_learning_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each device holds its environments; the state is replicated."""
    runtime = QuickSebulba(host_config(num_devices=2, synchronous=True), [Scripted()], jax.devices()[:2])
    batches, update = [], runtime._update
    monkeypatch.setattr(runtime, "_update", lambda state, batch: batches.append(batch) or update(state, batch))
    state, _ = runtime.dispatch(runtime.init(0))
    runtime.close()
    shapes = {"observation": (LENGTH, 1, 4), "is_first": (LENGTH, 1), "reward": (LENGTH - 1, 1), "task_id": (LENGTH, 1)}
    for name, shape in shapes.items():
        shards = [shard.data for shard in getattr(batches[0].trajectory, name).addressable_shards]
        assert [shard.shape for shard in shards] == [shape, shape], name
    assert batches[0].trajectory.initial_state.policy_core.addressable_shards[0].data.shape == (1, 6)
    one, two = (np.asarray(s.data) for s in state.learner.online.value_head.layers[0].weight.addressable_shards)
    np.testing.assert_array_equal(one, two)


# Repeatable runs


def test_synchronous_runs_are_equal_with_one_seed_and_differ_with_another() -> None:
    def run(seed: int) -> tuple[SebulbaState, list[DispatchOutput]]:
        config = dataclasses.replace(host_config(synchronous=True, num_actors=2, rounds_per_dispatch=2), seed=seed)
        return play(QuickSebulba(config, [Scripted()]), 3, seed)

    def without_load(outputs: list[DispatchOutput]) -> list[DispatchOutput]:
        assert all(output.metrics.keys() >= LOADS for output in outputs)
        return [o._replace(metrics={k: v for k, v in o.metrics.items() if k not in LOADS}) for o in outputs]

    (first, outputs), (again, repeated), (other, _) = run(3), run(3), run(4)
    jax.tree.map(np.testing.assert_array_equal, first, again)
    jax.tree.map(np.testing.assert_array_equal, without_load(outputs), without_load(repeated))
    assert first_weight(first.learner.target_actor) != first_weight(other.learner.target_actor)
    assert all(np.all(output.metrics["policy_lag"] <= 1) for output in outputs), (
        "the second actor did not wait for the first"
    )


def test_dispatch_has_the_rollouts_of_all_actors() -> None:
    """Each rollout names its environments. Both actors play the first environments of the script."""
    config = host_config(synchronous=True, num_actors=2, rounds_per_dispatch=3)
    state, outputs = play(QuickSebulba(config, [Scripted()]), 2)
    assert (int(state.rollouts_per_env), int(state.learner.step)) == (6, 6 * UPDATES)
    timelines = [timeline(env % (ENVS // 2), 6 * (LENGTH - 1))[1:] for env in range(ENVS)]
    ended = {env: [] for env in range(ENVS)}
    for steps in (steps for output in outputs for steps in output.rollouts):
        for place, env in enumerate(steps.env_ids.tolist()):
            ended[env].extend(steps.episodes.ended[:, place].tolist())
    assert ended == {env: [moment.is_last for moment in moments] for env, moments in enumerate(timelines)}
    for output in outputs:
        assert len(output.rollouts) == 3 * 2
        for steps in output.rollouts:
            assert steps.positions.shape == (LENGTH - 1, ENVS // 2, 2)
            assert steps.intrinsic_reward.shape == steps.task_ids.shape == (LENGTH - 1, ENVS // 2)
        assert any(steps.intrinsic_reward.any() for steps in output.rollouts)
        assert output.finite.flags.shape[0] == output.metrics["loss"].shape[0] == 3 * UPDATES
        assert output.finite.flags.all()


def test_seeds_differ_between_actors_runs_and_resumptions() -> None:
    """They depend on the seed of the run, the actor, and the rollouts before."""

    def seeds(rounds: int, seed: int = 0) -> list[int]:
        world = Scripted()
        config = dataclasses.replace(host_config(synchronous=True, num_actors=2), seed=seed)
        runtime = QuickSebulba(config, [world])
        runtime.dispatch(runtime.init(0)._replace(rollouts_per_env=np.int32(rounds)))
        runtime.close()
        return [batch.seed for batch in world.batches]

    assert seeds(0) == seeds(0)
    assert len({*seeds(0), *seeds(7), *seeds(0, seed=1)}) == 6


@pytest.mark.parametrize(
    ("actors", "period", "synchronous", "same"),
    [(1, 3, True, False), (1, 4, True, True), (2, 3, True, True), (1, 4, False, False), (2, 3, False, False)],
)
def test_stored_policy_is_the_target_policy_if_synchronous_only(
    actors: int, period: int, synchronous: bool, same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And only if no refresh falls between two batches of a rollout; with two actors a rollout is one batch."""
    config = host_config(num_actors=actors, synchronous=synchronous, rounds_per_dispatch=2)
    vmpo = dataclasses.replace(config.vmpo, target_period=period)
    runtime = QuickSebulba(dataclasses.replace(config, vmpo=vmpo), [Scripted()])
    assert runtime.learner.behaviour_is_target is same
    if not synchronous:
        return
    equal, update = [], runtime._update

    def compare(state: LearnerState, batch: Batch) -> Any:
        view = unroll(state.target_actor, batch.trajectory)
        policy = call(state.target_actor.policy_head, view.belief[:-1])
        equal.append(np.allclose(policy.logits[0], batch.trajectory.behaviour_policy.logits[0], rtol=1e-5, atol=1e-6))
        return update(state, batch)

    monkeypatch.setattr(runtime, "_update", compare)
    play(runtime, 4)
    assert all(equal) is same


# Parameters


class Pulled(NamedTuple):
    actor: Actor
    step: int
    copy: Actor  # at the time of the pull


def first_weight(actor: Actor) -> float:
    return float(np.asarray(actor.policy_head.mlp.layers[0].weight)[0, 0])


def record_pulls(monkeypatch: pytest.MonkeyPatch, key: jax.Array | None = None) -> list[Pulled]:
    """Return the list of all later pulls of parameters; `key` replaces the random key of actors."""
    pulled: list[Pulled] = []

    class RecordingActor(HostActor):
        def __init__(self, envs: Any, size: int, length: int, own_key: jax.Array, seed: int, **others: Any) -> None:
            super().__init__(envs, size, length, own_key if key is None else key, seed, **others)

        def rollout(self, actor: Actor, params_step: int = 0) -> Rollout:
            pulled.append(Pulled(actor, params_step, host_copy(actor)))
            return super().rollout(actor, params_step)

    monkeypatch.setattr(actor_threads, "HostActor", RecordingActor)
    return pulled


def test_parameters_are_published_only_when_the_target_policy_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Actors pull copies of the newest refresh, which the learner does not overwrite."""
    pulled = record_pulls(monkeypatch)
    runtime = QuickSebulba(host_config(synchronous=True), [Scripted()])
    state, targets = runtime.init(0), []
    for _ in range(8):
        targets.append(host_copy(state.learner.target_actor))
        state, _ = runtime.dispatch(state)
    runtime.close()
    assert [each.step for each in pulled] == [UPDATES * n for n in range(8)]
    for target, each in zip(targets, pulled, strict=True):
        jax.tree.map(np.testing.assert_array_equal, each.copy, target)
        jax.tree.map(np.testing.assert_array_equal, host_copy(each.actor), target)
    changed = [one.actor is not two.actor for one, two in itertools.pairwise(pulled)]
    refreshed = [one.step // 3 != two.step // 3 for one, two in itertools.pairwise(pulled)]
    assert changed == refreshed
    assert set(changed) == {True, False}


def test_every_acting_device_has_a_copy() -> None:
    parameters, actor = ParameterStore(jax.devices()), small_actor(Scripted().spec)
    parameters.publish(actor, 0)
    parameters.publish(None, 5)
    for device in jax.devices():
        copy, step = parameters.pull(device)
        assert step == 5
        assert copy is parameters.pull(device)[0]
        assert all(leaf.devices() == {device} for leaf in jax.tree.leaves(copy))
        jax.tree.map(np.testing.assert_array_equal, host_copy(copy), host_copy(actor))
