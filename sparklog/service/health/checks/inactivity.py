"""Detects a reader or writer that stopped committing, judged by its own earlier rhythm.

A false alarm is worse than none. So a batch job that was active only briefly counts as ended, and
so does a reader or writer that has been silent for longer than it was active, or for a day.
"""

from typing import Final

from sparklog.service.health.limits import Limits
from sparklog.storage.commit_rate import CommitRate

_PAUSES: Final = 3  # silence up to this multiple of the longest pause is normal


def is_silent(pace: CommitRate, now_ms: int, limits: Limits) -> bool:
    """Return True if the silence exceeds `silence_ms` and three times the longest earlier pause."""
    return now_ms - pace.last_ms > max(limits.silence_ms, _PAUSES * pace.longest_ms)


def has_stopped(pace: CommitRate, now_ms: int, limits: Limits) -> bool:
    """Return True if a reader or writer is silent and has probably failed, not ended."""
    worked_ms = pace.last_ms - pace.since_ms
    silence_ms = now_ms - pace.last_ms
    return is_silent(pace, now_ms, limits) and silence_ms <= min(limits.ended_ms, worked_ms)
