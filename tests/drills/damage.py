"""Damage checkpoints in random ways and see whether anybody is deceived.

  python tests/drills/damage.py --count 300

Every damage is done to a copy of a run with three checkpoints: bits are flipped, files are cut, emptied, lengthened,
removed or taken from another checkpoint. What is restored then must be what was saved at its step, or nothing. At the
end the newest two of a run are damaged, which goes on and on from its own new checkpoints. The last line has figures.
"""

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import numpy as np
from common import DISPATCH, INTERVAL, Checkpoints, begin, config_for, directory_of, finish, go_on, parser

from byol_explore.errors import UserError


def flip(path: Path, other: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(chance.choice([1, 1, 8])):
        if content:
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def cut(path: Path, other: Path, chance: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(len(content) + 1)])


def zero(path: Path, other: Path, chance: random.Random) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def lengthen(path: Path, other: Path, chance: random.Random) -> None:
    path.write_bytes(path.read_bytes() + chance.randbytes(64))


def remove(path: Path, other: Path, chance: random.Random) -> None:
    path.unlink()


def swap(path: Path, other: Path, chance: random.Random) -> None:
    """The whole directory of arrays, or what was saved beside them, with that of another checkpoint."""
    part = path.relative_to(other.parent).parts[1]
    mine = other.parent / path.relative_to(other.parent).parts[0]
    if other != mine and (mine / part).is_dir():
        shutil.rmtree(mine / part)
        shutil.copytree(other / part, mine / part)


WAYS = (flip, flip, cut, zero, lengthen, remove, swap)


def arrays_of(checkpoints: Checkpoints, step: int) -> dict[str, np.ndarray]:
    return checkpoints._read(step)[0]


def train_three(directory: Path, run: Path) -> Checkpoints:
    """A run with three checkpoints, of which the first is kept as if it had been the best."""
    for path in (run, directory / "first"):
        shutil.rmtree(path, ignore_errors=True)
    first = run / "checkpoints" / f"step_{INTERVAL:012d}"
    for process in (lambda: begin(directory, run, config_for("grid", steps=INTERVAL)),
                    lambda: go_on(directory, run, "--steps", 3 * INTERVAL)):  # fmt: skip
        code, _, err = finish(process())
        if code:
            raise RuntimeError(err)
        if not (directory / "first").exists():
            shutil.copytree(first, directory / "first")
    shutil.copytree(directory / "first", first, dirs_exist_ok=True)
    return Checkpoints(run / "checkpoints")


def damage_once(saved: Path, work: Path, template: Any, expected: dict[int, Any], chance: random.Random) -> str:
    """What came of a damage to the newest checkpoint, or to each of the newest two."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(saved, work)
    checkpoints = Checkpoints(work)
    steps = checkpoints.steps()
    for step in steps[-chance.choice([1, 1, 2, 3]) :]:
        files = sorted(path for path in (work / f"step_{step:012d}").rglob("*") if path.is_file())
        chance.choice(WAYS)(chance.choice(files), work / f"step_{chance.choice(steps):012d}", chance)
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
    return "noticed" if restored.damaged else "harmless"


def goes_on(directory: Path, run: Path) -> int:
    """Damage the newest two checkpoints and go on twice: how many intervals the second start had to repeat."""
    checkpoints = Checkpoints(run / "checkpoints")
    for step in checkpoints.steps()[-2:]:
        remove(run / "checkpoints" / f"step_{step:012d}" / "meta" / "metadata", run, random.Random(0))
    older = checkpoints.steps()[0]
    ends = [older + INTERVAL + DISPATCH, older + 2 * INTERVAL + DISPATCH]
    repeated = 0
    for end, before in zip(ends, [older, ends[0]], strict=True):
        code, out, err = finish(go_on(directory, run, "--steps", end))
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
    chance, outcomes = random.Random(options.seed), Counter()
    for _ in range(options.count):
        outcomes[damage_once(run / "checkpoints", work, template, expected, chance)] += 1
    repeated = goes_on(directory, run)
    print(
        f"damage: {options.count} damages: {outcomes['noticed']} noticed, {outcomes['refused']} refused, "
        f"{outcomes['harmless']} harmless, {outcomes['silent']} silent; with the newest two damaged, {repeated} of 2 "
        "starts went back again"
    )
    return int(bool(outcomes["silent"] or repeated))


if __name__ == "__main__":
    raise SystemExit(main())
