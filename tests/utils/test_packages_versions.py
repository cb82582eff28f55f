"""Versions of the package and its dependencies."""

import json
import platform
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

import byol_explore
from byol_explore.storage import run_directory
from byol_explore.storage.run_directory import write_versions
from byol_explore.utils.packages import git_commit, versions
from command_line import call


def git(*words: str, at: Path) -> str:
    who = ("-c", "user.name=test", "-c", "user.email=test")
    return subprocess.run(["git", "-C", at, *who, *words], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_the_commit_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "src" / "byol_explore"
    package.mkdir(parents=True)
    (package / "a.py").write_text("")
    assert git_commit(package) is None
    git("init", at=tmp_path)
    git("add", ".", at=tmp_path)
    git("commit", "-m", "first", at=tmp_path)
    commit = git("rev-parse", "HEAD", at=tmp_path)
    git("tag", "-a", "v1", "-m", "v1", at=tmp_path)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert git_commit(package) == commit
    (package / "a.py").write_text("1")
    assert git_commit(package) == f"{commit}-dirty"
    monkeypatch.setenv("PATH", "")
    assert git_commit(package) is None


def test_an_installed_package_has_no_commit_of_its_environment(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    assert git_commit(tmp_path / ".venv" / "byol_explore") is None


def test_the_command_says_its_versions(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "--version")
    assert (code, err) == (0, "")
    assert out.startswith(f"byol-explore {byol_explore.__version__}, ")
    assert f"python {platform.python_version()}, jax {version('jax')}, jaxlib {version('jaxlib')}\n" in out


def test_a_run_keeps_what_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, path = {"from_step": 0, **versions()}, tmp_path / "versions.json"
    write_versions(tmp_path, 0)
    write_versions(tmp_path, 100)
    assert json.loads(path.read_text()) == [first]
    monkeypatch.setattr(run_directory, "versions", lambda: {"byol-explore": "9", "jax": "10"})
    write_versions(tmp_path, 200)
    assert json.loads(path.read_text()) == [first, {"from_step": 200, "byol-explore": "9", "jax": "10"}]
    path.write_text('{"half')
    write_versions(tmp_path, 300)
    assert json.loads(path.read_text()) == [{"from_step": 300, "byol-explore": "9", "jax": "10"}]
