"""diagnose(run directory) and its output, for healthy runs and runs broken on purpose."""

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

from byol_explore.agent.state import LearnerState
from byol_explore.cli.main import main
from byol_explore.cli.runs import summary_line
from byol_explore.config.config import Config
from byol_explore.doctor import probe
from byol_explore.doctor.diagnose import diagnose
from byol_explore.doctor.evidence import VERDICTS, Evidence, Finding, Verdict, worst_first
from byol_explore.storage.checkpoint import Checkpoints
from byol_explore.storage.metrics import format_row, write_packed_log
from byol_explore.storage.run_directory import write_config
from report.synthetic import make_rows, write_run
from runs import damage, largest_file, quickly, run, shared_runtime, tiny

NAMES = ("target", "embedding_collapse", "horizon_growth", "normalizer", "intrinsic_reward", "episode_boundaries",
         "mixing", "temperature", "kl",
         "kl_multipliers", "value", "entropy", "finite", "gradient")  # fmt: skip
Damage = Callable[[LearnerState], LearnerState]


def config() -> Config:
    """Train for 80 updates in episodes of 8 steps that show the time, with two checkpoints."""
    dispatch = 2 * 8 * 9  # steps: rollouts, environments, transitions
    base = tiny(env="probe:terminated", log={"checkpoint_every": 10 * dispatch})
    runtime = dataclasses.replace(base.runtime, sequence_length=10)
    return dataclasses.replace(base, runtime=runtime, steps=20 * dispatch)


@pytest.fixture(scope="module", autouse=True)
def compile_once() -> Iterator[None]:
    """Keep all compiled programs: copies of a run need the same ones."""
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
    """Copy a run and damage its newest checkpoint."""
    shutil.copytree(healthy, directory)
    checkpoints = Checkpoints(directory / "checkpoints")
    restored = checkpoints.restore(shared_runtime(config()).first(0))
    meta = {name: restored.meta[name] for name in restored.meta if name not in ("step", "score", "checksums")}
    state = restored.state._replace(learner=harm(restored.state.learner))
    checkpoints.save(restored.meta["step"], state, meta, restored.meta["score"])
    return directory


def test_healthy_run_passes_and_is_not_changed(healthy: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in healthy.rglob("*")}
    assert {finding.check: finding.verdict for finding in diagnose(healthy)} == dict.fromkeys(NAMES, "pass")
    assert {path: path.stat().st_mtime_ns for path in healthy.rglob("*")} == before


def collapse_encoder(learner: LearnerState) -> LearnerState:
    encoder = learner.online.actor.representation.encoder
    return eqx.tree_at(
        lambda state: state.online.actor.representation.encoder, learner, jax.tree.map(jnp.zeros_like, encoder)
    )


def scale_up(learner: LearnerState) -> LearnerState:
    """Scale the running statistics of uncertainties by a thousand."""
    rewards = learner.statistics.reward
    normalizer = rewards.normalizer
    raw = normalizer.uncertainty._replace(mean_square=1e6 * normalizer.uncertainty.mean_square)
    rewards = rewards._replace(normalizer=normalizer._replace(uncertainty=raw))
    return learner._replace(statistics=learner.statistics._replace(reward=rewards))


def cold(learner: LearnerState) -> LearnerState:
    return learner._replace(duals=learner.duals._replace(log_temperature=jnp.log(1e-8)))


def test_wrong_scale_and_temperature_floor_are_found(healthy: Path, tmp_path: Path) -> None:
    findings = diagnose(broken(healthy, tmp_path / "broken", lambda learner: scale_up(cold(learner))))
    assert {f.check for f in findings if f.verdict == "fail"} == {"normalizer", "temperature"}
    assert [f.verdict for f in findings[:2]] == ["fail", "fail"], "the worst come first"
    assert all(f.advice for f in findings[:2])


def test_collapsed_encoder_and_stuck_target_are_found(healthy: Path, tmp_path: Path) -> None:
    template = jax.eval_shape(lambda: shared_runtime(config()).first(0).learner.method_state)
    checkpoints = Checkpoints(healthy / "checkpoints")
    before = checkpoints.restore(template, step=checkpoints.steps()[0], part="learner.method_state").state
    directory = broken(
        healthy, tmp_path / "broken", lambda learner: collapse_encoder(learner)._replace(method_state=before)
    )
    bad = {f.check: f for f in diagnose(directory) if f.verdict == "fail"}
    assert bad.keys() >= {"embedding_collapse", "target"}
    assert "has not moved since the checkpoint before" in bad["target"].detail


