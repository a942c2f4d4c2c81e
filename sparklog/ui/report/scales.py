"""Axes: the positions of ticks, and the end of a scale that a few values exceed.

A scale is linear and begins at 0, so that heights can be compared and added up. If a few values are
much larger than all others, the scale ends above the others and these are cut, which the page says.
On a logarithmic scale nothing could be stacked, and 0 has no place on it.
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
_SECONDS_MOST: Final = 3.5  # steps of an axis whose labels have seconds
_MONTH_MS: Final = 28 * DAY_MS  # and more: the first of months
_YEAR_MS: Final = 365 * DAY_MS
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CUT_SHARE: Final = 0.1  # of the values that are not 0 may exceed a scale
_CUT_TIMES: Final = 4  # as large as the others they must be
_OVER: Final = 1.25  # how far a scale that cuts goes above the others


@dataclass(frozen=True, slots=True)
class Scale:
    """From 0 to `top`; `ticks` are values on it. Values above `top` are cut."""

    top: float
    ticks: tuple[float, ...]

    def share(self, value: float) -> float:
        """A value as a share of the height, 1 at most."""
        return min(1.0, value / self.top)


@dataclass(frozen=True, slots=True)
class TimeTick:
    """A round time (ms, UTC); `step_ms` to the next one, months and years roughly."""

    time_ms: int
    step_ms: int

    @property
    def words(self) -> str:
        """Its label in UTC; page.js shows the same in the viewer's zone."""
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
    """Return a scale for values from 0 up, of at most `steps` steps.

    `binary`: its ticks are round numbers of bytes. `cuts`: it may leave out a few that are far
    above the others.
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
    """The smallest round whole number that is at least as large; for bytes a power of 2."""
    if binary:
        return float(2 ** math.ceil(math.log2(max(least, 1))))
    decade: float = 10 ** math.floor(math.log10(max(least, 1)))
    return next(factor * decade for factor in (1, 2, 5, 10) if factor * decade >= least)


def bin_edges(low_ms: float, high_ms: float, most: int) -> list[int]:
    """Bounds of at most `most` bins, all of the same round length, from one time to the other."""
    for step in _BINS_MS:
        first, last = math.floor(low_ms / step), math.ceil(high_ms / step)
        if last - first <= most:
            return [at * step for at in range(first, max(last, first + 1) + 1)]
    step = math.ceil((high_ms - low_ms) / (most - 1))
    return [math.floor(low_ms) + at * step for at in range(most + 1)]


def time_ticks(low_ms: float, high_ms: float, most: int = 5) -> list[TimeTick]:
    """At most `most` ticks at round times between two, or none if no calendar has these times."""
    span = high_ms - low_ms
    for step in _STEPS_MS:
        # A label with seconds is wider: on a phone, more than four would overlap.
        if span / step <= (most if step >= MINUTE_MS else min(most, _SECONDS_MOST)):
            first = math.ceil(low_ms / step)
            return [TimeTick(at * step, step) for at in range(first, int(high_ms // step) + 1)]
    return _calendar_ticks(low_ms, high_ms, most)


def _calendar_ticks(low_ms: float, high_ms: float, most: int) -> list[TimeTick]:
    """The first of months, or of years."""
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
