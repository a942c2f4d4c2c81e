"""Whether somebody who used to commit has stopped, by its own measure.

A false alarm is worse than none: one that was seen for a short time only, as a batch job, ends and
is not waited for; nor is one that has been silent for longer than it was at work, or for a day.
"""

from typing import Final

from sparklog.service.health.limits import Limits
from sparklog.storage.commit_rate import CommitRate

_PAUSES: Final = 3  # its longest pause so many times over is no pause


def is_silent(pace: CommitRate, now_ms: int, limits: Limits) -> bool:
    """Tell whether it is silent for longer than it ever was."""
    return now_ms - pace.last_ms > max(limits.silence_ms, _PAUSES * pace.longest_ms)


def has_stopped(pace: CommitRate, now_ms: int, limits: Limits) -> bool:
    """Tell whether it is silent, and not because it has ended."""
    worked_ms = pace.last_ms - pace.since_ms
    silence_ms = now_ms - pace.last_ms
    return is_silent(pace, now_ms, limits) and silence_ms <= min(limits.ended_ms, worked_ms)
