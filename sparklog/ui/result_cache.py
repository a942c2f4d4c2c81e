"""Results that are expensive to make: never made twice at once, and never too often."""

import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from sparklog.clock import monotonic_ms
from sparklog.errors import StorageUnavailableError

_REST: Final = 10  # times as long as it took
_PATIENCE_S: Final = 20.0  # while another thread makes the first one
T = TypeVar("T")


class CachedResult(Generic[T]):
    """The last result of `make`. For any number of callers, only one is made at a time.

    After each one there is a pause of ten times as long as it took. Threads may share it.
    """

    def __init__(
        self, make: Callable[[], T], *, fresh_ms: float, patience_s: float = _PATIENCE_S
    ) -> None:
        """Args: patience_s: how long callers wait while the first result is made."""
        self._make, self._fresh_ms, self._patience_s = make, fresh_ms, patience_s
        self._mutex = threading.Lock()
        self._known: tuple[T, float] | None = None
        self._fresh_until_ms = self._rest_until_ms = 0.0

    def get(self) -> tuple[T, int]:
        """Return the result, and its age in whole seconds.

        While a new one is made, other callers get the old one, so a disk that hangs holds one
        thread.
        Raises: StorageUnavailableError: the first is still being made; errors of `make`.
        """
        known = self._known
        if known is not None and monotonic_ms() < self._fresh_until_ms:
            return _aged(known)
        if not self._mutex.acquire(timeout=0 if known is not None else self._patience_s):
            if known is not None:
                return _aged(known)
            raise StorageUnavailableError("this page is still being made: try again in a moment")
        try:
            if self._known is None or monotonic_ms() >= self._fresh_until_ms:
                self._known = self._made()
            return _aged(self._known)
        finally:
            self._mutex.release()

    def peek(self) -> T | None:
        """Return the last result at once, or None; if it is old, a thread makes a new one."""
        is_due = monotonic_ms() >= self._rest_until_ms
        if is_due and self._mutex.acquire(blocking=False):
            try:
                threading.Thread(target=self._renew, name="sparklog-ui-renew", daemon=True).start()
            except RuntimeError:  # no more threads: left to another peek
                self._mutex.release()
        known = self._known
        return None if known is None else known[0]

    def _renew(self) -> None:
        """Make a new result for a peek, which took the mutex."""
        try:
            self._known = self._made()
        except Exception:  # noqa: BLE001 - who asks for it is told
            return
        finally:
            self._mutex.release()

    def _made(self) -> tuple[T, float]:
        """Make a result, under the mutex.

        The pause follows a failure too: nobody waits for a peek's.
        """
        began = monotonic_ms()
        try:
            made = self._make()
        finally:
            rest_ms = max(self._fresh_ms, _REST * (monotonic_ms() - began))
            self._rest_until_ms = monotonic_ms() + rest_ms
        self._fresh_until_ms = self._rest_until_ms
        return made, began


def _aged(known: tuple[T, float]) -> tuple[T, int]:
    made, began = known
    return made, int((monotonic_ms() - began) / 1000)
