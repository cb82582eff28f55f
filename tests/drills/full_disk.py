"""Fill the disk at random moments of a run, make room, and check that the run can be resumed.

  python tests/drills/full_disk.py --count 10

If user namespaces are allowed, the disk is a small one in memory with a random number of free bytes, so that any file
may be the first that does not fit. Otherwise the size of files is limited. A run must end with code 2, a one-line error
and no half-written file. After room is made and it is resumed, it must equal an uninterrupted run bit for bit. The last
line has figures.
"""

import os
import random
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from common import INTERVAL, Checkpoints, begin, config_for, contents, directory_of, finish, parser, resume

SIZE = 64 * 2**20  # bytes of the small disk
END = 3 * INTERVAL
INSIDE = "BYOL_EXPLORE_DRILL_DISK"


class Outcome(NamedTuple):
    code: int
    lines: int  # of its error
    half_written: int  # files and directories
    resumed: bool
    identical: bool


def is_half_written(path: Path) -> bool:
    return path.name.endswith((".tmp", ".orbax-checkpoint-tmp"))


def once(directory: Path, disk: Path, room: int, *, is_small: bool, reference: Path) -> Outcome:
    """Train with `room` free bytes, make room, and resume."""
    run, filler = disk / "run", disk / "filler"
    shutil.rmtree(run, ignore_errors=True)
    config = config_for("grid", steps=END)
    if is_small:
        free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
        with filler.open("wb") as file:
            file.write(bytes(max(0, free - room)))
        process = begin(directory, run, config)
    else:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))  # the process inherits it
        process = begin(directory, run, config)
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    code, _, err = finish(process)
    filler.unlink(missing_ok=True)
    half = sum(map(is_half_written, run.rglob("*")))
    if code not in (0, 2) or len(err.splitlines()) > 1 or half:
        print(f"room for {room} bytes, code {code}: {err[:2000]}", [p for p in run.rglob("*") if is_half_written(p)])
    has_begun = (run / "config.json").exists()
    process = resume(directory, run) if has_begun else begin(directory, run, config)
    is_resumed = finish(process)[0] == 0
    return Outcome(code, len(err.splitlines()), half, is_resumed, is_resumed and contents(run) == contents(reference))


def small_disk() -> None:
    """Restart this process in a namespace that may mount a disk, if that is possible."""
    command = ["unshare", "--map-root-user", "--mount", sys.executable, *sys.argv]
    try:
        subprocess.run([*command[:3], "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return
    os.environ[INSIDE] = "1"
    os.execvp(command[0], command)


def main() -> int:
    options = parser(__doc__ or "", 10).parse_args()
    if INSIDE not in os.environ:
        small_disk()
    directory, rng, is_small = directory_of(options), random.Random(options.seed), INSIDE in os.environ
    disk, reference = directory / "disk", directory / "reference"
    disk.mkdir(exist_ok=True)
    if is_small:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(disk)], check=True)
    if not (reference / "summary.json").exists():
        code, _, err = finish(begin(directory, reference, config_for("grid", steps=END)))
        if code:
            raise RuntimeError(err)
    step = Checkpoints(reference / "checkpoints").steps()[-1]
    newest = reference / "checkpoints" / f"step_{step:012d}"
    files = [path.stat().st_size for path in newest.rglob("*") if path.is_file()]
    most = 5 * sum(-(-size // 4096) * 4096 for size in files) if is_small else max(files)
    outcomes = []
    for number in range(options.count):
        room = 0 if number == 0 and is_small else rng.randrange(4096, most)
        outcomes.append(once(directory, disk, room, is_small=is_small, reference=reference))
        print(room, outcomes[-1], flush=True)
    if is_small:
        subprocess.run(["umount", str(disk)], check=True)
    full = [outcome for outcome in outcomes if outcome.code != 0]
    good = sum(outcome.code == 2 and outcome.lines == 1 for outcome in full)
    half, resumed, same = (sum(getattr(o, name) for o in outcomes) for name in Outcome._fields[2:])
    kind = "a small one" if is_small else "short files"
    print(
        f"full disk ({kind}): {len(full)} of {len(outcomes)} runs met it: {good} with one line and code 2, "
        f"{half} things half-written; with room {resumed} went on, {same} bit-identical"
    )
    return int(good != len(full) or bool(half) or not resumed == same == len(outcomes))


if __name__ == "__main__":
    raise SystemExit(main())
