"""Results that are expensive to make: never made twice at once, and never too often."""

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, TypeVar

from sparklog.clock import monotonic_ms
from sparklog.errors import StorageUnavailableError
from sparklog.ui.jobs import in_thread

_REST: Final = 10  # times as long as it took
_PATIENCE_S: Final = 60.0  # for a result that is being made
T = TypeVar("T")


class CachedResult(Generic[T]):
    """The last result of `make`. For any number of callers, only one is made at a time.

    `make` runs in a thread. After each result there is a pause of ten times as long as it took.
    Belongs to one event loop.
    """

    def __init__(
        self, make: Callable[[], T], *, fresh_ms: float, patience_s: float = _PATIENCE_S
    ) -> None:
        """Args: patience_s: how long callers wait for a result that is being made."""
        self._make, self._fresh_ms, self._patience_s = make, fresh_ms, patience_s
        self._making: asyncio.Future[T] | None = None
        self._known: tuple[T, float] | None = None
        self._fresh_until_ms = self._rest_until_ms = 0.0

    async def get(self) -> tuple[T, int]:
        """Return the result, and its age in whole seconds.

        While a new result is made for one caller, other callers get the previous one.

        Raises:
            StorageUnavailableError: The first result is still being made. The errors of `make` are
                raised too.
        """
        is_old = self._known is None or monotonic_ms() >= self._fresh_until_ms
        if is_old and (self._known is None or self._making is None):
            making = self._begin()
            await asyncio.wait({making}, timeout=self._patience_s)
            if making.done():
                making.result()
        if self._known is None:
            raise StorageUnavailableError("this page is still being made: try again in a moment")
        made, began_ms = self._known
        return made, int((monotonic_ms() - began_ms) / 1000)

    def peek(self) -> T | None:
        """Return the last result at once, or None; if it is old, a new one is being made."""
        if monotonic_ms() >= self._rest_until_ms:
            with contextlib.suppress(StorageUnavailableError):  # no thread: left to another peek
                self._begin()
        return None if self._known is None else self._known[0]

    def _begin(self) -> asyncio.Future[T]:
        if self._making is None:
            self._making = in_thread(self._make, "sparklog-ui-renew")
            self._making.add_done_callback(partial(self._end, monotonic_ms()))
        return self._making

    def _end(self, began_ms: float, made: asyncio.Future[T]) -> None:
        self._making = None
        rest_ms = max(self._fresh_ms, _REST * (monotonic_ms() - began_ms))
        self._rest_until_ms = monotonic_ms() + rest_ms
        if made.exception() is None:
            self._known = made.result(), began_ms
            self._fresh_until_ms = self._rest_until_ms
