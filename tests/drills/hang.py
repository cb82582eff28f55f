"""Let environments hang, stop their processes, and check that runs notice it.

  python tests/drills/hang.py --count 2      every case, with environments that hang at two different steps

Each case must end in time with one line that names the environment, with a checkpoint of what was learned, and with
no process left; then it is resumed to its end. Each case is also ended by Ctrl-C, pressed twice. At last a trainer is
killed while its worker is stopped. The last line has figures.
"""

import dataclasses
import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from common import (
    DISPATCH,
    ENDLESS,
    Checkpoints,
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

from byol_explore.envs.families import GymnasiumSettings

LIMIT = 3.0  # seconds for a step
EXIT_SECONDS = 20.0  # for a process to end after the second Ctrl-C, on a loaded machine


class Case(NamedTuple):
    """An environment that hangs in some way, or a worker process that is stopped."""

    name: str
    how: str = ""
    synchronous: bool = False
    vectorization: str = "sync"


CASES = (
    Case("sleeps", "hang"),
    Case("sleeps, synchronous", "hang", synchronous=True),
    Case("computes for ever", "spin"),
    Case("sleeps in its process", "hang", vectorization="async"),
    Case("Atari worker stopped"),
    Case("Atari worker stopped, synchronous", synchronous=True),
)


class Outcome(NamedTuple):
    named: bool
    saved: bool
    resumed: bool
    left: int  # processes
    seconds: float  # from the second Ctrl-C to the end


class Hanging:
    """A run of a case that hangs, in a directory of its own."""

    def __init__(self, directory: Path, case: Case, at: int) -> None:
        self.directory, self.case = directory, case
        self.run, self.once = directory / "hanging", directory / "once"
        shutil.rmtree(self.run, ignore_errors=True)
        self.once.unlink(missing_ok=True)
        config = config_for("unruly" if case.how else "atari", steps=ENDLESS)
        if case.how:
            config = dataclasses.replace(
                config, gymnasium=GymnasiumSettings(vectorization=case.vectorization),
                env_kwargs=(f"how={case.how}", f"at={at}", f"once={self.once}"),
            )  # fmt: skip
        runtime = dataclasses.replace(config.runtime, synchronous=case.synchronous, step_timeout=LIMIT)
        self.process = begin(directory, self.run, dataclasses.replace(config, runtime=runtime))
        wait_for(lambda: max(steps_logged(self.run), default=0) >= 2 * DISPATCH, self.process)
        self.children = children_of(self.process.pid)
        if not case.how:
            os.kill(self.children[-1], signal.SIGSTOP)
        wait_for(self._hangs, self.process)

    def _hangs(self) -> bool:
        if self.case.how:
            return self.once.exists()
        before = len(steps_logged(self.run))
        time.sleep(0.5)
        return len(steps_logged(self.run)) == before


def end_by_itself(directory: Path, case: Case, at: int) -> tuple[bool, bool, bool, int]:
    hanging = Hanging(directory, case, at)
    code, _, err = finish(hanging.process)
    named = code == 4 and bool(re.fullmatch(r"error: environment '.+' hangs: step [\d,]+ has taken .+\n", err))
    if not named:
        print(case.name, code, err)
    logged = max(steps_logged(hanging.run))
    saved = max(Checkpoints(hanging.run / "checkpoints").steps(), default=0)
    end = ("--steps", saved + 3 * DISPATCH)
    resumed = finish(resume(directory, hanging.run, *end))[0] == 0
    return named, saved >= logged, resumed, still_there(hanging.children)


def end_by_hand(directory: Path, case: Case, at: int) -> tuple[float, int]:
    """Return the seconds from the second Ctrl-C to the end, and the number of processes left."""
    hanging = Hanging(directory, case, at)
    hanging.process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    began = time.monotonic()
    hanging.process.send_signal(signal.SIGINT)
    try:
        hanging.process.communicate(timeout=EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        hanging.process.kill()
        hanging.process.communicate()
    return time.monotonic() - began, still_there(hanging.children)


def kill_with_a_stopped_worker(directory: Path) -> int:
    """Return the number of workers that outlive their killed trainer."""
    hanging = Hanging(directory, CASES[-1], 0)
    hanging.process.kill()
    hanging.process.communicate()
    return still_there(hanging.children)


def main() -> int:
    options = parser(__doc__ or "", 1).parse_args()
    directory, rng = directory_of(options), random.Random(options.seed)
    outcomes = []
    for case in [case for _ in range(options.count) for case in CASES]:
        at = rng.randrange(60, 120)
        named, saved, resumed, left = end_by_itself(directory, case, at)
        seconds, also_left = end_by_hand(directory, case, at)
        outcomes.append(Outcome(named, saved, resumed, left + also_left, seconds))
        print(case.name, outcomes[-1], flush=True)
    orphans = kill_with_a_stopped_worker(directory)
    slowest, left = max(outcome.seconds for outcome in outcomes), sum(outcome.left for outcome in outcomes)
    named, saved, resumed = (sum(getattr(o, name) for o in outcomes) for name in ("named", "saved", "resumed"))
    print(
        f"hang: {len(outcomes)} hangs: {named} named, {saved} saved, {resumed} resumed; after a second Ctrl-C "
        f"{slowest:.1f} s at most; {left} processes left, {orphans} of a killed trainer"
    )
    return int(not named == saved == resumed == len(outcomes) or left + orphans > 0 or slowest >= EXIT_SECONDS)


if __name__ == "__main__":
    raise SystemExit(main())
