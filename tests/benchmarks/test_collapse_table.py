"""The collapse benchmark at tiny sizes: its metrics by hand, and the initialisation of its variants."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from builders import assert_trees_close
from byol_explore.agent.learner import Learner
from byol_explore.config.presets import make_config
from byol_explore.envs.interface import EnvSpec
from byol_explore.errors import UserError
from byol_explore.networks import centering
from byol_explore.spaces import ActionSpec, Image

PATH = Path(__file__).parents[2] / "benchmarks" / "collapse.py"


@pytest.fixture(scope="module")
def collapse() -> Any:
    spec = importlib.util.spec_from_file_location("collapse", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["collapse"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tiny(collapse: Any, **changes: Any) -> Any:
    settings = {"game": "freeway", "variants": ("nothing", "centered"), "updates": (0, 2), "side": 12, "sequences": 8,
                "held_out": 8, "length": 4, "batch": 2, "horizon": 2}  # fmt: skip
    return collapse.Arguments(**{**settings, **changes})


def test_each_variant_is_trained_and_its_figures_are_written(
    collapse: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(centering, "STEPS", 16)
    collapse.main(tiny(collapse, json=tmp_path / "figures.json"))
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert list(figures) == ["nothing", "centered"]
    for rows in figures.values():
        assert [row["update"] for row in rows] == [0, 2]
        assert rows[0]["loss"] is None
        assert 0.0 < rows[1]["loss"] < 4.0
        assert rows[0]["errors"] != rows[1]["errors"]
    assert figures["nothing"][0]["spread"] < 0.3 < figures["centered"][0]["spread"]
    assert "centered" in capsys.readouterr().out


def test_deviation_16_is_the_initialisation_of_the_agent(collapse: Any) -> None:
    spec = EnvSpec("test", Image(12, 12, 1), ActionSpec((3,)), 10)
    observation = np.random.default_rng(0).integers(0, 256, (32, 12, 12, 1)).astype(np.uint8)
    learner = Learner(make_config("atari"), spec, 1)
    fresh, own = (learner.init(jax.random.key(0), warmup).online for warmup in (None, observation))
    world = collapse.make_world(fresh, observation, collapse.VARIANTS["deviation-16"])
    assert_trees_close(world.representation, own.actor.representation)
    assert_trees_close(world.target, own.actor.representation.encoder)


def test_rank_counts_the_directions_of_embeddings(collapse: Any) -> None:
    corners = np.repeat(np.concatenate([np.eye(3), -np.eye(3)]), 2, axis=0)
    figures = collapse.collapse_metrics(np.asarray([0.5, 1.0]), corners, corners)
    assert figures["spread"] == pytest.approx(1.0)
    assert figures["rank"] == pytest.approx(3.0)
    assert figures["growth"] == pytest.approx(2.0)
    assert figures["explained"] == pytest.approx(1.0 - 0.75 / 2.0)


def test_small_error_near_a_constant_explains_nothing(collapse: Any) -> None:
    angle = np.linspace(-0.1, 0.1, 21)
    alike = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    constant = 2.0 - 2.0 * np.linalg.norm(alike.mean(axis=0))
    figures = collapse.collapse_metrics(np.full(2, constant), alike, alike)
    assert figures["spread"] < 0.01
    assert figures["explained"] == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"variants": ("centred",)}, "unknown variant 'centred'"),
        ({"sequences": 12}, "sequences 12 must be a multiple of 8"),
        ({"batch": 9}, "batch 9 must be at most sequences 8"),
        ({"horizon": 4}, "horizon 4 must be below length 4"),
        ({"side": 40}, "side 40 must divide 84"),
    ],
)
def test_invalid_arguments_are_user_errors(collapse: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        tiny(collapse, **changes).validate()


def test_help_lists_the_options() -> None:
    result = subprocess.run([sys.executable, PATH, "--help"], capture_output=True, text=True, check=True)
    assert "--updates" in result.stdout
