"""A report that keeps up with its runs."""

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
from byol_explore.loopback import ADDRESS, PATIENCE
from byol_explore.report import finding, serve
from byol_explore.report.build import build_report
from byol_explore.report.model import Report, Section, Text
from byol_explore.report.serve import LiveReport, Server, make_server, stamp_of
from report.synthetic import write_run


def lines_of(directories: list[Path]) -> Report:
    """A report that only repeats what was logged."""
    text = [path.read_text() for directory in directories for path in sorted(directory.rglob("metrics.jsonl"))]
    return Report("runs", [], [Section("s", "Lines", [Text(text)])])


def log(run: Path, line: str) -> None:
    run.mkdir(parents=True, exist_ok=True)
    with (run / "metrics.jsonl").open("a") as file:
        file.write(f"{line}\n")


def shown_by(live: LiveReport) -> str:
    live.refresh()
    return live.edition.page.decode()


def test_it_waits_for_a_run_that_does_not_exist_yet(tmp_path: Path) -> None:
    live = LiveReport([tmp_path / "later"], lines_of, 1.0)
    assert "Waiting for the first log line in" in shown_by(live)
    assert live.edition.note == "waiting"
    log(tmp_path / "later" / "a", "first")
    assert "first" in shown_by(live)
    assert live.edition.note == ""


def test_a_run_without_lines_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").touch()
    assert "Waiting for the first log line" in shown_by(LiveReport([tmp_path], lines_of, 1.0))


def test_of_several_those_that_have_begun_are_shown(tmp_path: Path) -> None:
    log(tmp_path / "a", "first")
    live = LiveReport([tmp_path / "a", tmp_path / "b"], lines_of, 1.0)
    assert "first" in shown_by(live)
    assert live.edition.note == f"waiting for {tmp_path / 'b'}"


def test_a_new_line_makes_a_new_version_and_nothing_new_makes_none(tmp_path: Path) -> None:
    log(tmp_path, "first")
    live = LiveReport([tmp_path], lines_of, 1.0)
    shown_by(live)
    before = live.edition
    live.refresh()
    assert live.edition is before
    log(tmp_path, "second")
    assert "second" in shown_by(live)
    assert live.edition.version != before.version


def test_what_cannot_be_read_leaves_the_last_good_page(tmp_path: Path) -> None:
    def fragile(directories: list[Path]) -> Report:
        report = lines_of(directories)
        if "broken" in str(report):
            raise ValueError("half\na line")
        return report

    log(tmp_path, "whole")
    live = LiveReport([tmp_path], fragile, 1.0)
    live.refresh()
    good = live.edition
    log(tmp_path, "broken")
    live.refresh()
    assert live.edition == good._replace(note="not up to date: half a line")


def test_what_could_never_be_read_is_waited_for(tmp_path: Path) -> None:
    def never(directories: list[Path]) -> Report:
        raise UserError("config.json cannot be read")

    log(tmp_path, "line")
    assert "Waiting: config.json cannot be read." in shown_by(LiveReport([tmp_path], never, 1.0))


def test_checkpoints_and_reports_are_not_looked_at(tmp_path: Path) -> None:
    log(tmp_path, "line")
    (tmp_path / "config.json").touch()
    before = stamp_of([tmp_path])
    for folder in ("checkpoints", "report"):
        log(tmp_path / folder, "line")
    (tmp_path / "curves.png").touch()
    assert stamp_of([tmp_path]) == before


def test_runs_that_a_report_shows_are_seen_through_links_too(tmp_path: Path) -> None:
    run = write_run(tmp_path / "elsewhere", "rnd-seed0", method="rnd")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "linked").symlink_to(run)
    (tmp_path / "runs" / "circle").symlink_to(tmp_path / "runs")
    live = LiveReport([tmp_path / "runs"], build_report, 1.0)
    assert ">rnd</button>" in shown_by(live)
    before = live.edition.version
    log(run, '{"steps": 400, "success_rate": 1.0}')
    live.refresh()
    assert live.edition.version != before
    (run / "films").mkdir()
    (run / "films" / "rooms-6-after.gif").write_bytes(b"GIF89a")
    assert "film-rnd-rooms-6-after" in shown_by(live)


def test_too_many_folders_are_told_and_not_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log(tmp_path / "runs" / "a", "first")
    live = LiveReport([tmp_path / "runs"], lines_of, 1.0)
    monkeypatch.setattr(finding, "MOST_FOLDERS", 1)
    assert "has more than 1 folders below it" in shown_by(live)
    monkeypatch.undo()
    assert "first" in shown_by(live)


def test_directories_may_be_called_anything(tmp_path: Path) -> None:
    live = LiveReport([tmp_path / os.fsdecode(b"\xff'\n<b>")], lines_of, 1.0)
    assert "\\udcff&#x27;\\n&lt;b&gt;" in shown_by(live)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Server]:
    log(tmp_path, "line")
    live = LiveReport([tmp_path], lines_of, 1.0)
    live.refresh()
    with make_server(live, 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server: Server, path: str, host: str = ADDRESS) -> bytes:
    request = urllib.request.Request(f"http://{ADDRESS}:{server.server_port}{path}", headers={"Host": host})
    with urllib.request.urlopen(request, timeout=5) as answer:
        return answer.read()


def test_browsers_get_the_page_and_its_version(served: Server) -> None:
    edition = served.live.edition
    assert ask(served, "/", "localhost:9000") == edition.page
    assert json.loads(ask(served, "/version")) == {"version": edition.version, "time": edition.time, "note": ""}


@pytest.mark.parametrize(("path", "host", "code"), [("/etc/passwd", ADDRESS, 404), ("/", "elsewhere.example", 403)])
def test_others_get_nothing(served: Server, path: str, host: str, code: int) -> None:
    with pytest.raises(urllib.error.HTTPError) as raised:
        ask(served, path, host)
    assert raised.value.code == code
    raised.value.close()


@pytest.mark.parametrize("said", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: 127"])
def test_who_says_nothing_more_is_not_waited_for(served: Server, monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    monkeypatch.setattr(serve._Handler, "timeout", 0.2)
    with socket.create_connection((ADDRESS, served.server_port), timeout=10) as silent:
        silent.sendall(said)
        assert silent.recv(1) == b"", "it hangs up"
    assert ask(served, "/version")


def test_a_slow_line_gets_the_whole_page_and_who_takes_nothing_is_left(
    served: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is for a piece of the page, not for all of it."""
    monkeypatch.setattr(serve._Handler, "timeout", 1.0)
    page = os.urandom(4_000_000)
    served.live.edition = served.live.edition._replace(page=page)
    request = f"GET / HTTP/1.0\r\nHost: {ADDRESS}\r\n\r\n".encode()
    with socket.socket() as slow, socket.socket() as deaf:
        for client in (slow, deaf):
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
        assert time.monotonic() > begin + 1.5, "longer than a piece may take"
        taken = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := deaf.recv(1_000_000):
                taken += piece
        assert len(taken) < len(page)


def test_browsers_are_waited_for_so_long() -> None:
    assert serve._Handler.timeout == PATIENCE == 30.0


def test_only_this_machine_is_served(served: Server) -> None:
    assert served.server_address[0] == "127.0.0.1"


def test_a_port_in_use_is_told_with_another(served: Server) -> None:
    with pytest.raises(
        UserError, match=rf"port {served.server_port} is in use: choose another with --port, such as \d+"
    ):
        make_server(served.live, served.server_port)


def test_a_port_that_is_none_is_told(served: Server) -> None:
    with pytest.raises(UserError, match="port 70000 is not one of 0 to 65535"):
        make_server(served.live, 70_000)
