"""Damage checkpoints in random ways and check that no damaged one is restored.

  python tests/drills/damage.py --count 300

Every damage is done to a copy of a run with three checkpoints: bits are flipped, files are cut, zeroed, lengthened,
removed or taken from another checkpoint. The restored state must be the one that was saved at its step, or restoring
must fail. At the end the newest two checkpoints of a run are damaged, and the run is resumed twice: the second time
from its own new checkpoint. The last line has figures.
"""

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import numpy as np
from common import DISPATCH, INTERVAL, Checkpoints, begin, config_for, directory_of, finish, parser, resume

from byol_explore.errors import UserError


def flip(path: Path, other: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 1, 8])):
        if content:
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def cut(path: Path, other: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content) + 1)])


def zero(path: Path, other: Path, rng: random.Random) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def lengthen(path: Path, other: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes() + rng.randbytes(64))


def remove(path: Path, other: Path, rng: random.Random) -> None:
    path.unlink()


def swap(path: Path, other: Path, rng: random.Random) -> None:
    """Replace the arrays of a checkpoint, or the data beside them, by those of another checkpoint."""
    part = path.relative_to(other.parent).parts[1]
    own = other.parent / path.relative_to(other.parent).parts[0]
    if other != own and (own / part).is_dir():
        shutil.rmtree(own / part)
        shutil.copytree(other / part, own / part)


WAYS = (flip, flip, cut, zero, lengthen, remove, swap)


def arrays_of(checkpoints: Checkpoints, step: int) -> dict[str, np.ndarray]:
    return checkpoints._read(step)[0]


def train_three(directory: Path, run: Path) -> Checkpoints:
    """Train a run with three checkpoints; the first one, which would be deleted, is put back."""
    for path in (run, directory / "first"):
        shutil.rmtree(path, ignore_errors=True)
    first = run / "checkpoints" / f"step_{INTERVAL:012d}"
    for process in (lambda: begin(directory, run, config_for("grid", steps=INTERVAL)),
                    lambda: resume(directory, run, "--steps", 3 * INTERVAL)):  # fmt: skip
        code, _, err = finish(process())
        if code:
            raise RuntimeError(err)
        if not (directory / "first").exists():
            shutil.copytree(first, directory / "first")
    shutil.copytree(directory / "first", first, dirs_exist_ok=True)
    return Checkpoints(run / "checkpoints")


def damage_once(saved: Path, work: Path, template: Any, expected: dict[int, Any], rng: random.Random) -> str:
    """Damage up to three of the newest checkpoints. Returns the outcome of restoring."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(saved, work)
    checkpoints = Checkpoints(work)
    steps = checkpoints.steps()
    for step in steps[-rng.choice([1, 1, 2, 3]) :]:
        files = sorted(path for path in (work / f"step_{step:012d}").rglob("*") if path.is_file())
        rng.choice(WAYS)(rng.choice(files), work / f"step_{rng.choice(steps):012d}", rng)
    try:
        restored = checkpoints.restore(template)
    except UserError:
        return "refused"
    step = restored.meta["step"]
    equal = jax.tree.map(
        lambda one, two: np.array_equal(np.asarray(one), np.asarray(two)), restored.state, expected[step]
    )
    if not all(jax.tree.leaves(equal)):
        return "silent"
    return "noticed" if restored.skipped else "harmless"


def resume_twice(directory: Path, run: Path) -> int:
    """Damage the newest two checkpoints and resume twice. Returns how often a run resumed from a wrong step."""
    checkpoints = Checkpoints(run / "checkpoints")
    for step in checkpoints.steps()[-2:]:
        remove(run / "checkpoints" / f"step_{step:012d}" / "meta" / "metadata", run, random.Random(0))
    older, newest = checkpoints.steps()[0], checkpoints.steps()[-1]
    ends = [newest + DISPATCH, newest + INTERVAL + DISPATCH]
    repeated = 0
    for end, before in zip(ends, [older, ends[0]], strict=True):
        code, out, err = finish(resume(directory, run, "--steps", end))
        if code or f"continuing from step {before:,}" not in out:
            print(code, out, err)
            repeated += 1
    return repeated


def main() -> int:
    options = parser(__doc__ or "", 300).parse_args()
    directory = directory_of(options)
    run, work = directory / "run", directory / "work"
    checkpoints = train_three(directory, run)
    expected = {step: arrays_of(checkpoints, step) for step in checkpoints.steps()}
    template = jax.tree.map(jax.numpy.asarray, expected[checkpoints.steps()[0]])
    rng, outcomes = random.Random(options.seed), Counter()
    for _ in range(options.count):
        outcomes[damage_once(run / "checkpoints", work, template, expected, rng)] += 1
    repeated = resume_twice(directory, run)
    print(
        f"damage: {options.count} damages: {outcomes['noticed']} noticed, {outcomes['refused']} refused, "
        f"{outcomes['harmless']} harmless, {outcomes['silent']} silent; with the newest two damaged, {repeated} of 2 "
        "starts went back again"
    )
    return int(bool(outcomes["silent"] or repeated))


if __name__ == "__main__":
    raise SystemExit(main())
