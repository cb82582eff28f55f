"""Kill training at random moments and check that no run is lost.

  python tests/drills/kill.py --count 30 --dir /tmp/kills      30 times `kill -9`, over all kinds in turn

Each kind of training is one run that is killed, resumed and killed again, so that losses would add up. At the end a
run inside jit must equal an uninterrupted one bit for bit. Environments outside jit begin new episodes, so the
synchronous run is compared with itself: resuming it twice from one checkpoint must give equal runs. The last line has
figures.
"""

import random
import re
import shutil
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from common import (
    DISPATCH,
    ENDLESS,
    INTERVAL,
    Checkpoints,
    Record,
    begin,
    children_of,
    config_for,
    contents,
    directory_of,
    finish,
    parser,
    resume,
    steps_logged,
    still_there,
    wait_for,
)

KINDS = ("grid", "synchronous", "atari")


def kill_once(directory: Path, kind: str, number: int, seed: int) -> dict[str, Any]:
    """Let a run make some progress, and kill it at a random moment."""
    rng, run = random.Random(f"{seed}-{number}"), directory / kind
    is_new = not (run / "config.json").exists()
    saved = newest(run)
    config = config_for(kind, steps=ENDLESS)
    process = begin(directory, run, config) if is_new else resume(directory, run, "--steps", config.steps)
    progress = rng.randrange(DISPATCH, 3 * INTERVAL)
    start = _resumed_step(process)
    if start != saved:
        raise RuntimeError(f"{kind} continued from {start} instead of {saved}: {process.kill()}")
    wait_for(lambda: max(steps_logged(run), default=0) >= start + progress, process)
    time.sleep(rng.random() * 0.2)  # also while a checkpoint is written
    workers = children_of(process.pid)
    process.kill()
    process.communicate()
    return {
        "number": number, "kind": kind, "continued": start, "lost": max(steps_logged(run)) - newest(run),
        "left": still_there(workers), "workers": len(workers),
    }  # fmt: skip


def newest(run: Path) -> int:
    """Step of the newest checkpoint."""
    return max(Checkpoints(run / "checkpoints").steps(), default=0)


def _resumed_step(process: Any) -> int:
    """Return the step that the run prints; 0 for a new run."""
    step = 0
    for line in process.stdout:
        if found := re.match(r"continuing from step ([\d,]+)", line):
            step = int(found[1].replace(",", ""))
        if line.startswith("training "):
            return step
    raise RuntimeError(f"the run did not start: {process.communicate()}")


def is_identical(directory: Path, kind: str) -> bool | None:
    """Finish the killed run. Returns True if it equals its reference; None for kinds that are not repeatable."""
    run = directory / kind
    end = max(steps_logged(run)) // INTERVAL * INTERVAL + 2 * INTERVAL
    shutil.rmtree(directory / "again", ignore_errors=True)
    if kind == "synchronous":
        shutil.copytree(run, directory / "again")
    processes = [resume(directory, run, "--steps", end)]
    if kind == "synchronous":
        processes.append(resume(directory, directory / "again", "--steps", end))
    elif kind == "grid":
        processes.append(begin(directory, directory / "again", config_for(kind, steps=end)))
    for process in processes:
        code, _, err = finish(process)
        if code:
            raise RuntimeError(f"{kind} ended with code {code}: {err}")
    return None if kind == "atari" else contents(run) == contents(directory / "again")


def missing_lines(run: Path) -> int:
    """Count the dispatches that do not have exactly one line."""
    steps = steps_logged(run)
    return sum(after - before != DISPATCH for before, after in pairwise([0, *steps]))


def main() -> int:
    options = parser(__doc__ or "", 30)
    options.add_argument("--kinds", default=",".join(KINDS), help=f"of training (default {','.join(KINDS)})")
    chosen = options.parse_args()
    directory, kinds = directory_of(chosen), chosen.kinds.split(",")
    record, lost, same = Record(directory / "kills.jsonl"), 0, {}
    try:
        for number in range(len(record.rows), chosen.count):
            record.add(**kill_once(directory, kinds[number % len(kinds)], number, chosen.seed))
        same = {kind: is_identical(directory, kind) for kind in kinds[: chosen.count]}
    except RuntimeError as error:
        lost = 1
        print(f"lost: {error}", flush=True)
    odd = sum(missing_lines(directory / kind) for kind in kinds if (directory / kind).exists())
    rows = record.rows
    most, left = max((row["lost"] for row in rows), default=0), sum(row["left"] for row in rows)
    words = ", ".join(f"{kind} {'yes' if equal else 'NO'}" for kind, equal in same.items() if equal is not None)
    print(
        f"kill: {len(rows)} kills over {', '.join(kinds)}: {lost} lost runs, at most {most} steps lost of {INTERVAL} "
        f"between checkpoints, bit-identical: {words}; {odd} lines of metrics missing or double, {left} workers left"
    )
    return int(bool(lost or left or odd or most > INTERVAL or False in same.values()))


if __name__ == "__main__":
    raise SystemExit(main())
