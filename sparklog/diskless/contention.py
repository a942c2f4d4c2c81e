"""Random pauses that reduce collisions between writers of a log.

Only one of the writers that create the same entry wins, and a store may take long to refuse the
others (SeaweedFS takes seconds). Therefore a writer with competitors spreads its attempts over the
time that all of them need. Writers that lost more often pause for a shorter time, so that none
starves. A writer without competitors never waits.
"""

from typing import Final

from sparklog.diskless.entry_creation import RetryPolicy

SPREAD: Final = 3.0
"""Rounds reserved for each competitor; with 1, two of three attempts would still collide."""
BUSY: Final = 0.1
"""Share of the time that competitors' entries must take before a writer pauses."""
ROUND_MS_MAX: Final = 2_000.0
_OTHERS_MAX: Final = 64.0


class Contention:
    """A handle's estimate of its competitors. Thread-safe; correctness does not depend on it."""

    def __init__(self, retry_policy: RetryPolicy) -> None:
        self._retry_policy = retry_policy
        self._others = 0.0  # competitors' entries between two of ours, while busy; smoothed
        self._round_ms = 10.0  # time to create an entry, smoothed
        self._number, self._time_ms = -1, retry_policy.timer()  # of this handle's newest entry

    def pause(self, losses: int) -> bool:
        """Wait before an attempt, after `losses` lost races; return True if this has waited.

        After a wait the caller should fold new entries, because others have committed in the
        meantime.
        """
        if self._others < 0.5:
            return False
        longest_ms = SPREAD * self._others * self._round_ms / (1 + losses)
        policy = self._retry_policy
        policy.sleep(policy.draw() * min(longest_ms, policy.longest_ms))
        return True

    def won(self, number: int, took_ms: float) -> None:
        """Record that this handle created entry `number`, and how long that took."""
        now_ms = self._retry_policy.timer()
        others, elapsed_ms = number - 1 - self._number, max(now_ms - self._time_ms, 1.0)
        self._round_ms = min((3 * self._round_ms + took_ms) / 4, ROUND_MS_MAX)
        if self._number < 0 or others * self._round_ms < BUSY * elapsed_ms:
            others = 0
        self._others = min((self._others + others) / 2, _OTHERS_MAX)
        self._number, self._time_ms = number, now_ms

    def lost(self) -> None:
        """Record a lost race, which proves that a competitor exists."""
        self._others = max(self._others, 1.0)
