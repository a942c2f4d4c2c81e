"""Scales of the charts: the largest value, and the positions of ticks.

A scale is linear and starts at 0, so that heights can be compared and stacked. A logarithmic scale
allows neither, and has no 0. If a few values are much larger than all others, the scale ends
above the others: the large values are cut off, and the page says so.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from sparklog.quantities import DAY_MS, HOUR_MS, MINUTE_MS

_STEPS_MS: Final = (
    *(n * 1000 for n in (1, 2, 5, 10, 15, 30)),
    *(n * MINUTE_MS for n in (1, 2, 5, 10, 15, 30)),
    *(n * HOUR_MS for n in (1, 2, 3, 6, 12)),
    *(n * DAY_MS for n in (1, 2, 5, 10)),
)
_BINS_MS: Final = (*_STEPS_MS, *(n * DAY_MS for n in (30, 100, 365, 3650)))
_SECONDS_MOST: Final = 3.5  # maximum steps of an axis whose labels have seconds
_MONTH_MS: Final = 28 * DAY_MS  # ticks with at least this step are at first days of months
_YEAR_MS: Final = 365 * DAY_MS
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CUT_SHARE: Final = 0.1  # at most this share of the non-zero values is cut off,
_CUT_TIMES: Final = 4  # and only values this many times as large as all others
_OVER: Final = 1.25  # the end of a scale that cuts values, relative to the largest other value


@dataclass(frozen=True, slots=True)
class Scale:
    """A scale from 0 to `top`, with ticks at the values `ticks`. Larger values are cut off."""

    top: float
    ticks: tuple[float, ...]

    def share(self, value: float) -> float:
        """Return a value as a share of the height, at most 1."""
        return min(1.0, value / self.top)


@dataclass(frozen=True, slots=True)
class TimeTick:
    """A tick at a round time (ms, UTC).

    `step_ms`: the time to the next tick; approximate for months and years.
    """

    time_ms: int
    step_ms: int

    @property
    def words(self) -> str:
        """The label in UTC. page.js replaces it with a label in the viewer's time zone."""
        when = _EPOCH + timedelta(milliseconds=self.time_ms)
        if self.step_ms >= 300 * DAY_MS:
            return f"{when:%Y}"
        if self.step_ms >= _MONTH_MS:
            return f"{when:%b %Y}"
        if self.step_ms >= DAY_MS or self.time_ms % DAY_MS == 0:
            return f"{when.day} {when:%b}"
        return f"{when:%H:%M:%S}" if self.step_ms < MINUTE_MS else f"{when:%H:%M}"


def scale(
    values: Sequence[float], *, binary: bool = False, cuts: bool = False, steps: int = 5
) -> Scale:
    """Return the scale of some values.

    Args:
        values: The values, at least 0.
        binary: The values are sizes in bytes, so ticks are powers of 2.
        cuts: The scale may cut off a few values that are much larger than the others.
        steps: The maximum number of steps between ticks.
    """
    found = sorted((value for value in values if value > 0), reverse=True)
    top: float = found[0] if found else 1
    most = int(len(found) * _CUT_SHARE) if cuts else 0
    for count in range(most, 0, -1):
        if found[count - 1] >= _CUT_TIMES * found[count]:
            top = found[count] * _OVER
            break
    step = _round_step(top / steps, binary=binary)
    return Scale(top, tuple(at * step for at in range(math.floor(top / step) + 1)))


def _round_step(least: float, *, binary: bool) -> float:
    """Return the smallest round number that is at least `least`. `binary`: a power of 2."""
    if binary:
        return float(2 ** math.ceil(math.log2(max(least, 1))))
    decade: float = 10 ** math.floor(math.log10(max(least, 1)))
    return next(factor * decade for factor in (1, 2, 5, 10) if factor * decade >= least)


def bin_edges(low_ms: float, high_ms: float, most: int) -> list[int]:
    """Return the bounds of at most `most` bins of equal, round length between two times."""
    for step in _BINS_MS:
        first, last = math.floor(low_ms / step), math.ceil(high_ms / step)
        if last - first <= most:
            return [at * step for at in range(first, max(last, first + 1) + 1)]
    step = math.ceil((high_ms - low_ms) / (most - 1))
    return [math.floor(low_ms) + at * step for at in range(most + 1)]


def time_ticks(low_ms: float, high_ms: float, most: int = 5) -> list[TimeTick]:
    """Return at most `most` ticks at round times; none for times after the year 9999."""
    span = high_ms - low_ms
    for step in _STEPS_MS:
        # Labels with seconds are wider. On a phone, more than four would overlap.
        if span / step <= (most if step >= MINUTE_MS else min(most, _SECONDS_MOST)):
            first = math.ceil(low_ms / step)
            return [TimeTick(at * step, step) for at in range(first, int(high_ms // step) + 1)]
    return _calendar_ticks(low_ms, high_ms, most)


def _calendar_ticks(low_ms: float, high_ms: float, most: int) -> list[TimeTick]:
    """Return ticks at the first days of months or years."""
    try:
        low, high = (_EPOCH + timedelta(milliseconds=ms) for ms in (low_ms, high_ms))
        last = high.year * 12 + high.month - 1
        first = low.year * 12 + low.month - 1
        for months in (1, 2, 3, 6, 12, 24, 60, 120, 600, 1200, 6000, 12000):
            if (last - first) / months > most:
                continue
            starts = range(-(-first // months) * months, last + 1, months)
            times = [datetime(at // 12, at % 12 + 1, 1, tzinfo=UTC) for at in starts]
            step = months * 30 * DAY_MS if months < 12 else months // 12 * _YEAR_MS
            return [TimeTick(round(t.timestamp() * 1000), step) for t in times if low <= t <= high]
    except (OverflowError, ValueError):
        return []
    return []
