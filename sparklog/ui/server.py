"""`LiveServer`: a log's pages over HTTP or HTTPS, for `serve --ui` and `sparklog ui`.

uvicorn speaks HTTP in an event loop of a daemon thread. A connection answers one request. Clients
that send no request in time, or don't read the response, are disconnected. The pages read the log
as any reader does: without a lock or changes, and the service's rounds never wait for them.
"""

import asyncio
import contextlib
import errno
import logging
import os
import socket
import sys
import threading
from http import HTTPStatus
from typing import Final, Self

import h11
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from sparklog.errors import InvalidRequestError
from sparklog.network.addresses import Address, resolve
from sparklog.network.tls import Tls, TlsFiles
from sparklog.service.http_server import CONNECTIONS_MAX, HEAD_MS, PATIENCE_MS
from sparklog.ui.access import Access
from sparklog.ui.gate import Gate, common_headers

RESPONSE_MS: Final = 120_000
"""Time from the end of a request until the client has taken the whole response."""
_HEAD_BYTES: Final = 64 << 10
_BACKLOG: Final = 128
_LOGGER: Final = logging.getLogger("sparklog.ui")
_HTTP_LOGGER: Final = logging.getLogger("sparklog.ui.http")  # uvicorn's
_HTTP_LOGGER.addFilter(lambda record: record.levelno >= logging.ERROR)  # no port scans


class LiveServer:
    """A context manager; `url` is the URL for a browser."""

    def __init__(
        self,
        site: ASGIApp,
        address: Address,
        *,
        access: Access | None = None,
        tls: TlsFiles | None = None,
        connections_max: int = CONNECTIONS_MAX,
        head_ms: int = HEAD_MS,
        option: str = "--ui",
    ) -> None:
        """Bind the address; the log is not read before the first request. Port 0 takes a free one.

        `option` is named in errors: it gave the address.

        Raises: InvalidRequestError if the address can't be bound, or the TLS files can't be used.
        """
        self.head_ms = head_ms
        self._connections_max = connections_max
        self._tls = None if tls is None else Tls(tls)
        where = resolve(address.host)[0]
        self._listener = _listener(where, address, option)
        self.port = int(self._listener.getsockname()[1])
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://{Address(address.host, self.port)}/"
        self.config = Config(
            Gate(site, access or Access([where]), self.port), http=_Connection, ws="none",
            lifespan="off", log_config=None, proxy_headers=False,
            h11_max_incomplete_event_size=_HEAD_BYTES,
        )  # fmt: skip
        self.state, self.connections = ServerState(), set[_Connection]()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to answer, in a daemon thread."""
        self._loop, self._stopping = asyncio.new_event_loop(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="sparklog-ui", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering. Idempotent; doesn't wait for responses in progress, which are cut."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
            thread.join()
        self._listener.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        accepting = self._loop.create_task(self._accept())
        await self._stopping.wait()
        accepting.cancel()
        for connection in list(self.connections):
            connection.abort()
        if tasks := self.state.tasks:
            await asyncio.wait(tasks, timeout=1)

    async def _accept(self) -> None:
        connecting = set[asyncio.Task[None]]()
        while True:
            try:
                accepted, address = await self._loop.sock_accept(self._listener)
            except OSError as error:
                _LOGGER.warning("a connection can't be accepted: %s", error)
                await asyncio.sleep(1)  # there may be too many open files
                continue
            if len(self.connections) >= self._connections_max and not self._make_room():
                _LOGGER.warning("too many connections: closed one from %s", address[0])
                accepted.close()
            else:
                task = self._loop.create_task(self._connect(accepted))
                connecting.add(task)
                task.add_done_callback(connecting.discard)
            await asyncio.sleep(0)  # connections that exist have their turn

    def _make_room(self) -> bool:
        """Disconnect the client that has been silent longest.

        Otherwise silent clients could keep all others out.
        """
        waiting = [each for each in self.connections if each.is_waiting]
        slowest = min(waiting, key=lambda each: each.since, default=None)
        if slowest is None or self._loop.time() < slowest.since + PATIENCE_MS / 1000:
            return False
        slowest.disconnect()
        return True

    async def _connect(self, accepted: socket.socket) -> None:
        connection, context = _Connection(self, accepted), None
        if self._tls is not None:
            self._tls.refresh()
            context = self._tls.context
        try:
            await self._loop.connect_accepted_socket(lambda: connection, accepted, ssl=context)
        except OSError as error:
            _LOGGER.debug("no TLS: %s", error)
            connection.connection_lost(error)


class _Connection(H11Protocol):
    """A connection: one request, and deadlines for it and for its response."""

    def __init__(self, server: LiveServer, accepted: socket.socket) -> None:
        super().__init__(server.config, server.state, {}, asyncio.get_running_loop())
        self.logger, self.access_log = _HTTP_LOGGER, False
        self.is_waiting, self.since = True, self.loop.time()
        self._socket, self._open = accepted, server.connections
        self._open.add(self)
        self._deadline = self.loop.call_later(server.head_ms / 1000, self.disconnect)

    def data_received(self, data: bytes) -> None:
        """Take a part of the request. Anything after its end or its response is ignored."""
        if not self.is_waiting or self.transport.is_closing():
            return
        super().data_received(data)
        if self.cycle is not None and not self.cycle.more_body:
            self.is_waiting = False
            self._deadline.cancel()
            self._deadline = self.loop.call_later(RESPONSE_MS / 1000, self.disconnect)

    def send_400_response(self, msg: str) -> None:
        """Reject a request that isn't HTTP, or whose head is too long."""
        if self.cycle is not None:  # its body isn't HTTP
            self.cycle.disconnected = True  # the application's response is ignored
            if self.cycle.response_started:
                self.transport.abort()
                return
        error = sys.exception()
        hint = error.error_status_hint if isinstance(error, h11.ProtocolError) else 400
        status = HTTPStatus(hint)
        body = f"{status.phrase}: {error or msg}\n".encode()
        head = h11.Response(
            status_code=status, reason=status.phrase.encode(),
            headers=[
                *common_headers().items(), ("Content-Length", str(len(body))),
                ("Content-Type", "text/plain; charset=utf-8"),
            ],
        )  # fmt: skip
        for event in (head, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def on_response_complete(self) -> None:
        """Wait for the client to end the connection: in TLS it may leave that to the deadline."""
        super().on_response_complete()
        self.is_waiting, self.since = True, self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._open.discard(self)
        self._deadline.cancel()
        super().connection_lost(exc)

    def disconnect(self) -> None:
        """End the connection at once, in its TLS handshake too."""
        self._open.discard(self)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def abort(self) -> None:
        """End the connection without waiting for its response."""
        if self in self.connections:
            self.transport.abort()
        else:  # its TLS handshake hasn't ended
            self.disconnect()


def _listener(where: str, address: Address, option: str) -> socket.socket:
    """Return a socket that listens. Raises: InvalidRequestError."""
    try:
        listener = socket.create_server(
            (where, address.port), backlog=_BACKLOG,
            family=socket.AF_INET6 if ":" in where else socket.AF_INET,
            dualstack_ipv6=where == "::" and socket.has_dualstack_ipv6(),
        )  # fmt: skip
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        hint = "choose another port, or 0 for a free one" if taken else "choose another address"
        reason = os.strerror(error.errno) if error.errno else error
        raise InvalidRequestError(
            f"{option}={address} can't be listened on ({reason}): {hint}"
        ) from error
    listener.setblocking(False)
    return listener
