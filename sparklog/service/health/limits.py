"""Thresholds of the health checks, with their defaults."""

from dataclasses import dataclass
from typing import Final

from sparklog.quantities import DAY_MS, HOUR_MS, MINUTE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Thresholds of `examine`.

    Attributes:
        silence_ms: A reader or writer that has been silent for less is never amber.
        ended_ms: A reader or writer that has been silent for longer counts as ended.
        disk_amber_ms: Amber if the disk will be full sooner at the present rate.
        disk_red_ms: Red if the disk will be full sooner at the present rate.
        disk_free_bytes: Amber if less is free; on a small disk, if less than a twentieth is free.
        tier_lag_ms: How long the oldest closed segment may wait for its copy.
        cleaner_lag_ms: How long a dirty partition may wait for the cleaner.
        merge_lag_ms: Without a service, how long an extent of a log in a bucket may wait for its
            merge.
        beat_ms: How long a service may give no sign of life (it gives three per minute).
        lock_ms: How long a commit may lock the log.
        clock_ms: How far in the future the last commit may be.

    Examples:
        >>> from sparklog.service import Limits, examine
        >>> health = examine("log", limits=Limits(disk_free_bytes=10 << 30))
    """

    silence_ms: int = 10 * MINUTE_MS
    ended_ms: int = DAY_MS
    disk_amber_ms: int = 7 * DAY_MS
    disk_red_ms: int = DAY_MS
    disk_free_bytes: int = 1 << 30
    tier_lag_ms: int = HOUR_MS
    cleaner_lag_ms: int = HOUR_MS
    merge_lag_ms: int = HOUR_MS
    beat_ms: int = 3 * MINUTE_MS
    lock_ms: int = MINUTE_MS
    clock_ms: int = 5 * MINUTE_MS


LIMITS: Final = Limits()
