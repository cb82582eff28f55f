"""The overview of a machine."""

import json
from pathlib import Path

import pytest

from byol_explore.cli.main import main
from byol_explore.doctor import diagnose as system
from byol_explore.doctor.diagnose import describe_system, write_problem
from byol_explore.utils import packages


def facts() -> dict[str, tuple[str, bool]]:
    return {fact.name: (fact.value, fact.is_problem) for fact in describe_system(with_speed=False)}


def test_facts_are_those_of_this_machine() -> None:
    found = facts()
    assert "python 3." in found["versions"][0]
    assert found["devices"][0].endswith("(cpu)")
    assert " GB free of " in found["memory"][0]
    assert not any(is_problem for _, is_problem in found.values())


def test_a_version_that_is_known_to_be_wrong_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "versions", lambda: {"jaxlib": "0.10.2"})
    text, is_problem = facts()["jaxlib"]
    assert is_problem
    assert text == "it computes wrong values on CPUs (jax issue 39103): install 0.10.1"


def test_a_missing_package_is_a_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "EXTRAS", {"here": {"json": "json"}, "absent": {"json": "json", "no_such": "x"}})
    assert packages.missing_extras() == ["absent"]
    assert facts()["extras"] == ("without absent", False)


def test_a_directory_that_cannot_be_written_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert write_problem(tmp_path / "not" / "there") is None
    assert str(write_problem(Path("/proc/sys/none"))).startswith("cannot be written (")
    monkeypatch.setenv("BYOL_EXPLORE_CACHE", "/proc/sys/none")
    assert facts()["cache"][1]


def test_memory_is_limited_by_the_control_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text, words in (("1000000000", ", limited to 1.0 GB"), ("max", ""), (str(2**63), "")):
        (tmp_path / "limit").write_text(text)
        monkeypatch.setattr(system, "_GROUP_LIMITS", [str(tmp_path / "limit"), str(tmp_path / "none")])
        assert (", limited to" in system.describe_memory()) == bool(words)
        assert system.describe_memory().endswith(words)


def test_the_command_prints_lines_or_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(system, "matrix_gigaflops", lambda: 12.34)
    monkeypatch.setattr(system, "default_steps_per_second", lambda: 5678.0)
    assert main(["doctor", "--system"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2] == "matrix product    12.3 GFLOP/s, float32, 1024 x 1024"
    assert lines[-1] == "default agent     5,678 steps/s, compiled"
    assert main(["doctor", "--system", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[-1]["name"] == "default agent"


@pytest.mark.parametrize("arguments", [[], ["somewhere", "--system"]])
def test_a_run_or_the_system_must_be_given(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *arguments]) == 2
    assert capsys.readouterr().err == "error: doctor takes either a run directory or --system\n"


def test_a_matrix_product_has_a_speed() -> None:
    assert system.matrix_gigaflops() > 0.01
