"""Learning test of actor threads on a probe environment with a known value."""

from pathlib import Path

import pytest

from agent.test_learner_probes import GAMMA, rows, run
from byol_explore.config.sections import LogConfig, OptimizerConfig, RuntimeConfig
from byol_explore.envs.probes.worlds import PROBES
from byol_explore.registry import ENVIRONMENTS
from byol_explore.training import loop
from host_worlds import Outside


@pytest.mark.slow
def test_memory_is_learned_by_actor_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cue at the start decides the reward of the sixth step, 1 or -1; without memory half of the episodes succeed.

    Values are in units of the rewards' root mean square, times 1 - gamma.
    """
    monkeypatch.setitem(ENVIRONMENTS._added, "probe:memory", lambda: Outside(PROBES["memory"]()))
    monkeypatch.setattr(loop, "draw_curves", lambda directory: None)
    summary = run(
        tmp_path, "memory", 140_000,
        optimizer=OptimizerConfig(learning_rate=5e-3),
        runtime=RuntimeConfig(num_envs=64, batch_size=16, sequence_length=17, rounds_per_dispatch=4, num_devices=1,
                              num_actors=2),
        log=LogConfig(log_every=20_000),
    )  # fmt: skip
    assert summary["success_rate"] > 0.9
    value = sum(GAMMA**n for n in range(6)) / 6
    scale = (1 / 6) ** 0.5
    assert rows(summary)[-1]["value"] == pytest.approx((1 - GAMMA) * value / scale, abs=0.02)
