"""A run that diverges names the cause and keeps its last good checkpoint."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore.envs.registry import make_envs
from byol_explore.envs.worlds.probes import PROBES
from byol_explore.errors import DivergenceError
from byol_explore.playing.episodes import evaluate
from byol_explore.report.logs import read_metrics
from byol_explore.run.console import NullDisplay
from byol_explore.run.finite import first_not_finite
from byol_explore.run.loop import TrainingLoop
from byol_explore.runtime.choosing import make_runtime
from runs import DISPATCH, Overflowing, overflowing, quickly, run, saved, shared_runtime, tiny


@pytest.mark.filterwarnings("ignore:invalid value")  # the mean of infinite returns
def test_divergence_is_named_and_the_last_good_checkpoint_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dispatch is two rollouts of 3 steps in every environment: the seventh rollout meets the infinite reward."""
    monkeypatch.setitem(PROBES, "overflowing", Overflowing)
    directory, config = tmp_path / "run", overflowing()
    with pytest.raises(DivergenceError) as caught:
        run(config, directory)
    message, names = str(caught.value), shared_runtime(config).learner.finite_names
    assert "became NaN or infinite first" in message
    assert any(f"the {quantity} became" in message for quantity in names)
    assert "at learner step 13:" in message  # of two per rollout
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


def test_parameters_that_are_not_finite_are_never_saved(tmp_path: Path) -> None:
    """The last update before a checkpoint may break what no loss has been computed from yet."""
    config = tiny(dispatches=1)
    with quickly():
        envs = make_envs(config.env_ids)
        runtime = make_runtime(config, envs)
        one = TrainingLoop(config, envs, runtime, tmp_path / "run", NullDisplay(), resume=False)
    broken = one.state.learner._replace(duals=one.state.learner.duals._replace(temperature=jnp.asarray(jnp.nan)))
    one.state = one.state._replace(learner=broken)
    one.steps = DISPATCH
    with pytest.raises(DivergenceError, match=r"learner step 4: the duals\.temperature became NaN .*no checkpoint"):
        one._save()
    assert one.checkpoints.steps() == []


def test_the_first_array_that_is_not_finite_has_a_name() -> None:
    good = {"a": jnp.ones((2,)), "n": jnp.arange(3)}
    assert first_not_finite(good) is None
    assert first_not_finite(shared_runtime(tiny()).first(0).learner) is None
    assert first_not_finite({**good, "b": [jnp.asarray([1.0, jnp.inf])], "c": jnp.asarray(jnp.nan)}) == "b.0"
