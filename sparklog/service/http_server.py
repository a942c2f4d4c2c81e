"""HTTP servers beside the service: what the metrics endpoint and the pages share.

A thread serves each connection, so there are so many at most; who doesn't say what he wants is let
go in time, and sooner where others wait for his place.
"""

import contextlib
import logging
import socket
import socketserver
import sys
import threading
from typing import Any, Final

from sparklog.clock import monotonic_ms

CONNECTIONS_MAX: Final = 64
"""Connections at once; more are closed."""
HEAD_MS: Final = 10_000
"""From a connection to the end of its request."""
_PATIENCE_MS: Final = 1000  # so long nobody is let go for somebody else
_ROOM_S: Final = 0.5  # for a thread that was told to end
_LOGGER: Final = logging.getLogger("sparklog.service")


class ThreadingServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """A thread a connection; none keeps the process alive, and the end waits for none.

    A handler says by `request_received` that its request is there.
    """

    daemon_threads = True  # a client that hangs must not keep the process alive
    block_on_close = False
    request_queue_size = 128

    def __init__(
        self, address: Any, handler: Any, bind_and_activate: bool = True,
        *, connections_max: int = CONNECTIONS_MAX, head_ms: int = HEAD_MS,
    ) -> None:  # fmt: skip
        self._head_ms = head_ms
        self._room = threading.Semaphore(connections_max)
        self._waiting: dict[socket.socket, float] = {}  # until when a request is to be there
        self._mutex = threading.Lock()
        super().__init__(address, handler, bind_and_activate)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own, or close it."""
        if not self._room.acquire(blocking=False) and not self._disconnect_slowest():
            _LOGGER.warning("too many connections: %s is sent away", client_address[0])
            self.shutdown_request(request)
            return
        with self._mutex:
            self._waiting[request] = monotonic_ms() + self._head_ms
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no more threads
            self.request_received(request)
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.request_received(request)
            self._room.release()

    def request_received(self, request: socket.socket) -> None:
        """A connection's request is there, or it ended: nobody waits for it any more."""
        with self._mutex:
            self._waiting.pop(request, None)

    def replace_socket(self, request: socket.socket, wrapped: socket.socket) -> None:
        """The connection is another socket's now; its time goes on."""
        with self._mutex:
            self._waiting[wrapped] = self._waiting.pop(request, monotonic_ms())

    def service_actions(self) -> None:
        """Let go of those who don't say what they want; called twice a second or more often."""
        now = monotonic_ms()
        with self._mutex:
            late = [request for request, until in self._waiting.items() if until <= now]
            for request in late:
                del self._waiting[request]
        for request in late:
            _disconnect(request)

    def shutdown(self) -> None:
        """Stop `serve_forever` at once. socketserver would wait until it polls the next time."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # ends the poll that is under way
        super().shutdown()

    def _disconnect_slowest(self) -> bool:
        """Let go of who has said nothing for longest, so that nobody keeps all others out."""
        with self._mutex:
            first = min(self._waiting, key=self._waiting.__getitem__, default=None)
            if first is None:
                return False
            if self._waiting[first] - self._head_ms + _PATIENCE_MS > monotonic_ms():
                return False
            del self._waiting[first]
        _disconnect(first)
        return self._room.acquire(timeout=_ROOM_S)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what went wrong; a client that goes away or says nothing (a port scan) is no error.

        socketserver would print a traceback for each.
        """
        error = sys.exception()
        if isinstance(error, ConnectionError | TimeoutError):
            _LOGGER.debug("%s went away: %r", client_address, error)
        else:
            _LOGGER.error("a request of %s failed", client_address, exc_info=error)


def _disconnect(request: socket.socket) -> None:
    with contextlib.suppress(OSError):
        socket.socket.shutdown(request, socket.SHUT_RDWR)
