"""Read hostile run directories with the commands for runs, and check their output.

  python tests/drills/hostile.py --count 200

A study of three runs is damaged: in one of the ways that tests know by name, or values anywhere in its files are
replaced by text, markup, formulas, huge numbers and deep nesting; names are hostile too. Then `report`, `publish` and
`study --dry-run` read it. Each must end in time and without a traceback. The page must contain none of our markup and
no file from outside the runs, and tables must contain no formulas. The last line has figures.
"""

import contextlib
import csv
import io
import json
import random
import shutil
import signal
import traceback
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from common import directory_of, parser

from byol_explore.cli.main import main as byol_explore
from report.damages import READABLE, UNREADABLE, Damage
from report.synthetic import make_rows, write_run

LIMIT = 60  # seconds for a command
SECRET = "a-secret-outside-of-all-runs"
MARKUP = "<script>stolen()</script>"
HOSTILE: list[Any] = [
    MARKUP, f'">{MARKUP}', "[/bold][red]x", "[link=http://x]y", "=cmd()", "+1", "-1+2", "@x", "\t=1", "../../secret",
    "\0", "\ud800", "x" * 10_000, "", None, True, -1, 1e308, float("nan"), float("inf"), int("9" * 300), [], {}, [[[]]],
    {"a": {"b": None}}, ["a", 1, None],
]  # fmt: skip
NAMES = ["mine-seed0", "=1+1-seed0", "<b>bold<b>-seed0", "[red]x[", "-seed0", "@sum-seed7", "a b\tc-seed0", "ü\n-seed0"]


class TooLateError(BaseException):
    """A command did not end in time. No `except Exception` catches it."""


def too_late(number: int, frame: FrameType | None) -> None:
    raise TooLateError


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values in a JSON document."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path, *(place for name, value in items for place in places(value, (*path, name)))]


def replace(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Replace the value at a path."""
    if not path:
        return value
    tree[path[0]] = replace(tree[path[0]], path[1:], value)
    return tree


def mutate(run: Path, rng: random.Random) -> str:
    """Replace some values of a file. Returns a description."""
    name = rng.choice(["config.json", "config.json", "metrics.jsonl", "summary.json"])
    lines = (run / name).read_text().splitlines() if name.endswith("l") else [(run / name).read_text()]
    index = rng.randrange(len(lines))
    document = json.loads(lines[index])
    for _ in range(rng.choice([1, 1, 3])):
        document = replace(document, rng.choice(places(document)), rng.choice(HOSTILE))
    lines[index] = json.dumps(document)
    (run / name).write_text("\n".join(lines) + "\n")
    return f"values of {name}"


def damage(root: Path, rng: random.Random) -> str:
    """Write a study of three runs with a damage. Returns a description."""
    shutil.rmtree(root, ignore_errors=True)
    write_run(root / "rooms-6", "rnd-seed0", make_rows([0.5, 0.25]), method="rnd")
    write_run(root / "rooms-6", "byol-explore-seed0")
    run = write_run(root / "rooms-6", rng.choice(NAMES))
    if rng.random() < 0.4:
        ways: dict[str, Damage] = {**UNREADABLE, **READABLE}
        name = rng.choice(sorted(ways))
        ways[name](run)
        return name
    if rng.random() < 0.2:
        (run / "films").mkdir()
        target = rng.choice(
            ["films/rooms-6-after.gif", "rooms.png", "curves.png", "room_coverage.json", "visit_maps.json"]
        )
        (run / target).symlink_to(root.parent / "secret")
        return f"{target} leads out"
    return mutate(run, rng)


def run_command(*arguments: str) -> str:
    """Run a command. Returns "ended", or how it failed."""
    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(LIMIT)
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = byol_explore(arguments)
    except TooLateError:
        return "hang"
    except BaseException:
        print(traceback.format_exc())
        return "traceback"
    finally:
        signal.alarm(0)
    return "ended" if code in (0, 2) and "Traceback" not in err.getvalue() else "traceback"


def find_faults(made: Path) -> list[str]:
    """Return the faults of a page and the files beside it, or of a copy of runs."""
    found = []
    for path in (path for path in made.rglob("*") if path.is_file() and not path.is_symlink()):
        content = path.read_bytes()
        if SECRET.encode() in content:
            found.append("leak")
        if path.suffix == ".html" and MARKUP.encode() in content:
            found.append("markup")
        if path.suffix == ".csv":
            cells = [cell for row in csv.reader(io.StringIO(content.decode())) for cell in row]
            found += ["formula" for cell in cells if cell[:1] in ("=", "+", "-", "@", "\t") and not is_number(cell)]
    return found


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def drill(directory: Path, rng: random.Random) -> list[str]:
    """Damage one study and read it with all commands. Returns the faults."""
    root, page, copy = directory / "runs", directory / "page", directory / "copy"
    for path in (page, copy):
        shutil.rmtree(path, ignore_errors=True)
    what = damage(root, rng)
    outcomes = [
        run_command("report", str(root), "--out", str(page)),
        run_command("publish", str(root), "--out", str(copy)),
        run_command("study", "rooms", "--study-dir", str(root), "--dry-run"),
    ]
    wrong = [outcome for outcome in outcomes if outcome != "ended"] + find_faults(page) + find_faults(copy)
    if wrong:
        print(f"{what}: {', '.join(wrong)}", flush=True)
    return wrong


def main() -> int:
    options = parser(__doc__ or "", 200).parse_args()
    directory = directory_of(options)
    (directory / "secret").write_text(SECRET)
    rng, wrong = random.Random(options.seed), Counter[str]()
    for _ in range(options.count):
        wrong.update(drill(directory, rng))
    figures = ", ".join(f"{wrong[name]} {name}s" for name in ("traceback", "hang", "leak", "formula"))
    markup = f"{wrong['markup']} pages with markup"
    print(f"hostile: {options.count} studies read by report, publish and study: {figures}, {markup}")
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
