"""diagnose(Curiosity): healthy, broken on purpose, and with wrong calls."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore import Curiosity, diagnose
from byol_explore.doctor.diagnose import check_stream
from byol_explore.doctor.evidence import Finding
from byol_explore.dropin.learning import Record
from byol_explore.errors import UserError
from dropins import Rollout, rollout, small

NAMES = (
    "target",
    "embedding_collapse",
    "horizon_growth",
    "normalizer",
    "intrinsic_reward",
    "episode_boundaries",
    "finite",
    "gradient",
    "stream",
)


def verdicts(curiosity: Curiosity) -> dict[str, str]:
    return {finding.check: finding.verdict for finding in diagnose(curiosity)}


def train_curiosity(method: str = "byol-explore", steps: int = 8) -> Curiosity:
    """Learn from a few rollouts, each continuing the previous one."""
    curiosity, whole = small(method), rollout(16 * steps, seed=1)
    for index in range(steps):
        curiosity.learn(*whole.cut(16 * index, 16 * (index + 1)))
    return curiosity


@pytest.fixture(scope="module")
def healthy() -> Curiosity:
    return train_curiosity()


def test_healthy_curiosity_has_no_failure(healthy: Curiosity) -> None:
    before = healthy.progress
    assert verdicts(healthy) == dict.fromkeys(NAMES, "pass")
    assert healthy.progress is before


def test_rnd_skips_the_horizon_and_keeps_its_target() -> None:
    found = verdicts(train_curiosity("rnd"))
    assert (found["horizon_growth"], found["target"], found["episode_boundaries"]) == ("skipped", "pass", "pass")


def finding_of(curiosity: Curiosity, check: str) -> Finding:
    return next(finding for finding in diagnose(curiosity) if finding.check == check)


def with_state(curiosity: Curiosity, **parts: object) -> Curiosity:
    """Return a copy that shares everything except the damaged part."""
    other = small()
    state = curiosity.progress.state
    assert state is not None
    other.progress, other.sample = curiosity.progress._replace(state=state._replace(**parts)), curiosity.sample
    return other


def times(factor: float) -> Callable[[Any], Any]:
    """Return a function that multiplies all floats of a tree."""
    return lambda tree: jax.tree.map(lambda x: factor * x if x.dtype == jnp.float32 else x, tree)


def test_broken_parts_are_found(healthy: Curiosity) -> None:
    state = healthy.progress.state
    assert state is not None
    blind = eqx.tree_at(lambda x: x.representation.encoder, state.networks, replace_fn=times(0.0))
    assert finding_of(with_state(healthy, networks=blind), "embedding_collapse").verdict == "fail"
    huge = state.reward_normalizer._replace(uncertainty=times(1000.0)(state.reward_normalizer.uncertainty))
    assert finding_of(with_state(healthy, reward_normalizer=huge), "normalizer").verdict == "fail"
    nan = eqx.tree_at(lambda x: x.method.predictor, state.networks, replace_fn=times(np.nan))
    finding = finding_of(with_state(healthy, networks=nan), "finite")
    assert (finding.verdict, "networks.method.predictor" in finding.detail) == ("fail", True)


def with_next_firsts(given: Rollout) -> Rollout:
    """Pass the next episode's first observation as next_obs, a common mistake."""
    after = given.next_obs.copy()
    after[:-1] = given.obs[1:]
    return given._replace(next_obs=after)


def test_missing_final_observations_are_found() -> None:
    curiosity = small()
    curiosity.learn(*with_next_firsts(rollout(16, seed=100)))
    finding = finding_of(curiosity, "stream")
    assert (finding.verdict, finding.value) == ("fail", 1.0)
    assert "give the true last observation as next_obs" in finding.advice


@pytest.mark.parametrize(
    ("record", "verdict"),
    [
        (Record(calls=4, episode_ends=20), "pass"),
        (Record(calls=4, episode_ends=20, repeated_final_obs=5), "pass"),
        (Record(calls=4, episode_ends=20, repeated_final_obs=15), "warn"),
        (Record(calls=4, episode_ends=2, repeated_final_obs=2), "pass"),
        (Record(calls=4, episode_ends=20, discontinuities=7), "warn"),
        (Record(calls=4, episode_ends=20, discontinuities=2), "pass"),
        (Record(), "no-data"),
    ],
)
def test_stream_verdict_from_counts(record: Record, verdict: str) -> None:
    assert check_stream(record, num_envs=2).verdict == verdict


def test_loaded_curiosity_is_checked_by_its_log(healthy: Curiosity, tmp_path: Path) -> None:
    healthy.save(tmp_path / "mine")
    found = verdicts(Curiosity.load(tmp_path / "mine"))
    assert (found["embedding_collapse"], found["gradient"], found["episode_boundaries"]) == ("pass", "pass", "no-data")
    assert set(verdicts(small()).values()) == {"no-data"}


def test_sample_contains_episode_ends(healthy: Curiosity) -> None:
    detail = finding_of(healthy, "episode_boundaries").detail
    assert detail.endswith("steps between episodes are worth nothing, as they must be")


def test_wrong_subject_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.npz"
    file.touch()
    for subject, words in (
        (None, "diagnose takes a run directory or a Curiosity, not None"),
        (3, "diagnose takes a run directory or a Curiosity, not 3"),
        (file, f"{file} is a file: give diagnose a run directory, or Curiosity.load(...) of that file"),
    ):
        with pytest.raises(UserError) as error:
            diagnose(subject)  # pyright: ignore[reportArgumentType]
        assert str(error.value) == words
