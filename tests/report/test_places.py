"""Maps and rooms."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from byol_explore.report import places as module
from byol_explore.report.load import load_runs
from byol_explore.report.model import HeatMap, Picture, Plot, Section
from byol_explore.report.outcomes import outcomes
from byol_explore.report.places import places
from report.synthetic import blocks, make_rows, returns, words, write_run

FLOOR = ["####", "#.G#", "####"]
NOWHERE = [0, 0, 0, 0]


def section_of(root: Path) -> Section:
    runs = load_runs([root])
    return places(runs, outcomes(runs))


def part(start: int, visits: list[int], reward: list[float]) -> dict[str, Any]:
    rows = [[NOWHERE, values, NOWHERE] for values in (visits, reward)]
    return {"from": start, "to": start + 1000, "visits": rows[0], "intrinsic_reward": rows[1]}


SLICES = [part(0, [0, 4, 0, 0], [0, 2.0, 0, 0]), part(1000, [0, 1, 2, 0], [0, 0.5, 3.0, 0])]


def write_maps(run: Path, *tasks: str) -> None:
    (run / "maps.json").write_text(json.dumps({"tasks": {task: {"floor": FLOOR, "slices": SLICES} for task in tasks}}))


def test_maps_show_visits_and_the_mean_reward_of_a_visit(tmp_path: Path) -> None:
    write_maps(write_run(tmp_path), "rooms-6")
    visits, reward = blocks(section_of(tmp_path), HeatMap)
    assert (visits.name, reward.name) == ("visits-byol-explore-rooms-6", "reward-byol-explore-rooms-6")
    assert visits.floor == FLOOR
    assert (visits.logarithmic, reward.logarithmic) == (True, False)
    assert [label for label, _ in visits.slices] == ["0 to 1k steps", "1k to 2k steps"]
    assert [grid[1] for _, grid in visits.slices] == [[None, 4.0, None, None], [None, 1.0, 2.0, None]]
    assert [grid[1] for _, grid in reward.slices] == [[None, 0.5, None, None], [None, 0.5, 1.5, None]]


def test_the_main_variant_comes_first_on_all_tasks_and_what_has_no_room_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_MAPS", 3)
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


def test_without_curiosity_only_visits_are_shown(tmp_path: Path) -> None:
    run = write_run(tmp_path, "none-seed0", method="none")
    slices = [part(0, [0, 4, 0, 0], [0, 0, 0, 0])]
    (run / "maps.json").write_text(json.dumps({"tasks": {"rooms-6": {"floor": FLOOR, "slices": slices}}}))
    assert [one.name for one in blocks(section_of(tmp_path), HeatMap)] == ["visits-none-rooms-6"]


@pytest.mark.parametrize("content", ['{"tasks": {"rooms-6": {"floor"', "{}", '{"tasks": {"rooms-6": {"floor": 3}}}'])
def test_a_damaged_map_is_no_map(tmp_path: Path, content: str) -> None:
    (write_run(tmp_path) / "maps.json").write_text(content)
    assert "No run has left a map" in words(section_of(tmp_path))


@pytest.mark.parametrize("floor", [[], ["####"], ["###", "#.#", "###"], ["####", "#.G#", "###"]])
def test_a_floor_of_another_size_is_no_map(tmp_path: Path, floor: list[str]) -> None:
    maps = {"tasks": {"rooms-6": {"floor": floor, "slices": SLICES}}}
    (write_run(tmp_path) / "maps.json").write_text(json.dumps(maps))
    assert "No run has left a map" in words(section_of(tmp_path))


def test_rooms_found_are_a_plot_and_the_pyramid_a_picture(tmp_path: Path) -> None:
    game = {"preset": "atari-small", "env": "atari:montezuma_revenge"}
    ours = write_run(tmp_path, "byol-explore-seed0", returns([0, 0], rooms_found=3), **game)
    (ours / "rooms.png").write_bytes(b"as it was drawn")
    rnd = write_run(tmp_path, "rnd-seed0", returns([0], rooms_found=1), method="rnd", **game)
    (rnd / "coverage.json").write_text(json.dumps({"rooms": [[0, 1, 0]], "visits": [[0, 1, 9, 30, 5]], "cell": 8}))
    write_run(tmp_path, "none-seed0", make_rows([0.0]), method="none", **game)
    section = section_of(tmp_path)
    [plot] = blocks(section, Plot)
    assert [(curve.variant, curve.mean[0]) for curve in plot.curves] == [("byol-explore", 3.0), ("rnd", 1.0)]
    pictures = blocks(section, Picture)
    assert [picture.name for picture in pictures] == ["pyramid-byol-explore", "pyramid-rnd"]
    assert pictures[0].data == b"as it was drawn"
    assert Image.open(io.BytesIO(pictures[1].data)).format == "PNG"
