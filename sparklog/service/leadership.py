"""`Leadership`: opens a service's log, and acquires, lends and borrows the lease of the work.

The holder of the lease leads: this service does the background work. A leader that lends the lease
hands it over to a process that requests it, such as an erasure (`borrowing`).
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterator
from typing import Final

from sparklog.clock import Clock, monotonic_ms, pause
from sparklog.errors import StorageUnavailableError
from sparklog.storage.lease import UpkeepLease
from sparklog.storage.upkeep import ErasureRequest, OpenUpkeep, Upkeep

_LOGGER: Final = logging.getLogger("sparklog.service")
_POLL_MS: Final = 100  # poll interval while waiting for the lease
HOLD_MS: Final = 30_000
"""A borrower returns the lease for a while after this time, at the end of its step."""
REST_MS: Final = 3_000
"""A service that wants the lease takes it within this time: it polls once per second."""


class Leadership:
    """A log that is open for background work, and the lease of this work.

    The log may be open without the lease: then another service leads, and this service stands by.
    """

    def __init__(self, path: str, open_upkeep: OpenUpkeep, clock: Clock) -> None:
        self._path, self._open_upkeep, self._clock = path, open_upkeep, clock
        self._mutex = threading.Lock()  # guards opening, closing and the lease
        self._stood_by = False
        self._lends = False
        self.lease: UpkeepLease | None = None
        """The lease of the log that was opened last."""
        self.upkeep: Upkeep | None = None
        """The background work; None while the log is closed."""

    def open(self) -> tuple[Upkeep, bool]:
        """Return the background work, and whether this call opened the log.

        Raises the errors of `sparklog.open`.
        """
        with self._mutex:
            if self.upkeep is not None:
                return self.upkeep, False
            return self._open(), True

    def _open(self) -> Upkeep:
        upkeep = self._open_upkeep()
        self.upkeep, self.lease = upkeep, upkeep.lease
        # A log that is opened again has a new lease, which must lend as the former lease did.
        self.lease.lends = self._lends
        return upkeep

    def leading(self) -> Upkeep | None:
        """Return the background work if this service leads. Acquires a free lease.

        Raises:
            LogReplacedError: The log was deleted, and there is no new log yet.
            SparklogError: A log that replaced the log cannot be opened; see `sparklog.open`.
        """
        with self._mutex:
            if self.upkeep is not None and self.upkeep.is_replaced():
                _LOGGER.warning(
                    "%s contains another log, or was restored to an earlier state; it is opened "
                    "again", self._path,
                )  # fmt: skip
                self.upkeep.lease.release()
                self._open()
            upkeep = self.upkeep
            if upkeep is None:
                return None
            if upkeep.lease.held:
                return upkeep
            # A requested lease is left free for the process that requested it, for example an
            # erasure between two of its turns.
            if not upkeep.lease.is_requested() and upkeep.lease.acquire():
                self._stood_by = False
                upkeep.take_up(self._clock())
                return upkeep
            if not self._stood_by:
                holder = upkeep.lease.describe()
                _LOGGER.warning("%s: %s does the background work; standing by", self._path, holder)
            self._stood_by = True
            return None

    # --- lending -------------------------------------------------------------------------------

    def lend(self, lends: bool) -> None:
        """Set whether this service hands the lease over to a process that requests the lease."""
        self._lends = lends
        with self._mutex:
            if self.lease is not None:
                self.lease.lends = lends

    def requested_upkeep(self) -> Upkeep | None:
        """Return the background work if this service leads and must hand the lease over."""
        # Without the mutex: this runs once per second in each thread, also while a log opens.
        upkeep = self.upkeep
        if upkeep is None or not (self._lends and upkeep.lease.held):
            return None
        with contextlib.suppress(StorageUnavailableError):
            return upkeep if upkeep.lease.is_requested() else None
        return None

    def hand_over(self) -> None:
        """Release a lease that another process requests. No step of the work may be running."""
        with self._mutex:  # the request may have been withdrawn since `requested_upkeep`
            upkeep = self.upkeep
            if upkeep is not None and upkeep.lease.held and upkeep.lease.is_requested():
                _LOGGER.info("%s: the lease is handed over to another process", self._path)
                # `leading` would otherwise log a second message about the same handover, as a
                # warning.
                self._stood_by = True
                upkeep.lease.release()

    @contextlib.contextmanager
    def borrowing(
        self,
        upkeep: Upkeep,
        turns: Collection[threading.Lock],
        request: ErasureRequest,
    ) -> Iterator["BorrowedLease"]:
        """Provide a lease that is acquired in turns, even if this service already has the lease.

        Within the context this service does not lend the lease. At the end the lease is released,
        unless this service had it before.

        Args:
            upkeep: The background work of the log.
            turns: The locks of this service's own work that would interfere.
            request: How long to wait for another process, and the callback for its description.
        """
        lends = self._lends
        self.lend(False)
        borrowed = BorrowedLease(self, upkeep.lease, turns, request)
        try:
            yield borrowed
        finally:
            borrowed.end()
            self.lend(lends)

    def borrow(self, lease: UpkeepLease, wait_ms: float, waiting: Callable[[str], None]) -> bool:
        """Acquire the lease, and wait for the process that holds it.

        Returns False if that process does not release the lease within `wait_ms`.
        """
        # `waiting` reports the holder, so `leading` needn't log it.
        began, has_reported, self._stood_by = monotonic_ms(), False, True
        try:
            while self.leading() is None:
                if monotonic_ms() - began >= wait_ms:
                    return False
                lease.request()
                if not has_reported:
                    waiting(_describe_holder(lease))
                    has_reported = True
                pause(_POLL_MS)
            return True
        finally:
            # Services leave a requested lease free (`leading`), so no service would lead while the
            # request of a borrower that gave up remains.
            lease.withdraw()

    def close(self) -> None:
        """Release the lease and close the log. Idempotent."""
        with self._mutex:
            if self.lease is not None:
                self.lease.release()
            upkeep, self.upkeep = self.upkeep, None
            if upkeep is not None:
                upkeep.close()


class BorrowedLease:
    """A lease that is acquired in turns: a `sparklog.storage.upkeep.Loan`.

    Between two turns other processes get as long as the last turn lasted, if any of them works.
    """

    def __init__(
        self,
        leadership: Leadership,
        lease: UpkeepLease,
        turns: Collection[threading.Lock],
        request: ErasureRequest,
    ) -> None:
        self._leadership, self._lease, self._turns = leadership, lease, turns
        self._request = request
        self._was_ours = lease.held
        self._held = contextlib.ExitStack()
        self._began_ms: float | None = None  # None without the lease
        self._ended_ms, self._rest_ms = 0.0, 0.0
        self._has_reported = False

    def is_over(self) -> bool:
        """Return True if the turn has lasted long enough and others should work."""
        return self._began_ms is not None and monotonic_ms() - self._began_ms >= HOLD_MS

    def begin(self) -> bool:
        """Acquire or keep the lease; see `Loan`. Raises the errors of `Leadership.leading`."""
        if self._began_ms is not None and self._lease.held and not self.is_over():
            return True
        self.end()
        self.pause_between_loans()
        # The locks come before the lease, so that no step of this service runs under the borrowed
        # lease.
        for turn in self._turns:
            self._held.enter_context(turn)
        try:
            is_ours = self._leadership.borrow(
                self._lease, self._request.wait_ms, self._report_waiting
            )
        except BaseException:
            self._held.close()
            raise
        # Set also without the lease, because `end` releases the locks only of a turn that has
        # begun.
        self._began_ms = monotonic_ms()
        if not is_ours:
            self.end()
        return is_ours

    def end(self) -> None:
        """Return the lease, and let this service's own work continue. Idempotent."""
        if self._began_ms is None:
            return
        self._ended_ms = monotonic_ms()
        # A long erasure takes half of the time at most, so that retention and copies keep up.
        self._rest_ms = max(REST_MS, self._ended_ms - self._began_ms)
        self._began_ms = None
        if not self._was_ours:
            self._lease.release()
        self._held.close()

    def pause_between_loans(self) -> None:
        """Wait while others work. The time since `end` counts. Ends early if no process works."""
        ended, asked = self._ended_ms, False
        while (rested := monotonic_ms() - ended) < self._rest_ms:
            if rested >= REST_MS and not asked:
                asked = True
                # Without another thread or process on the log, the lease is acquired.
                is_in_use = any(turn.locked() for turn in self._turns)
                if not is_in_use and self._leadership.leading() is not None:
                    return
            pause(min(_POLL_MS, self._rest_ms - rested))

    def _report_waiting(self, holder: str) -> None:
        if not self._has_reported:
            self._has_reported = True
            self._request.waiting(holder)


def _describe_holder(lease: UpkeepLease) -> str:
    """Describe the process that holds the lease, and when it will release the lease."""
    lends, holder = lease.holder().get("lends"), lease.describe()
    if lends is None:
        return f"{holder}, which runs an older sparklog and can't hand the lease over: stop it"
    if lends:
        return f"{holder}, which hands the lease over at the end of its step"
    return f"process {lease.holder().get('pid', '?')}, which leads until its work is done"
