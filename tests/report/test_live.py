"""Live reports."""

import contextlib
import json
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from byol_explore.errors import UserError
from byol_explore.report import live as live_module
from byol_explore.report import read_runs
from byol_explore.report.build import build_report
from byol_explore.report.live import LiveReport, ReportServer, fingerprint, make_server
from byol_explore.report.model import Report, Section, Text
from byol_explore.utils.local_server import ADDRESS, TIMEOUT
from report.synthetic import write_run


def log_report(directories: list[Path]) -> Report:
    """Make a report of the lines of all logs."""
    text = [path.read_text() for directory in directories for path in sorted(directory.rglob("metrics.jsonl"))]
    return Report("runs", [], [Section("s", "Lines", [Text(text)])])


def log(run: Path, line: str) -> None:
    run.mkdir(parents=True, exist_ok=True)
    with (run / "metrics.jsonl").open("a") as file:
        file.write(f"{line}\n")


def refreshed_page(live: LiveReport) -> str:
    live.refresh()
    return live.snapshot.page.decode()


def test_live_report_waits_for_a_missing_directory(tmp_path: Path) -> None:
    live = LiveReport([tmp_path / "later"], log_report, 1.0)
    assert "Waiting for the first log line in" in refreshed_page(live)
    assert live.snapshot.note == "waiting"
    log(tmp_path / "later" / "a", "first")
    assert "first" in refreshed_page(live)
    assert live.snapshot.note == ""


def test_live_report_waits_for_the_first_log_line(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").touch()
    assert "Waiting for the first log line" in refreshed_page(LiveReport([tmp_path], log_report, 1.0))


def test_page_recovers_from_a_transient_error(tmp_path: Path) -> None:
    log(tmp_path, "first")
    errors = [UserError("disk busy")]

    def build(directories: list[Path]) -> Report:
        if errors:
            raise errors.pop()
        return log_report(directories)

    live = LiveReport([tmp_path], build, 1.0)
    assert "Waiting: disk busy." in refreshed_page(live)
    assert "first" in refreshed_page(live)
    assert live.snapshot.note == ""


def test_directories_without_logs_are_listed_in_the_note(tmp_path: Path) -> None:
    log(tmp_path / "a", "first")
    live = LiveReport([tmp_path / "a", tmp_path / "b"], log_report, 1.0)
    assert "first" in refreshed_page(live)
    assert live.snapshot.note == f"waiting for {tmp_path / 'b'}"


def test_version_changes_with_the_log(tmp_path: Path) -> None:
    log(tmp_path, "first")
    live = LiveReport([tmp_path], log_report, 1.0)
    refreshed_page(live)
    before = live.snapshot
    live.refresh()
    assert live.snapshot is before
    log(tmp_path, "second")
    assert "second" in refreshed_page(live)
    assert live.snapshot.version != before.version


def test_failed_build_keeps_the_last_page(tmp_path: Path) -> None:
    def fragile(directories: list[Path]) -> Report:
        report = log_report(directories)
        if "broken" in str(report):
            raise ValueError("half\na line")
        return report

    log(tmp_path, "whole")
    live = LiveReport([tmp_path], fragile, 1.0)
    live.refresh()
    good = live.snapshot
    log(tmp_path, "broken")
    live.refresh()
    assert live.snapshot == good._replace(note="not up to date: half a line")


def test_failed_first_build_shows_the_reason(tmp_path: Path) -> None:
    def never(directories: list[Path]) -> Report:
        raise UserError("config.json cannot be read")

    log(tmp_path, "line")
    assert "Waiting: config.json cannot be read." in refreshed_page(LiveReport([tmp_path], never, 1.0))


def test_checkpoints_and_reports_are_not_watched(tmp_path: Path) -> None:
    log(tmp_path, "line")
    (tmp_path / "config.json").touch()
    before = fingerprint([tmp_path])
    for folder in ("checkpoints", "report"):
        log(tmp_path / folder, "line")
    (tmp_path / "curves.png").touch()
    assert fingerprint([tmp_path]) == before


def test_linked_runs_are_watched(tmp_path: Path) -> None:
    run = write_run(tmp_path / "elsewhere", "rnd-seed0", method="rnd")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "linked").symlink_to(run)
    (tmp_path / "runs" / "circle").symlink_to(tmp_path / "runs")
    live = LiveReport([tmp_path / "runs"], build_report, 1.0)
    assert ">rnd</button>" in refreshed_page(live)
    before = live.snapshot.version
    log(run, '{"steps": 400, "success_rate": 1.0}')
    live.refresh()
    assert live.snapshot.version != before
    (run / "films").mkdir()
    (run / "films" / "rooms-6-after.gif").write_bytes(b"GIF89a")
    assert "film-rnd-rooms-6-after" in refreshed_page(live)


