"""One clock for all that waits: hundreds of clients wait at once, each for half a second or so."""

import asyncio
import math
from collections.abc import Callable
from typing import Final

TICK_MS: Final = 20
"""How exact it is: nothing is called early, and at most this late."""


class TimerTask:
    """Something that is to be called at the end of a time, unless it is closed before."""

    __slots__ = ("_tick", "_wheel", "call")

    def __init__(self, wheel: "TimingWheel", tick: int, call: Callable[[], None]) -> None:
        self._wheel, self._tick, self.call = wheel, tick, call

    def close(self) -> None:
        """TimerTask no more. Idempotent."""
        self._wheel.cancel(self._tick, self)


class TimingWheel:
    """Calls back after a time. On the loop's thread.

    All that ends within one tick takes one timer of the loop, so that clients which are answered
    together ask again together. Cost: about 1 us a wait.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waits: dict[int, set[TimerTask]] = {}

    def after(self, delay_ms: float, call: Callable[[], None]) -> TimerTask:
        """Call `call` in `delay_ms`; see TICK_MS."""
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
        """Let go of a wait."""
        waits = self._waits.get(tick)
        if waits is not None:
            waits.discard(wait)

    def _end(self, tick: int) -> None:
        for wait in self._waits.pop(tick):
            wait.call()
