"""Help texts, printed without loading JAX."""

import subprocess
import sys

import pytest

from byol_explore.cli.main import COMMANDS
from byol_explore.config.presets import ABLATIONS, PRESETS
from command_line import ESCAPE, call


@pytest.mark.parametrize("words", [[], ["-h"], ["--help"]])
def test_overview_names_every_command(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    code, out, err = call(capsys, *words)
    assert (code, err) == (0, "")
    for name, (description, _) in COMMANDS.items():
        assert f"byol-explore {name}" in out
        assert description in out


def test_help_of_train_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "train", "--help")
    assert (code, err) == (0, "")
    assert "For example:" in out
    assert "byol-explore train --env MiniGrid-DoorKey-8x8 --seed 3 --run-dir runs/doorkey\n" in out
    for option in ("--preset", "--env", "--method", "--regime", "--ablation", "--seed", "--steps", "--run-dir",
                   "--resume", "--quiet", "--curiosity.horizon", "--optimizer.learning-rate", "--runtime.batch-size",
                   "--agent.gamma", "--network.encoder-hidden", "--log.tensorboard",
                   "--distributed.coordinator-address"):  # fmt: skip
        assert option in out
    assert "K, how many steps ahead" in out
    assert ESCAPE not in out


def test_help_shows_the_defaults_of_the_ablation(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "train", "--ablation", "horizon-1", "--help")
    assert "world model predicts. (default: 1)" in " ".join(out.replace("│", " ").split())


@pytest.mark.parametrize("name", ["evaluate", "presets", "envs"])
def test_every_command_has_help(capsys: pytest.CaptureFixture[str], name: str) -> None:
    code, out, err = call(capsys, name, "--help")
    assert (code, err) == (0, "")
    assert f"byol-explore {name}" in out
    if name == "evaluate":
        for option in ("--episodes", "--checkpoint", "--seed", "--protocol", "--video", "--json"):
            assert option in out


def test_help_does_not_import_jax() -> None:
    code = f"""if True:
        import sys
        from byol_explore.cli.main import main
        codes = [main([name, "--help"]) for name in {list(COMMANDS)}]
        loaded = {{"jax", "numpy", "gymnasium", "matplotlib", "orbax", "xminigrid"}} & set(sys.modules)
        sys.exit(f"{{codes}} {{loaded}}" if any(codes) or loaded else 0)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "K, how many steps ahead" in done.stdout


def test_presets_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "presets")
    assert (code, err) == (0, "")
    for name in (*PRESETS.names(), *ABLATIONS):
        assert f" {name} " in out
    assert ESCAPE not in out


def test_environments_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "envs")
    assert (code, err) == (0, "")
    for name in ("MiniGrid-DoorKey-8x8", "XLand-MiniGrid-R1-9x9", "probe:noisy-tv"):
        assert f"  {name}\n" in out
    for family in ("rooms", "corridor", "memory"):
        assert f"  {family}-N (" in out
