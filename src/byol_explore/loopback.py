"""Pages for a browser on this machine: a small server that nobody else can talk to."""

import errno
import os
import socket
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

from byol_explore.errors import UserError

ADDRESS = "127.0.0.1"
PATIENCE = 30.0  # seconds in which a browser has to say something more, or to take more of its answer
_PIECE = 65_536  # bytes of an answer that have so much time: behind a slow line a page takes minutes
_NAMES = (ADDRESS, "localhost")


class LocalServer(ThreadingHTTPServer):
    """Answers browsers on this machine."""

    daemon_threads = True

    def __init__(self, handler: type["LocalHandler"], port: int) -> None:
        super().__init__((ADDRESS, port), handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that leaves early is no error."""


class LocalHandler(BaseHTTPRequestHandler):
    """One request; a subclass says what there is, by its `get` and `post`."""

    timeout = PATIENCE

    def get(self) -> None:
        self.send_error(404)

    def post(self) -> None:
        self.send_error(404)

    def do_GET(self) -> None:
        self._if_from_here(self.get)

    def do_POST(self) -> None:
        self._if_from_here(self.post)

    def answer(self, kind: str, content: bytes) -> None:
        self.send_response(200)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(content))),
            ("Cache-Control", "no-store"),
        ):
            self.send_header(name, value)
        self.end_headers()
        for begin in range(0, len(content), _PIECE):
            self.wfile.write(content[begin : begin + _PIECE])

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not worth a line."""

    def _if_from_here(self, go_on: Callable[[], None]) -> None:
        """Only what was asked for by this machine's name, and by a page of it: others neither read along nor act."""
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        if host.rsplit(":", 1)[0] in _NAMES and origin in (None, f"http://{host}"):  # any port: it may be forwarded
            go_on()
        else:
            self.send_error(403, "only for browsers on this machine")


_Server = TypeVar("_Server", bound=LocalServer)


def serve_at(port: int, make: Callable[[int], _Server]) -> _Server:
    """A server at a port; a UserError that says what to do when it cannot be had."""
    try:
        return make(port)
    except OverflowError:
        raise UserError(f"port {port} is not one of 0 to 65535") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UserError(f"port {port} is in use: choose another with --port, such as {_free_port()}") from None
        raise UserError(
            f"port {port} cannot be had ({os.strerror(error.errno or 0)}): choose another with --port"
        ) from None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((ADDRESS, 0))
        return probe.getsockname()[1]
