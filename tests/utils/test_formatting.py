"""Numbers and names in sentences."""

from pathlib import Path

import pytest

from byol_explore.utils.formatting import display_path, duration, join_list, plural, short_number, slug


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0"), (999, "999"), (1408, "1.4k"), (2000, "2k"), (9960, "10k"), (76_800, "77k"), (512_000, "512k"),
     (4_019_200, "4.02M"), (2.5e9, "2.5G")],
)  # fmt: skip
def test_amounts_are_short(number: float, shown: str) -> None:
    assert short_number(number) == shown


def test_durations_are_in_the_unit_that_fits() -> None:
    assert [duration(seconds) for seconds in (12, 600, 9000)] == ["12 seconds", "10 minutes", "2.5 hours"]


def test_one_is_not_plural_and_long_lists_are_cut() -> None:
    assert (plural(1, "seed"), plural(3, "seed")) == ("1 seed", "3 seeds")
    assert join_list(["a", "b"]) == "a, b"
    assert join_list(["a", "b", "c"], 1) == "a and 2 more"


def test_names_of_files_are_plain() -> None:
    assert slug("visits", "atari:private_eye", "", "A/b") == "visits-atari-private-eye-a-b"


def test_paths_tell_nothing_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "studies" / "laptop"
    assert display_path(root / "a" / "b", root) == "laptop/a/b"
    monkeypatch.chdir(tmp_path)
    assert display_path(root / "a", root) == "studies/laptop/a"
    assert display_path(Path("studies/laptop/a"), Path("studies/laptop")) == "studies/laptop/a"
    assert display_path(Path("studies"), Path()) == f"{tmp_path.name}/studies"
