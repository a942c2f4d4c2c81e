"""`TlsHandshake`: the protocol of a connection until it is encrypted.

The connection counts against the limits from its first byte and has a time limit, so that
unfinished handshakes cannot exhaust the endpoint. asyncio's own TLS servers report a connection
only after its handshake.
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
    "WRONG_VERSION_NUMBER": "the client does not use TLS 1.2 or later: set its security.protocol "
    "to SSL or SASL_SSL",
    "UNSUPPORTED_PROTOCOL": "the client does not support TLS 1.2 or later",
    _PLAIN_HTTP: "the client uses HTTP; this port serves Kafka's protocol over TLS",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client sent no certificate "
    "(ssl.client.auth=required)",
    "CERTIFICATE_VERIFY_FAILED": "the client's certificate was not issued by an authority in "
    "ssl.truststore.location",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the authority of the endpoint's "
    "certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not trust the endpoint's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client does not trust the endpoint's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the endpoint's certificate has expired",
}


class TlsHandshake(asyncio.Protocol):
    """The asyncio protocol of a connection during the handshake.

    `connection` takes over after the handshake.
    """

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
        """Start the handshake if there is room for another connection."""
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
        """Buffer decrypted data that arrives before the connection takes over."""
        self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        """Record that the connection was lost."""
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
        # The first request may arrive with the end of the handshake, before this task runs.
        if self._early:
            self._connection.data_received(bytes(self._early))
        if self._is_lost:
            self._connection.connection_lost(self._ended)

    def _refuse(self, transport: asyncio.Transport, error: Exception) -> None:
        reason = getattr(error, "reason", None) or ""
        hint = _HINTS.get(str(reason), str(error) or type(error).__name__)
        if not isinstance(error, ConnectionError) or reason:
            # A client that only disconnects, for example a port scan, is not an error.
            self._server.meters.closed("tls")
            self._server.lines.log(
                logging.WARNING, "TLS with %s failed: %s", self._connection.host, hint
            )
        self._forget(transport)

    def _forget(self, transport: asyncio.Transport) -> None:
        transport.abort()
        self._connection.is_closed = True
        self._server.closed(self._connection)
