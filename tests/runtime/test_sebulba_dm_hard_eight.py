"""Tests of learning on a DM-HARD-8 server that is lost meanwhile."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from byol_explore.config.sections import LogConfig
from byol_explore.envs.dm_hard_eight.env import DMHardEight, DMHardEightBatch
from byol_explore.envs.families import DMHardEightSettings
from byol_explore.storage.metrics import read_metrics
from byol_explore.training.train import train
from byol_explore.types import Action, TimeStep
from envs.dm_server import APPLE, running
from host_worlds import ENVS, STEPS, QuickSebulba, Scripted, host_config

LENGTH = 4  # actions of an episode, one of which is cut off
RETURN = LENGTH - 1 + APPLE
DISPATCHES = 6


class Blindfolded(DMHardEight):
    """Observe the hand alone, with three actions: the scripted world's learner, already compiled, fits."""

    def __init__(self, task: str, settings: DMHardEightSettings) -> None:
        super().__init__(task, settings)
        self.spec = Scripted(name=self.spec.name).spec

    def make_vector_env(self, num_envs: int, seed: int) -> "BlindfoldedBatch":
        return BlindfoldedBatch([self], num_envs, seed)


class BlindfoldedBatch(DMHardEightBatch):
    def reset(self) -> TimeStep:
        return self._observe_hand(super().reset())

    def step(self, action: Action) -> TimeStep:
        return self._observe_hand(super().step(Action(action.discrete // 2, np.zeros((self.num_envs, 8), np.float32))))

    def positions(self) -> np.ndarray:
        return np.zeros((self.num_envs, 2), np.int32)

    def _observe_hand(self, step: TimeStep) -> TimeStep:
        hand = [step.observation[f"hand_{name}"] for name in ("force", "is_holding", "distance", "distance")]
        return step._replace(observation=np.concatenate(hand, axis=1))


def test_runtime_learns_on_a_server_and_survives_its_loss() -> None:
    with running(length=LENGTH, fault_at=15) as server:
        settings = DMHardEightSettings(servers=(server.address,), resolution="8x6", action_repeat=1)
        runtime = QuickSebulba(host_config(), [Blindfolded("wall-sensor", settings)])
        state, outputs = runtime.init(0), []
        for _ in range(DISPATCHES):
            state, output = runtime.dispatch(state)
            outputs.append(output)
        runtime.close()
        assert not server.servicer.worlds, "worlds are left on the server"
        assert len(server.servicer.created) == ENVS + 1
    assert all(np.all(output.finite.flags) for output in outputs)
    episodes = [steps.episodes for output in outputs for steps in output.rollouts]
    returns = sorted(np.concatenate([each.episode_return[each.ended] for each in episodes]))
    assert returns[0] < RETURN
    assert returns[1:] == [RETURN] * (len(returns) - 1)
    assert len(returns) > ENVS
    [warning] = [text for output in outputs for text in output.warnings]
    assert warning.startswith("environment 'dm-hard-eight:wall-sensor': an episode is cut off, its server 127.0.0.1:")


@pytest.mark.slow
def test_run_on_a_server_learns_and_logs(tmp_path: Path) -> None:
    """Use all observations and actions, curiosity, two actors, and a server that is lost."""
    with running(length=LENGTH, fault_at=15) as server:
        config = dataclasses.replace(
            host_config(num_actors=2),
            env="dm-hard-eight:wall-sensor",
            dm_hard_eight=DMHardEightSettings((server.address,), resolution="8x6", action_repeat=1),
            steps=DISPATCHES * ENVS * STEPS,
            log=LogConfig(log_every=ENVS * STEPS, checkpoint_every=10**6, episode_window=1000),
        )
        train(config, tmp_path, quiet=True)
        assert not server.servicer.worlds
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert rows[-1]["episode_return_max"] == RETURN
    assert 0.5 < rows[-1]["success_rate"] < 1.0
    assert all(np.isfinite(row["loss"]) for row in rows)
