"""`LiveServer`: a log's pages over HTTP or HTTPS, for `serve --ui` and `sparklog ui`.

Read only: GET and HEAD, and POST for login and logout. A daemon thread listens, and another one
serves each connection, up to a limit. A connection answers one request. Clients that send no
request in time, or don't read the response, are disconnected. The pages read the log as any reader
does: without a lock or changes, and the service's rounds never wait for them.
"""

import contextlib
import errno
import logging
import select
import socket
import ssl
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Final, Protocol, Self
from urllib.parse import parse_qs, quote

from sparklog.errors import InvalidRequestError
from sparklog.network.addresses import Address, parse_address, resolve
from sparklog.network.tls import Tls, TlsFiles, TlsNames
from sparklog.service.http_server import CONNECTIONS_MAX, HEAD_MS, ThreadingServer
from sparklog.ui.access import Access
from sparklog.ui.http_messages import TARGET_MAX, HttpRequest, HttpResponse
from sparklog.ui.login_page import login_page
from sparklog.ui.report.page_shell import header_policy
from sparklog.ui.workers import GoneError

_SEND_S: Final = 30  # for a response, of any length
_FORM_MAX: Final = 8 << 10
_POLL_S: Final = 0.2
_TLS_NAMES: Final = TlsNames(
    certificate="--ui-certificate", key="--ui-key",
    password="a key without one",  # noqa: S106
)  # fmt: skip
_LOGGER: Final = logging.getLogger("sparklog.ui")


def parse_ui_address(text: str) -> Address:
    """Return the address of --ui: [HOST:]PORT, the host 127.0.0.1 by default.

    Raises: InvalidRequestError.
    """
    return parse_address(text, name="--ui", example=8080, encrypted_by="--ui-certificate")


def tls_files(certificate: str | None, key: str | None) -> TlsFiles | None:
    """Return the files of --ui-certificate and --ui-key. Raises: InvalidRequestError."""
    if certificate is None:
        if key is not None:
            raise InvalidRequestError("--ui-key: give --ui-certificate=FILE as well")
        return None
    return TlsFiles(certificate=certificate, key=key or "", names=_TLS_NAMES)


class Site(Protocol):
    """Answers requests."""

    def answer(self, request: HttpRequest) -> HttpResponse:
        """Return the response, also for any error except GoneError."""


