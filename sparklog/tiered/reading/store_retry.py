"""How long a reader waits for an unavailable store (remote.patience.ms).

`ObjectStore` retries a request for a second or two, which suffices for short disturbances. A store
that restarts, or a network outage, takes longer, and a reader that gives up then fails its query.
Therefore readers retry in their own threads until their own timeout. Errors that need an operator
(credentials, a missing bucket) are raised at once.
"""

import logging
import random
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from sparklog.clock import monotonic_ms
from sparklog.errors import StorageUnavailableError

T = TypeVar("T")
READ_MS: Final = 60_000
"""How long a bounded read waits, like Kafka's default.api.timeout.ms."""
FOLLOW_MS: Final = 7_200_000
"""How long a reader of new records waits: an hour's outage, and the store's start after it."""

_FIRST_MS: Final = 500
_LONGEST_MS: Final = 10_000
_SLICE_MS: Final = 200  # interval of checks whether to stop
_TOLD_MS: Final = 60_000
_LOGGER: Final = logging.getLogger(__name__)


class StoreRetry:
    """Retries requests while a store is unavailable. Thread-safe.

    Args:
        timeout_ms: The total time from the first failure on; 0: no retries.
        follow_timeout_ms: The same for a reader that follows.
        first_ms: The bound of the first pause.
        stopped: Called five times per second while waiting; when it returns True, the store's error
            is raised.
        timer: The current monotonic time (ms).
        draw: Returns a random number in [0, 1).
    """

    def __init__(
        self,
        timeout_ms: float = 0,
        *,
        follow_timeout_ms: float = 0,
        first_ms: float = _FIRST_MS,
        stopped: Callable[[], bool] = lambda: False,
        timer: Callable[[], float] = monotonic_ms,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.timeout_ms, self._follow_timeout_ms = timeout_ms, follow_timeout_ms
        self._first_ms = first_ms
        self._stopped, self._timer, self._draw = stopped, timer, draw
        self._cancelled = threading.Event()

    def set_following(self) -> None:
        """Use the timeout of followers from now on."""
        self.timeout_ms = max(self.timeout_ms, self._follow_timeout_ms)

    def cancel(self) -> None:
        """End all waits in all threads, permanently."""
        self._cancelled.set()

    def call(self, request: Callable[[], T]) -> T:
        """Return the result of `request`. Other errors than the following are raised unchanged.

        Raises:
            StorageUnavailableError: The failure is permanent, or the time is over.
        """
        began_ms: float | None = None
        told_ms, bound_ms = float("-inf"), self._first_ms
        while True:
            try:
                return request()
            except StorageUnavailableError as error:
                now = self._timer()
                began_ms = now if began_ms is None else began_ms
                left_ms = began_ms + self.timeout_ms - now
                if not error.passing or self._is_over(left_ms):
                    raise self._timed_out(error, now - began_ms) from error
                if now - told_ms >= _TOLD_MS:
                    told_ms = now
                    _LOGGER.warning(
                        "%s; waiting for the store, %.0f s more at most (remote.patience.ms)",
                        error, left_ms / 1000,
                    )  # fmt: skip
            # Outside of the `except` block: an error of the next attempt would otherwise be chained
            # to this error.
            self._sleep(min(left_ms, bound_ms * (0.5 + self._draw() / 2)))
            bound_ms = min(2 * bound_ms, _LONGEST_MS)

    def _is_over(self, left_ms: float) -> bool:
        return left_ms <= 0 or self._cancelled.is_set() or self._stopped()

    def _sleep(self, ms: float) -> None:
        until = self._timer() + ms
        while (left := until - self._timer()) > 0 and not self._stopped():
            if self._cancelled.wait(min(left, _SLICE_MS) / 1000):
                return

    def _timed_out(
        self, error: StorageUnavailableError, waited_ms: float
    ) -> StorageUnavailableError:
        waited = f"; waited {waited_ms / 1000:.0f} s for it (remote.patience.ms)"
        words = f"{error}{waited if waited_ms >= 1000 else ''}"
        return StorageUnavailableError(words, passing=error.passing)
