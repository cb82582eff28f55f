"""The learning curves of one run, drawn when it ends."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from byol_explore.metrics import read_metrics

PANELS = (
    ("success", ("success_rate",)),
    ("return", ("return_mean",)),
    ("episode length", ("episode_length",)),
    ("uncertainty (raw)", ("uncertainty",)),
    ("intrinsic reward (normalised)", ("intrinsic_reward",)),
    ("share: transitions paid, steps that pay", ("paid_share", "paying_share")),
    ("spread of embeddings", ("embedding_spread",)),
    ("growth of errors with the horizon", ("error_growth",)),
    ("losses", ("loss_curiosity", "loss_value")),
    ("entropy", ("entropy",)),
    ("KL to the target policy", ("kl",)),
    ("temperature", ("temperature",)),
    ("gradient norm", ("gradient_norm",)),
    ("steps per second", ("steps_per_second",)),
    ("evaluation: return, best so far", ("evaluation_return", "evaluation_best")),
    ("rooms found", ("rooms_found",)),
    ("policy lag (learner steps)", ("policy_lag",)),
    ("waiting: learner, actors", ("learner_wait", "actor_wait")),
)
COLUMNS = 4


def draw_curves(directory: Path) -> Path | None:
    """curves.png of a run, with a panel for everything that it logs; None when nothing was logged."""
    rows = read_metrics(directory / "metrics.jsonl")
    if not rows:
        return None
    panels = [panel for panel in PANELS if any(row.get(name) is not None for row in rows for name in panel[1])]
    height = -(-len(panels) // COLUMNS)
    figure = Figure(figsize=(16, 3 * height), layout="constrained")  # without pyplot, whose state is the caller's
    for index, panel in enumerate(panels, 1):
        _panel(figure.add_subplot(height, COLUMNS, index), rows, *panel)
    figure.suptitle(str(directory), parse_math=False)
    path = directory / "curves.png"
    temporary = directory / "curves.tmp.png"
    figure.savefig(temporary, dpi=100)
    temporary.replace(path)
    return path


def _panel(axis: Axes, rows: list[dict[str, Any]], title: str, names: tuple[str, ...]) -> None:
    for name in names:
        points = [(row["steps"], row[name]) for row in rows if row.get(name) is not None]
        if points:
            axis.plot(*zip(*points, strict=True), label=name)
    axis.set_title(title)
    axis.set_xlabel("environment steps")
    axis.grid(alpha=0.3)
    if title == "success" or title.startswith("share"):
        axis.set_ylim(-0.03, 1.03)
    if len(names) > 1 and axis.lines:
        axis.legend()
