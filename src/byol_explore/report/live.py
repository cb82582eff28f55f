"""A live report: a page on this machine, rebuilt in the background when the files of its runs change."""

import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from byol_explore.report.maps_and_films import KINDS
from byol_explore.report.model import Report, Section, Text
from byol_explore.report.page import render_page
from byol_explore.report.read_runs import CONFIG, walk_folders
from byol_explore.storage.metrics import LOG_NAME, PACKED_LOG_NAME
from byol_explore.storage.run_directory import SEARCH
from byol_explore.utils.formatting import error_text, escape_unprintable, truncate
from byol_explore.utils.local_server import LoopbackHandler, LoopbackServer, bind_server

_REST = 4  # pauses per time to build a page: the runs need the processor
_WATCHED = {
    CONFIG,
    LOG_NAME,
    PACKED_LOG_NAME,
    "summary.json",
    "visit_maps.json",
    "room_coverage.json",
    "study.toml",
    SEARCH,
}

Build = Callable[[list[Path]], Report]
Stamp = tuple[tuple[str, int, int], ...]  # path, size and time of every file of a report


class Snapshot(NamedTuple):
    page: bytes
    version: str  # changes with the page
    time: str  # of day
    note: str = ""  # what is missing or wrong


class LiveReport:
    """The latest page of a report, kept up to date by a thread from `start` to `stop`."""

    def __init__(self, directories: Sequence[Path], build: Build, interval: float) -> None:
        self.directories, self.build, self.interval = list(directories), build, interval
        self._stamp: Stamp | None = None
        self._has_report = False
        self.snapshot = self._waiting_page("Reading the runs …")
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._refresh_until_stopped, name="live report", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def refresh(self) -> None:
        """Rebuild the page if a file has changed; after an error keep the last page, with the error as a note."""
        try:
            stamp = fingerprint(self.directories)
            if stamp != self._stamp:
                self._rebuild(stamp)
            self._stamp = stamp  # not after an error: the next refresh builds the page again
        except Exception as error:  # half-written files may raise anything
            reason = truncate(" ".join(error_text(error).split()))
            if self._has_report:
                self.snapshot = self.snapshot._replace(note=f"not up to date: {reason}")
            else:
                self.snapshot = self._waiting_page(f"Waiting: {reason}.")

    def _rebuild(self, stamp: Stamp) -> None:
        logged = [directory for directory in self.directories if _has_metrics(directory, stamp)]
        missing = ", ".join(escape_unprintable(each) for each in self.directories if each not in logged)
        if logged:
            note = f"waiting for {missing}" if missing else ""
            self.snapshot = _snapshot(self.build(logged), repr(stamp), note)
        else:
            self.snapshot = self._waiting_page(f"Waiting for the first log line in {missing}.")
        self._has_report = bool(logged)

    def _refresh_until_stopped(self) -> None:
        while not self._stopped.is_set():
            begin = time.monotonic()
            self.refresh()
            self._stopped.wait(max(self.interval, _REST * (time.monotonic() - begin)))

    def _waiting_page(self, text: str) -> Snapshot:
        names = ", ".join(map(escape_unprintable, self.directories))
        return _snapshot(Report(names, [], [Section("waiting", "Nothing to see yet", [Text([text])])]), text, "waiting")


def _snapshot(report: Report, content: str, note: str) -> Snapshot:
    version = hashlib.sha1(content.encode()).hexdigest()
    return Snapshot(render_page(report, version=version).encode(), version, time.strftime("%H:%M:%S"), note)


def fingerprint(directories: Sequence[Path]) -> Stamp:
    """Return path, size and time of every file that the report of the directories reads."""
    found = []
    for path in _watched_files(directories):
        with contextlib.suppress(OSError):  # missing, or removed since it was listed
            status = path.stat()
            found.append((str(path), status.st_size, status.st_mtime_ns))
    return tuple(sorted(found))


def _watched_files(directories: Sequence[Path]) -> Iterator[Path]:
    for folder in (folder for directory in directories for folder in walk_folders(directory)):
        yield from (folder.path / name for name in _WATCHED)
        if folder.is_run:
            with contextlib.suppress(OSError):  # no folder of films
                yield from (path for path in (folder.path / "films").iterdir() if path.name.endswith(KINDS))


def _has_metrics(directory: Path, stamp: Stamp) -> bool:
    return any(
        size and path.endswith((LOG_NAME, PACKED_LOG_NAME)) and Path(path).is_relative_to(directory)
        for path, size, _ in stamp
    )


class ReportServer(LoopbackServer):
    """Serves the latest page to browsers."""

    def __init__(self, live: LiveReport, port: int) -> None:
        self.live = live
        super().__init__(_Handler, port)


class _Handler(LoopbackHandler):
    server: ReportServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def get(self) -> None:
        snapshot = self.server.live.snapshot
        if self.path == "/":
            self.send_content("text/html; charset=utf-8", snapshot.page)
        elif self.path == "/version":
            content = {"version": snapshot.version, "time": snapshot.time, "note": snapshot.note}
            self.send_content("application/json", json.dumps(content).encode())
        else:
            self.send_error(404)


def make_server(live: LiveReport, port: int) -> ReportServer:
    """Make a server at a port of this machine; raise UserError if the port is wrong or taken."""
    return bind_server(port, partial(ReportServer, live))
