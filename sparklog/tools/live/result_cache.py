"""What is dear to make, made anew as it is asked for: never at once, and never too often."""

import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from sparklog.clock import monotonic_ms
from sparklog.errors import StorageUnavailableError

_REST: Final = 10  # times as long as it took
_PATIENCE_S: Final = 20.0  # for somebody else's making of the first one
T = TypeVar("T")


class CachedResult(Generic[T]):
    """What `make` made last. However many ask, one is made at a time, and none sooner than ten
    times as long after the one before as that took. Threads may share it.
    """

    def __init__(
        self, make: Callable[[], T], *, fresh_ms: float, patience_s: float = _PATIENCE_S
    ) -> None:
        """Args: patience_s: how long others wait where one is made and there was none before."""
        self._make, self._fresh_ms, self._patience_s = make, fresh_ms, patience_s
        self._mutex = threading.Lock()
        self._known: tuple[T, float] | None = None
        self._fresh_until_ms = self._rest_until_ms = 0.0

    def get(self) -> tuple[T, int]:
        """Return it, and how old it is in whole seconds.

        Who asks while one is made gets the one before, so a disk that hangs holds one thread.
        Raises: StorageUnavailableError: the first is still being made; what `make` raises.
        """
        known = self._known
        if known is not None and monotonic_ms() < self._fresh_until_ms:
            return _aged(known)
        if not self._mutex.acquire(timeout=0 if known is not None else self._patience_s):
            if known is not None:
                return _aged(known)
            raise StorageUnavailableError("this is still being made: try again in a moment")
        try:
            if self._known is None or monotonic_ms() >= self._fresh_until_ms:
                self._known = self._made()
            return _aged(self._known)
        finally:
            self._mutex.release()

    def peek(self) -> T | None:
        """Return the last one there is, at once; what is old is made anew meanwhile."""
        is_due = monotonic_ms() >= self._rest_until_ms
        if is_due and self._mutex.acquire(blocking=False):
            try:
                threading.Thread(target=self._renew, name="sparklog-ui-renew", daemon=True).start()
            except RuntimeError:  # no more threads: another peek's then
                self._mutex.release()
        known = self._known
        return None if known is None else known[0]

    def _renew(self) -> None:
        """Make it anew for a peek, which took the mutex."""
        try:
            self._known = self._made()
        except Exception:  # noqa: BLE001 - who asks for it is told
            return
        finally:
            self._mutex.release()

    def _made(self) -> tuple[T, float]:
        """Make it, under the mutex. What fails rests as long: nobody waits for a peek's."""
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
