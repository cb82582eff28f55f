"""Functions that damage the files of a run directory, by name."""

import gzip
import json
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

Damage = Callable[[Path], object]

DEEP = "[" * 100_000
DIGITS = "9" * 400  # an integer beyond the range of floats
MORE_DIGITS = "9" * 10_000  # an integer that Python refuses to parse


def text(name: str, content: str) -> Damage:
    return lambda run: _prepare(run / name).write_text(content)


def raw(name: str, content: bytes) -> Damage:
    return lambda run: _prepare(run / name).write_bytes(content)


def pipe(name: str) -> Damage:
    return lambda run: os.mkfifo(_prepare(run / name))


def link(name: str, to: str) -> Damage:
    return lambda run: _prepare(run / name).symlink_to(to)


def folder(name: str) -> Damage:
    return lambda run: _prepare(run / name).mkdir()


def line(content: str) -> Damage:
    return lambda run: (run / "metrics.jsonl").write_text((run / "metrics.jsonl").read_text() + content + "\n")


def setting(**changes: Any) -> Damage:
    def change(run: Path) -> None:
        config = json.loads((run / "config.json").read_text())
        (run / "config.json").write_text(json.dumps({**config, **changes}))

    return change


def all_of(*damages: Damage) -> Damage:
    return lambda run: [damage(run) for damage in damages]


def maps(floor: list[str], content: str, *, slices: int = 1) -> Damage:
    """Write maps with `content`, JSON, as visits and as rewards."""
    part = f'{{"from": 0, "to": 100, "visits": {content}, "intrinsic_reward": {content}}}'
    every = ",".join([part] * slices)
    return text("visit_maps.json", f'{{"tasks": {{"rooms-6": {{"floor": {json.dumps(floor)}, "slices": [{every}]}}}}}}')


def coverage(content: str) -> Damage:
    """Write room_coverage.json with `content`, JSON, and a layout that is drawn."""
    montezuma = setting(env="atari:montezuma_revenge", preset="atari-small")
    content = content.replace('{"rooms"', '{"layout": "pyramid", "rooms"')
    return all_of(montezuma, text("room_coverage.json", content))


