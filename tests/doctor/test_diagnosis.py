"""Whole runs, healthy and broken on purpose: what the doctor says of their directories, and how it says it."""

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from byol_explore.checkpoint import Checkpoints
from byol_explore.cli import main
from byol_explore.config import Config
from byol_explore.doctor.checks import CHECKS, diagnose
from byol_explore.doctor.findings import VERDICTS, Finding
from byol_explore.learner import LearnerState
from byol_explore.run_directory import write_config
from runs import damage, largest_file, quickly, run, shared_runtime, tiny

Damage = Callable[[LearnerState], LearnerState]


def config() -> Config:
    """80 updates in episodes of 8 steps, whose observations say the time: a sequence sees them all."""
    base = tiny(env="probe:terminated")
    runtime = dataclasses.replace(base.runtime, sequence_length=10)
    return dataclasses.replace(base, runtime=runtime, steps=20 * 2 * 8 * 9)


@pytest.fixture(scope="module", autouse=True)
def compile_once() -> Iterator[None]:
    """Copies of a run need the same programs: all are kept."""
    before = jax.config.jax_persistent_cache_min_compile_time_secs
    with quickly():
        yield
    jax.config.update("jax_persistent_cache_min_compile_time_secs", before)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "healthy"
    run(config(), directory)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    return directory


def broken(healthy: Path, directory: Path, harm: Damage) -> Path:
    """A copy of a run whose newest checkpoint is harmed."""
    shutil.copytree(healthy, directory)
    checkpoints = Checkpoints(directory / "checkpoints")
    restored = checkpoints.restore(shared_runtime(config()).first(0))
    meta = {name: restored.meta[name] for name in restored.meta if name not in ("step", "score", "checksums")}
    state = restored.state._replace(learner=harm(restored.state.learner))
    checkpoints.save(restored.meta["step"], state, meta, restored.meta["score"])
    return directory


def by_check(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.check: finding for finding in findings}


def test_a_run_of_eighty_updates_is_healthy(healthy: Path) -> None:
    findings = diagnose(healthy)
    assert len(findings) == len(CHECKS)
    assert [f for f in findings if f.verdict not in ("ok", "unknown")] == []
    unknown = [f.check for f in findings if f.verdict == "unknown"]
    assert unknown == []


def collapsed(learner: LearnerState) -> LearnerState:
    encoder = learner.online.actor.representation.encoder
    return eqx.tree_at(
        lambda state: state.online.actor.representation.encoder, learner, jax.tree.map(jnp.zeros_like, encoder)
    )


def exploded(learner: LearnerState) -> LearnerState:
    """Its statistics are of uncertainties a thousand times as large as they are."""
    normalizer = learner.statistics.normalizer
    raw = normalizer.raw._replace(mean_square=1e6 * normalizer.raw.mean_square)
    return learner._replace(statistics=learner.statistics._replace(normalizer=normalizer._replace(raw=raw)))


def cold(learner: LearnerState) -> LearnerState:
    return learner._replace(duals=learner.duals._replace(temperature=jnp.asarray(1e-8)))


@pytest.mark.parametrize(("harm", "check"), [(collapsed, "embedding"), (exploded, "normaliser"), (cold, "temperature")])
def test_a_harm_is_found(healthy: Path, tmp_path: Path, harm: Damage, check: str) -> None:
    findings = diagnose(broken(healthy, tmp_path / "broken", harm))
    assert by_check(findings)[check].verdict == "bad"
    assert findings[0].verdict == "bad", "the worst comes first"
    assert by_check(findings)[check].advice


def test_a_target_that_stays_between_checkpoints_is_found(healthy: Path, tmp_path: Path) -> None:
    template = jax.eval_shape(lambda: shared_runtime(config()).first(0).learner.target)
    checkpoints = Checkpoints(healthy / "checkpoints")
    before = checkpoints.restore(template, step=checkpoints.steps()[-2], part="learner.target").state
    directory = broken(healthy, tmp_path / "frozen", lambda learner: learner._replace(target=before))
    findings = diagnose(directory)
    assert [f.check for f in findings if f.verdict == "bad"] == ["target"]


def test_without_a_checkpoint_metrics_are_judged_and_the_rest_is_unknown(
    healthy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a target that was told never to move, without its being named."""
    directory = tmp_path / "bare"
    shutil.copytree(healthy, directory, ignore=shutil.ignore_patterns("checkpoints"))
    curiosity = dataclasses.replace(config().curiosity, target_decay=1.0)
    write_config(directory, dataclasses.replace(config(), curiosity=curiosity))
    assert main(["doctor", str(directory), "--json"]) == 1
    found: dict[str, Any] = {entry["check"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert list(found["kl"]) == ["check", "verdict", "figure", "detail", "advice"]
    assert {name: found[name]["verdict"] for name in ("target", "kl", "gradient", "boundaries")} == {
        "target": "bad", "kl": "ok", "gradient": "ok", "boundaries": "unknown",
    }  # fmt: skip
    assert found["boundaries"]["detail"] == "the run has no checkpoint"
    order = [VERDICTS.index(entry["verdict"]) for entry in found.values()]
    assert order == sorted(order)


def test_a_table_for_people(healthy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a damaged newest checkpoint, so that the one before is looked at."""
    directory = tmp_path / "damaged"
    shutil.copytree(healthy, directory)
    steps = Checkpoints(directory / "checkpoints").steps()
    damage(largest_file(directory / "checkpoints" / f"step_{steps[-1]:012d}"))
    assert main(["doctor", str(directory)]) == 0
    said = capsys.readouterr()
    assert "skipped a damaged checkpoint" in said.err
    assert f"after {steps[-2]:,} steps" in " ".join(said.out.split())
    assert said.out.strip().splitlines()[-1] == "Healthy."


def test_nothing_is_written(healthy: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in healthy.rglob("*")}
    diagnose(healthy)
    assert {path: path.stat().st_mtime_ns for path in healthy.rglob("*")} == before


def test_a_directory_without_a_run_is_the_users_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path} holds no run: config.json is missing\n"
