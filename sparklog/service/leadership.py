"""`Leadership`: the log that a service has open, and whether it leads: does the background work.

A leader that `lends` lets another process lead for a while (`borrowing`), which asks for it.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterator
from typing import Final

from sparklog.clock import Clock, monotonic_ms, pause
from sparklog.errors import StorageUnavailableError
from sparklog.storage.lease import UpkeepLease
from sparklog.storage.upkeep import OpenUpkeep, Upkeep

_LOGGER: Final = logging.getLogger("sparklog.service")
_POLL_MS: Final = 100  # how often who waits for the lease asks again
HOLD_MS: Final = 30_000
"""After so long who borrows the lease gives it back for a while, at the end of his step."""
REST_MS: Final = 3_000
"""Within so long a service that wants it has taken it: it asks each second."""


class Leadership:
    """Opens the log with the lease and the work on it, and closes them together.

    The log may be open without the lease: another service leads then, and this one stands by.
    """

    def __init__(self, path: str, open_upkeep: OpenUpkeep, clock: Clock) -> None:
        self._path, self._open_upkeep, self._clock = path, open_upkeep, clock
        self._mutex = threading.Lock()  # opening, closing and the lease
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
            if not upkeep.lease.is_requested() and upkeep.lease.acquire():
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

    def requested_upkeep(self) -> Upkeep | None:
        """Return the work if it is ours, we lend it, and somebody asks for it."""
        upkeep = self.upkeep
        if upkeep is None or not (self._lends and upkeep.lease.held):
            return None
        with contextlib.suppress(StorageUnavailableError):
            return upkeep if upkeep.lease.is_requested() else None
        return None

    def hand_over(self) -> None:
        """Release the lease if somebody still asks for it. No step of the work is under way."""
        with self._mutex:
            upkeep = self.upkeep
            if upkeep is not None and upkeep.lease.held and upkeep.lease.is_requested():
                _LOGGER.info("%s: another process leads for a while", self._path)
                self._stood_by = True
                upkeep.lease.release()

    @contextlib.contextmanager
    def borrowing(
        self,
        upkeep: Upkeep,
        turns: Collection[threading.Lock],
        wait_ms: float,
        waiting: Callable[[str], None],
    ) -> Iterator["BorrowedLease"]:
        """Give what takes the lease for a while at a time, from another one that holds it, too.

        It isn't lent meanwhile, and released afterwards if it wasn't ours before.
        Args: turns: locks without which none of our own work goes on that is in the way. wait_ms:
        how long others are waited for. waiting: is told once for whom.
        """
        lends = self._lends
        self.lend(False)
        borrowed = BorrowedLease(self, upkeep.lease, turns, wait_ms, waiting)
        try:
            yield borrowed
        finally:
            borrowed.end()
            self.lend(lends)

    def borrow(self, lease: UpkeepLease, wait_ms: float, waiting: Callable[[str], None]) -> bool:
        """Take the lease, waiting for who holds it; false: he keeps it."""
        began, said, self._stood_by = monotonic_ms(), False, True  # it tells by itself
        try:
            while self.leading() is None:
                if monotonic_ms() - began >= wait_ms:
                    return False
                lease.request()
                if not said:
                    waiting(_describe_holder(lease))
                    said = True
                pause(_POLL_MS)
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


class BorrowedLease:
    """A lease that is ours for a while at a time: a `sparklog.storage.upkeep.Loan`.

    In between whoever works on the log has as long as it was ours; nobody, if none comes.
    """

    def __init__(
        self,
        leadership: Leadership,
        lease: UpkeepLease,
        turns: Collection[threading.Lock],
        wait_ms: float,
        waiting: Callable[[str], None],
    ) -> None:
        self._leadership, self._lease, self._turns = leadership, lease, turns
        self._wait_ms, self._waiting = wait_ms, waiting
        self._was_ours = lease.held
        self._held = contextlib.ExitStack()
        self._began_ms: float | None = None  # None: it isn't ours now
        self._ended_ms, self._rest_ms = 0.0, 0.0
        self._said = False

    def is_over(self) -> bool:
        """Tell whether it is time to let others get on."""
        return self._began_ms is not None and monotonic_ms() - self._began_ms >= HOLD_MS

    def begin(self) -> bool:
        """Take it, or keep it; see `Loan`. Raises: what `Leadership.leading` raises."""
        if self._began_ms is not None and self._lease.held and not self.is_over():
            return True
        self.end()
        self._pause_between_loans()
        for turn in self._turns:
            self._held.enter_context(turn)
        try:
            is_ours = self._leadership.borrow(self._lease, self._wait_ms, self._report_waiting)
        except BaseException:
            self._held.close()
            raise
        self._began_ms = monotonic_ms()
        if not is_ours:
            self.end()
        return is_ours

    def end(self) -> None:
        """Give it back, and let our own work go on. Idempotent."""
        if self._began_ms is None:
            return
        self._ended_ms = monotonic_ms()
        self._rest_ms = max(REST_MS, self._ended_ms - self._began_ms)
        self._began_ms = None
        if not self._was_ours:
            self._lease.release()
        self._held.close()

    def _pause_between_loans(self) -> None:
        """Leave others their time; what we did since `end` counts. Nobody came: no more of it."""
        ended, asked = self._ended_ms, False
        while (rested := monotonic_ms() - ended) < self._rest_ms:
            if rested >= REST_MS and not asked:
                asked = True
                if not self._is_log_in_use():
                    return
            pause(min(_POLL_MS, self._rest_ms - rested))

    def _is_log_in_use(self) -> bool:
        """Tell whether somebody works on the log; else it is ours again."""
        if any(turn.locked() for turn in self._turns):
            return True
        return self._leadership.leading() is None

    def _report_waiting(self, who: str) -> None:
        if not self._said:
            self._said = True
            self._waiting(who)


def _describe_holder(lease: UpkeepLease) -> str:
    """For whom one waits, and how that ends."""
    lends, who = lease.holder().get("lends"), lease.describe()
    if lends is None:
        return f"{who}, which is of an older sparklog and hands over to nobody: stop it"
    if lends:
        return f"{who}, which hands over at the end of its step"
    return f"process {lease.holder().get('pid', '?')}, which leads until it has done its work"
