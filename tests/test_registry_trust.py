"""Code that a file names is imported after consent, and not before."""

import dataclasses
import io
import sys
from pathlib import Path

import pytest

from byol_explore.cli.main import main
from byol_explore.config.config import Config, external_code
from byol_explore.config.sections import NetworkConfig
from byol_explore.errors import UserError
from byol_explore.registry import TRUST_ENV_VAR, trust_external_code
from byol_explore.storage.run_directory import load_config, write_config
from byol_explore.study.file import parse_study
from byol_explore.study.plan import plan_runs

EVIL = 'raise SystemExit("imported")\n'


@pytest.fixture(autouse=True)
def nothing_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TRUST_ENV_VAR, raising=False)


@pytest.fixture
def evil_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run directory from somewhere, whose environment is a module that must not be imported."""
    (tmp_path / "evil.py").write_text(EVIL)
    monkeypatch.syspath_prepend(str(tmp_path))
    write_config(tmp_path / "run", dataclasses.replace(Config(), env="gymnasium:evil:X-v0"))
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"env": "rooms-6,atari:pitfall,probe:memory,gymnasium:CartPole-v1"}, []),
        ({"env": "gymnasium:evil:X-v0,rooms-6"}, ["gymnasium:evil:X-v0"]),
        ({"env": "my.envs:Lock", "method": "my.bonus:Density"}, ["my.bonus:Density", "my.envs:Lock"]),
        ({"algorithm": "my:Algorithm", "preset": "my:preset"}, ["my:Algorithm", "my:preset"]),
        ({"network": NetworkConfig(encoder="my:Encoder")}, ["my:Encoder"]),
    ],
)
def test_external_names_are_recognised(changes: dict[str, object], expected: list[str]) -> None:
    assert external_code(dataclasses.replace(Config(), **changes)) == expected  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("command", ["evaluate", "film", "doctor"])
def test_a_run_directory_imports_nothing_without_consent(
    evil_run: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(evil_run)]) == 2
    said = capsys.readouterr().err
    assert "names code outside this package: gymnasium:evil:X-v0" in said
    assert "--trust" in said
    assert "evil" not in sys.modules


def test_nor_does_resuming(evil_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--resume", "--run-dir", str(evil_run)]) == 2
    assert "gymnasium:evil:X-v0" in capsys.readouterr().err
    assert "evil" not in sys.modules


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("answer", "agreed"), [("y\n", True), ("yes\n", True), ("n\n", False), ("\n", False), ("", False)]
)
def test_a_terminal_is_asked(evil_run: Path, monkeypatch: pytest.MonkeyPatch, answer: str, agreed: bool) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys, "stderr", screen)
    if agreed:
        assert load_config(evil_run).env == "gymnasium:evil:X-v0"
    else:
        with pytest.raises(UserError, match="outside this package"):
            load_config(evil_run)
    assert "import and run it? [y/N]" in screen.getvalue()


def test_a_flag_says_yes_for_this_process_and_its_children(evil_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TRUST_ENV_VAR, "0")
    with pytest.raises(UserError):
        load_config(evil_run)
    trust_external_code()
    assert load_config(evil_run).env == "gymnasium:evil:X-v0"


STUDY = """
name = "theirs"
tasks = ["rooms-4"]
[[variants]]
name = "own"
method = "evil:Bonus"
"""


def test_a_study_of_other_people_needs_consent_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evil.py").write_text(EVIL)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError, match=r"theirs\.toml names code outside this package: evil:Bonus"):
        plan_runs(parse_study(STUDY, "theirs.toml"))
    assert "evil" not in sys.modules
