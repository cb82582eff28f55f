"""A stand-in for a run of a study: python fake_run.py BEHAVIOUR RUN_DIR STEPS.

When it is resumed, every behaviour but `hopeless` ends well.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any


def write(directory: Path, steps: int, *, interrupted: bool) -> None:
    summary = {"steps": steps, "seconds": 2.0, "success_rate": 0.5, "interrupted": interrupted}
    (directory / "summary.json").write_text(json.dumps(summary))


def main(behaviour: str, directory: Path, steps: int) -> None:
    began, resumed = time.time(), (directory / "config.json").exists()
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text("{}")
    (directory / "pid").write_text(str(os.getpid()))
    if behaviour == "hopeless" or (not resumed and behaviour == "crash"):
        print("Traceback (most recent call last):\n  ...\nerror: it broke\n", file=sys.stderr)
        sys.exit(3)
    if not resumed and behaviour == "stop-short":
        return
    if not resumed and behaviour in ("hang", "stubborn"):

        def stop(*_: Any) -> None:
            if behaviour == "hang":
                write(directory, steps // 2, interrupted=True)
                sys.exit(143)

        signal.signal(signal.SIGTERM, stop)
        row = {"steps": steps // 2, "elapsed_seconds": 1.0, "success_rate": None, "uncertainty": 0.25}
        (directory / "metrics.jsonl").write_text(json.dumps(row) + '\n{"steps": 9999')
        while True:
            time.sleep(60)
    time.sleep(2.0 if behaviour == "long" else 0.1)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    facts = {"began": began, "ended": time.time(), "cores": cores, "threads": os.environ["NPROC"], "resumed": resumed}
    (directory / "facts.json").write_text(json.dumps(facts))
    write(directory, steps, interrupted=False)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
