"""Divergence: the error names the quantity, the last finite checkpoint stays."""

import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore.envs.probes.worlds import PROBES
from byol_explore.envs.registry import make_envs
from byol_explore.errors import DivergenceError
from byol_explore.evaluation.trained_agent import evaluate
from byol_explore.ops.arrays import first_nonfinite
from byol_explore.runtime.make import make_runtime
from byol_explore.storage.metrics import read_metrics
from byol_explore.training.loop import TrainingLoop
from byol_explore.training.output import Display
from byol_explore.training.train import make_episode_window
from runs import DISPATCH, OverflowProbe, overflow_config, quickly, run, saved, shared_runtime, tiny


@pytest.mark.filterwarnings("ignore:invalid value")  # the mean of infinite returns
def test_divergence_is_named_and_the_last_good_checkpoint_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reward is infinite in the seventh rollout: a dispatch is two rollouts of 3 steps in every environment."""
    monkeypatch.setitem(PROBES, "overflowing", OverflowProbe)
    directory, config = tmp_path / "run", overflow_config()
    with pytest.raises(DivergenceError) as caught:
        run(config, directory)
    message = str(caught.value)
    assert re.search("the (extrinsic|intrinsic) reward became NaN or infinite first", message)
    assert "at learner step 13:" in message  # two learner steps per rollout
    assert f"the last good checkpoint is of step {3 * DISPATCH}" in message
    assert caught.value.exit_code == 3
    arrays, meta = saved(directory, config)
    assert meta["step"] == 3 * DISPATCH
    for name, array in arrays.items():
        assert np.all(np.isfinite(array)), name
    assert [row["steps"] for row in read_metrics(directory / "metrics.jsonl")] == [DISPATCH * n for n in (1, 2, 3)]
    assert not (directory / "summary.json").exists()
    with quickly():
        report = evaluate(directory, episodes=2)
    assert report["checkpoint_steps"] == 3 * DISPATCH


def test_non_finite_parameters_are_not_saved(tmp_path: Path) -> None:
    """The last update before a checkpoint may make parameters infinite before any loss shows it."""
    config = tiny(dispatches=1)
    with quickly():
        envs = make_envs(config.env_ids)
        runtime = make_runtime(config, envs)
        one = TrainingLoop(
            config, runtime, tmp_path / "run", Display(), make_episode_window(config, envs),
            resume=False, restores_envs=True,
        )  # fmt: skip
    duals = one.state.learner.duals._replace(log_temperature=jnp.asarray(jnp.nan))
    broken = one.state.learner._replace(duals=duals)
    one.state = one.state._replace(learner=broken)
    one.steps = DISPATCH
    with pytest.raises(DivergenceError, match=r"learner step 4: the duals\.log_temperature became NaN .*no checkpoint"):
        one._save()
    assert one.checkpoints.steps() == []


def test_the_first_non_finite_array_is_named() -> None:
    good = {"a": jnp.ones((2,)), "n": jnp.arange(3)}
    assert first_nonfinite(good) is None
    assert first_nonfinite(shared_runtime(tiny()).first(0).learner) is None
    assert first_nonfinite({**good, "b": [jnp.asarray([1.0, jnp.inf])], "c": jnp.asarray(jnp.nan)}) == "b.0"
