"""Parts outside the package, from the shell: trained, evaluated, diagnosed, filmed, resumed and compared in a study."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from byol_explore.settings.trust import VARIABLE

ROOT = Path(__file__).parents[1]
SMALL = [
    "--runtime.num-envs", "8", "--runtime.batch-size", "4", "--runtime.sequence-length", "9",
    "--network.belief-size", "8", "--network.embedding-size", "8",
    "--log.log-every", "640", "--log.checkpoint-every", "640", "--log.window", "5",
]  # fmt: skip
SMALL_STUDY = {
    "steps": 640, "stop_at_success": 0.0, "runtime.num_envs": 8, "runtime.batch_size": 4, "runtime.sequence_length": 9,
    "network.belief_size": 8, "network.embedding_size": 8, "log.log_every": 320,
}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which `examples` can be imported, far from where the tests run."""
    place = tmp_path_factory.mktemp("examples")
    (place / "examples").symlink_to(ROOT / "examples")
    return place


def shell(place: Path, *words: str, trusted: bool = True) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    quick = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "XDG_CACHE_HOME": str(place / "cache")}
    command = [sys.executable, "-m", "byol_explore", *words, *(["--trust"] if trusted else [])]
    return subprocess.run(
        command,
        cwd=place,
        env=environment | quick,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_run_of_own_parts_is_found_again_by_every_command(place: Path) -> None:
    own = ["--env", "examples.lock:Lock", "--method", "examples.counts:Counts", "--run-dir", "own",
           "--network.encoder", "examples.waves:Waves"]  # fmt: skip
    done = shell(place, "train", *own, "--steps", "640", *SMALL, trusted=False)  # what is typed needs no consent
    assert done.returncode == 0, done.stderr
    config = json.loads((place / "own" / "config.json").read_text())
    assert (config["env"], config["method"]) == ("examples.lock:Lock", "examples.counts:Counts")
    assert config["network"]["encoder"] == "examples.waves:Waves"
    refused = shell(place, "evaluate", "own", trusted=False)
    assert refused.returncode == 2
    assert "names code outside this package" in refused.stderr
    resumed = shell(place, "train", "--resume", "--steps", "1280", "--run-dir", "own")
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads((place / "own" / "summary.json").read_text())["steps"] == 1280
    assert "codes_seen" in json.loads((place / "own" / "metrics.jsonl").read_text().splitlines()[-1])
    evaluated = shell(place, "evaluate", "own", "--episodes", "4", "--json")
    assert evaluated.returncode == 0, evaluated.stderr
    assert list(json.loads(evaluated.stdout)["tasks"]) == ["examples.lock:Lock"]
    assert shell(place, "doctor", "own").returncode in (0, 1)
    filmed = shell(place, "film", "own")
    assert filmed.returncode == 0, filmed.stderr
    assert len(list((place / "own" / "films").glob("*.gif"))) == 2


def test_the_study_of_own_parts_runs_and_is_reported(place: Path) -> None:
    """The one that is shipped, with fewer steps and smaller networks."""
    text = (ROOT / "examples" / "study.toml").read_text().replace("steps = 200_000", f"steps = {SMALL_STUDY['steps']}")
    kept = text[: text.index("log.log_every")]
    small = "".join(f"{name} = {value}\n" for name, value in SMALL_STUDY.items() if name != "steps")
    (place / "small.toml").write_text(kept + small)
    refused = shell(place, "study", "small.toml", "--dir", "small", trusted=False)
    assert (refused.returncode, (place / "small").exists()) == (2, False)
    done = shell(place, "study", "small.toml", "--dir", "small")
    assert done.returncode == 0, done.stderr + done.stdout
    runs = sorted(path.parent.name for path in (place / "small").rglob("summary.json"))
    assert runs == ["byol-explore-seed0", "counts-seed0", "none-seed0"]
    reported = shell(place, "report", "small", "--out", "page", trusted=False)  # reads, and imports nothing
    assert reported.returncode == 0, reported.stderr
    assert "counts" in (place / "page" / "index.html").read_text()
