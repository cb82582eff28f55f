"""Colours that stay apart."""

from itertools import combinations

import numpy as np
import pytest

from byol_explore.report.palette import family_stroke, stroke

VARIANTS = [f"variant {i}" for i in range(24)]
# How people without green cones, red cones or blue cones see linear RGB (Machado, Oliveira and Fernandes, 2009).
SIGHT = {
    "usual": np.eye(3),
    "deuteranopia": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "protanopia": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "tritanopia": np.array([[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]),
}


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def oklab(rgb: np.ndarray) -> np.ndarray:
    """A space in which distance is difference to the eye."""
    cones = np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]])
    mixing = np.array([[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]])
    return mixing @ np.cbrt(cones @ np.clip(rgb, 0, 1))


def luminance(colour: str) -> float:
    return float(linear(colour) @ (0.2126, 0.7152, 0.0722))


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_first_eight_colours_differ_to_all_eyes(sight: str, theme: str) -> None:
    colours = [getattr(stroke(variant, VARIANTS), theme) for variant in VARIANTS[:8]]
    seen = {colour: oklab(SIGHT[sight] @ linear(colour)) for colour in colours}
    distances = {(a, b): float(np.linalg.norm(seen[a] - seen[b])) for a, b in combinations(colours, 2)}
    assert min(distances.values()) > 0.05, min(distances, key=distances.__getitem__)


def test_lines_stand_out_from_both_pages() -> None:
    for variant in VARIANTS[:8]:
        line = stroke(variant, VARIANTS)
        assert 1.05 / (luminance(line.light) + 0.05) > 2.2
        assert (luminance(line.dark) + 0.05) / 0.06 > 4


def test_many_variants_are_told_apart_by_dashes() -> None:
    assert len({stroke(variant, VARIANTS) for variant in VARIANTS}) == 24
    assert stroke("variant 0", VARIANTS).dashes == ()


def test_a_family_of_curves_runs_from_dark_to_light() -> None:
    lights = [luminance(family_stroke(i, 5).light) for i in range(5)]
    assert lights == sorted(lights)
    assert family_stroke(0, 1).light
