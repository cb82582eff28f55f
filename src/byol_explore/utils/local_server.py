"""Loopback-only HTTP server: pages for browsers of this machine (live report, human play)."""

import errno
import os
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

from byol_explore.errors import UserError
from byol_explore.utils.processes import free_port

ADDRESS = "127.0.0.1"
TIMEOUT = 30.0  # seconds without progress after which a connection is closed
_CHUNK = 65_536  # bytes sent per timeout: on a slow line a page takes minutes
_NAMES = (ADDRESS, "localhost")


class LoopbackServer(ThreadingHTTPServer):
    """Answers browsers of this machine."""

    daemon_threads = True

    def __init__(self, handler: type["LoopbackHandler"], port: int) -> None:
        super().__init__((ADDRESS, port), handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore browsers that close a connection early."""


class LoopbackHandler(BaseHTTPRequestHandler):
    """Handles one request; subclasses implement `get` and `post`."""

    timeout = TIMEOUT

    def get(self) -> None:
        self.send_error(404)

    def post(self) -> None:
        self.send_error(404)

    def do_GET(self) -> None:
        self._check_origin(self.get)

    def do_POST(self) -> None:
        self._check_origin(self.post)

    def send_content(self, kind: str, content: bytes) -> None:
        self.send_response(200)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(content))),
            ("Cache-Control", "no-store"),
        ):
            self.send_header(name, value)
        self.end_headers()
        for begin in range(0, len(content), _CHUNK):
            self.wfile.write(content[begin : begin + _CHUNK])

    def log_message(self, format: str, *args: Any) -> None:
        """Log no requests."""

    def _check_origin(self, handle: Callable[[], None]) -> None:
        """Handle the request if it names this machine and comes from its own page: other sites can do nothing."""
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        if host.rsplit(":", 1)[0] in _NAMES and origin in (None, f"http://{host}"):  # any port: it may be forwarded
            handle()
        else:
            self.send_error(403, "only for browsers on this machine")


_Server = TypeVar("_Server", bound=LoopbackServer)


def bind_server(port: int, make: Callable[[int], _Server]) -> _Server:
    """Make a server at a port; a UserError if the port is wrong or taken."""
    try:
        return make(port)
    except OverflowError:
        raise UserError(f"port {port} is not one of 0 to 65535") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UserError(f"port {port} is in use: choose another with --port, such as {free_port()}") from None
        raise UserError(
            f"port {port} cannot be used ({os.strerror(error.errno or 0)}): choose another with --port"
        ) from None
