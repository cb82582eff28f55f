"""Both runtimes start with encoders that are centred on observations of random steps: all copies alike."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

from byol_explore.agent.state import LearnerState
from byol_explore.config.config import Config
from byol_explore.config.presets import make_config
from byol_explore.config.sections import NetworkConfig, RuntimeConfig
from byol_explore.envs.atari import Atari
from byol_explore.envs.families import AtariSettings
from byol_explore.envs.registry import make_envs
from byol_explore.networks import centering
from byol_explore.networks.centering import warmup_observations_host, warmup_observations_jit
from byol_explore.networks.encoders import ObservationEncoder
from byol_explore.networks.layers import SubtractMean
from byol_explore.runtime.anakin import Anakin
from byol_explore.runtime.sebulba import Sebulba
from byol_explore.types import PyTree

GAME = Atari("freeway", AtariSettings(num_workers=1))
ENVS: Any = make_envs(["corridor-2"])


def tiny(method: str, ablation: str, *, center: bool) -> Config:
    config = make_config("grid", ablation, method)
    network = NetworkConfig(center_encoders=center, encoder_hidden=(32,), embedding_size=16, belief_size=8,
                            policy_hidden=(8,),
                            value_hidden=(8,), predictor_hidden=(8,))  # fmt: skip
    runtime = RuntimeConfig(num_envs=2, batch_size=2, sequence_length=9, rounds_per_dispatch=1, synchronous=True)
    return dataclasses.replace(config, env="corridor-2", network=network, runtime=runtime)


def inside(method: str = "byol-explore", ablation: str = "none", *, center: bool = True) -> Anakin:
    return Anakin(tiny(method, ablation, center=center), ENVS, jax.devices()[:1])


def outside(method: str = "byol-explore", ablation: str = "none", *, center: bool = True) -> Sebulba:
    return Sebulba(tiny(method, ablation, center=center), [GAME])


RUNTIMES = {"inside": (inside, lambda: inside_once(7)), "outside": (outside, lambda: outside_once(7))}


@functools.cache
def inside_once(seed: int) -> PyTree:
    with jax.ensure_compile_time_eval():  # also where the runtime asks for their shape alone
        return warmup_observations_jit(ENVS, seed)


@functools.cache
def outside_once(seed: int) -> PyTree:
    return warmup_observations_host([GAME], seed)


@pytest.fixture(scope="module", autouse=True)
def looks_briefly() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(centering, "STEPS", 32)
        yield


@pytest.fixture(autouse=True)
def looks_once(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Cache the warm-up observations of a seed, because they take seconds; undo the patch to play them again."""
    monkeypatch.setattr("byol_explore.runtime.anakin.warmup_observations_jit", lambda envs, seed: inside_once(seed))
    monkeypatch.setattr("byol_explore.runtime.sebulba.warmup_observations_host", lambda envs, seed: outside_once(seed))
    return monkeypatch


def encoders(learner: LearnerState) -> list[Any]:
    networks = (learner.online, learner.method_state, learner.target_actor)
    nodes = jax.tree.leaves(networks, is_leaf=lambda node: isinstance(node, ObservationEncoder))
    return [node for node in nodes if isinstance(node, ObservationEncoder)]


def spread(encoder: Any, observation: PyTree) -> float:
    embedding = np.asarray(encoder(observation))
    unit = embedding / np.linalg.norm(embedding, axis=-1, keepdims=True)
    return 1.0 - float(np.sum(np.square(unit.mean(axis=0))))


@pytest.fixture(scope="module", params=RUNTIMES)
def where(request: pytest.FixtureRequest) -> tuple[Any, PyTree]:
    make, look = RUNTIMES[request.param]
    return make, look()


@pytest.mark.parametrize(
    ("method", "ablation", "copies"),
    [
        ("byol-explore", "none", 3),  # online, target, acting
        ("byol-explore", "no-sharing", 5),  # two online, their two acting copies, a target
        ("rnd", "none", 4),  # the policy's twice, predictor and target
        pytest.param("byol-explore", "fixed-targets", 3, marks=pytest.mark.slow),
        pytest.param("none", "none", 2, marks=pytest.mark.slow),
    ],
)
def test_every_copy_starts_spread(where: tuple[Any, PyTree], method: str, ablation: str, copies: int) -> None:
    """On observations that it was not centred on."""
    make, observation = where
    learner: LearnerState = make(method, ablation).init_learner(3)
    found = encoders(learner)
    assert len(found) == copies
    assert min(spread(encoder, observation) for encoder in found) > 0.8


def test_without_it_embeddings_are_nearly_parallel(where: tuple[Any, PyTree]) -> None:
    make, observation = where
    learner = make(center=False).init_learner(3)
    assert max(spread(encoder, observation) for encoder in encoders(learner)) < 0.6


def test_copies_are_equal_where_they_should_be(where: tuple[Any, PyTree], looks_once: pytest.MonkeyPatch) -> None:
    make, _ = where

    def equal(one: PyTree, other: PyTree) -> bool:
        return all(np.array_equal(x, y) for x, y in zip(*map(jax.tree.leaves, (one, other)), strict=True))

    moving, fixed = (make("byol-explore", ablation).init_learner(3) for ablation in ("none", "fixed-targets"))
    for learner in (moving, fixed):
        assert equal(learner.online.actor, learner.target_actor)
    assert equal(moving.method_state, moving.online.actor.representation.encoder)
    assert not equal(fixed.method_state, fixed.online.actor.representation.encoder)
    looks_once.undo()
    again = make("byol-explore").init_learner(3)
    assert equal(moving, again)


def test_a_restored_state_needs_no_warmup(where: tuple[Any, PyTree], monkeypatch: pytest.MonkeyPatch) -> None:
    make, _ = where
    runtime = make()
    measured = runtime.init(3)
    for name in ("anakin.warmup_observations_jit", "sebulba.warmup_observations_host"):
        monkeypatch.setattr(f"byol_explore.runtime.{name}", None)
    restored = runtime.init(3, restored=True)
    assert jax.eval_shape(lambda: restored) == jax.eval_shape(lambda: measured)


def test_several_tasks_are_looked_at_alike() -> None:
    names = ["corridor-2", "corridor-3"]
    envs: Any = make_envs(names)
    seen = warmup_observations_jit(envs, 0)
    assert seen.shape[0] % len(names) == 0
    again = warmup_observations_jit(envs, 0)
    np.testing.assert_array_equal(seen, again)
    assert not np.array_equal(seen, warmup_observations_jit(envs, 1))


def test_random_steps_differ_more_than_first_observations() -> None:
    seen = outside_once(3)
    first, last = seen[:32].astype(np.float32), seen[-32:].astype(np.float32)
    assert last.std(axis=0).mean() > first.std(axis=0).mean()


def test_the_mean_image_is_kept_in_training() -> None:
    runtime = outside()
    state = runtime.init(3)
    try:
        state, _ = runtime.dispatch(state)
    finally:
        runtime.close()
    expected = outside_once(3).mean(axis=0)
    patches = expected.reshape(14, 6, 14, 6).swapaxes(1, 2).reshape(14, 14, 36)
    for encoder in encoders(state.learner):
        if isinstance(encoder.center, SubtractMean):
            np.testing.assert_allclose(encoder.center.mean, patches, rtol=1e-4, atol=1e-3)
    assert expected.std() > 1.0
