"""Visit maps and rooms."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from byol_explore.report import maps_and_films
from byol_explore.report.load import load_runs
from byol_explore.report.maps_and_films import maps_section
from byol_explore.report.model import HeatMap, Picture, Plot, Section
from byol_explore.report.scores import compute_scores
from report.synthetic import blocks, make_rows, returns, words, write_run

FLOOR = ["####", "#.G#", "####"]
NOWHERE = [0, 0, 0, 0]


def section_of(root: Path) -> Section:
    runs = load_runs([root])
    return maps_section(runs, compute_scores(runs))


def part(start: int, visits: list[int], reward: list[float]) -> dict[str, Any]:
    rows = [[NOWHERE, values, NOWHERE] for values in (visits, reward)]
    return {"from": start, "to": start + 1000, "visits": rows[0], "intrinsic_reward": rows[1]}


SLICES = [part(0, [0, 4, 0, 0], [0, 2.0, 0, 0]), part(1000, [0, 1, 2, 0], [0, 0.5, 3.0, 0])]


def write_maps(run: Path, *tasks: str) -> None:
    (run / "visit_maps.json").write_text(
        json.dumps({"tasks": {task: {"floor": FLOOR, "slices": SLICES} for task in tasks}})
    )


def test_maps_show_visits_and_mean_reward_per_visit(tmp_path: Path) -> None:
    write_maps(write_run(tmp_path), "rooms-6")
    visits, reward = blocks(section_of(tmp_path), HeatMap)
    assert (visits.name, reward.name) == ("visits-byol-explore-rooms-6", "reward-byol-explore-rooms-6")
    assert visits.floor == FLOOR
    assert (visits.logarithmic, reward.logarithmic) == (True, False)
    assert [label for label, _ in visits.slices] == ["0 to 1k steps", "1k to 2k steps"]
    assert [grid[1] for _, grid in visits.slices] == [[None, 4.0, None, None], [None, 1.0, 2.0, None]]
    assert [grid[1] for _, grid in reward.slices] == [[None, 0.5, None, None], [None, 0.5, 1.5, None]]


def test_main_variant_has_maps_first_and_others_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps_and_films, "MAX_MAPS", 6)
    for variant, success in (("byol-explore", 1.0), ("rnd", 0.0)):
        tasks = {"rooms-4": {"success_rate": 0.5}, "rooms-5": {"success_rate": success}}
        rows = [{"steps": 100, "tasks": tasks}]
        run = write_run(tmp_path, f"{variant}-seed0", rows, method=variant, env="rooms-4,rooms-5")
        write_maps(run, "rooms-4", "rooms-5")
    section = section_of(tmp_path)
    assert [one.name for one in blocks(section, HeatMap) if one.logarithmic] == [
        "visits-byol-explore-rooms-4", "visits-byol-explore-rooms-5", "visits-rnd-rooms-5",
    ], "of others, where variants differ most"  # fmt: skip
    assert "Not shown, to keep this short: rnd on rooms-4." in words(section)


def test_maps_without_rewards_show_visits_only(tmp_path: Path) -> None:
    run = write_run(tmp_path, "none-seed0", method="none")
    slices = [part(0, [0, 4, 0, 0], [0, 0, 0, 0])]
    (run / "visit_maps.json").write_text(json.dumps({"tasks": {"rooms-6": {"floor": FLOOR, "slices": slices}}}))
    assert [one.name for one in blocks(section_of(tmp_path), HeatMap)] == ["visits-none-rooms-6"]


@pytest.mark.parametrize("content", ['{"tasks": {"rooms-6": {"floor"', "{}", '{"tasks": {"rooms-6": {"floor": 3}}}'])
def test_damaged_maps_are_ignored(tmp_path: Path, content: str) -> None:
    (write_run(tmp_path) / "visit_maps.json").write_text(content)
    assert "No run has left a map" in words(section_of(tmp_path))


@pytest.mark.parametrize("floor", [[], ["####"], ["###", "#.#", "###"], ["####", "#.G#", "###"]])
def test_maps_of_wrong_size_are_ignored(tmp_path: Path, floor: list[str]) -> None:
    maps = {"tasks": {"rooms-6": {"floor": floor, "slices": SLICES}}}
    (write_run(tmp_path) / "visit_maps.json").write_text(json.dumps(maps))
    assert "No run has left a map" in words(section_of(tmp_path))


def test_rooms_are_plotted_and_drawn_if_their_layout_is_known(tmp_path: Path) -> None:
    game = {"preset": "atari-small", "env": "atari:montezuma_revenge"}
    ours = write_run(tmp_path, "byol-explore-seed0", returns([0, 0], rooms_visited=3), **game)
    (ours / "rooms.png").write_bytes(b"drawn by the run")
    rnd = write_run(tmp_path, "rnd-seed0", returns([0], rooms_visited=1), method="rnd", **game)
    coverage = {"rooms": [[0, 1, 0]], "visits": [[0, 1, 9, 30, 5]], "cell": 8}
    (rnd / "room_coverage.json").write_text(json.dumps(coverage | {"layout": "pyramid"}))
    none = write_run(tmp_path, "none-seed0", make_rows([0.0]), method="none", **game)
    (none / "room_coverage.json").write_text(json.dumps(coverage | {"layout": ""}))
    section = section_of(tmp_path)
    [plot] = blocks(section, Plot)
    assert [(curve.variant, curve.mean[0]) for curve in plot.curves] == [("byol-explore", 3.0), ("rnd", 1.0)]
    pictures = blocks(section, Picture)
    assert [picture.name for picture in pictures] == ["rooms-byol-explore", "rooms-rnd"]
    assert pictures[0].data == b"drawn by the run"
    assert Image.open(io.BytesIO(pictures[1].data)).format == "PNG"
