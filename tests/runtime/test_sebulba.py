"""The runtime outside jit: it learns what the jit runtime learns, and actors pull what the learner publishes."""

import dataclasses
import functools
import itertools
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from builders import assert_trees_close, call, small_actor, unroll
from byol_explore.envs.worlds.probes import Corridor
from byol_explore.learner_state import Batch, LearnerState
from byol_explore.networks.assembly import Actor
from byol_explore.runtime import sources as module
from byol_explore.runtime.anakin import Anakin, AnakinState
from byol_explore.runtime.base import DispatchOutput
from byol_explore.runtime.host_actor import HostActor, Rollout
from byol_explore.runtime.sebulba import Sebulba, SebulbaState, split
from byol_explore.runtime.sources import Parameters
from byol_explore.settings.config import Config
from host_worlds import BATCH, ENVS, LENGTH, LOADS, UPDATES, Outside, QuickSebulba, Scripted, host_config, timeline

LAYOUTS = {"one device": ([0], None), "two learners": ([0, 1], None), "actor and learner": ([0], [1])}


def host_copy(tree: Any) -> Any:
    """Survives the donation of the original."""
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


# The same learning as inside jit


class Inside(NamedTuple):
    """Two dispatches of the jit runtime, and the keys it played with."""

    config: Config
    env_key: jax.Array
    actor_key: jax.Array
    first: LearnerState
    learned: list[LearnerState]
    outputs: list[DispatchOutput]


def corridor() -> Corridor:
    """Inside jit, with the shapes of the scripted world: one compiled learner serves both."""
    return Corridor("short", 4)


