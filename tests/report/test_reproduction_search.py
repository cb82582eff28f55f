"""The section of a search: chosen settings, trials, settings to paste; and which runs a report has beside it."""

import json
from pathlib import Path
from typing import Any

import pytest

from byol_explore.errors import UserError
from byol_explore.report.build import build_report, write_report
from byol_explore.report.live import fingerprint
from byol_explore.report.load import load_runs
from byol_explore.report.model import Table
from byol_explore.report.publish import publish_runs
from byol_explore.report.reproduction import search_sections
from report.synthetic import blocks, words, write_run


def score(solved: int, steps: float, success: float | None) -> dict[str, Any]:
    return {"runs": 2, "solved": solved, "steps": steps, "success": success, "episode_return": 0.25}


REPORTED = {
    "runs": 5, "solved": 4, "steps": {"mean": 150.0, "low": 120.0, "high": 190.0},
    "success": {"mean": 0.75, "low": 0.5, "high": 1.0}, "episode_return": None,
}  # fmt: skip
RND = {
    "steps": 300, "chosen": 1, "reported": REPORTED,
    "toml": '[[variants]]\nname = "rnd"\nsettings = { curiosity.mixing = 0.1 }\n',
    "trials": [
        {"trial": 0, "chosen": False, "settings": {}, "score": score(1, 250.0, 0.5)},
        {"trial": 1, "chosen": True, "settings": {"curiosity.mixing": 0.1, "network.encoder_hidden": [3, 4]},
         "score": score(2, 100.0, None)},
    ],
}  # fmt: skip
ICM = {**RND, "chosen": None, "reported": None, "toml": "", "trials": [{**RND["trials"][0], "score": None}] * 2}


def write_search(root: Path, **changes: Any) -> Path:
    """Write a study with a search, one run and one trial."""
    data = {"seeds": [0, 1], "report_seeds": [5, 6], "variants": {"rnd": RND, "icm": ICM}, **changes}
    write_run(root, "rooms-6/rnd-seed5", method="rnd")
    write_run(root, "trials/rooms-6/rnd-trial01-seed0", method="rnd")
    (root / "study.toml").write_text('name = "hunt"\n')
    (root / "search.json").write_text(json.dumps(data))
    return root


def test_table_has_budget_choice_untuned_result_and_report(tmp_path: Path) -> None:
    [section] = search_sections(load_runs(write_search(tmp_path / "hunt")))
    chosen, trials = blocks(section, Table)
    assert chosen.title == "Settings chosen on the seeds 0, 1, reported on the seeds 5, 6"
    assert chosen.rows == [
        ["rnd", 2, 1, "2 of 2", 100.0, "1 of 2", 250.0, "4 of 5", 150.0, 120.0, 190.0, 75.0],
        ["icm", 2, None, None, None, None, None, None, None, None, None, None],
    ]
    assert trials.rows == [
        ["rnd", 0, "", "untuned", 2.0, 1.0, 250.0, 50.0, 0.25],
        ["rnd", 1, "yes", "curiosity.mixing = 0.1, network.encoder_hidden = 3 4", 2.0, 2.0, 100.0, None, 0.25],
        *[["icm", 0, "", "untuned", None, None, None, None, None]] * 2,
    ]
    assert "    settings = { curiosity.mixing = 0.1 }" in words(section)


def test_trials_are_no_variants_of_the_report(tmp_path: Path) -> None:
    root = write_search(tmp_path / "hunt")
    assert load_runs(root).variants == ["rnd"]
    assert load_runs(root / "trials").variants == ["rnd-trial01"]
    page = write_report(build_report(root), tmp_path / "out", page_only=True).read_text()
    assert "Search of settings" in page
    assert "All trials" in page


def test_trials_alone_make_no_report(tmp_path: Path) -> None:
    write_run(tmp_path / "hunt", "trials/rooms-6/rnd-trial01-seed0", method="rnd")
    (tmp_path / "hunt" / "study.toml").write_text('name = "hunt"\n')
    with pytest.raises(UserError, match="only trials of its search have run, in its directory trials"):
        load_runs(tmp_path / "hunt")


@pytest.mark.parametrize(
    "changes",
    [
        {"variants": 3},
        {"variants": {"rnd": {**RND, "chosen": 7}}},
        {"seeds": None},
        {"variants": {"rnd": {"trials": []}}},
    ],
)
def test_damaged_search_is_left_out(changes: dict[str, Any], tmp_path: Path) -> None:
    assert search_sections(load_runs(write_search(tmp_path / "hunt", **changes))) == []


def test_report_without_a_search_has_no_section(tmp_path: Path) -> None:
    write_run(tmp_path, "rnd-seed5", method="rnd")
    assert search_sections(load_runs(tmp_path)) == []


def test_live_report_watches_the_search_and_published_copies_have_it(tmp_path: Path) -> None:
    root = write_search(tmp_path / "hunt")
    assert any(path.endswith("search.json") for path, *_ in fingerprint([root]))
    publish_runs(root, tmp_path / "copy")
    assert (tmp_path / "copy" / "search.json").read_text() == (root / "search.json").read_text()
    assert not (tmp_path / "copy" / "trials").exists()