class LiveServer:
    """A context manager; `url` is the URL for a browser."""

    def __init__(
        self,
        site: Site,
        address: Address,
        *,
        access: Access | None = None,
        tls: TlsFiles | None = None,
        connections_max: int = CONNECTIONS_MAX,
        head_ms: int = HEAD_MS,
    ) -> None:
        """Bind the address; the log is not read before the first request. Port 0 takes a free one.

        Raises: InvalidRequestError if the address can't be bound, or the TLS files can't be used.
        """
        self.site = site
        self.tls = None if tls is None else Tls(tls)
        where = resolve(address.host)[0]
        self.access = access or Access([where])
        kind = _Server6 if ":" in where else _Server
        try:
            self._server = kind(
                (where, address.port), _Handler, connections_max=connections_max, head_ms=head_ms
            )
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            hint = "choose another port, or 0 for a free one" if taken else "choose another address"
            raise InvalidRequestError(
                f"--ui={address} can't be listened on ({error.strerror or error}): {hint}"
            ) from error
        self._server.live = self
        self.port = int(self._server.server_address[1])
        scheme = "http" if self.tls is None else "https"
        self.url = f"{scheme}://{Address(address.host, self.port)}/"
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to answer, in a daemon thread."""
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="sparklog-ui", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop answering. Idempotent; doesn't wait for responses in progress."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._server.shutdown()
            thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _Server(ThreadingServer, HTTPServer):
    allow_reuse_address = True
    live: LiveServer

    def server_bind(self) -> None:
        # Without that of HTTPServer, which looks up the host's name in DNS.
        super(HTTPServer, self).server_bind()
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def finish_request(self, request: Any, client_address: Any) -> None:
        tls = self.live.tls
        if tls is None:
            super().finish_request(request, client_address)
            return
        tls.refresh()
        try:
            wrapped = tls.context.wrap_socket(
                request, server_side=True, do_handshake_on_connect=False
            )
        except (OSError, ValueError) as error:
            _LOGGER.debug("%s: no TLS: %s", client_address, error)
            return
        self.replace_socket(request, wrapped)
        try:
            wrapped.settimeout(_SEND_S)
            wrapped.do_handshake()
        except (OSError, ValueError) as error:
            _LOGGER.debug("%s: no TLS: %s", client_address, error)
            self.request_received(wrapped)
            wrapped.close()
            return
        try:
            super().finish_request(wrapped, client_address)
        finally:
            self.request_received(wrapped)
            with contextlib.suppress(OSError, ValueError):
                wrapped.settimeout(1)
                wrapped.unwrap()
            wrapped.close()


class _Server6(_Server):
    address_family = socket.AF_INET6

    def server_bind(self) -> None:
        everywhere = self.server_address[0] == "::"
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(not everywhere))
        super().server_bind()


class _Handler(BaseHTTPRequestHandler):
    """A request: checks the Host header and the token, and sends the response."""

    server_version = "sparklog"
    sys_version = ""
    timeout = _SEND_S
    server: _Server

    def do_GET(self) -> None:
        self._serve(self._answer)

    def do_HEAD(self) -> None:
        self._serve(self._answer)

    def do_POST(self) -> None:
        self._serve(self._posted)

    def _serve(self, make: Callable[[LiveServer, HttpRequest], HttpResponse]) -> None:
        if self.command != "POST":  # whose form is still to come
            self.server.request_received(self.connection)
        live = self.server.live
        if not live.access.is_own_name(self.headers.get("Host", "")):
            self._send(HttpResponse.of_text("this is a local address", HTTPStatus.FORBIDDEN))
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        admitted = live.access.admits(headers, live.port)
        try:
            request = HttpRequest.parse(self.path, gone=self._is_gone, admitted=admitted)
            self._send(make(live, request))
        except InvalidRequestError as error:
            long = len(self.path) > TARGET_MAX
            status = HTTPStatus.REQUEST_URI_TOO_LONG if long else HTTPStatus.BAD_REQUEST
            self._send(HttpResponse.of_text(str(error), status))
        except GoneError:
            _LOGGER.debug("the browser went away")

    def _answer(self, live: LiveServer, request: HttpRequest) -> HttpResponse:
        if request.parts == ("login",) and live.access.asks:
            return login_page(request)
        if request.admitted or request.parts == ("healthz",):
            return live.site.answer(request)
        if "text/html" in self.headers.get("Accept", ""):
            return login_page(request, HTTPStatus.UNAUTHORIZED, to=self.path)
        text = "send the token: Authorization: Bearer TOKEN, or by the form at /login"
        return HttpResponse(
            body=f"{text}\n", kind="text/plain; charset=utf-8", status=HTTPStatus.UNAUTHORIZED,
            headers={"WWW-Authenticate": 'Bearer realm="sparklog"'},
        )  # fmt: skip

    def _posted(self, live: LiveServer, request: HttpRequest) -> HttpResponse:
        """Handle the login form, and the button that ends a session."""
        if not live.access.asks or request.parts not in (("login",), ("logout",)):
            return _not_allowed()
        site = self.headers.get("Sec-Fetch-Site", "same-origin")
        if site not in ("same-origin", "none"):
            return HttpResponse.of_text("this form was sent from elsewhere", HTTPStatus.FORBIDDEN)
        if request.parts == ("logout",):
            return HttpResponse(
                body="", status=HTTPStatus.SEE_OTHER,
                headers={"Location": "./", "Set-Cookie": live.access.end_cookie(live.port)},
            )  # fmt: skip
        form = self._form()
        to = form.get("to", [""])[0].lstrip("/\\")
        if not live.access.is_token(form.get("token", [""])[0].strip()):
            _LOGGER.warning("%s: a wrong token was given", self.client_address[0])
            return login_page(request, HTTPStatus.UNAUTHORIZED, to=to, wrong=True)
        # Relative to /login, whatever `to` is: it can't lead to another site.
        place = "./" + quote(to, safe="/?&=%+:,_-.~@")
        return HttpResponse(
            body="", status=HTTPStatus.SEE_OTHER,
            headers={"Location": place, "Set-Cookie": live.access.session_cookie(live.port)},
        )  # fmt: skip

    def _form(self) -> dict[str, list[str]]:
        length = self.headers.get("Content-Length", "")
        is_number = length.isascii() and length.isdigit() and len(length) < 10
        if not (is_number and int(length) <= _FORM_MAX):
            raise InvalidRequestError(f"want a form of {_FORM_MAX} bytes at most")
        raw = self.rfile.read(int(length))
        self.server.request_received(self.connection)
        if len(raw) < int(length):
            raise InvalidRequestError("the form is cut")
        try:
            return parse_qs(raw.decode(), max_num_fields=10)
        except ValueError:
            raise InvalidRequestError("this is not a form") from None

    def _is_gone(self) -> bool:
        """Whether the browser closed its side; any data that it sent before doesn't matter."""
        poll = select.poll()
        try:
            poll.register(self.connection, select.POLLRDHUP)
            return bool(poll.poll(0))
        except (OSError, ValueError):
            return True

    def _send(self, answer: HttpResponse) -> None:
        body = answer.body
        raw = body if not isinstance(body, str) else body.encode("utf-8", "replace")
        said = header_policy(live=answer.live, scripts=answer.scripts, forms=answer.forms)
        headers = {
            "Content-Type": answer.kind,
            "Content-Length": str(len(raw)),
            "Content-Security-Policy": said,
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cache-Control": "no-store",
            **answer.headers,
        }
        try:
            self.send_response(answer.status)
            for name, value in headers.items():
                self.send_header(name, "".join(c for c in value if c.isprintable()))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(raw)
        except (ConnectionError, TimeoutError, ssl.SSLError):
            _LOGGER.debug("the browser went away")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send errors of the standard library (other methods, no HTTP) with the same headers."""
        with contextlib.suppress(ValueError):
            status = HTTPStatus(code)
            if status is HTTPStatus.NOT_IMPLEMENTED:
                self._send(_not_allowed())
            else:
                self._send(HttpResponse.of_text(message or status.phrase, status))
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        _LOGGER.debug("%.500r", format % args)


def _not_allowed() -> HttpResponse:
    return HttpResponse(
        body="these pages are for reading: GET and HEAD\n", kind="text/plain; charset=utf-8",
        status=HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": "GET, HEAD"},
    )  # fmt: skip
