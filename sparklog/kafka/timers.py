"""Deadlines of groups and members (`Timers`), and timeouts of waiting clients (`TimingWheel`).

Timers have a clock and a heap. A heartbeat only moves a deadline, three times per session, which is
a dictionary write. The heap is updated when the old deadline is reached. Hundreds of clients wait
at the same time, each for about half a second.
"""

import asyncio
import heapq
import itertools
import math
from collections.abc import Callable, Hashable
from typing import Final

Action = Callable[[], None]
_STALE_MAX: Final = 1000
TICK_MS: Final = 20
"""Resolution: a call is never early and at most this late."""


class Timers:
    """Actions by key, each due at a time of `clock` (ms, monotonic). Not thread-safe.

    `rearm` is called whenever an action becomes due earlier than all others.
    """

    def __init__(self, clock: Callable[[], float], rearm: Callable[[], None]) -> None:
        self._clock, self._rearm = clock, rearm
        self._due: dict[Hashable, tuple[float, Action]] = {}
        self._heap: list[tuple[float, int, Hashable]] = []
        self._numbers = itertools.count()

    def schedule(self, key: Hashable, delay_ms: float, action: Action) -> None:
        """Call `action` after `delay_ms`, replacing the action scheduled for `key`."""
        at = self._clock() + delay_ms
        known = self._due.get(key)
        self._due[key] = at, action
        if known is not None and known[0] <= at:
            return  # the heap has an earlier entry, which is rescheduled when it is reached
        is_first = not self._heap or at < self._heap[0][0]
        heapq.heappush(self._heap, (at, next(self._numbers), key))
        # Cancelled and moved deadlines stay in the heap until they are reached. Rebuild the heap if
        # most entries are such leftovers, so that it does not grow without limit.
        if len(self._heap) > 2 * len(self._due) + _STALE_MAX:
            self._heap = [(due[0], next(self._numbers), k) for k, due in self._due.items()]
            heapq.heapify(self._heap)
        if is_first:
            self._rearm()

    def cancel(self, key: Hashable) -> None:
        """Remove the action scheduled for `key`. Idempotent."""
        self._due.pop(key, None)

    def is_scheduled(self, key: Hashable) -> bool:
        """Return True if an action is scheduled for `key`."""
        return key in self._due

    @property
    def next_ms(self) -> float | None:
        """Latest time for the next call of `expire`, if any action is scheduled."""
        while self._heap and self._heap[0][2] not in self._due:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def expire(self) -> None:
        """Run the actions that are due, in order of their deadlines."""
        now = self._clock()
        while self._heap and self._heap[0][0] <= now:
            _, _, key = heapq.heappop(self._heap)
            due = self._due.get(key)
            if due is None:
                continue
            if due[0] > now:  # `schedule` moved the deadline
                heapq.heappush(self._heap, (due[0], next(self._numbers), key))
                continue
            # Deleted first, because the action may schedule the same key again.
            del self._due[key]
            due[1]()

    def clear(self) -> None:
        """Remove all actions."""
        self._due.clear()
        self._heap.clear()


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
