"""A map of Montezuma's pyramid: which rooms a run has entered, and when; and where it went in the first one."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

# Rooms of the first level from top to bottom; a floor is two rooms wider than the one above it.
FLOORS = ((0, 1, 2), (3, 4, 5, 6, 7), (8, 9, 10, 11, 12, 13, 14), (15, 16, 17, 18, 19, 20, 21, 22, 23))
FIRST_ROOM = 1


def room_position(room: int) -> tuple[int, int]:
    """Column, counted from the pyramid's axis, and floor."""
    for floor, rooms in enumerate(FLOORS):
        if room in rooms:
            return rooms.index(room) - len(rooms) // 2, floor
    raise ValueError(f"room {room} is not one of 0 to {FLOORS[-1][-1]}")


def draw_pyramid(coverage: dict[str, Any], path: Path) -> Path:
    """A picture of what coverage.json of a run on Montezuma's Revenge says."""
    entered = {room: step for level, room, step in coverage["rooms"] if level == 0 and room <= FLOORS[-1][-1]}
    figure = Figure(figsize=(13, 4.6), layout="constrained")
    pyramid, first_room = figure.subplots(1, 2, width_ratios=(2, 1))
    _draw_rooms(pyramid, entered, beyond=sum(level > 0 for level, _, _ in coverage["rooms"]))
    draw_visits(first_room, coverage)
    temporary = path.with_suffix(".tmp.png")
    figure.savefig(temporary, dpi=110)
    temporary.replace(path)
    return path


def _draw_rooms(axis: Axes, entered: dict[int, int], beyond: int) -> None:
    latest = max(entered.values(), default=1) or 1
    for floor in FLOORS:
        for room in floor:
            column, row = room_position(room)
            step = entered.get(room)
            colour = "#e8e8e8" if step is None else (0.15 + 0.6 * step / latest, 0.65, 0.45 + 0.3 * step / latest)
            axis.add_patch(Rectangle((column - 0.5, -row - 0.5), 0.96, 0.92, facecolor=colour, edgecolor="#777777"))
            axis.text(column, -row + 0.18, str(room), ha="center", va="center", fontsize=9, color="#333333")
            if step is not None:
                axis.text(column, -row - 0.18, _steps(step), ha="center", va="center", fontsize=8, color="#111111")
    axis.set_xlim(-4.6, 4.6)
    axis.set_ylim(-3.6, 0.6)
    axis.axis("off")
    more = f", and {beyond} on later levels" if beyond else ""
    axis.set_title(f"{len(entered)} of 24 rooms entered{more}; numbers below: environment steps at the first entry")


def draw_visits(axis: Axes, coverage: dict[str, Any]) -> None:
    """Steps spent in each cell of the first room, the way the screen shows it."""
    cell = coverage["cell"]
    visits = np.zeros((256 // cell, 160 // cell + 1))
    for level, room, x, y, count in coverage["visits"]:
        if (level, room) == (0, FIRST_ROOM) and x < visits.shape[1]:
            visits[y, x] += count
    shown = np.ma.masked_equal(visits, 0)
    image = axis.imshow(
        shown, origin="lower", norm=LogNorm(vmin=1, vmax=max(visits.max(), 2)), cmap="viridis",
        extent=(0, visits.shape[1] * cell, 0, 256), aspect="auto",
    )  # fmt: skip
    rows = np.flatnonzero(visits.any(axis=1))
    if rows.size:
        axis.set_ylim(rows[0] * cell - cell, (rows[-1] + 2) * cell)
    axis.set_title(f"first room: {int(np.count_nonzero(visits))} places")
    axis.set_xlabel("x")
    axis.set_ylabel("y")
    axis.figure.colorbar(image, ax=axis, label="steps")


def _steps(step: int) -> str:
    if step < 1000:
        return str(step)
    return f"{step / 1e6:.2f}M" if step >= 1e6 else f"{step / 1e3:.0f}k"