@functools.cache
def inside() -> Inside:
    config = host_config(rollouts_per_dispatch=2, deterministic=True)
    anakin = Anakin(config, [corridor()], jax.devices()[:1])
    keys = jax.random.split(jax.random.key(0))
    learner = QuickSebulba(config, [Scripted()]).init(0).learner
    first, learned, outputs = host_copy(learner), [], []
    state = AnakinState(learner, anakin._init_actor(learner.acting, *keys))
    for _ in range(3):
        state, output = anakin.dispatch(state)
        learned.append(host_copy(state.learner))
        outputs.append(jax.device_get(output))
    return Inside(config, *keys, first, learned, outputs)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_world_teaches_the_same_inside_and_outside_jit(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the same state and keys: actions, episodes, every update and the refreshes of the target policy."""
    known = inside()
    learners, actors = ([jax.devices()[i] for i in which] if which else None for which in LAYOUTS[layout])
    acting = watch(monkeypatch, key=known.actor_key)
    runtime = QuickSebulba(known.config, [Outside(corridor(), known.env_key)], learners, actors)
    state = jax.device_put(SebulbaState(known.first, np.zeros((), np.int32)), runtime._whole)
    # Adam turns differences in the last bits of small gradients into shares of its step, 1e-3.
    tolerance = 2e-5 if len(runtime.mesh.devices) == 1 else 2e-4
    for learned, expected in zip(known.learned, known.outputs, strict=True):
        state, output = runtime.dispatch(state)
        assert_trees_close(host_copy(state.learner), learned, rtol=1e-4, atol=tolerance)
        assert_trees_close(output.steps, expected.steps, rtol=1e-3, atol=1e-3)
        np.testing.assert_array_equal(output.finite, expected.finite)
        for name, values in expected.metrics.items():
            np.testing.assert_allclose(output.metrics[name], values, rtol=1e-3, atol=1e-3, err_msg=name)
    runtime.close()
    ended = np.concatenate([steps.episodes.ended for output in known.outputs for steps in output.steps])
    assert ended.any(), "no boundary inside"
    assert first_weight(known.learned[0].acting) != first_weight(known.first.acting), "the target policy must change"
    assert {device for pulled in acting for device in pulled.actor.policy.mlp.layers[0].weight.devices()} == {
        (actors or learners or jax.devices())[0]
    }
    assert runtime._update._cache_size() == 1, "one compilation serves all"


def test_the_batch_is_shared_out_over_the_learning_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each holds its environments; the state is whole on both."""
    runtime = QuickSebulba(host_config(devices=2, deterministic=True), [Scripted()], jax.devices()[:2])
    batches, update = [], runtime._update
    monkeypatch.setattr(runtime, "_update", lambda state, batch: batches.append(batch) or update(state, batch))
    state, _ = runtime.dispatch(runtime.init(0))
    runtime.close()
    shapes = {"observation": (LENGTH, 1, 4), "is_first": (LENGTH, 1), "reward": (LENGTH - 1, 1), "task": (LENGTH, 1)}
    for name, shape in shapes.items():
        shards = [shard.data for shard in getattr(batches[0].trajectory, name).addressable_shards]
        assert [shard.shape for shard in shards] == [shape, shape], name
    assert batches[0].trajectory.memory.core.addressable_shards[0].data.shape == (1, 6)
    one, two = (np.asarray(s.data) for s in state.learner.online.value.layers[0].weight.addressable_shards)
    np.testing.assert_array_equal(one, two)


def test_batches_are_slices_of_environments_with_their_time_in_order() -> None:
    actor = small_actor(Scripted().spec)
    whole = HostActor([Scripted()], ENVS, LENGTH, jax.random.key(0), seed=0).rollout(actor).trajectory
    parts = split(whole, BATCH)
    assert len(parts) == UPDATES
    for index, part in enumerate(parts):
        envs = slice(index * BATCH, (index + 1) * BATCH)
        timed = whole._replace(memory=None)
        memory = jax.tree.map(lambda x, envs=envs: x[envs], whole.memory)
        assert_trees_close(part._replace(memory=None), jax.tree.map(lambda x, e=envs: x[:, e], timed))
        assert_trees_close(part.memory, memory)


# Repeatable runs


def test_in_lock_step_a_seed_makes_a_run_and_another_makes_another() -> None:
    def run(seed: int) -> tuple[SebulbaState, list[DispatchOutput]]:
        config = dataclasses.replace(host_config(deterministic=True, actors=2, rollouts_per_dispatch=2), seed=seed)
        return play(QuickSebulba(config, [Scripted()]), 3, seed)

    def without_loads(outputs: list[DispatchOutput]) -> list[DispatchOutput]:
        assert all(output.metrics.keys() >= LOADS for output in outputs)
        return [o._replace(metrics={k: v for k, v in o.metrics.items() if k not in LOADS}) for o in outputs]

    (first, outputs), (again, repeated), (other, _) = run(3), run(3), run(4)
    jax.tree.map(np.testing.assert_array_equal, first, again)
    jax.tree.map(np.testing.assert_array_equal, without_loads(outputs), without_loads(repeated))
    assert first_weight(first.learner.acting) != first_weight(other.learner.acting)
    assert all(np.all(output.metrics["policy_lag"] <= 1) for output in outputs), "the second actor waits for the first"


def test_a_dispatch_holds_the_rollouts_of_all_actors() -> None:
    """Each says which environments it is of: both actors play the first of the script's."""
    config = host_config(deterministic=True, actors=2, rollouts_per_dispatch=3)
    state, outputs = play(QuickSebulba(config, [Scripted()]), 2)
    assert (int(state.rounds), int(state.learner.step)) == (6, 6 * UPDATES)
    lives = [timeline(env % (ENVS // 2), 6 * (LENGTH - 1))[1:] for env in range(ENVS)]
    ended = {env: [] for env in range(ENVS)}
    for steps in (steps for output in outputs for steps in output.steps):
        for place, env in enumerate(steps.envs.tolist()):
            ended[env].extend(steps.episodes.ended[:, place].tolist())
    assert ended == {env: [moment.is_last for moment in life] for env, life in enumerate(lives)}
    for output in outputs:
        assert len(output.steps) == 3 * 2
        for steps in output.steps:
            assert steps.places.shape == (LENGTH - 1, ENVS // 2, 2)
            assert steps.intrinsic_reward.shape == steps.task.shape == (LENGTH - 1, ENVS // 2)
        assert any(steps.intrinsic_reward.any() for steps in output.steps)
        assert output.finite.shape[0] == output.metrics["loss"].shape[0] == 3 * UPDATES
        assert output.finite.all()


def test_environments_differ_between_actors_and_after_a_restart() -> None:
    """Seeds follow from that of the run, the actor, and how far the run has come."""

    def seeds(rounds: int, seed: int = 0) -> list[int]:
        world = Scripted()
        config = dataclasses.replace(host_config(deterministic=True, actors=2), seed=seed)
        runtime = QuickSebulba(config, [world])
        runtime.dispatch(runtime.init(0)._replace(rounds=np.int32(rounds)))
        runtime.close()
        return [batch.seed for batch in world.batches]

    assert seeds(0) == seeds(0)
    assert len({*seeds(0), *seeds(7), *seeds(0, seed=1)}) == 6


@pytest.mark.parametrize(
    ("actors", "period", "deterministic", "same"),
    [(1, 3, True, False), (1, 4, True, True), (2, 3, True, True), (1, 4, False, False), (2, 3, False, False)],
)
def test_the_stored_policy_is_taken_for_the_target_policy_only_in_lock_step(
    actors: int, period: int, deterministic: bool, same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And only if a refresh never falls between two batches of an actor's rollout: with two actors it has one."""
    config = host_config(actors=actors, deterministic=deterministic, rollouts_per_dispatch=2)
    vmpo = dataclasses.replace(config.vmpo, target_period=period)
    runtime = QuickSebulba(dataclasses.replace(config, vmpo=vmpo), [Scripted()])
    assert runtime.learner.stored_is_target is same
    if not deterministic:
        return
    known, update = [], runtime._update

    def watched(state: LearnerState, batch: Batch) -> Any:
        view = unroll(state.acting, batch.trajectory)
        policy = call(state.acting.policy, view.belief[:-1])
        known.append(np.allclose(policy.logits[0], batch.trajectory.policy.logits[0], rtol=1e-5, atol=1e-6))
        return update(state, batch)

    monkeypatch.setattr(runtime, "_update", watched)
    play(runtime, 4)
    assert all(known) is same


# Parameters


class Pulled(NamedTuple):
    actor: Actor
    at: int
    as_it_was: Actor


def first_weight(actor: Actor) -> float:
    return float(np.asarray(actor.policy.mlp.layers[0].weight)[0, 0])


def watch(monkeypatch: pytest.MonkeyPatch, key: jax.Array | None = None) -> list[Pulled]:
    """What actors act with, from now on; with a key, it is theirs."""
    pulled: list[Pulled] = []

    class Watched(HostActor):
        def __init__(self, envs: Any, size: int, length: int, own_key: jax.Array, seed: int, **others: Any) -> None:
            super().__init__(envs, size, length, own_key if key is None else key, seed, **others)

        def rollout(self, actor: Actor, pulled_at: int = 0) -> Rollout:
            pulled.append(Pulled(actor, pulled_at, host_copy(actor)))
            return super().rollout(actor, pulled_at)

    monkeypatch.setattr(module, "HostActor", Watched)
    return pulled


def test_parameters_are_copied_when_the_target_policy_changes_and_only_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Actors get those of the newest refresh, and may use them while the learner goes on."""
    pulled = watch(monkeypatch)
    runtime = QuickSebulba(host_config(deterministic=True), [Scripted()])
    state, targets = runtime.init(0), []
    for _ in range(8):
        targets.append(host_copy(state.learner.acting))
        state, _ = runtime.dispatch(state)
    runtime.close()
    assert [each.at for each in pulled] == [UPDATES * n for n in range(8)]
    for target, each in zip(targets, pulled, strict=True):
        jax.tree.map(np.testing.assert_array_equal, each.as_it_was, target)
        jax.tree.map(np.testing.assert_array_equal, host_copy(each.actor), target)
    changed = [one.actor is not two.actor for one, two in itertools.pairwise(pulled)]
    refreshed = [one.at // 3 != two.at // 3 for one, two in itertools.pairwise(pulled)]
    assert changed == refreshed
    assert set(changed) == {True, False}


def test_every_acting_device_has_its_own_copy() -> None:
    parameters, actor = Parameters(jax.devices()), small_actor(Scripted().spec)
    parameters.publish(actor, 0)
    parameters.publish(None, 5)
    for device in jax.devices():
        copy, step = parameters.pull(device)
        assert step == 5
        assert copy is parameters.pull(device)[0]
        assert all(leaf.devices() == {device} for leaf in jax.tree.leaves(copy))
        jax.tree.map(np.testing.assert_array_equal, host_copy(copy), host_copy(actor))
