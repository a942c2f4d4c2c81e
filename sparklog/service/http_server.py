"""HTTP servers beside the service: what the metrics endpoint and the live report share."""

import logging
import socketserver
import sys
from typing import Any, Final

_LOGGER: Final = logging.getLogger("sparklog.service")


class ThreadingServer(socketserver.ThreadingMixIn):
    """A thread a connection; none keeps the process alive, and the end waits for none."""

    daemon_threads = True  # a client that hangs must not keep the process alive
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what went wrong; a client that goes away or says nothing (a port scan) is no error.

        socketserver would print a traceback for each.
        """
        error = sys.exception()
        if isinstance(error, ConnectionError | TimeoutError):
            _LOGGER.debug("%s went away: %r", client_address, error)
        else:
            _LOGGER.error("a request of %s failed", client_address, exc_info=error)
