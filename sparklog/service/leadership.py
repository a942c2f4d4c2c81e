"""`Leadership`: the log that a service has open, and whether it leads: does the background work."""

import logging
import threading
from typing import Final

from sparklog.clock import Clock
from sparklog.storage.lease import Lease
from sparklog.storage.upkeep import OpenUpkeep, Upkeep

_LOGGER: Final = logging.getLogger("sparklog.service")


class Leadership:
    """Opens the log with the lease and the work on it, and closes them together.

    The log may be open without the lease: another service leads then, and this one stands by.
    """

    def __init__(self, path: str, open_upkeep: OpenUpkeep, clock: Clock) -> None:
        self._path, self._open_upkeep, self._clock = path, open_upkeep, clock
        self._mutex = threading.Lock()  # opening, closing and the lease
        self._stood_by = False
        self.lease: Lease | None = None
        """Of the log that was opened last."""
        self.upkeep: Upkeep | None = None
        """The work; None while the log isn't open."""

    def open(self) -> tuple[Upkeep, bool]:
        """Return the work, and whether this opened the log for it.

        Raises: what `sparklog.open` raises.
        """
        with self._mutex:
            if self.upkeep is not None:
                return self.upkeep, False
            return self._open(), True

    def _open(self) -> Upkeep:
        upkeep = self._open_upkeep()
        self.upkeep, self.lease = upkeep, upkeep.lease
        return upkeep

    def leading(self) -> Upkeep | None:
        """Return the work if the lease is ours; takes it if it is free.

        Raises: LogReplacedError while no log is there; what opening the one that took its place
        raises.
        """
        with self._mutex:
            if self.upkeep is not None and self.upkeep.is_replaced():
                _LOGGER.warning("%s holds another log, or an earlier state: opening it", self._path)
                self.upkeep.lease.release()
                self._open()
            upkeep = self.upkeep
            if upkeep is None:
                return None
            if upkeep.lease.held:
                return upkeep
            if upkeep.lease.acquire():
                self._stood_by = False
                upkeep.take_up(self._clock())
                return upkeep
            if not self._stood_by:
                who = upkeep.lease.describe()
                _LOGGER.warning("%s: %s does the background work; standing by", self._path, who)
            self._stood_by = True
            return None

    def close(self) -> None:
        """Give up the lease and close the log. Idempotent."""
        with self._mutex:
            if self.lease is not None:
                self.lease.release()
            upkeep, self.upkeep = self.upkeep, None
            if upkeep is not None:
                upkeep.close()
