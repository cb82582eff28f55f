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

from byol_explore.cli.doctor import closing
from byol_explore.cli.main import main
from byol_explore.doctor.checks import diagnose
from byol_explore.doctor.findings import VERDICTS, Finding, Verdict, worst_first
from byol_explore.learner_state import LearnerState
from byol_explore.report.logs import write_packed
from byol_explore.run.checkpoint import Checkpoints
from byol_explore.run.directory import write_config
from byol_explore.settings.config import Config
from report.synthetic import make_rows, write_run
from runs import damage, largest_file, quickly, run, shared_runtime, tiny

NAMES = ("target", "embedding", "horizon", "normalizer", "paid", "boundaries", "mixing", "temperature", "kl",
         "kl multiplier", "value", "entropy", "numbers", "gradient")  # fmt: skip
Damage = Callable[[LearnerState], LearnerState]


def config() -> Config:
    """80 updates in episodes of 8 steps, whose observations say the time; a checkpoint after each half of them."""
    dispatch = 2 * 8 * 9  # steps: rollouts, environments, transitions
    base = tiny(env="probe:terminated", log={"checkpoint_every": 10 * dispatch})
    runtime = dataclasses.replace(base.runtime, sequence_length=10)
    return dataclasses.replace(base, runtime=runtime, steps=20 * dispatch)


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


def test_a_run_of_eighty_updates_is_healthy_and_stays_as_it_is(healthy: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in healthy.rglob("*")}
    assert {finding.check: finding.verdict for finding in diagnose(healthy)} == dict.fromkeys(NAMES, "ok")
    assert {path: path.stat().st_mtime_ns for path in healthy.rglob("*")} == before


def collapsed(learner: LearnerState) -> LearnerState:
    encoder = learner.online.actor.representation.encoder
    return eqx.tree_at(
        lambda state: state.online.actor.representation.encoder, learner, jax.tree.map(jnp.zeros_like, encoder)
    )


def exploded(learner: LearnerState) -> LearnerState:
    """Its statistics are of uncertainties a thousand times as large as they are."""
    rewards = learner.statistics.reward
    normalizer = rewards.normalizer
    raw = normalizer.raw._replace(mean_square=1e6 * normalizer.raw.mean_square)
    rewards = rewards._replace(normalizer=normalizer._replace(raw=raw))
    return learner._replace(statistics=learner.statistics._replace(reward=rewards))


def cold(learner: LearnerState) -> LearnerState:
    return learner._replace(duals=learner.duals._replace(temperature=jnp.asarray(1e-8)))


def test_an_exploding_scale_and_a_temperature_at_its_floor_are_found(healthy: Path, tmp_path: Path) -> None:
    findings = diagnose(broken(healthy, tmp_path / "broken", lambda learner: exploded(cold(learner))))
    assert {f.check for f in findings if f.verdict == "bad"} == {"normalizer", "temperature"}
    assert [f.verdict for f in findings[:2]] == ["bad", "bad"], "the worst come first"
    assert all(f.advice for f in findings[:2])


def test_a_collapsed_encoder_and_a_target_that_stays_are_found(healthy: Path, tmp_path: Path) -> None:
    template = jax.eval_shape(lambda: shared_runtime(config()).first(0).learner.curiosity)
    checkpoints = Checkpoints(healthy / "checkpoints")
    before = checkpoints.restore(template, step=checkpoints.steps()[0], part="learner.curiosity").state
    directory = broken(healthy, tmp_path / "broken", lambda learner: collapsed(learner)._replace(curiosity=before))
    bad = {f.check: f for f in diagnose(directory) if f.verdict == "bad"}
    assert bad.keys() >= {"embedding", "target"}
    assert "has not moved since the checkpoint before" in bad["target"].detail


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
    assert all(name.split()[0] in said.out for name in NAMES)


def test_one_sentence_closes() -> None:
    def say(**verdicts: Verdict) -> str:
        return closing(worst_first([Finding(check, verdict, None, "") for check, verdict in verdicts.items()]))

    assert say(kl="ok", target="not used") == "Healthy."
    assert say(kl="ok", value="unknown") == "Healthy, as far as can be seen; unknown: value."
    assert say(kl="warning", value="unknown") == "Nothing is broken, but look at kl."
    assert say(kl="warning", value="bad", target="bad") == "Not healthy: value, target; look at kl too."
    assert say(value="unknown") == "Nothing could be checked yet."


def test_a_directory_without_a_run_is_the_users_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path} holds no run: config.json is missing\n"


def test_a_thin_copy_is_judged_by_its_packed_log(tmp_path: Path) -> None:
    rows = make_rows([0.0] * 4, embedding_spread=0.001, learner_steps=500)
    directory = write_run(tmp_path, rows=rows)
    plain = diagnose(directory)
    write_packed(directory, rows)
    (directory / "metrics.jsonl").unlink()
    assert diagnose(directory) == plain
    assert {finding.check: finding.verdict for finding in plain}["embedding"] == "bad"


def test_a_damaged_packed_log_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = write_run(tmp_path, rows=[])
    write_packed(directory, make_rows([0.0] * 50))
    (directory / "metrics.jsonl").unlink()
    log = directory / "metrics.jsonl.gz"
    log.write_bytes(log.read_bytes()[:40])
    assert main(["doctor", str(directory)]) == 2
    assert "cannot be read: metrics.jsonl.gz is damaged" in " ".join(capsys.readouterr().err.split())
