"""From where on something is amber or red: few limits, each with its default, here alone."""

from dataclasses import dataclass
from typing import Final

from sparklog.quantities import DAY_MS, HOUR_MS, MINUTE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What `examine` goes by. Times in ms, sizes in bytes.

    `silence_ms`: a reader or writer that is silent for less is never amber for it, whatever its
    rhythm. `ended_ms`: one that is silent for longer has ended, and isn't waited for.
    `disk_amber_ms`, `disk_red_ms`: until the disk is full at the present rate.
    `disk_free_bytes`: amber below; of a small disk, a twentieth of it. `tier_lag_ms`: how long the
    oldest closed segment may wait for its copy; `cleaner_lag_ms`: a partition for the cleaner;
    `merge_lag_ms`: where no service runs, a piece of a log in a store to become part of a segment.
    `beat_ms`: how long a service may give no sign of life, of which there are three a minute.
    `lock_ms`: how long a commit may hold the write lock. `clock_ms`: how far ahead a commit may be
    dated.
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
