"""Searches with stand-ins for runs: order, crashes, divergence, and the command."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from byol_explore.cli.study import run_study_command
from byol_explore.errors import UserError
from byol_explore.study import runner
from byol_explore.study.file import Study, parse_study
from byol_explore.study.plan import PlannedRun, plan_runs
from byol_explore.study.runner import run_study
from byol_explore.training.output import Display

TEXT = """
name = "hunt"
tasks = ["probe:memory"]
steps = 960
methods = ["rnd", "icm"]
settings.stop_at_success_rate = 0
[search]
trials = 4
seeds = [0, 1]
report_seeds = [5, 6]
draw_seed = 2
[search.ranges]
curiosity.mixing.log-uniform = [0.003, 1.0]
"""
STUDY = parse_study(TEXT, "hunt.toml")


def command(run: PlannedRun, study_dir: Path) -> list[str]:
    program = str(Path(__file__).with_name("search_run.py"))
    words = [run.directory(study_dir), run.config.total_steps, run.config.seed, run.config.curiosity.mixing]
    return [sys.executable, "-S", "-E", program, *map(str, words)]


@pytest.fixture(autouse=True)
def quick_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "child_command", command)
    monkeypatch.setattr(runner, "_POLL", 0.01)
    monkeypatch.setattr(runner, "_REFRESH", 0.02)


def search_json(directory: Path) -> dict[str, Any]:
    return json.loads((directory / "search.json").read_text())


def nearest(study: Study = STUDY) -> int:
    """Return the trial whose mixing is nearest to 0.1, which the stand-in solves soonest; the first has 0.05."""
    assert study.search is not None
    mixing = [values.get("curiosity.mixing", 0.05) for values in study.search.values_of("rnd")]
    return min(range(len(mixing)), key=lambda trial: abs(mixing[trial] - 0.1))


def test_the_stand_in_prefers_a_drawn_trial() -> None:
    assert nearest() == 3


def test_chosen_settings_run_on_the_report_seeds(tmp_path: Path) -> None:
    states = run_study(STUDY, tmp_path / "s", parallel=2)
    trials = [name for name in states if name.startswith("trials/")]
    assert len(trials) == 2 * 4 * 2
    reported = {f"probe-memory/{name}-seed{seed}" for name in ("rnd", "icm") for seed in (5, 6)}
    assert set(states) - set(trials) == reported
    assert {state.state for state in states.values()} == {"done"}
    data = search_json(tmp_path / "s")["variants"]
    assert [data[name]["chosen"] for name in ("rnd", "icm")] == [nearest(), nearest()]
    assert data["rnd"]["reported"]["solved"] == 2
    assert {run.name for run in plan_runs(STUDY, chosen={"rnd": nearest(), "icm": nearest()}, trials=False)} == reported
    assert {(tmp_path / "s" / name).exists() for name in ("search.csv", "chosen.toml")} == {True}
    assert set(json.loads((tmp_path / "s" / "study.json").read_text())["runs"]) == set(states)


def test_choices_are_announced_once(tmp_path: Path) -> None:
    messages: list[str] = []
    display = Display()
    display.message = messages.append
    run_study(STUDY, tmp_path / "s", only="/rnd", display=display)
    assert STUDY.search is not None
    mixing = STUDY.search.values_of("rnd")[nearest()]["curiosity.mixing"]
    chosen = [text for text in messages if "chosen" in text]
    assert chosen == [f"rnd: chosen is trial {nearest()}, curiosity.mixing = {mixing}"]


def test_a_search_that_stopped_continues_to_the_same_choice(tmp_path: Path) -> None:
    whole = run_study(STUDY, tmp_path / "whole")
    part = tmp_path / "part"
    run_study(STUDY, part, only="trials/probe-memory/rnd")
    assert search_json(part)["variants"]["rnd"]["chosen"] == nearest()
    assert search_json(part)["variants"]["icm"]["chosen"] is None
    (part / "study.json").unlink()  # as after a crash
    (part / "search.json").unlink()
    assert set(run_study(STUDY, part)) == set(whole)
    assert search_json(part) == search_json(tmp_path / "whole")
    assert {path.read_text() for path in part.rglob("starts")} == {"started\n"}, "no run starts twice"


def test_diverged_trial_loses_and_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def diverging(run: PlannedRun, study_dir: Path) -> list[str]:
        bad = run.name == f"trials/probe-memory/rnd-trial{nearest():02d}-seed1"
        return [*command(run, study_dir), *(["diverge"] if bad else [])]

    monkeypatch.setattr(runner, "child_command", diverging)
    states = run_study(STUDY, tmp_path / "s", only="/rnd")
    failed = [name for name, state in states.items() if state.state == "failed"]
    assert len(failed) == 1
    rnd = search_json(tmp_path / "s")["variants"]["rnd"]
    assert rnd["chosen"] not in (nearest(), None)
    assert rnd["trials"][nearest()]["score"]["solved"] == 1
    assert rnd["trials"][nearest()]["score"]["success"] is None
    again = run_study(STUDY, tmp_path / "s", only="/rnd")
    assert [name for name, state in again.items() if state.state == "failed"] == failed
    assert (tmp_path / "s" / failed[0] / "starts").read_text() == "started\n"
    assert search_json(tmp_path / "s")["variants"]["rnd"] == rnd


def test_other_seeds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--seeds is 2: hunt.toml has \[search\], which names the seeds"):
        run_study(STUDY, tmp_path / "s", seeds=2)


def test_runs_that_can_never_count_as_solved_are_refused(tmp_path: Path) -> None:
    study = parse_study(TEXT.replace("stop_at_success_rate = 0", "stop_at_success_rate = 0.9"), "hunt.toml")
    with pytest.raises(UserError, match=r"stop_at_success_rate is 0.9, below search.success_rate 0.95"):
        run_study(study, tmp_path / "s")


def test_the_command_shows_trials_first_and_ends_complete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hunt.toml").write_text(TEXT)
    assert run_study_command(["hunt.toml", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 17
    assert "--curiosity.mixing" not in lines[0]
    assert "--run-dir studies/hunt/trials/probe-memory/rnd-trial00-seed0" in lines[0]
    assert "--curiosity.mixing" in lines[2]
    assert lines[-1] == "# when all trials of a variant have ended: its chosen settings on seeds 5, 6"
    assert run_study_command(["hunt.toml", "--parallel", "2"]) == 0
    out = capsys.readouterr().out
    assert "hunt: 16 of 16 runs are missing" in out
    assert "complete: 20 of 20 runs are done" in out
    Path("studies/hunt/search.csv").unlink()
    assert run_study_command(["hunt.toml"]) == 0
    assert "complete: 20 of 20 runs are done" in capsys.readouterr().out
    assert Path("studies/hunt/search.csv").exists()
