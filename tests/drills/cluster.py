"""Kill and stop processes of runs that act with Ray, at random moments, and check that the runs continue.

  python tests/drills/cluster.py --count 50      50 faults, half of them with each kind of inference

A fault is `kill -9` of an actor, of the inference server or of the learner (which is resumed), or an actor that is
stopped, like one that hangs and holds the GIL. After each fault the run must continue, the learner by `--resume`. At
the end every run is finished: its steps must have no gap. The last line has figures, among them the time until a new
actor or server had joined, or the resumed learner had logged.
"""

import dataclasses
import os
import random
import signal
import subprocess
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from common import (
    DISPATCH,
    ENDLESS,
    PATIENCE,
    Record,
    begin,
    children_of,
    config_for,
    directory_of,
    finish,
    parser,
    resume,
    steps_logged,
    still_there,
    wait_for,
)

from byol_explore.config.config import Config
from byol_explore.storage.metrics import read_metrics

KINDS = ("local", "central")
QUIET = "--quiet"  # the output of a long run would fill its pipe, and block it
POLL_SECONDS = 0.2  # between two reads of the metrics, which are long
LIMIT = 3.0  # seconds for a step, and again for the answer to a ping
FAULTS = {"kill an actor": 4, "stop an actor": 2, "kill the server": 2, "kill the learner": 1}  # relative frequencies


def config_of(kind: str, steps: int = ENDLESS) -> Config:
    config = config_for("unruly", steps=steps)
    runtime = dataclasses.replace(config.runtime, actor_backend="ray", num_actors=2, inference=kind, step_timeout=LIMIT)
    return dataclasses.replace(config, runtime=runtime)


def workers_of(pid: int, name: str) -> list[int]:
    """Return descendants whose command contains a name: Ray names workers by their class."""
    found, level = [], [pid]
    while level:
        level = [child for parent in level for child in children_of(parent)]
        found += [child for child in level if name in _command(child)]
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


class Run:
    """A run with one kind of inference, which continues until `finish`."""

    def __init__(self, directory: Path, kind: str) -> None:
        self.directory, self.run, self.kind = directory, directory / kind, kind
        self._faulty: set[int] = set()
        self.process: subprocess.Popen[str] = begin(directory, self.run, config_of(kind), QUIET)
        self.wait_for_progress()

    def wait_for_progress(self) -> None:
        before = len(steps_logged(self.run))
        wait_for(lambda: len(steps_logged(self.run)) >= before + 2, self.process, POLL_SECONDS)

    def counter(self, name: str) -> int:
        rows = read_metrics(self.run / "metrics.jsonl")
        return rows[-1].get(name, 0) if rows else 0

    def inject(self, fault: str, rng: random.Random) -> float:
        """Return the seconds until the run has recovered."""
        if fault == "kill the learner":
            return self._kill_the_learner()
        counter, name = "actor_restarts", {"local": "_ActingWorker", "central": "_SteppingWorker"}[self.kind]
        if fault == "kill the server":
            counter, name = "server_restarts", "_ServingWorker"
        wait_for(lambda: bool(self._healthy(name)), self.process)
        before, victim = self.counter(counter), rng.choice(self._healthy(name))
        self._faulty.add(victim)
        os.kill(victim, signal.SIGSTOP if fault.startswith("stop") else signal.SIGKILL)
        began = time.monotonic()
        wait_for(lambda: self.counter(counter) > before, self.process, POLL_SECONDS)
        return time.monotonic() - began

    def _healthy(self, name: str) -> list[int]:
        """Return workers without a fault; a stopped one may exist for a while beside its successor."""
        return [pid for pid in workers_of(self.process.pid, name) if pid not in self._faulty]

    def _kill_the_learner(self) -> float:
        workers = workers_of(self.process.pid, "")
        self.process.kill()
        self.process.communicate()
        if left := still_there(workers, PATIENCE):
            raise RuntimeError(f"{left} processes outlived their learner")
        began = time.monotonic()
        self.process = resume(self.directory, self.run, "--steps", ENDLESS, QUIET)
        before = len(steps_logged(self.run))
        wait_for(lambda: len(steps_logged(self.run)) > before, self.process, POLL_SECONDS)
        return time.monotonic() - began

    def finish(self) -> int:
        """Interrupt and finish the run. Returns the number of wrong metrics lines."""
        self.process.send_signal(signal.SIGINT)
        code, _, err = finish(self.process)
        if code != 130:
            raise RuntimeError(f"{self.kind} ended with code {code}: {err}")
        end = max(steps_logged(self.run)) + DISPATCH
        code, _, err = finish(resume(self.directory, self.run, "--steps", end))
        if code:
            raise RuntimeError(f"{self.kind} did not finish: code {code}: {err}")
        rows = read_metrics(self.run / "metrics.jsonl")
        gaps = sum(after["steps"] - row["steps"] != DISPATCH for row, after in pairwise(rows))
        return gaps + sum(not isinstance(row["loss"], float) for row in rows)


def main() -> int:
    chosen = parser(__doc__ or "", 50).parse_args()
    directory, rng = directory_of(chosen), random.Random(chosen.seed)
    record, lost, odd = Record(directory / "faults.jsonl"), 0, 0
    runs: dict[str, Run] = {}
    try:
        for number in range(chosen.count):
            kind = KINDS[number * len(KINDS) // chosen.count]  # one cluster at a time
            if kind not in runs:
                odd += sum(run.finish() for run in runs.values() if run.process.poll() is None)
                runs[kind] = Run(directory, kind)
            frequencies = {name: count for name, count in FAULTS.items() if kind == "central" or "server" not in name}
            [fault] = rng.choices(list(frequencies), list(frequencies.values()))
            time.sleep(rng.random())
            seconds = runs[kind].inject(fault, rng)
            runs[kind].wait_for_progress()
            record.add(number=number, kind=kind, fault=fault, seconds=seconds)
        odd += sum(run.finish() for run in runs.values() if run.process.poll() is None)
    except RuntimeError as error:
        lost = 1
        print(f"lost: {error}", flush=True)
    finally:
        for run in runs.values():
            if run.process.poll() is None:
                run.process.kill()
                run.process.communicate()
    rows: list[dict[str, Any]] = record.rows
    times = sorted(row["seconds"] for row in rows)
    middle, longest = (times[len(times) // 2], times[-1]) if times else (0.0, 0.0)
    print(
        f"cluster: {len(rows)} faults over {', '.join(KINDS)}: {lost} lost runs, {odd} lines of metrics missing or "
        f"odd; recovered within {middle:.1f} s in the middle, {longest:.1f} s at most"
    )
    return int(bool(lost or odd))


if __name__ == "__main__":
    raise SystemExit(main())
