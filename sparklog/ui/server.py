"""`LiveServer`: serves the pages of a log over HTTP or HTTPS, for `serve --ui` and `sparklog ui`.

The server is uvicorn, in an event loop of a daemon thread. A connection serves one request. Clients
that send no request in time, or do not read the response, are disconnected. The pages read the log
without a lock and change nothing, so neither writers nor the service wait for them.
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
# uvicorn warns of each request that is not HTTP, so a port scan would fill the log.
_HTTP_LOGGER.addFilter(lambda record: record.levelno >= logging.ERROR)


class LiveServer:
    """The HTTP server of a log's pages, as a context manager. `url` is the URL for a browser."""

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
        """Bind the address. The log is not read before the first request.

        Args:
            site: The pages, as an ASGI application.
            address: The address to listen on. Port 0 selects a free port.
            access: The access control. By default, every client on this host may read the pages.
            tls: The certificate and key for HTTPS, or None for HTTP.
            connections_max: The maximum number of open connections.
            head_ms: The time in which a client must send its request.
            option: The command-line option that contained the address, for messages.

        Raises:
            InvalidRequestError: The address can't be bound, or the TLS files can't be used.
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
            # proxy_headers=False: any client can send X-Forwarded-For, and would be logged under
            # that address.
            Gate(site, access or Access([where]), self.port), http=_Connection, ws="none",
            lifespan="off", log_config=None, proxy_headers=False,
            h11_max_incomplete_event_size=_HEAD_BYTES,
        )  # fmt: skip
        self.state, self.connections = ServerState(), set[_Connection]()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the server in a daemon thread."""
        self._loop, self._stopping = asyncio.new_event_loop(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="sparklog-ui", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the server. Idempotent. Responses in progress are cut off."""
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
        # Aborting a connection ends its task within moments, except during a long computation.
        if tasks := self.state.tasks:
            await asyncio.wait(tasks, timeout=1)

    async def _accept(self) -> None:
        connecting = set[asyncio.Task[None]]()
        while True:
            try:
                accepted, address = await self._loop.sock_accept(self._listener)
            except OSError as error:
                _LOGGER.warning("a connection can't be accepted: %s; retrying", error)
                await asyncio.sleep(1)  # too many open files, perhaps: don't retry in a busy loop
                continue
            if len(self.connections) >= self._connections_max and not self._make_room():
                _LOGGER.warning("too many connections: closed a new connection from %s", address[0])
                accepted.close()
            else:
                task = self._loop.create_task(self._connect(accepted))
                connecting.add(task)
                task.add_done_callback(connecting.discard)
            # sock_accept does not yield if connections wait: a flood of new connections would stop
            # the responses to existing ones.
            await asyncio.sleep(0)

    def _make_room(self) -> bool:
        """Disconnect the client that has been silent longest. Return False if none was silent long.

        Otherwise silent clients could occupy all connections.
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
            # A renewed certificate is used without a restart.
            self._tls.refresh()
            context = self._tls.context
        try:
            await self._loop.connect_accepted_socket(lambda: connection, accepted, ssl=context)
        except OSError as error:  # debug: each port scan and each HTTP request to HTTPS causes one
            _LOGGER.debug("a TLS handshake failed: %s", error)
            connection.connection_lost(error)


class _Connection(H11Protocol):
    """A connection for a single request, with deadlines for the request and the response."""

    def __init__(self, server: LiveServer, accepted: socket.socket) -> None:
        super().__init__(server.config, server.state, {}, asyncio.get_running_loop())
        self.logger, self.access_log = _HTTP_LOGGER, False
        self.is_waiting, self.since = True, self.loop.time()
        self._socket, self._open = accepted, server.connections
        self._open.add(self)
        self._deadline = self.loop.call_later(server.head_ms / 1000, self.disconnect)

    def data_received(self, data: bytes) -> None:
        """Process received bytes of the request; ignore bytes after the end of the request."""
        if not self.is_waiting or self.transport.is_closing():
            return
        super().data_received(data)
        if self.cycle is not None and not self.cycle.more_body:
            self.is_waiting = False
            self._deadline.cancel()
            self._deadline = self.loop.call_later(RESPONSE_MS / 1000, self.disconnect)

    def send_400_response(self, msg: str) -> None:
        """Reject a request that is not HTTP, or has too long a head."""
        if self.cycle is not None:  # the head was HTTP, the body is not
            self.cycle.disconnected = True  # uvicorn then drops what the application sends
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
        """Wait until the client closes the connection, or the deadline passes.

        A TLS client may leave the connection open.
        """
        super().on_response_complete()
        self.is_waiting, self.since = True, self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.discard(self)
        self._deadline.cancel()
        super().connection_lost(exc)

    def disconnect(self) -> None:
        """Close the connection, even during the TLS handshake.

        The transport does not exist before the end of the handshake, so the socket is shut down.
        """
        self._open.discard(self)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def abort(self) -> None:
        """Close the connection, cutting off the response."""
        if self in self.connections:
            self.transport.abort()
        else:  # the TLS handshake has not ended
            self.disconnect()


def _listener(where: str, address: Address, option: str) -> socket.socket:
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
