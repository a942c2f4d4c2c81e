"""`LiveReport`: a log's report over HTTP, made anew as it is asked for. For `serve --ui`.

A daemon thread of its own looks at the log as any reader does: no lock, nothing is changed, and
the service's rounds never wait for it. However many ask, one report is made at a time, and none
sooner than ten times as long after the one before as that took.
"""

import json
import logging
import re
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import TracebackType
from typing import Final, Self

from sparklog.clock import monotonic_ms
from sparklog.errors import InvalidRequestError, SparklogError
from sparklog.service.http_server import ThreadingServer
from sparklog.tools.report.model import LogReport
from sparklog.tools.report.page import content, policy, render

REFRESH_MS: Final = 5000
_REST: Final = 10  # times as long as a report took
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_TIMEOUT_S: Final = 30  # for a client that says nothing
_HOST: Final = re.compile(r"(?:\[(?P<six>[^\]]+)\]|(?P<name>[^:\[\]]+))(?::\d+)?")
_LOGGER: Final = logging.getLogger("sparklog.ui")


def parse_address(text: str) -> tuple[str, int]:
    """Return (host, port) of [HOST:]PORT; the host is 127.0.0.1 by default, the port 0..65535.

    Raises InvalidRequestError.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not port.isdecimal() or int(port) > 65535 or (colon and not host):
        raise InvalidRequestError(f"{text!r}: want [HOST:]PORT, such as 8080 or 127.0.0.1:8080")
    return host or "127.0.0.1", int(port)


class LiveReport:
    """A context manager; `url` is where a browser finds it."""

    def __init__(
        self,
        make: Callable[[], LogReport],
        address: tuple[str, int],
        *,
        refresh_ms: int = REFRESH_MS,
    ) -> None:
        """Bind the address; nothing is looked at before somebody asks.

        Args: make: makes a report. address: (host, port); port 0 takes a free one.
        Raises: InvalidRequestError if the address can't be bound.
        """
        self._make, self._refresh_ms = make, refresh_ms
        self._mutex = threading.Lock()
        self._known: LogReport | None = None
        self._fresh_until_ms = 0.0
        host, port = address
        self._server_type = _Server6 if ":" in host else _Server
        try:
            self._server = self._server_type((host, port), _Handler)
        except OSError as error:
            raise InvalidRequestError(
                f"{host}:{port} can't be listened on ({error.strerror or error}): choose another "
                "port, or 0 for a free one"
            ) from error
        self._server.live = self
        self.checks_host = host in _LOOPBACK
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.server_address[1]}/"
        self._thread: threading.Thread | None = None

    def report(self) -> LogReport:
        """Return the report, made anew if it is old enough."""
        with self._mutex:
            if self._known is None or monotonic_ms() >= self._fresh_until_ms:
                began = monotonic_ms()
                self._known = self._make()
                took = monotonic_ms() - began
                self._fresh_until_ms = monotonic_ms() + max(self._refresh_ms / 2, _REST * took)
            return self._known

    def answer(self, path: str) -> tuple[str, str] | None:
        """Return (media type, text) of a path; None if there is nothing."""
        if path == "/":
            return "text/html; charset=utf-8", render(self.report(), refresh_ms=self._refresh_ms)
        if path == "/content":
            return "text/html; charset=utf-8", content(self.report())
        if path == "/report.json":
            text = json.dumps(self.report().to_dict(), indent=2, ensure_ascii=False)
            return "application/json; charset=utf-8", text
        return None

    def start(self) -> None:
        """Begin to answer, in a daemon thread."""
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.2,), name="sparklog-ui", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop answering. Idempotent; doesn't wait for answers that are under way."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._server.shutdown()
            thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Server(ThreadingServer, HTTPServer):
    allow_reuse_address = True
    live: LiveReport


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    """GET and HEAD of the page, its content, and the report as JSON."""

    server_version = "sparklog"
    sys_version = ""
    timeout = _TIMEOUT_S
    server: _Server

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        if not self._is_ours():
            self._send(HTTPStatus.FORBIDDEN, "text/plain", "this is a local address", body=body)
            return
        try:
            found = self.server.live.answer(self.path.partition("?")[0])
        except (SparklogError, OSError) as error:
            _LOGGER.warning("the report could not be made: %s", error)
            status = HTTPStatus.SERVICE_UNAVAILABLE
            self._send(status, "text/plain; charset=utf-8", str(error), body=body)
            return
        if found is None:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", "not found", body=body)
        else:
            self._send(HTTPStatus.OK, *found, body=body)

    def _is_ours(self) -> bool:
        """Whether the name that was asked for is this machine's: other sites' names may lead here.

        Only where the address is this machine's alone.
        """
        found = _HOST.fullmatch(self.headers.get("Host", ""))
        name = "" if found is None else found["six"] or found["name"]
        return not self.server.live.checks_host or name in _LOOPBACK

    def _send(self, status: HTTPStatus, kind: str, text: str, *, body: bool) -> None:
        raw = text.encode("utf-8", "replace")
        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(raw)))
            self.send_header("Content-Security-Policy", policy(live=True))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("X-Frame-Options", "DENY")
            self.send_header("Referrer-Policy", "no-referrer")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if body:
                self.wfile.write(raw)
        except (ConnectionError, TimeoutError):
            _LOGGER.debug("the browser went away")

    def log_message(self, format: str, *args: object) -> None:
        _LOGGER.debug(format, *args)
