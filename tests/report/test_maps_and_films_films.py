"""Films of episodes."""

from pathlib import Path

import pytest

from byol_explore.report import maps_and_films
from byol_explore.report.load import load_runs
from byol_explore.report.maps_and_films import films
from byol_explore.report.model import Picture
from report.synthetic import blocks, words, write_run


def write_films(run: Path, name: str, size: int = 10) -> None:
    (run / "films").mkdir(exist_ok=True)
    for when in ("before", "after"):
        (run / "films" / f"{name}-{when}.gif").write_bytes(when.encode().ljust(size))


def test_films_are_of_first_filmed_seed_with_main_variant_first(tmp_path: Path) -> None:
    write_run(tmp_path, "byol-explore-seed0", env="atari:alien")
    for seed in (1, 2):
        write_films(write_run(tmp_path, f"byol-explore-seed{seed}", env="atari:alien"), "atari-alien")
    write_films(write_run(tmp_path, "rnd-seed0", method="rnd", env="atari:alien"), "atari-alien")
    pictures = blocks(films(load_runs([tmp_path])), Picture)
    assert [picture.title for picture in pictures] == [
        "byol-explore on atari:alien, before training", "byol-explore on atari:alien, after training",
        "rnd on atari:alien, before training", "rnd on atari:alien, after training",
    ]  # fmt: skip
    assert pictures[1].kind == "gif"
    assert pictures[1].data.startswith(b"after")


def test_films_beyond_the_limit_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps_and_films, "MAX_FILM_BYTES", 100)
    write_films(write_run(tmp_path, "byol-explore-seed0"), "rooms-6", size=30)
    write_films(write_run(tmp_path, "rnd-seed0", method="rnd"), "rooms-6", size=30)
    write_films(write_run(tmp_path, "icm-seed0", method="icm"), "rooms-6", size=20)
    section = films(load_runs([tmp_path]))
    assert len(blocks(section, Picture)) == 4
    assert "too large: rnd on rooms-6." in words(section)


def test_section_without_films_shows_the_command(tmp_path: Path) -> None:
    write_run(tmp_path)
    text = words(films(load_runs([tmp_path])))
    assert text.startswith("No run has filmed its episodes.")
    assert text.endswith(f"\n    byol-explore film {tmp_path.name}/byol-explore-seed0")
