"""A stand-in for a trial: python search_run.py RUN_DIR STEPS SEED MIXING [diverge].

It is solved the sooner, the nearer the mixing is to 0.1, and not at all far from it.
"""

import json
import sys
from pathlib import Path


def main(directory: Path, steps: int, seed: int, mixing: float, diverges: bool) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text("{}")
    with (directory / "starts").open("a") as file:
        file.write("started\n")
    if diverges:
        print("error: training diverged", file=sys.stderr)
        sys.exit(3)
    distance = abs(mixing - 0.1)
    solved_at = 10 + seed + int(100 * distance) if distance < 0.5 else None
    rows = [{"steps": step, "num_episodes": 1_000, "success_rate": 0.5, "return_mean": 1.0} for step in (5, steps)]
    if solved_at is not None:
        rows[1:1] = [{"steps": solved_at, "num_episodes": 1_000, "success_rate": 1.0, "return_mean": 1.0}]
    (directory / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    success = 0.5 - 0.1 * distance
    summary = {"steps": steps, "seconds": 2.0, "success_rate": success, "return_mean": 1.0, "interrupted": False}
    (directory / "summary.json").write_text(json.dumps(summary))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5:] == ["diverge"])
