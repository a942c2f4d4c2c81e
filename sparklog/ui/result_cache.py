"""`CachedResult`: a result that is expensive to compute, computed by one thread at a time."""

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, TypeVar

from sparklog.clock import monotonic_ms
from sparklog.errors import StorageUnavailableError
from sparklog.ui.jobs import in_thread

# The pause after a computation, as a multiple of its duration: a large log, whose report takes
# seconds, costs at most a tenth of a core, however many browsers refresh the page.
_REST: Final = 10
_PATIENCE_S: Final = 60.0
T = TypeVar("T")


class CachedResult(Generic[T]):
    """Caches the last result of `make`, and calls `make` again when the result is old.

    `make` runs in a thread, at most once at a time. A result is returned from the cache for at
    least ten times as long as its computation took. Must be used in one event loop only.
    """

    def __init__(
        self, make: Callable[[], T], *, fresh_ms: float, patience_s: float = _PATIENCE_S
    ) -> None:
        """Create an empty cache.

        Args:
            make: Computes the result.
            fresh_ms: The minimum time between two computations.
            patience_s: How long a caller waits for a computation.
        """
        self._make, self._fresh_ms, self._patience_s = make, fresh_ms, patience_s
        self._making: asyncio.Future[T] | None = None
        self._known: tuple[T, float] | None = None
        self._fresh_until_ms = self._rest_until_ms = 0.0

    async def get(self) -> tuple[T, int]:
        """Return the result, and the age of the result in seconds.

        If the result is old, the first caller waits for the new result. Callers that arrive during
        the computation get the previous result.

        Raises:
            StorageUnavailableError: The first result is still being computed. Errors of `make` are
                raised as they are.
        """
        is_old = self._known is None or monotonic_ms() >= self._fresh_until_ms
        if is_old and (self._known is None or self._making is None):
            making = self._begin()
            await asyncio.wait({making}, timeout=self._patience_s)
            if making.done():
                making.result()
        if self._known is None:
            raise StorageUnavailableError("the page is still being made: try again in a moment")
        made, began_ms = self._known
        return made, int((monotonic_ms() - began_ms) / 1000)

    def peek(self) -> T | None:
        """Return the last result without waiting, or None if there is none yet.

        If the result is old, a computation is started.
        """
        if monotonic_ms() >= self._rest_until_ms:
            # If no thread can be started, the next call tries again.
            with contextlib.suppress(StorageUnavailableError):
                self._begin()
        return None if self._known is None else self._known[0]

    def _begin(self) -> asyncio.Future[T]:
        if self._making is None:
            self._making = in_thread(self._make, "sparklog-ui-renew")
            self._making.add_done_callback(partial(self._end, monotonic_ms()))
        return self._making

    def _end(self, began_ms: float, made: asyncio.Future[T]) -> None:
        self._making = None
        # After an error `peek` pauses as well, but a caller of `get` tries again at once.
        rest_ms = max(self._fresh_ms, _REST * (monotonic_ms() - began_ms))
        self._rest_until_ms = monotonic_ms() + rest_ms
        if made.exception() is None:
            self._known = made.result(), began_ms
            self._fresh_until_ms = self._rest_until_ms
