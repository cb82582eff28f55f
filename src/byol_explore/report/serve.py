"""A report that keeps up with its runs: a page on this machine, made anew in the background when metrics grow."""

import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from byol_explore.errors import UserError
from byol_explore.loopback import LocalHandler, LocalServer, serve_at
from byol_explore.report.films import KINDS
from byol_explore.report.finding import CONFIG, folders
from byol_explore.report.logs import PACKED, PLAIN
from byol_explore.report.model import Report, Section, Text
from byol_explore.report.page import render_page
from byol_explore.report.words import brief, printable, why

_REST = 4  # times as long as a page takes to make, nothing is made: the runs need the processor
_WATCHED = {CONFIG, PLAIN, PACKED, "summary.json", "maps.json", "coverage.json", "study.toml"}

Build = Callable[[list[Path]], Report]
Stamp = tuple[tuple[str, int, int], ...]  # path, size and time of every file that a report is made from


class Edition(NamedTuple):
    """What a browser is given."""

    page: bytes
    version: str
    time: str  # of the clock, for people
    note: str = ""  # what is missing or wrong


class LiveReport:
    """The newest edition of a report, kept up to date by a thread from `start` to `stop`."""

    def __init__(self, directories: Sequence[Path], build: Build, every: float) -> None:
        self.directories, self.build, self.every = list(directories), build, every
        self.edition = self._waiting("Reading the runs …")
        self._stamp: Stamp | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._keep_up, name="live report", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def refresh(self) -> None:
        """A new edition if any file has changed; whatever a damaged one does, the last good edition stays."""
        try:
            stamp = stamp_of(self.directories)
        except (UserError, OSError) as error:
            self._complain(why(error))
            return
        if stamp == self._stamp:
            return
        self._stamp = stamp
        begun = [directory for directory in self.directories if _has_metrics(directory, stamp)]
        missing = ", ".join(printable(directory) for directory in self.directories if directory not in begun)
        if not begun:
            self.edition = self._waiting(f"Waiting for the first log line in {missing}.")
            return
        try:
            version = hashlib.sha1(repr(stamp).encode()).hexdigest()
            page = render_page(self.build(begun), version=version).encode()
        except Exception as error:  # half-written files may raise anything
            self._complain(why(error))
        else:
            self.edition = Edition(page, version, _clock(), f"waiting for {missing}" if missing else "")

    def _keep_up(self) -> None:
        while not self._stopped.is_set():
            begin = time.monotonic()
            self.refresh()
            self._stopped.wait(max(self.every, _REST * (time.monotonic() - begin)))

    def _complain(self, reason: str) -> None:
        reason = brief(" ".join(reason.split()))
        if self._has_report():
            self.edition = self.edition._replace(note=f"not up to date: {reason}")
        else:
            self.edition = self._waiting(f"Waiting: {reason}.")

    def _has_report(self) -> bool:
        return not self.edition.version.startswith("waiting")

    def _waiting(self, text: str) -> Edition:
        names = ", ".join(map(printable, self.directories))
        report = Report(names, [], [Section("waiting", "Nothing to see yet", [Text([text])])])
        version = f"waiting-{hashlib.sha1(text.encode()).hexdigest()}"
        return Edition(render_page(report, version=version).encode(), version, _clock(), "waiting")


def stamp_of(directories: Sequence[Path]) -> Stamp:
    """Changes when a file does that a report is made from: in the folders that a report looks at, and with its eyes."""
    found = []
    for path in _watched_files(directories):
        try:
            status = path.stat()
        except OSError:  # gone in between, or not there yet
            continue
        found.append((str(path), status.st_size, status.st_mtime_ns))
    return tuple(sorted(found))


def _watched_files(directories: Sequence[Path]) -> Iterator[Path]:
    for folder in (folder for directory in directories for folder in folders(directory)):
        yield from (folder.path / name for name in _WATCHED)
        if folder.is_run:
            with contextlib.suppress(OSError):  # without films
                yield from (path for path in (folder.path / "films").iterdir() if path.name.endswith(KINDS))


def _has_metrics(directory: Path, stamp: Stamp) -> bool:
    return any(
        size and path.endswith((PLAIN, PACKED)) and Path(path).is_relative_to(directory) for path, size, _ in stamp
    )


def _clock() -> str:
    return time.strftime("%H:%M:%S")


class Server(LocalServer):
    """Gives the newest edition to browsers."""

    def __init__(self, live: LiveReport, port: int) -> None:
        self.live = live
        super().__init__(_Handler, port)


class _Handler(LocalHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def get(self) -> None:
        edition = self.server.live.edition
        if self.path == "/":
            self.answer("text/html; charset=utf-8", edition.page)
        elif self.path == "/version":
            news = {"version": edition.version, "time": edition.time, "note": edition.note}
            self.answer("application/json", json.dumps(news).encode())
        else:
            self.send_error(404)


def make_server(live: LiveReport, port: int) -> Server:
    """A UserError that says what to do when the port cannot be had."""
    return serve_at(port, partial(Server, live))