def huge_picture() -> bytes:
    """Make the header of a PNG of 60,000 x 60,000."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IEND", b"")


def _prepare(path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    return path


UNREADABLE: dict[str, Damage] = {  # the run is unreadable: it is listed and left out
    "steps are text": setting(steps="many"),
    "steps are null": setting(steps=None),
    "steps are infinite": text("config.json", '{"env": "rooms-6", "seed": 0, "method": "rnd", "steps": 1e999}'),
    "steps are a list": setting(steps=[1]),
    "steps are too many": setting(steps=int(DIGITS)),
    "share is text": setting(stop_at_success_rate="half"),
    "share is null": setting(stop_at_success_rate=None),
    "share is nan": setting(stop_at_success_rate=float("nan")),
    "seed is text": setting(seed="zero"),
    "seed is null": setting(seed=None),
    "seed is infinite": setting(seed=float("inf")),
    "seed is huge": setting(seed=int(DIGITS)),
    "seed is true": setting(seed=True),
    "env is null": setting(env=None),
    "env is a number": setting(env=5),
    "env is empty": setting(env=""),
    "env has 20,000 tasks": setting(env=",".join(f"rooms-{size}" for size in range(20_000))),
    "env is endless": setting(env="x" * 300_000),
    "method is a number": setting(method=5),
    "method is a table": setting(method={"name": "rnd"}),
    "preset is a list": setting(preset=["grid"]),
    "preset is null": setting(preset=None),
    "ablation is null": setting(ablation=None),
    "regime is a number": setting(regime=3),
    "a part is text": setting(curiosity="yes"),
    "config is deep": text("config.json", DEEP),
    "config is many tables deep": text("config.json", '{"a":' * 900 + "1" + "}" * 900),
    "config is many lists deep": text("config.json", '{"env": ' + "[" * 900 + "]" * 900 + "}"),
    "config is a list": text("config.json", "[]"),
    "config is empty": text("config.json", ""),
    "config is no text": raw("config.json", b"\xff\xfe\xff"),
    "config is zeros": raw("config.json", bytes(5000)),
    "config is huge": text("config.json", " " * 2_000_000),
    "config is a pipe": pipe("config.json"),
    "config never ends": link("config.json", "/dev/zero"),
    "config lies elsewhere": link("config.json", "../rnd-seed0/config.json"),
    "config is a folder": folder("config.json"),
    "log is a pipe": pipe("metrics.jsonl"),
    "log never ends": link("metrics.jsonl", "/dev/zero"),
    "log lies elsewhere": link("metrics.jsonl", "../rnd-seed0/metrics.jsonl"),
    "log is a folder": folder("metrics.jsonl"),
    "packed log is none": all_of(lambda run: (run / "metrics.jsonl").unlink(), raw("metrics.jsonl.gz", b"junk")),
    "packed log is one line without end": all_of(
        lambda run: (run / "metrics.jsonl").unlink(), raw("metrics.jsonl.gz", gzip.compress(b"1" * 11_000_000, 1))
    ),
}

READABLE: dict[str, Damage] = {  # the damaged part is ignored
    "method leads out": setting(method="json:loads"),
    "preset leads out": setting(preset="json:loads"),
    "ablation is unknown": setting(ablation="all"),
    "env has half a letter": setting(env="rooms\ud800"),
    "env has a line break": setting(env="rooms\n-6"),
    "env has a zero": setting(env="rooms\0"),
    "summary is null": text("summary.json", "null"),
    "summary is deep": text("summary.json", DEEP),
    "summary says text": text("summary.json", '{"steps": "all"}'),
    "summary says null": text("summary.json", '{"steps": null}'),
    "summary says 1e999": text("summary.json", '{"steps": 1e999}'),
    "summary says a huge number": text("summary.json", f'{{"steps": {DIGITS}}}'),
    "summary says a number without end": text("summary.json", f'{{"steps": {MORE_DIGITS}}}'),
    "summary is a pipe": pipe("summary.json"),
    "summary never ends": link("summary.json", "/dev/zero"),
    "summary is a folder": folder("summary.json"),
    "summary leads to itself": link("summary.json", "summary.json"),
    "log has a number": line("123"),
    "log has null": line("null"),
    "log has depths": line(DEEP),
    "log has no step": line('{"success_rate": 0.5}'),
    "step is text": line('{"steps": "400"}'),
    "step is 1e999": line('{"steps": 1e999}'),
    "step is 1e300": line('{"steps": 1e300}'),
    "step is huge": line(f'{{"steps": {DIGITS}}}'),
    "step is negative": line('{"steps": -4}'),
    "steps go back": line('{"steps": 400, "success_rate": 1.0}\n{"steps": 50, "success_rate": 0.5}'),
    "values are 1e999": line('{"steps": 400, "success_rate": 1e999, "elapsed_seconds": 1e999, "uncertainty": -1e999}'),
    "values are 1e308": line('{"steps": 400, "success_rate": 1e308, "return_mean": -1e308, "uncertainty": 1e308}'),
    "values are huge": line(f'{{"steps": 400, "success_rate": {DIGITS}, "prediction_error": [{DIGITS}]}}'),
    "values are text": line('{"steps": 400, "success_rate": "high", "prediction_error": ["a", null, [1], {}]}'),
    "tasks are no table": all_of(setting(env="a,b"), line('{"steps": 400, "tasks": [1], "evaluation": 5}')),
    "a task is no table": all_of(setting(env="a,b"), line('{"steps": 400, "tasks": {"a": 5}, "evaluation": {"a": 5}}')),
    "log is noise": raw("metrics.jsonl", bytes(range(256)) * 50),
    "maps are deep": text("visit_maps.json", DEEP),
    "maps are null": text("visit_maps.json", '{"tasks": {"rooms-6": null}}'),
    "maps have no floor": maps([], "[]"),
    "maps have a floor of nothing": maps([""], "[[]]"),
    "maps are a tower": maps(["."] * 900, json.dumps([[1]] * 900)),
    "maps are vast": maps(["." * 1500], json.dumps([[1] * 1500])),
    "maps have a thousand slices": maps(["."], "[[1]]", slices=1000),
    "maps have a huge number": maps(["."], f"[[{DIGITS}]]"),
    "maps have 1e999": maps(["."], "[[1e999]]"),
    "maps have 1e308": maps([".."], "[[1e308, 1e-308]]"),
    "maps have text": maps([".."], '["ab"]'),
    "maps are a pipe": pipe("visit_maps.json"),
    "maps never end": link("visit_maps.json", "/dev/zero"),
    "coverage is deep": coverage(DEEP),
    "coverage has no size": coverage('{"rooms": [], "cell": 0, "visits": []}'),
    "coverage is outside": coverage('{"rooms": [[0, 1, 5]], "cell": 8, "visits": [[0, 1, 0, 99999, 3]]}'),
    "coverage has 1e999": coverage('{"rooms": [[0, 1, 1e999]], "cell": 8, "visits": [[0, 1, 0, 0, 1e999]]}'),
    "coverage has text": coverage('{"rooms": [["a", "b", "c"]], "cell": 8, "visits": []}'),
    "coverage has a huge number": coverage(f'{{"rooms": [[0, 1, {DIGITS}]], "cell": {DIGITS}, "visits": []}}'),
    "picture is none": all_of(coverage("{}"), text("rooms.png", "junk")),
    "picture is huge": all_of(coverage("{}"), raw("rooms.png", huge_picture())),
    "picture is a pipe": all_of(coverage("{}"), pipe("rooms.png")),
    "picture never ends": all_of(coverage("{}"), link("rooms.png", "/dev/zero")),
    "film is none": text("films/rooms-6-after.gif", "GIF89a"),
    "film is huge": raw("films/rooms-6-after.gif", huge_picture()),
    "film never ends": link("films/rooms-6-after.gif", "/dev/zero"),
    "films are a file": text("films", ""),
}
