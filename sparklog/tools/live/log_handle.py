"""`LogHandle`: the log that requests read, opened by the first of them, and again if need be."""

import logging
import threading
from collections.abc import Callable
from typing import Final

from sparklog.log.log import Log, is_replaced

_LOGGER: Final = logging.getLogger("sparklog.ui")
Open = Callable[[Callable[[], bool]], Log]
"""Opens a log for reading; it is given what ends a wait for a store."""


class LogHandle:
    """Threads may share it. `stop` is the thread's own: what it waits for ends with its request."""

    def __init__(self, opened: Open) -> None:
        self._open = opened
        self._mutex = threading.Lock()
        self._log: Log | None = None
        self._local = threading.local()

    def log(self, stopped: Callable[[], bool]) -> Log:
        """Return the log for a request of this thread; `stopped` ends its waits for a store.

        Raises: as `sparklog.open`.
        """
        self._local.stopped = stopped
        with self._mutex:
            if self._log is not None and is_replaced(self._log):
                _LOGGER.info("%s was replaced: showing what is there now", self._log.path)
                self._log = None  # not closed: another request may be reading it
            if self._log is None:
                self._log = self._open(self._is_stopped)
            return self._log

    def _is_stopped(self) -> bool:
        found: Callable[[], bool] | None = getattr(self._local, "stopped", None)
        return found is not None and found()
