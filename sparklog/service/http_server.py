"""An HTTP server with bounded connections, for the metrics endpoint.

Each connection has a thread, so their number is limited. A client that sends no request is
disconnected after a timeout, or earlier if another client needs its slot.
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
"""Connections at the same time; further ones are closed."""
HEAD_MS: Final = 10_000
"""Time from the start of a connection to the end of its request."""
PATIENCE_MS: Final = 1000  # a client gets at least this long before it may lose its slot
_ROOM_S: Final = 0.5  # wait for the disconnected client's thread to end
_LOGGER: Final = logging.getLogger("sparklog.service")


class ThreadingServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """A server with a daemon thread per connection; closing does not wait for the threads.

    A handler calls `request_received` when its request is complete.
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
        self._waiting: dict[socket.socket, float] = {}  # connection -> deadline of its request
        self._mutex = threading.Lock()
        super().__init__(address, handler, bind_and_activate)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a new thread, or close the connection if there are too many."""
        if not self._room.acquire(blocking=False) and not self._disconnect_slowest():
            _LOGGER.warning(
                "too many connections to the metrics endpoint: a connection from %s was closed",
                client_address[0],
            )
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
        """Serve a connection, then free the slot that it occupied."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.request_received(request)
            self._room.release()

    def request_received(self, request: socket.socket) -> None:
        """End the deadline of a connection, because the request is complete or the client left."""
        with self._mutex:
            self._waiting.pop(request, None)

    def service_actions(self) -> None:
        """Disconnect clients after their deadline; called at least twice per second."""
        now = monotonic_ms()
        with self._mutex:
            late = [request for request, until in self._waiting.items() if until <= now]
            for request in late:
                del self._waiting[request]
        for request in late:
            _disconnect(request)

    def shutdown(self) -> None:
        """Stop `serve_forever` at once, instead of at socketserver's next poll."""
        # socketserver polls every 0.5 s, which would delay the end of each program by that time.
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # ends the poll that is under way
        super().shutdown()

    def _disconnect_slowest(self) -> bool:
        """Disconnect the client that has been silent longest. Return True if that freed a slot."""
        # Otherwise silent clients (a port scan, a broken proxy) could keep Prometheus out.
        with self._mutex:
            first = min(self._waiting, key=self._waiting.__getitem__, default=None)
            if first is None:
                return False
            if self._waiting[first] - self._head_ms + PATIENCE_MS > monotonic_ms():
                return False
            del self._waiting[first]
        _disconnect(first)
        return self._room.acquire(timeout=_ROOM_S)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error of a request. A client that disconnects or sends no data is not an error."""
        # socketserver would print a traceback even for a port scan.
        error = sys.exception()
        if isinstance(error, ConnectionError | TimeoutError):
            _LOGGER.debug("client %s disconnected: %r", client_address, error)
        else:
            _LOGGER.error("a request of client %s failed", client_address, exc_info=error)


def _disconnect(request: socket.socket) -> None:
    # Shut down, not closed: the connection's thread still uses the socket, and closes it.
    with contextlib.suppress(OSError):
        socket.socket.shutdown(request, socket.SHUT_RDWR)
