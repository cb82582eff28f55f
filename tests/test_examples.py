"""Train, evaluate, diagnose, film and resume a run of external parts, and compare them in a study."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from byol_explore.cli.main import main
from byol_explore.registry import TRUST_ENV_VAR
from byol_explore.study import launchers
from command_line import call

ROOT = Path(__file__).parents[1]
SMALL = [
    "--runtime.num-envs", "8", "--runtime.batch-size", "4", "--runtime.sequence-length", "9",
    "--network.belief-size", "8", "--network.embedding-size", "8",
    "--log.log-every", "640", "--log.checkpoint-every", "640", "--log.episode-window", "5",
]  # fmt: skip
SMALL_STUDY = {
    "steps": 640, "stop_at_success_rate": 0.0, "runtime.num_envs": 8, "runtime.batch_size": 4,
    "runtime.sequence_length": 9,
    "network.belief_size": 8, "network.embedding_size": 8, "log.log_every": 320,
}  # fmt: skip


SHELL = [sys.executable, "-m", "byol_explore"]

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of a user who has `examples` in it and trusts no code yet."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(TRUST_ENV_VAR, "")
    forget_examples(monkeypatch)
    return tmp_path


def forget_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "examples"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Call the command line in this process. `--trust` holds for one call, as it does in a shell."""

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setenv(TRUST_ENV_VAR, "")
        return call(capsys, *words)

    return run


def test_every_command_finds_the_external_parts_of_a_run(place: Path, command: Command) -> None:
    own = ["--env", "examples.lock:Lock", "--method", "examples.counts:Counts", "--run-dir", "own",
           "--network.encoder", "examples.waves:Waves"]  # fmt: skip
    # In a shell, as the current directory is importable there without help. Typed names need no consent.
    words = [*SHELL, "train", *own, "--steps", "640", *SMALL]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    config = json.loads((place / "own" / "config.json").read_text())
    assert (config["env"], config["method"]) == ("examples.lock:Lock", "examples.counts:Counts")
    assert config["network"]["encoder"] == "examples.waves:Waves"
    code, _, err = command("evaluate", "own")
    assert code == 2
    assert "names code outside this package" in err
    code, _, err = command("train", "--resume", "--steps", "1280", "--run-dir", "own", "--trust")
    assert code == 0, err
    assert json.loads((place / "own" / "summary.json").read_text())["steps"] == 1280
    assert "hash_codes_seen" in json.loads((place / "own" / "metrics.jsonl").read_text().splitlines()[-1])
    code, out, err = command("evaluate", "own", "--episodes", "4", "--json", "--trust")
    assert code == 0, err
    assert list(json.loads(out)["tasks"]) == ["examples.lock:Lock"]
    assert command("doctor", "own", "--trust")[0] in (0, 1)
    code, _, err = command("film", "own", "--trust")
    assert code == 0, err
    assert len(list((place / "own" / "films").glob("*.gif"))) == 2


class OneChild(launchers.LocalProcesses):
    """Start a process for the run with external code; train the others in this one, which is quicker."""

    def start(self, words: Sequence[str], log: Path, title: str, place: int) -> launchers.RunHandle:
        if "examples.counts:Counts" in words:
            return super().start(words, log, title, place)
        return Ended(main(words[words.index("train") :]))


class Ended(NamedTuple):
    """A run that has ended before anything else can happen."""

    code: int

    def exit_code(self) -> int:
        return self.code

    def terminate(self) -> None: ...

    def kill(self) -> None: ...

    def last_log_line(self) -> str:
        return ""


def test_a_study_of_external_parts_runs_and_is_reported(
    place: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that is shipped, with fewer steps and smaller networks."""
    text = (ROOT / "examples" / "study.toml").read_text().replace("steps = 200_000", f"steps = {SMALL_STUDY['steps']}")
    kept = text[: text.index("log.log_every")]
    small = "".join(f"{name} = {value}\n" for name, value in SMALL_STUDY.items() if name != "steps")
    (place / "small.toml").write_text(kept + small)
    monkeypatch.setattr(launchers, "LocalProcesses", OneChild)
    code, _, _ = command("study", "small.toml", "--study-dir", "small")
    assert (code, (place / "small").exists()) == (2, False)
    code, out, err = command("study", "small.toml", "--study-dir", "small", "--trust")
    assert code == 0, err + out
    runs = sorted(path.parent.name for path in (place / "small").rglob("summary.json"))
    assert runs == ["byol-explore-seed0", "counts-seed0", "none-seed0"]
    forget_examples(monkeypatch)
    code, _, err = command("report", "small", "--out", "page")
    assert code == 0, err
    assert "examples" not in sys.modules, "a report reads and imports nothing"
    assert "counts" in (place / "page" / "index.html").read_text()
