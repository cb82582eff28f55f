"""A whole training run outside jit on a probe world whose right answer is known by hand."""

from pathlib import Path

import pytest

from byol_explore.envs.worlds.probes import PROBES
from byol_explore.registries import ENVIRONMENTS
from byol_explore.run import loop
from byol_explore.settings.parts import LogConfig, OptimizerConfig, RuntimeConfig
from host_worlds import Outside
from test_learning import GAMMA, rows, run


@pytest.mark.slow
def test_memory_is_learned_by_actor_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cue at the start decides the reward, 1 or -1, of the sixth step; without memory half of them is the most.

    Sampled actions stay a little short of all, and threads never run twice alike: nine of ten is well above a half.

    Values are in units of the rewards' root mean square, times 1 - gamma.
    """
    monkeypatch.setitem(ENVIRONMENTS._added, "probe:memory", lambda: Outside(PROBES["memory"]()))
    monkeypatch.setattr(loop, "draw_curves", lambda directory: None)
    summary = run(
        tmp_path, "memory", 140_000,
        optimizer=OptimizerConfig(learning_rate=5e-3),
        runtime=RuntimeConfig(num_envs=64, batch_size=16, sequence_length=17, rollouts_per_dispatch=4, devices=1,
                              actors=2),
        log=LogConfig(log_every=20_000),
    )  # fmt: skip
    assert summary["success_rate"] > 0.9
    value = sum(GAMMA**n for n in range(6)) / 6
    scale = (1 / 6) ** 0.5
    assert rows(summary)[-1]["value"] == pytest.approx((1 - GAMMA) * value / scale, abs=0.02)
