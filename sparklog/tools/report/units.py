"""Numbers, sizes and times as people read them; short enough for a table on a phone."""

from datetime import UTC, datetime, timedelta
from typing import Final

from sparklog.tools.report.html import Html, el
from sparklog.tools.report.model import DAY_MS, HOUR_MS, MINUTE_MS

NONE: Final = "\N{EN DASH}"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN_MAX: Final = 1_000_000
_YEAR_MS: Final = 365.25 * DAY_MS


def size_text(count: float) -> str:
    """Bytes with a binary unit."""
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]
    while abs(size) >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    digits = 0 if units[0] == "B" or abs(size) >= 100 else 1
    return f"{size:.{digits}f} {units[0]}"


def count_text(count: int) -> str:
    """A number, in full up to a million, then with a decimal prefix."""
    if abs(count) < _PLAIN_MAX:
        return f"{count:,}"
    size, prefixes = float(count), list(" kMGTPE")
    while abs(size) >= 1000 and len(prefixes) > 1:
        size /= 1000
        prefixes.pop(0)
    return f"{size:.2f} {prefixes[0]}"


def size(count: float) -> Html:
    """A size, with the bytes as its title."""
    return el("span", size_text(count), title=f"{round(count):,} bytes")


def number(count: int | None) -> Html:
    """A count or an offset; in full as its title where it is shortened."""
    if count is None:
        return el("span", NONE)
    short = abs(count) >= _PLAIN_MAX
    return el("span", count_text(count), title=f"{count:,}" if short else None)


def plural(count: int, noun: str) -> str:
    """A number of things."""
    return f"{count_text(count)} {noun}{'' if count == 1 else 's'}"


def share_text(share: float) -> str:
    """A share of 1 as a percentage."""
    return f"{share * 100:.1f} %" if 0 < share < 0.1 else f"{share * 100:.0f} %"


def span_text(ms: float) -> str:
    """A length of time by its largest unit that fits."""
    size = abs(ms)
    for unit, name in ((_YEAR_MS, "y"), (DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "min")):
        if size >= unit:
            digits = 1 if size < 10 * unit and size % unit else 0
            return f"{size / unit:,.{digits}f} {name}"
    return f"{size / 1000:.0f} s" if size >= 1000 else f"{size:.0f} ms"


def ago_text(time_ms: int, now_ms: int) -> str:
    """How long before or after now."""
    if abs(time_ms - now_ms) < 1000:
        return "now"
    length = span_text(time_ms - now_ms)
    return f"{length} ago" if time_ms < now_ms else f"in {length}"


def time_text(time_ms: int | None, *, seconds: bool = False) -> str:
    """A time in UTC; one that no calendar has as its number."""
    if time_ms is None:
        return NONE
    try:
        when = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return f"{time_ms:,} ms"
    return f"{when:%Y-%m-%d %H:%M:%S}" if seconds else f"{when:%Y-%m-%d %H:%M}"


def axis_time_text(time_ms: int, span_ms: float) -> str:
    """A time as a label of an axis that is `span_ms` long."""
    shown = time_text(time_ms, seconds=True)
    if span_ms < 2 * DAY_MS:
        return shown[5:19] if span_ms < HOUR_MS else shown[5:16]
    return shown[:10]
