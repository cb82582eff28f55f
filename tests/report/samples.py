"""A small report with a block of every kind: three variants on two tasks."""

import io
import math

from PIL import Image

from byol_explore.report.model import Bar, Bars, Cell, Curve, HeatMap, Picture, Plot, Report, Section, Table, Text

VARIANTS = ["byol-explore", "rnd", "none"]
FLOOR = ["###########", "#...D....G#", "#.o.#.....#", "#...#.....#", "###########"]


def sample_curve(variant: str, speed: float, points: int = 40) -> Curve:
    """Make a learning curve whose first values are unknown."""
    x = [float(i * 50_000) for i in range(points)]
    mean = [None if i < 2 else 1 / (1 + math.exp(6 - speed * i)) for i in range(points)]
    low = [None if value is None else max(value - 0.08, 0.0) for value in mean]
    high = [None if value is None else min(value + 0.06, 1.0) for value in mean]
    return Curve(variant, x, mean, low, high)


def sample_plot(name: str, title: str) -> Plot:
    curves = [sample_curve(v, s) for v, s in zip(VARIANTS, (0.4, 0.22, 0.02), strict=True)]
    return Plot(name, title, "environment steps", "success rate", curves, (0.0, 1.0))


def sample_map(name: str, title: str, unit: str, *, logarithmic: bool) -> HeatMap:
    slices = []
    for i in range(4):
        values = [[_visits(row, column, i) for column in range(11)] for row in range(5)]
        slices.append((f"{i * 512}k to {(i + 1) * 512}k", values))
    return HeatMap(name, title, FLOOR, slices, unit, logarithmic)


def _visits(row: int, column: int, time: int) -> float | None:
    unseen = FLOOR[row][column] == "#" or column > 3 * (time + 1)
    return None if unseen else 4000 / (1 + column + row) ** 2 + time


def sample_gif(shade: int) -> bytes:
    """Make a film of two frames of one colour."""
    frames = [Image.new("RGB", (96, 64), (shade, 80 + 60 * i, 120)) for i in range(2)]
    file = io.BytesIO()
    frames[0].save(file, "gif", save_all=True, append_images=frames[1:], duration=400, loop=0)
    return file.getvalue()


def sample_report() -> Report:
    return Report("rooms-4 and rooms-6: three variants", VARIANTS, [_outcome(), *_curves(), *_places()])


def _outcome() -> Section:
    columns = ["variant", "seeds", "mean", "iqm", "steps"]
    rows: list[list[Cell]] = [
        ["byol-explore", 3, 0.98765432, 91.25, 2_000_000],
        ["rnd", 3, 0.5, None, 2_000_000],
        ["none", 3, 0.0, 0.125, 1_500],
    ]
    intervals = [(91.25, 85.0, 95.0), (40.0, 30.0, 52.0), (0.5, 0.0, 1.0)]
    bars = [Bar(variant, *interval) for variant, interval in zip(VARIANTS, intervals, strict=True)]
    blocks = [
        Text(["Three variants on two tasks & <more>.", "    byol-explore study mine"]),
        Table("headline", "Normalised scores", columns, rows, "0 is nothing, 100 is everything."),
        Bars("iqm", "Interquartile mean", "normalised score", bars),
    ]
    return Section("headline", "What came out", blocks)


def _curves() -> list[Section]:
    horizons = [sample_curve(f"k = {k}", 0.1 + 0.05 * k) for k in range(1, 5)]
    errors = Plot("horizons", "Prediction error by horizon", "environment steps", "error", horizons, logarithmic=True)
    tasks = [sample_plot(name, name) for name in ("rooms-4", "rooms-6")]
    return [Section("learning", "Learning curves", tasks), Section("curiosity", "Curiosity", [errors])]


def _places() -> list[Section]:
    visits = sample_map("visits", "Visits", "visits", logarithmic=True)
    reward = sample_map("reward", "Intrinsic reward", "per visit", logarithmic=False)
    films = [Picture(when, f"{when} training", "gif", sample_gif(40)) for when in ("before", "after")]
    return [Section("places", "Where it was curious", [visits, reward]), Section("films", "Episodes", films)]
