"""How writers of one log get out of each other's way: random pauses, shorter for who lost before.

Only one of those who create the same entry wins, and a store may take its time to refuse the
others (SeaweedFS: whole seconds). So who has met others spreads its tries over the time that all of
them need; who has waited longest tries soonest, so that nobody starves. Alone a writer never waits.
"""

from typing import Final

from sparklog.diskless.entry_creation import RetryPolicy

SPREAD: Final = 3.0
"""Rounds that each of the others is given room for; at 1 two of three tries would still meet."""
BUSY: Final = 0.1
"""Of the time, as much as others' entries take when they count as in the way."""
ROUND_MS_MAX: Final = 2_000.0
_OTHERS_MAX: Final = 64.0


class Contention:
    """What one handle has seen of others. Threads may share it: a guess, nothing hangs on it."""

    def __init__(self, retry_policy: RetryPolicy) -> None:
        self._retry_policy = retry_policy
        self._others = 0.0  # entries of others between two of ours, while they come thick; smoothed
        self._round_ms = 10.0  # what creating an entry takes, smoothed
        self._number, self._time_ms = -1, retry_policy.timer()  # of our newest entry

    def pause(self, losses: int) -> bool:
        """Wait before a try, after `losses` lost ones; tells whether it did.

        Who did looks for news before it tries: others were at work meanwhile.
        """
        if self._others < 0.5:
            return False
        longest_ms = SPREAD * self._others * self._round_ms / (1 + losses)
        policy = self._retry_policy
        policy.sleep(policy.draw() * min(longest_ms, policy.longest_ms))
        return True

    def won(self, number: int, took_ms: float) -> None:
        """Note that entry `number` is ours, and that creating it took so long."""
        now_ms = self._retry_policy.timer()
        others, elapsed_ms = number - 1 - self._number, max(now_ms - self._time_ms, 1.0)
        self._round_ms = min((3 * self._round_ms + took_ms) / 4, ROUND_MS_MAX)
        if self._number < 0 or others * self._round_ms < BUSY * elapsed_ms:
            others = 0
        self._others = min((self._others + others) / 2, _OTHERS_MAX)
        self._number, self._time_ms = number, now_ms

    def lost(self) -> None:
        """Note a lost race: there is at least one other."""
        self._others = max(self._others, 1.0)
