"""Test of the benchmark of acting with Ray, at tiny sizes."""

import importlib
import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

pytestmark = pytest.mark.usefixtures("cluster")


def test_both_kinds_of_inference_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for name in ("scale", "sebulba", "sleep_env", "block_mean_encoder", "figures"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module("scale")
    path = tmp_path / "figures.json"
    module.main(
        module.Arguments((2,), few=(1, 2), many=(2, 1), milliseconds=5.0, length=9, seconds=0.5, preset="", json=path)
    )
    figures = json.loads(path.read_text())
    assert 0.0 < figures["efficiency_at_2"] <= 1.1
    assert figures["central_over_local"] == pytest.approx(
        figures["central_2x1_steps_per_second"] / figures["local_2x1_steps_per_second"]
    )
    assert 1.0 <= figures["bytes_per_step_over_observation"] <= 1.2
    assert figures["central_2x1_request_p50_seconds"] <= figures["central_2x1_request_p99_seconds"]
    assert 1.0 <= figures["central_2x1_batch"] <= 2.0
    assert 0.0 < figures["predicted_steps_per_second_of_400_actors"] <= 400 * 1000 / 5.0
