"""`LogHandle`: the log that requests read, opened by the first of them, and reopened if needed."""

import logging
import threading
from collections.abc import Callable
from typing import Final

from sparklog.log.log import Log, is_replaced

_LOGGER: Final = logging.getLogger("sparklog.ui")
Open = Callable[[Callable[[], bool]], Log]
"""Opens a log for reading. The argument tells whether a wait for a store must end."""


class LogHandle:
    """Threads may share it.

    `stop` is per thread: a wait ends when the thread's own request ends.
    """

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
                _LOGGER.info("%s was replaced: showing the new log", self._log.path)
                self._log = None  # not closed: another request may be reading it
            if self._log is None:
                self._log = self._open(self._is_stopped)
            return self._log

    def _is_stopped(self) -> bool:
        found: Callable[[], bool] | None = getattr(self._local, "stopped", None)
        return found is not None and found()