def test_too_many_folders_are_a_transient_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log(tmp_path / "runs" / "a", "first")
    live = LiveReport([tmp_path / "runs"], log_report, 1.0)
    monkeypatch.setattr(read_runs, "MAX_FOLDERS", 1)
    assert "has more than 1 folders below it" in refreshed_page(live)
    monkeypatch.undo()
    assert "first" in refreshed_page(live)


def test_directory_names_may_have_any_characters(tmp_path: Path) -> None:
    live = LiveReport([tmp_path / os.fsdecode(b"\xff'\n<b>")], log_report, 1.0)
    assert "\\udcff&#x27;\\n&lt;b&gt;" in refreshed_page(live)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ReportServer]:
    log(tmp_path, "line")
    live = LiveReport([tmp_path], log_report, 1.0)
    live.refresh()
    with make_server(live, 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def get(server: ReportServer, path: str, host: str = ADDRESS) -> bytes:
    request = urllib.request.Request(f"http://{ADDRESS}:{server.server_port}{path}", headers={"Host": host})
    with urllib.request.urlopen(request, timeout=5) as answer:
        return answer.read()


def test_server_sends_page_and_version(served: ReportServer) -> None:
    snapshot = served.live.snapshot
    assert get(served, "/", "localhost:9000") == snapshot.page
    assert json.loads(get(served, "/version")) == {"version": snapshot.version, "time": snapshot.time, "note": ""}


@pytest.mark.parametrize(("path", "host", "code"), [("/etc/passwd", ADDRESS, 404), ("/", "elsewhere.example", 403)])
def test_other_paths_and_hosts_are_errors(served: ReportServer, path: str, host: str, code: int) -> None:
    with pytest.raises(urllib.error.HTTPError) as raised:
        get(served, path, host)
    assert raised.value.code == code
    raised.value.close()


@pytest.mark.parametrize("request_part", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: 127"])
def test_incomplete_requests_time_out(
    served: ReportServer, monkeypatch: pytest.MonkeyPatch, request_part: bytes
) -> None:
    monkeypatch.setattr(live_module._Handler, "timeout", 0.2)
    with socket.create_connection((ADDRESS, served.server_port), timeout=10) as client:
        client.sendall(request_part)
        assert client.recv(1) == b"", "the server closes the connection"
    assert get(served, "/version")


def test_slow_client_gets_the_page_and_stalled_client_is_closed(
    served: ReportServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeout is per chunk of the page."""
    monkeypatch.setattr(live_module._Handler, "timeout", 1.0)
    page = os.urandom(4_000_000)
    served.live.snapshot = served.live.snapshot._replace(page=page)
    request = f"GET / HTTP/1.0\r\nHost: {ADDRESS}\r\n\r\n".encode()
    with socket.socket() as slow, socket.socket() as stalled:
        for client in (slow, stalled):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            client.settimeout(10)
            client.connect((ADDRESS, served.server_port))
            client.sendall(request)
        received, begin = b"", time.monotonic()
        while piece := slow.recv(100_000):
            received += piece
            if time.monotonic() < begin + 1.5:
                time.sleep(0.05)
        assert received.endswith(page[-1000:])
        assert time.monotonic() > begin + 1.5, "longer than the timeout of a chunk"
        taken = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := stalled.recv(1_000_000):
                taken += piece
        assert len(taken) < len(page)


def test_request_timeout_is_30_seconds() -> None:
    assert live_module._Handler.timeout == TIMEOUT == 30.0


def test_server_binds_to_loopback(served: ReportServer) -> None:
    assert served.server_address[0] == "127.0.0.1"


def test_port_in_use_is_a_user_error(served: ReportServer) -> None:
    with pytest.raises(
        UserError, match=rf"port {served.server_port} is in use: choose another with --port, such as \d+"
    ):
        make_server(served.live, served.server_port)


def test_invalid_port_is_a_user_error(served: ReportServer) -> None:
    with pytest.raises(UserError, match="port 70000 is not one of 0 to 65535"):
        make_server(served.live, 70_000)
