"""Colours and dashes of curves."""

from itertools import combinations

import numpy as np
import pytest

from byol_explore.report.model import line_style, ramp_style

VARIANTS = [f"variant {i}" for i in range(24)]
# Linear RGB as seen with colour blindness (Machado, Oliveira and Fernandes, 2009).
VISION = {
    "normal": np.eye(3),
    "deuteranopia": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "protanopia": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "tritanopia": np.array([[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]),
}


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def oklab(rgb: np.ndarray) -> np.ndarray:
    """Convert linear RGB to Oklab, where distance is perceived difference."""
    cones = np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]])
    mixing = np.array([[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]])
    return mixing @ np.cbrt(cones @ np.clip(rgb, 0, 1))


def luminance(colour: str) -> float:
    return float(linear(colour) @ (0.2126, 0.7152, 0.0722))


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_eight_colours_differ_with_colour_blindness(vision: str, theme: str) -> None:
    colours = [getattr(line_style(variant, VARIANTS), theme) for variant in VARIANTS[:8]]
    perceived = {colour: oklab(VISION[vision] @ linear(colour)) for colour in colours}
    distances = {(a, b): float(np.linalg.norm(perceived[a] - perceived[b])) for a, b in combinations(colours, 2)}
    assert min(distances.values()) > 0.05, min(distances, key=distances.__getitem__)


def test_lines_contrast_with_both_backgrounds() -> None:
    for variant in VARIANTS[:8]:
        line = line_style(variant, VARIANTS)
        assert 1.05 / (luminance(line.light) + 0.05) > 2.2
        assert (luminance(line.dark) + 0.05) / 0.06 > 4


def test_dashes_distinguish_many_variants() -> None:
    assert len({line_style(variant, VARIANTS) for variant in VARIANTS}) == 24
    assert line_style("variant 0", VARIANTS).dashes == ()


def test_ramp_is_ordered_by_luminance() -> None:
    lights = [luminance(ramp_style(i, 5).light) for i in range(5)]
    assert lights == sorted(lights)
    assert ramp_style(0, 1).light
