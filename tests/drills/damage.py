"""Damage checkpoints in random ways and check that no damaged one is restored.

  python tests/drills/damage.py --count 300

Every damage is done to a copy of a run with three checkpoints: bits are flipped, files are cut, zeroed, lengthened,
removed or taken from another checkpoint. The restored state must be the one that was saved at its step, or restoring
must fail. Then as many damages are done to copies of the files beside the arrays: configuration, log, summary, scores,
state of a study, and a saved Curiosity; values in them are also replaced by other ones and by other shapes. Each must
be read as it was written, or its damage be named in one line. At the end the newest two checkpoints are damaged,
and the run is resumed twice: the second time from its own new checkpoint. The last line has figures.
"""

import json
import random
import shutil
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import hostile
import jax
import numpy as np
from common import DISPATCH, INTERVAL, Checkpoints, begin, config_for, directory_of, finish, parser, resume

from byol_explore import Curiosity
from byol_explore.errors import UserError
from byol_explore.storage.metrics import LogReader
from byol_explore.storage.run_directory import load_config
from byol_explore.study.progress import RunState, read_failures, write_state
from byol_explore.utils.files import read_json_object
from dropins import experienced


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


def reshape(path: Path, other: Path, rng: random.Random) -> None:
    """Replace values of a JSON document, or of a line of JSON, by hostile ones."""
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    index = rng.randrange(len(lines))
    document = json.loads(lines[index])
    for _ in range(rng.choice([1, 1, 3])):
        value = rng.choice([*hostile.HOSTILE, rng.random(), rng.randrange(10)])
        document = hostile.replace(document, rng.choice(hostile.places(document)[1:]), value)
    lines[index] = rng.choice([json.dumps(document)] * 4 + ["[" * 100_000])
    path.write_text("\n".join(lines) + "\n")


class Case(NamedTuple):
    """A file, and what reads it."""

    name: str
    path: Path
    read: Callable[[Path], tuple[Any, bool]]  # value, and whether damage was named


def read_log(path: Path) -> tuple[Any, bool]:
    """Return the rows; a row that is missing was named, or is missed when the run is resumed."""
    reader = LogReader(path)
    return {row["steps"]: row for row in reader}, True


def read_scores(path: Path) -> tuple[Any, bool]:
    checkpoints = Checkpoints(path.parents[2])
    return checkpoints.scores(), len(checkpoints.without_score()) + len(checkpoints.scores()) == len(
        checkpoints.steps()
    )


def read_study(path: Path) -> tuple[Any, bool]:
    failures, damage = read_failures(path)
    return failures, bool(damage) or not path.exists()


def read_curiosity(path: Path) -> tuple[Any, bool]:
    loaded = Curiosity.load(path)
    leaves = jax.tree.leaves(loaded.progress._replace(record=()))
    return [np.asarray(leaf).tobytes() for leaf in leaves] + [repr(loaded.progress.record)], False


def make_cases(directory: Path, run: Path) -> list[Case]:
    """Copy the files of a run, and write those that it does not have."""
    place = directory / "files"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(run, place)
    states = {f"run-{i}": RunState("failed", i, 9, 1.0, exit_code=i, message=f"broke {i}") for i in range(3)}
    write_state(place / "study.json", "small", states, None)
    experienced(updates=1).save(place / "mine.npz")
    newest = sorted((place / "checkpoints").glob("step_*"))[-1]
    return [
        Case("config.json", place / "config.json", lambda path: (load_config(path.parent), False)),
        Case("metrics.jsonl", place / "metrics.jsonl", read_log),
        Case("summary.json", place / "summary.json", lambda path: (read_json_object(place, path.name), False)),
        Case("scores", newest / "meta" / "metadata", read_scores),
        Case("study.json", place / "study.json", read_study),
        Case("Curiosity", place / "mine.npz", read_curiosity),
    ]


def is_part(value: Any, whole: Any) -> bool:
    """Return True for an object with some of the items of another one."""
    return isinstance(whole, dict) and all(name in whole and whole[name] == each for name, each in value.items())


def damage_file(case: Case, expected: Any, rng: random.Random) -> str:
    """Damage a file, read it and put it back. Returns the outcome."""
    content = case.path.read_bytes()
    ways = [flip, flip, flip, cut, zero, lengthen, remove] + ([reshape] * 3 if case.name != "Curiosity" else [])
    rng.choice(ways)(case.path, case.path, rng)
    try:
        value, named = case.read(case.path)
    except (UserError, OSError, ValueError) as error:  # readers of summaries and logs handle these
        expects_line = case.name in ("config.json", "Curiosity")
        outcome = "noticed" if "\n" not in str(error) and isinstance(error, UserError) >= expects_line else "traceback"
    except Exception:
        outcome = "traceback"
    else:
        outcome = "harmless" if value == expected else "noticed" if named and is_part(value, expected) else "silent"
    if outcome in ("silent", "traceback"):
        print(f"{case.name}: {outcome}: {traceback.format_exc()}", flush=True)
    case.path.write_bytes(content)
    return outcome


def damage_files(directory: Path, run: Path, count: int, rng: random.Random) -> Counter[str]:
    """Damage the files beside the arrays. Returns the number of each outcome."""
    cases, outcomes = make_cases(directory, run), Counter[str]()
    expected = {case.name: case.read(case.path)[0] for case in cases}
    for index in range(count):
        case = cases[index % len(cases)]
        outcomes[damage_file(case, expected[case.name], rng)] += 1
    return outcomes


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
    files = damage_files(directory, run, options.count, rng)
    repeated = resume_twice(directory, run)
    print(
        f"files: {options.count} damages of {', '.join(case.name for case in make_cases(directory, run))}: "
        f"{files['noticed']} noticed, {files['harmless']} harmless, {files['silent']} silent, "
        f"{files['traceback']} tracebacks"
    )
    print(
        f"damage: {options.count} damages: {outcomes['noticed']} noticed, {outcomes['refused']} refused, "
        f"{outcomes['harmless']} harmless, {outcomes['silent']} silent; with the newest two damaged, {repeated} of 2 "
        "starts went back again"
    )
    return int(bool(outcomes["silent"] or repeated or files["silent"] or files["traceback"]))


if __name__ == "__main__":
    raise SystemExit(main())
