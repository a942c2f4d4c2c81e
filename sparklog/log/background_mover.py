"""`BackgroundMover`: carries out moves between log dirs in a thread, for who serves a log."""

import logging
import threading
from typing import Final

from sparklog.errors import LogLockedError, SparklogError
from sparklog.log.log import Log, home_of
from sparklog.storage.moves import MovedPartition

_LOGGER: Final = logging.getLogger(__name__)


class BackgroundMover:
    """Does what `Log.moves` shows, where nobody else is at it. Threads may share it."""

    def __init__(self, log: Log) -> None:
        self._moves, self._path = home_of(log).moves, log.path
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def look(self) -> None:
        """Begin, if there is something to do; to be called now and then. Raises nothing.

        Cost: two stats, as a rule.
        """
        with self._lock:
            if self._stopping.is_set() or (self._thread is not None and self._thread.is_alive()):
                return
            try:
                if not self._moves.is_due():
                    return
            except SparklogError:  # the disk, or the log, went away: whoever serves it tells
                return
            self._thread = threading.Thread(target=self._run, name="sparklog-mover", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            self._moves.carry_out(stopping=self._stopping.is_set, done=self._tell)
        except LogLockedError:
            pass  # somebody else was quicker
        except Exception:  # the next look begins anew
            _LOGGER.exception("%s: moves between log dirs stopped", self._path)

    def _tell(self, moved: MovedPartition) -> None:
        _LOGGER.info(
            "%s: moved %s-%d from %s to %s: %d bytes in %d ms, writers waited %d ms",
            self._path, moved.topic, moved.partition, moved.source, moved.target, moved.bytes,
            moved.took_ms, moved.locked_ms,
        )  # fmt: skip

    def close(self) -> None:
        """Stop; a move under way is gone on with by whoever comes next. Idempotent."""
        self._stopping.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()