def test_metrics_are_checked_without_a_checkpoint(
    healthy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Set target_decay to 1 without naming the ablation."""
    directory = tmp_path / "bare"
    shutil.copytree(healthy, directory, ignore=shutil.ignore_patterns("checkpoints"))
    curiosity = dataclasses.replace(config().curiosity, target_decay=1.0)
    write_config(directory, dataclasses.replace(config(), curiosity=curiosity))
    assert main(["doctor", str(directory), "--json"]) == 1
    found: dict[str, Any] = {entry["check"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert list(found["kl"]) == ["check", "verdict", "value", "detail", "advice"]
    assert {name: found[name]["verdict"] for name in ("target", "kl", "gradient", "episode_boundaries")} == {
        "target": "fail", "kl": "pass", "gradient": "pass", "episode_boundaries": "no-data",
    }  # fmt: skip
    assert found["episode_boundaries"]["detail"] == "the run has no checkpoint"
    order = [VERDICTS.index(entry["verdict"]) for entry in found.values()]
    assert order == sorted(order)


def test_table_of_findings(healthy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Damage the newest checkpoint, so that the previous one is used."""
    directory = tmp_path / "damaged"
    shutil.copytree(healthy, directory)
    steps = Checkpoints(directory / "checkpoints").steps()
    damage(largest_file(directory / "checkpoints" / f"step_{steps[-1]:012d}"))
    assert main(["doctor", str(directory)]) == 0
    said = capsys.readouterr()
    assert "skipped a damaged checkpoint" in said.err
    assert f"after {steps[-2]:,} steps" in " ".join(said.out.split())
    assert all(name.split()[0] in said.out for name in NAMES)


def test_table_ends_with_one_sentence() -> None:
    def say(**verdicts: Verdict) -> str:
        return summary_line(worst_first([Finding(check, verdict, None, "") for check, verdict in verdicts.items()]))

    assert say(kl="pass", target="skipped") == "Healthy."
    assert say(kl="pass", value="no-data") == "Healthy, as far as can be seen; unknown: value."
    assert say(kl="warn", value="no-data") == "Nothing is broken, but look at kl."
    assert say(kl="warn", value="fail", target="fail") == "Not healthy: value, target; look at kl too."
    assert say(value="no-data") == "Nothing could be checked yet."


def test_directory_without_a_run_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path} holds no run: config.json is missing\n"


def test_published_copy_is_checked_by_its_compressed_log(tmp_path: Path) -> None:
    rows = make_rows([0.0] * 4, embedding_spread=0.001, learner_steps=500)
    directory = write_run(tmp_path, rows=rows)
    plain = diagnose(directory)
    write_packed_log(directory, rows)
    (directory / "metrics.jsonl").unlink()
    assert diagnose(directory) == plain
    assert {finding.check: finding.verdict for finding in plain}["embedding_collapse"] == "fail"


def test_damaged_compressed_log_is_an_error_of_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = write_run(tmp_path, rows=[])
    write_packed_log(directory, make_rows([0.0] * 50))
    (directory / "metrics.jsonl").unlink()
    log = directory / "metrics.jsonl.gz"
    log.write_bytes(log.read_bytes()[:40])
    assert main(["doctor", str(directory)]) == 2
    assert "cannot be read: metrics.jsonl.gz is damaged" in " ".join(capsys.readouterr().err.split())


def test_damaged_lines_of_the_log_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(probe, "probe_run", lambda _, config, rows: Evidence(config, rows, why_no_probe="not asked"))
    directory = write_run(tmp_path, "mine-seed0")
    lines = [format_row(row) for row in make_rows([0.0, 0.5, 1.0])]
    lines[1] = lines[1].replace('"steps": 200', '"steps": 201')
    (directory / "metrics.jsonl").write_text("".join(lines))
    assert main(["doctor", str(directory), "--json"]) == 0
    assert capsys.readouterr().err == f"{directory}/metrics.jsonl: line 2 is damaged and left out\n"
