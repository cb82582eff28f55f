"""Plot the curves that examples/sb3_ppo.py wrote, docs/sb3/*.csv, for docs/anyones-agent.md.

python docs/sb3_curves.py docs/sb3.png docs/sb3/*.csv
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

COLORS = {"curious": "tab:blue", "alone": "tab:gray"}  # by the first part of the file name; the second is the seed


def main(picture: str, *curves: str) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
    for path in map(Path, curves):
        name = path.stem.rsplit("-", 1)[0]
        steps, *columns = np.loadtxt(path, delimiter=",", skiprows=1).T
        for axis, values in zip(axes, columns, strict=True):
            axis.plot(steps / 1000, values, color=COLORS[name], label=f"PPO, {name}")
    for axis, title in zip(axes, ("episodes that reach the far end", "rooms entered per episode"), strict=True):
        axis.set(xlabel="thousand environment steps", title=title)
    entries = dict(zip(*reversed(axes[0].get_legend_handles_labels()), strict=True))
    axes[0].legend(entries.values(), entries.keys())
    figure.savefig(picture, dpi=100)


if __name__ == "__main__":
    main(*sys.argv[1:])
