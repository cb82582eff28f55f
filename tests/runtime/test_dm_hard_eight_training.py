"""Learning on a DM-HARD-8 server, which is lost in the middle of it."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from byol_explore.envs.adapters.dm_hard_eight import DMHardEight, DMHardEightBatch
from byol_explore.envs.adapters.dm_hard_eight_settings import DMHardEightSettings
from byol_explore.envs.base import EnvSpec
from byol_explore.report.logs import read_metrics
from byol_explore.run.training import train
from byol_explore.settings.parts import LogConfig
from byol_explore.types import Action, TimeStep
from envs.dm_server import APPLE, running
from host_worlds import ENVS, STEPS, QuickSebulba, Scripted, host_config

LENGTH = 4  # actions of an episode, one of which is cut off
RETURN = LENGTH - 1 + APPLE
DISPATCHES = 6


class Blindfolded(DMHardEight):
    """Sees its hand alone and has three actions, like the scripted world, whose learner is compiled once for all."""

    @property
    def spec(self) -> EnvSpec:
        return Scripted(name=super().spec.name).spec

    def batch(self, num_envs: int, seed: int) -> "BlindfoldedBatch":
        return BlindfoldedBatch(self, num_envs, seed)


class BlindfoldedBatch(DMHardEightBatch):
    def reset(self) -> TimeStep:
        return self._felt(super().reset())

    def step(self, action: Action) -> TimeStep:
        return self._felt(super().step(Action(action.discrete // 2, np.zeros((self.num_envs, 8), np.float32))))

    def places(self) -> np.ndarray:
        return np.zeros((self.num_envs, 2), np.int32)

    def _felt(self, step: TimeStep) -> TimeStep:
        hand = [step.observation[f"hand_{name}"] for name in ("force", "is_holding", "distance", "distance")]
        return step._replace(observation=np.concatenate(hand, axis=1))


def test_the_runtime_learns_on_a_server_and_outlives_it() -> None:
    with running(length=LENGTH, misbehaves_at=15) as server:
        settings = DMHardEightSettings(server=(server.address,), resolution="8x6", action_repeat=1)
        runtime = QuickSebulba(host_config(), [Blindfolded("wall-sensor", settings)])
        state, outputs = runtime.init(0), []
        for _ in range(DISPATCHES):
            state, output = runtime.dispatch(state)
            outputs.append(output)
        runtime.close()
        assert not server.servicer.worlds, "all have been left"
        assert len(server.servicer.created) == ENVS + 1
    assert all(np.all(output.finite) for output in outputs)
    episodes = [steps.episodes for output in outputs for steps in output.steps]
    returns = sorted(np.concatenate([each.episode_return[each.ended] for each in episodes]))
    assert returns[0] < RETURN
    assert returns[1:] == [RETURN] * (len(returns) - 1)
    assert len(returns) > ENVS
    [remark] = [remark for output in outputs for remark in output.remarks]
    assert remark.startswith("environment 'dm-hard-eight:wall-sensor': an episode is cut off, its server 127.0.0.1:")


@pytest.mark.slow
def test_a_run_on_a_server_is_like_any_other(tmp_path: Path) -> None:
    """With all that is seen, all nine actions, curiosity, two actors, and a lost server."""
    with running(length=LENGTH, misbehaves_at=15) as server:
        config = dataclasses.replace(
            host_config(actors=2),
            env="dm-hard-eight:wall-sensor",
            env_settings=(f"server={server.address}", "resolution=8x6", "action_repeat=1"),
            steps=DISPATCHES * ENVS * STEPS,
            log=LogConfig(log_every=ENVS * STEPS, checkpoint_every=10**6, window=1000),
        )
        train(config, tmp_path, quiet=True)
        assert not server.servicer.worlds
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert rows[-1]["best_return"] == RETURN
    assert 0.5 < rows[-1]["success_rate"] < 1.0
    assert all(np.isfinite(row["loss"]) for row in rows)
