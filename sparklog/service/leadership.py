"""`Leadership`: the log that a service has open, and whether it leads: does the background work.

A leader that `lends` lets another process lead for a while (`borrowing`), which asks for it.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Final

from sparklog.clock import Clock, monotonic_ms
from sparklog.errors import StorageUnavailableError
from sparklog.storage.lease import UpkeepLease
from sparklog.storage.upkeep import OpenUpkeep, Upkeep

_LOGGER: Final = logging.getLogger("sparklog.service")
_POLL_MS: Final = 100  # how often who waits for the lease asks again


class Leadership:
    """Opens the log with the lease and the work on it, and closes them together.

    The log may be open without the lease: another service leads then, and this one stands by.
    """

    def __init__(self, path: str, open_upkeep: OpenUpkeep, clock: Clock) -> None:
        self._path, self._open_upkeep, self._clock = path, open_upkeep, clock
        self._mutex = threading.Lock()  # opening, closing and the lease
        self._pause = threading.Event()  # never set
        self._stood_by = False
        self._lends = False
        self.lease: UpkeepLease | None = None
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
        self.lease.lends = self._lends
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
            if not upkeep.lease.is_asked() and upkeep.lease.acquire():
                self._stood_by = False
                upkeep.take_up(self._clock())
                return upkeep
            if not self._stood_by:
                who = upkeep.lease.describe()
                _LOGGER.warning("%s: %s does the background work; standing by", self._path, who)
            self._stood_by = True
            return None

    # --- lending -------------------------------------------------------------------------------

    def lend(self, lends: bool) -> None:
        """Give the lease back from now on, or no more, when another process asks for it."""
        self._lends = lends
        with self._mutex:
            if self.lease is not None:
                self.lease.lends = lends

    def is_asked(self) -> Upkeep | None:
        """Return the work if it is ours, we lend it, and somebody asks for it."""
        upkeep = self.upkeep
        if upkeep is None or not (self._lends and upkeep.lease.held):
            return None
        with contextlib.suppress(StorageUnavailableError):
            return upkeep if upkeep.lease.is_asked() else None
        return None

    def hand_over(self) -> None:
        """Release the lease if somebody still asks for it. No step of the work is under way."""
        with self._mutex:
            upkeep = self.upkeep
            if upkeep is not None and upkeep.lease.held and upkeep.lease.is_asked():
                _LOGGER.info("%s: another process leads for a while", self._path)
                self._stood_by = True
                upkeep.lease.release()

    @contextlib.contextmanager
    def borrowing(
        self, upkeep: Upkeep, wait_ms: float, waiting: Callable[[str], None]
    ) -> Iterator[Callable[[], bool]]:
        """Give what takes the lease, waiting `wait_ms` for another one that holds it.

        It isn't lent meanwhile, and released afterwards if it wasn't ours before. `waiting` is told
        for whom it waits. The caller sees to it that no work of ours is under way.
        """
        lease, lends = upkeep.lease, self._lends
        was_ours = lease.held
        self.lend(False)
        try:
            yield lambda: self._borrow(lease, wait_ms, waiting)
        finally:
            self.lend(lends)
            if not was_ours:
                lease.release()

    def _borrow(
        self, lease: UpkeepLease, wait_ms: float, waiting: Callable[[str], None]
    ) -> bool:
        began, said, self._stood_by = monotonic_ms(), False, True  # it tells by itself
        try:
            while self.leading() is None:
                if monotonic_ms() - began >= wait_ms:
                    return False
                lease.ask()
                if not said:
                    waiting(_awaited(lease))
                    said = True
                self._pause.wait(_POLL_MS / 1000)
            return True
        finally:
            lease.withdraw()

    def close(self) -> None:
        """Give up the lease and close the log. Idempotent."""
        with self._mutex:
            if self.lease is not None:
                self.lease.release()
            upkeep, self.upkeep = self.upkeep, None
            if upkeep is not None:
                upkeep.close()


def _awaited(lease: UpkeepLease) -> str:
    """For whom one waits, and how that ends."""
    lends, who = lease.holder().get("lends"), lease.describe()
    if lends is None:
        return f"{who}, which is of an older sparklog and hands over to nobody: stop it"
    if lends:
        return f"{who}, which hands over at the end of its step"
    return f"process {lease.holder().get('pid', '?')}, which leads until it has done its work"
