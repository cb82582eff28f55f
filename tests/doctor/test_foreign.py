"""The doctor in a foreign loop: a healthy curiosity, one that is broken on purpose, and callers who get it wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore import Curiosity, diagnose
from byol_explore.doctor.findings import Finding
from byol_explore.doctor.foreign import check_stream
from byol_explore.dropin.records import Record
from byol_explore.errors import UserError
from dropins import Rollout, rollout, small

NAMES = ("target", "embedding", "horizon", "normalizer", "paid", "boundaries", "numbers", "gradient", "stream")


def verdicts(curiosity: Curiosity) -> dict[str, str]:
    return {finding.check: finding.verdict for finding in diagnose(curiosity)}


def taught(method: str = "byol-explore", steps: int = 8) -> Curiosity:
    """A little, from rollouts that are continued by the next."""
    curiosity, whole = small(method), rollout(16 * steps, seed=1)
    for index in range(steps):
        curiosity.learn(*whole.cut(16 * index, 16 * (index + 1)))
    return curiosity


@pytest.fixture(scope="module")
def healthy() -> Curiosity:
    return taught()


def test_a_curiosity_that_is_well_has_nothing_bad(healthy: Curiosity) -> None:
    before = healthy.progress
    assert verdicts(healthy) == dict.fromkeys(NAMES, "ok")
    assert healthy.progress is before


def test_rnd_has_no_horizon_and_a_target_that_stays() -> None:
    found = verdicts(taught("rnd"))
    assert (found["horizon"], found["target"], found["boundaries"]) == ("not used", "ok", "ok")


def of(curiosity: Curiosity, check: str) -> Finding:
    return next(finding for finding in diagnose(curiosity) if finding.check == check)


def harmed(curiosity: Curiosity, **parts: object) -> Curiosity:
    """A second one that shares all but what is harmed."""
    other = small()
    state = curiosity.progress.state
    assert state is not None
    other.progress, other.sample = curiosity.progress._replace(state=state._replace(**parts)), curiosity.sample
    return other


def times(factor: float) -> Callable[[Any], Any]:
    """Multiplies all floats of a tree."""
    return lambda tree: jax.tree.map(lambda x: factor * x if x.dtype == jnp.float32 else x, tree)


def test_what_is_broken_is_found(healthy: Curiosity) -> None:
    state = healthy.progress.state
    assert state is not None
    blind = eqx.tree_at(lambda x: x.representation.encoder, state.networks, replace_fn=times(0.0))
    assert of(harmed(healthy, networks=blind), "embedding").verdict == "bad"
    huge = state.rewards._replace(raw=times(1000.0)(state.rewards.raw))
    assert of(harmed(healthy, rewards=huge), "normalizer").verdict == "bad"
    nan = eqx.tree_at(lambda x: x.method.predictor, state.networks, replace_fn=times(np.nan))
    finding = of(harmed(healthy, networks=nan), "numbers")
    assert (finding.verdict, "networks.method.predictor" in finding.detail) == ("bad", True)


def with_next_firsts(given: Rollout) -> Rollout:
    """As wrong recipes have it: the next observation is whatever comes next."""
    after = given.next_obs.copy()
    after[:-1] = given.obs[1:]
    return given._replace(next_obs=after)


def test_last_observations_that_were_not_given_are_found() -> None:
    curiosity = small()
    curiosity.learn(*with_next_firsts(rollout(16, seed=100)))
    finding = of(curiosity, "stream")
    assert (finding.verdict, finding.figure) == ("bad", 1.0)
    assert "give the true last observation as next_obs" in finding.advice


@pytest.mark.parametrize(
    ("record", "verdict"),
    [
        (Record(calls=4, ends=20), "ok"),
        (Record(calls=4, ends=20, alike=5), "ok"),
        (Record(calls=4, ends=20, alike=15), "warning"),
        (Record(calls=4, ends=2, alike=2), "ok"),
        (Record(calls=4, ends=20, breaks=7), "warning"),
        (Record(calls=4, ends=20, breaks=2), "ok"),
        (Record(), "unknown"),
    ],
)
def test_the_stream_is_judged_by_what_was_counted(record: Record, verdict: str) -> None:
    assert check_stream(record, num_envs=2).verdict == verdict


def test_one_that_was_just_loaded_is_judged_by_its_log(healthy: Curiosity, tmp_path: Path) -> None:
    healthy.save(tmp_path / "mine")
    found = verdicts(Curiosity.load(tmp_path / "mine"))
    assert (found["embedding"], found["gradient"], found["boundaries"]) == ("ok", "ok", "unknown")
    assert set(verdicts(small()).values()) == {"unknown"}


def test_the_sample_has_episodes_that_end(healthy: Curiosity) -> None:
    detail = of(healthy, "boundaries").detail
    assert detail.endswith("steps between episodes are worth nothing, as they must be")


def test_what_is_no_patient_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.npz"
    file.touch()
    for patient, words in (
        (None, "diagnose takes a run directory or a Curiosity, not None"),
        (3, "diagnose takes a run directory or a Curiosity, not 3"),
        (file, f"{file} is a file: give diagnose a run directory, or Curiosity.load(...) of that file"),
    ):
        with pytest.raises(UserError) as error:
            diagnose(patient)  # pyright: ignore[reportArgumentType]
        assert str(error.value) == words
