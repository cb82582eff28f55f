"""Every benchmark runs to its end at tiny sizes; missing packages are errors in one line."""

import dataclasses
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from byol_explore.config.config import Config
from byol_explore.config.presets import PRESETS, Preset, make_config
from byol_explore.envs.families import AtariSettings, HardEightSettings
from byol_explore.errors import UserError
from byol_explore.networks import centering
from byol_explore.storage.run_directory import write_config
from byol_explore.training.train import train
from runs import tiny

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
COMMANDS = sorted(path.stem for path in BENCHMARKS.glob("*.py") if "__main__" in path.read_text())


@pytest.fixture(autouse=True)
def isolated_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let benchmarks import each other by name; other tests may have modules of the same names."""
    names = [path.stem for path in BENCHMARKS.glob("*.py")]
    others = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(others)


def preset(config: Config) -> str:
    PRESETS.register("tiny", Preset("for tests", config), replace=True)
    return "tiny"


def atari() -> str:
    """Return a preset with one game, a light encoder and short sequences."""
    config = tiny(env="atari:freeway")
    network = dataclasses.replace(config.network, encoder="image")
    return preset(dataclasses.replace(config, network=network, atari=AtariSettings(num_workers=1)))


def figures_of(name: str, path: Path, **settings: Any) -> dict[str, float]:
    """Return the JSON that a benchmark writes."""
    module = importlib.import_module(name)
    module.main(module.Arguments(json=path / "figures.json", **settings))
    return json.loads((path / "figures.json").read_text())


def test_every_benchmark_is_importable_and_has_a_test() -> None:
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    for name in COMMANDS:
        if name != "encoder":  # needs PyTorch
            module = importlib.import_module(name)
            assert dataclasses.is_dataclass(module.Arguments)
        assert name in tested or (Path(__file__).parent / f"test_{name}_table.py").exists()


def test_distraction(tmp_path: Path) -> None:
    sizes = {"rollouts": 2, "last": 2, "steps": 64, "num_envs": 4, "variants": ("rnd",), "env": "tv-rooms-2"}
    figures = figures_of("distraction", tmp_path, **sizes)
    assert set(figures) == {"rnd: television", "rnd: doors"}
    assert figures["rnd: television"] > 0


@pytest.mark.slow
def test_hindsight(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(tiny("byol-hindsight"), run, quiet=True)
    sizes = {"rollouts": 2, "held_out": 1, "updates": 2, "rows": 2, "hidden": (8,)}
    figures = figures_of("hindsight", tmp_path, run=run, **sizes)
    assert figures["log B of a batch"] > 0
    assert all(0 <= value <= 4 for name, value in figures.items() if name.startswith("error"))


def test_throughput(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command of `make benchmark`. Small matrices and no intrinsic reward keep it cheap."""
    monkeypatch.setattr(importlib.import_module("throughput"), "SIZE", 64)
    figures = figures_of("throughput", tmp_path, preset=preset(tiny("none", devices=2)), seconds=0.01)
    assert figures["devices"] == 2
    assert figures["gemm_gflops"] > 0
    assert figures["share_of_bare_env"] == pytest.approx(
        figures["steps_per_second"] / figures["bare_env_steps_per_second"]
    )
    assert figures["flops_per_step"] > 0


def test_learner_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(centering, "STEPS", 4)
    counted = figures_of("learner_step", tmp_path, preset=atari(), steps=0)
    figures = figures_of("learner_step", tmp_path, preset=atari(), steps=2)
    assert "seconds_per_learner_step" not in counted
    assert counted.items() <= figures.items()
    assert figures["seconds_per_learner_step"] > 0


