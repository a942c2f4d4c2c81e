"""`TlsHandshake`: what a connection is until it is encrypted.

It counts as a connection from its first byte, and has a time to come to an end, so that nobody
takes what others need by beginning handshakes. asyncio's own TLS servers hand a connection over
only when its handshake is done.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Final

from sparklog.kafka.connection import Connection, Server

_SHUTDOWN_SECONDS: Final = 1.0
_PLAIN_HTTP: Final = "HTTP_REQUEST"
_HINTS: Final = {
    "WRONG_VERSION_NUMBER": "it doesn't speak TLS, or none of 1.2 and above: set its "
    "security.protocol to SSL or SASL_SSL",
    "UNSUPPORTED_PROTOCOL": "it speaks no TLS of 1.2 and above",
    _PLAIN_HTTP: "it speaks HTTP; Kafka's protocol is spoken here, over TLS",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate (ssl.client.auth=required)",
    "CERTIFICATE_VERIFY_FAILED": "its certificate isn't of an authority in ssl.truststore.location",
    "TLSV1_ALERT_UNKNOWN_CA": "it doesn't trust our certificate's authority",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it doesn't trust our certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it doesn't trust our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "our certificate has expired",
}


class TlsHandshake(asyncio.Protocol):
    """The protocol of a connection that is to be encrypted; then `connection` is."""

    def __init__(
        self,
        connection: Connection,
        server: Server,
        context: ssl.SSLContext,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._connection, self._server = connection, server
        self._context, self._loop = context, loop
        self._early = bytearray()
        self._ended: Exception | None = None
        self._is_lost = False
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake, if there is room for another connection."""
        assert isinstance(transport, asyncio.Transport)
        if self._task is not None:
            return
        self._connection.locate(transport)
        if not self._server.opened(self._connection):
            transport.abort()
            return
        transport.pause_reading()  # until the handshake reads
        self._task = self._loop.create_task(self._shake(transport))

    def data_received(self, data: bytes) -> None:
        """Keep what comes encrypted before the connection has been told that it is."""
        self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that it is over."""
        self._is_lost, self._ended = True, exc

    async def _shake(self, transport: asyncio.Transport) -> None:
        options = self._server.options
        try:
            encrypted = await self._loop.start_tls(
                transport, self, self._context, server_side=True,
                ssl_handshake_timeout=options.connections_setup_timeout_ms / 1000,
                ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
            )  # fmt: skip
        except (OSError, EOFError) as error:  # ssl.SSLError is an OSError; also a timeout
            self._refuse(transport, error)
            return
        except BaseException:
            self._forget(transport)
            raise
        assert encrypted is not None
        self._connection.connection_made(encrypted)
        hand_over: Callable[[asyncio.BaseProtocol], None] = encrypted.set_protocol
        hand_over(self._connection)
        if self._early:
            self._connection.data_received(bytes(self._early))
        if self._is_lost:
            self._connection.connection_lost(self._ended)

    def _refuse(self, transport: asyncio.Transport, error: Exception) -> None:
        reason = getattr(error, "reason", None) or ""
        said = _HINTS.get(str(reason), str(error) or type(error).__name__)
        if not isinstance(error, ConnectionError) or reason:
            # One that only goes away, as a port scan does, is no fault of anybody's.
            self._server.meters.closed("tls")
            self._server.lines.log(
                logging.WARNING, "TLS with %s failed: %s", self._connection.host, said
            )
        self._forget(transport)

    def _forget(self, transport: asyncio.Transport) -> None:
        transport.abort()
        self._connection.is_closed = True
        self._server.closed(self._connection)
