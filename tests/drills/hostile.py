"""Give run directories that nobody should trust to the commands that read them, and look at what comes out.

  python tests/drills/hostile.py --count 200

A study of three runs is damaged in some way: one of the ways that tests know by name, or values anywhere in its files
are replaced by text, markup, formulas, endless numbers and depths; names are hostile too. Then `report`, `thin` and
`study --dry-run` read it. Each must end in time, in its own words and without a traceback; the page must hold no
markup of ours and nothing from outside, tables no formulas. The last line has the figures.
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
from report.damages import NAMED, READ, Damage
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
    """Of a command that does not end; nothing that catches errors catches it."""


def too_late(number: int, frame: FrameType | None) -> None:
    raise TooLateError


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where in a JSON document values are."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path, *(place for name, value in items for place in places(value, (*path, name)))]


def replaced(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The document with another value in a place."""
    if not path:
        return value
    tree[path[0]] = replaced(tree[path[0]], path[1:], value)
    return tree


def mutate(run: Path, chance: random.Random) -> str:
    """Some values of a file are others now."""
    name = chance.choice(["config.json", "config.json", "metrics.jsonl", "summary.json"])
    lines = (run / name).read_text().splitlines() if name.endswith("l") else [(run / name).read_text()]
    index = chance.randrange(len(lines))
    document = json.loads(lines[index])
    for _ in range(chance.choice([1, 1, 3])):
        document = replaced(document, chance.choice(places(document)), chance.choice(HOSTILE))
    lines[index] = json.dumps(document)
    (run / name).write_text("\n".join(lines) + "\n")
    return f"values of {name}"


def damage(root: Path, chance: random.Random) -> str:
    """A study of three runs with something wrong in it."""
    shutil.rmtree(root, ignore_errors=True)
    write_run(root / "rooms-6", "rnd-seed0", make_rows([0.5, 0.25]), method="rnd")
    write_run(root / "rooms-6", "byol-explore-seed0")
    run = write_run(root / "rooms-6", chance.choice(NAMES))
    if chance.random() < 0.4:
        ways: dict[str, Damage] = {**NAMED, **READ}
        name = chance.choice(sorted(ways))
        ways[name](run)
        return name
    if chance.random() < 0.2:
        (run / "films").mkdir()
        target = chance.choice(["films/rooms-6-after.gif", "rooms.png", "curves.png", "coverage.json", "maps.json"])
        (run / target).symlink_to(root.parent / "secret")
        return f"{target} leads out"
    return mutate(run, chance)


def read_by(*words: str) -> str:
    """What came of a command: "ended", or in which way it failed."""
    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(LIMIT)
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = byol_explore(words)
    except TooLateError:
        return "hang"
    except BaseException:
        print(traceback.format_exc())
        return "traceback"
    finally:
        signal.alarm(0)
    return "ended" if code in (0, 2) and "Traceback" not in err.getvalue() else "traceback"


def looks_at(made: Path) -> list[str]:
    """What is wrong with a page and the files beside it, or with a copy of runs."""
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


def drill(directory: Path, chance: random.Random) -> list[str]:
    """One study damaged and read by all: what was wrong with it."""
    root, page, copy = directory / "runs", directory / "page", directory / "copy"
    for path in (page, copy):
        shutil.rmtree(path, ignore_errors=True)
    what = damage(root, chance)
    outcomes = [
        read_by("report", str(root), "--out", str(page)),
        read_by("thin", str(root), "--out", str(copy)),
        read_by("study", "rooms", "--dir", str(root), "--dry-run"),
    ]
    wrong = [outcome for outcome in outcomes if outcome != "ended"] + looks_at(page) + looks_at(copy)
    if wrong:
        print(f"{what}: {', '.join(wrong)}", flush=True)
    return wrong


def main() -> int:
    options = parser(__doc__ or "", 200).parse_args()
    directory = directory_of(options)
    (directory / "secret").write_text(SECRET)
    chance, wrong = random.Random(options.seed), Counter[str]()
    for _ in range(options.count):
        wrong.update(drill(directory, chance))
    figures = ", ".join(f"{wrong[name]} {name}s" for name in ("traceback", "hang", "leak", "formula"))
    markup = f"{wrong['markup']} pages with markup"
    print(f"hostile: {options.count} studies read by report, thin and study: {figures}, {markup}")
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