def test_sebulba(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(centering, "STEPS", 4)
    figures = figures_of("sebulba", tmp_path, preset=atari(), seconds=0.05, rounds=1)
    assert figures["training_over_bare"] == pytest.approx(
        figures["training_steps_per_second"] / figures["bare_steps_per_second"]
    )
    assert figures["counting_rooms_over_bare"] > 0.0


def test_host_throughput(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(centering, "STEPS", 4)
    name, settings = preset(tiny(env="gymnasium:CartPole-v1")), {"seconds": 0.05, "rounds": 1}
    figures = figures_of("host_throughput", tmp_path, preset=name, env="gymnasium:CartPole-v1", num_envs=8, **settings)
    assert figures["num_envs"] == 8
    for what in ("adapter", "acting", "training"):
        assert figures[f"{what}_steps_per_second"] > 0.0


def test_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    """tests/cluster runs it with Ray."""
    monkeypatch.setitem(sys.modules, "ray", None)
    module = importlib.import_module("scale")
    with pytest.raises(UserError, match=r"^benchmarks/scale.py needs ray: pip install 'byol-explore\[ray\]'$"):
        module.measure(module.Arguments())


def test_engines(tmp_path: Path) -> None:
    figures = figures_of("engines", tmp_path, game="freeway", num_envs=2, threads=1, seconds=0.05)
    assert figures["ours_over_ale_vector"] > 0


@pytest.mark.slow
def test_hard_eight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # in the processes that it starts
    figures = figures_of("hard_eight", tmp_path, batch=2, boxes=14, seconds=0.02, rounds=1, compilations=0)
    assert figures["ours_over_naive_96x72"] == pytest.approx(
        figures["frames_per_core_second_96x72"] / figures["naive_frames_per_core_second_96x72"]
    )
    assert figures["physics_steps_per_core_second"] > 0
    assert figures["frames_per_second_32x24"] > 0


def test_hard_eight_shares(tmp_path: Path) -> None:
    figures: Any = figures_of(
        "hard_eight_shares", tmp_path, task=("wall-sensor",), policy="expert", episodes=6, batch=4
    )
    assert figures["wall-sensor"]["large apple"] > 0.5
    assert figures["wall-sensor"]["touched"] >= figures["wall-sensor"]["large apple"]
    assert figures["wall-sensor"]["median decisions"] > 1


@pytest.mark.slow
def test_hard_eight_payments(tmp_path: Path) -> None:
    run, settings = tmp_path / "run", HardEightSettings("32x24", "discrete")
    train(tiny(env="hard-eight:wall-sensor", dispatches=1, hard_eight=settings), run, quiet=True)
    figures: Any = figures_of("hard_eight_payments", tmp_path, run=run, steps=640, envs=8)
    rows = [figures[kind] for kind in ("hand empty", "lifted", "held", "let go", "thrown") if kind in figures]
    assert sum(row["steps"] for row in rows) == figures["all"]["steps"] > 600
    assert sum(row["steps"] * row["mean"] for row in rows) == pytest.approx(
        figures["all"]["steps"] * figures["all"]["mean"]
    )
    (run / "checkpoints").rename(tmp_path / "gone")
    with pytest.raises(SystemExit, match="no checkpoint: train it first"):
        figures_of("hard_eight_payments", tmp_path, run=run)


def test_report(tmp_path: Path) -> None:
    figures = figures_of("report", tmp_path, runs=2, seeds=1, lines=3)
    assert (figures["runs"], figures["page_megabytes"] > 0) == (2, True)


def test_montezuma(tmp_path: Path) -> None:
    module = importlib.import_module("montezuma")
    rows = [{"steps": 10, "cells_visited": 1}, {"steps": 20, "entropy": 2.0}]
    names = {"rooms": [[0, 1, 0]], "room_names": ["level", "room"], "position_names": ["x", "y"], "cell": 8}
    for seed in range(2):
        run = tmp_path / f"run{seed}"
        write_config(run, make_config("atari-small"))
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (run / "room_coverage.json").write_text(json.dumps({**names, "visits": [[0, 1, 3, 4, 5], [0, 1, 3, 5, 1]]}))
    runs = tuple(sorted(tmp_path.glob("run*")))
    module.main(module.Arguments(runs, tmp_path / "montezuma.png"))
    with Image.open(tmp_path / "montezuma.png") as picture:
        assert picture.format == "PNG"
    (run / "room_coverage.json").unlink()
    with pytest.raises(SystemExit, match=r"^error: .*run1 has no room_coverage\.json"):
        module.main(module.Arguments(runs, tmp_path / "montezuma.png"))


def test_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(SystemExit, match=r"compares with PyTorch, which is not installed: pip install torch==[\d.]+$"):
        importlib.import_module("encoder")


def test_dropin(tmp_path: Path) -> None:
    """Figures of packages that are not installed are null, with the reason."""
    figures: Any = figures_of("dropin", tmp_path, steps=4, num_envs=2, features=3, rounds=1, threads=2)
    assert figures["byol-explore_seconds_per_1000"] > 0
    assert figures["ours_over_rllte_rnd"] is None
    assert figures["rllte"].endswith("give --rllte-python")
    if figures["overhead_over_ppo"] is None:
        assert figures["ppo"] == "stable-baselines3 is not installed: pip install 'byol-explore[sb3]'"
    else:
        costs = [figures[f"{name}_seconds_per_1000"] for name in ("byol-explore", "ppo")]
        assert figures["overhead_over_ppo"] == pytest.approx(costs[0] / costs[1])


def test_dropin_reports_why_rlexplore_was_not_measured() -> None:
    module = importlib.import_module("dropin")
    assert module.rllte_seconds(module.Arguments(rllte_python="false")) == "exit code 1"
    reason = module.rllte_seconds(module.Arguments(rllte_python=sys.executable))
    assert reason.startswith("ModuleNotFoundError: No module named ")
