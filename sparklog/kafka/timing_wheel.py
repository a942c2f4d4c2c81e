"""Timeouts of waiting clients: hundreds wait at the same time, each for about half a second."""

import asyncio
import math
from collections.abc import Callable
from typing import Final

TICK_MS: Final = 20
"""Resolution: a call is never early and at most this late."""


class TimerTask:
    """A call that is scheduled for a time and can be cancelled with `close`."""

    __slots__ = ("_tick", "_wheel", "call")

    def __init__(self, wheel: "TimingWheel", tick: int, call: Callable[[], None]) -> None:
        self._wheel, self._tick, self.call = wheel, tick, call

    def close(self) -> None:
        """Cancel the call. Idempotent."""
        self._wheel.cancel(self._tick, self)


class TimingWheel:
    """Schedules calls. Used on the event loop's thread.

    All calls within a tick share a timer of the loop, so clients that are answered together also
    send their next request together. Cost: about 1 us per wait.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waits: dict[int, set[TimerTask]] = {}

    def after(self, delay_ms: float, call: Callable[[], None]) -> TimerTask:
        """Schedule `call` in `delay_ms`; see TICK_MS."""
        end_s = self._loop.time() + max(delay_ms, 0) / 1000
        tick = math.ceil(end_s * 1000 / TICK_MS)
        waits = self._waits.get(tick)
        if waits is None:
            waits = self._waits[tick] = set()
            self._loop.call_at(tick * TICK_MS / 1000, self._end, tick)
        wait = TimerTask(self, tick, call)
        waits.add(wait)
        return wait

    def cancel(self, tick: int, wait: TimerTask) -> None:
        """Remove a scheduled call."""
        waits = self._waits.get(tick)
        if waits is not None:
            waits.discard(wait)

    def _end(self, tick: int) -> None:
        for wait in self._waits.pop(tick):
            wait.call()
