"""Formats numbers, sizes and times for the pages, short enough for a table on a phone.

A no-break space between a number and its unit prevents a line break there. Times are in UTC.
In a browser with JavaScript, page.js converts the times of `stamp` and `ago` to the viewer's time
zone. `FILTERS` contains these functions as filters for the templates.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from markupsafe import Markup

from sparklog import quantities

NONE: Final = "\N{EN DASH}"
_NB: Final = "\N{NO-BREAK SPACE}"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN_MAX: Final = 1_000_000


def size_text(count: float) -> str:
    """Format a size with a binary unit: "1.5 MiB"."""
    return quantities.size_text(count).replace(" ", _NB)


def count_text(count: int) -> str:
    """Format a number: in full below a million, otherwise with a decimal prefix ("1.23 M")."""
    if abs(count) < _PLAIN_MAX:
        return f"{count:,}"
    size, prefixes = float(count), list(" kMGTPE")
    while abs(size) >= 1000 and len(prefixes) > 1:
        size /= 1000
        prefixes.pop(0)
    return f"{size:.2f}{_NB}{prefixes[0]}"


def tick_text(value: float, *, binary: bool = False) -> str:
    """Format a round number for the label of an axis. `binary`: the number is a size in bytes."""
    words = size_text(value) if binary and value else count_text(round(value))
    number, dot, rest = words.partition(".")
    digits, gap, unit = rest.partition(_NB)
    digits = digits.rstrip("0")
    return f"{number}{dot if digits else ''}{digits}{gap}{unit}" if dot else words


def size(count: float) -> Markup:
    """Return the HTML of a size. Its tooltip is the exact number of bytes."""
    return Markup('<span title="{} bytes">{}</span>').format(f"{round(count):,}", size_text(count))


def number(count: int | None) -> Markup:
    """Return the HTML of a count or an offset. A shortened number has a tooltip."""
    if count is None:
        return Markup("<span>{}</span>").format(NONE)
    if abs(count) < _PLAIN_MAX:
        return Markup("<span>{}</span>").format(count_text(count))
    return Markup('<span title="{}">{}</span>').format(f"{count:,}", count_text(count))


def rate(per_second: float) -> Markup:
    """Return the HTML of a rate in records per second."""
    if per_second >= 10 or per_second == 0:
        return Markup("<span>{}/s</span>").format(number(round(per_second)))
    words = f"{per_second:.1f}/s" if per_second >= 0.1 else "< 0.1/s"
    return Markup("<span>{}</span>").format(words)


def plural(count: int, noun: str) -> str:
    return f"{count_text(count)}{_NB}{noun}{'' if count == 1 else 's'}"


def share_text(share: float) -> str:
    """Format a share, 0 to 1, as a percentage."""
    return f"{share * 100:.1f}{_NB}%" if 0 < share < 0.1 else f"{share * 100:.0f}{_NB}%"


def duration_text(ms: float) -> str:
    """Format a length of time in the largest unit that fits: "3 h"."""
    return quantities.duration_text(ms).replace(" ", _NB)


def per_text(ms: float) -> str:
    """Format a length of time as the unit of a rate: "per 3 h", "per h"."""
    return f"per{_NB}{duration_text(ms).removeprefix(f'1{_NB}')}"


def ago_text(time_ms: int, now_ms: int) -> str:
    """Format a time relative to `now_ms`: "3 h ago", "in 2 d", "now"."""
    if abs(time_ms - now_ms) < 1000:
        return "now"
    length = duration_text(time_ms - now_ms)
    return f"{length}{_NB}ago" if time_ms < now_ms else f"in{_NB}{length}"


def time_text(time_ms: int | None, *, seconds: bool = False) -> str:
    """Format a time in UTC, or as a number of ms outside of the years 1 to 9999."""
    if time_ms is None:
        return NONE
    try:
        when = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return f"{time_ms:,}{_NB}ms"
    return f"{when:%Y-%m-%d %H:%M:%S}" if seconds else f"{when:%Y-%m-%d %H:%M}"


def iso_text(time_ms: int) -> str | None:
    """Format a time as ISO 8601 in UTC. Return None outside of the years 1 to 9999."""
    try:
        when = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return None
    return f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond // 1000:03d}Z"


def stamp(time_ms: int | None, *, seconds: bool = False) -> Markup:
    """Return the HTML of a time. page.js converts it to the viewer's time zone."""
    words = time_text(time_ms, seconds=seconds)
    iso = None if time_ms is None else iso_text(time_ms)
    if iso is None:
        return Markup('<span class="nb">{}</span>').format(words)
    unit = "second" if seconds else "minute"
    return Markup('<time datetime="{}" data-as="{}">{}</time>').format(iso, unit, words)


def ago(time_ms: int | None, now_ms: int) -> Markup:
    """Return the HTML of a time relative to `now_ms`. Its tooltip is the time itself."""
    iso = None if time_ms is None else iso_text(time_ms)
    if time_ms is None or iso is None:
        return stamp(time_ms)
    return Markup('<time datetime="{}" data-as="ago" title="{}">{}</time>').format(
        iso, time_text(time_ms, seconds=True), ago_text(time_ms, now_ms)
    )


def _unless_none(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that returns None for None, which a table shows as an empty cell.

    `ago`, `number` and `stamp` show None as a dash themselves.
    """

    def of(value: Any, *given: Any, **named: Any) -> Any:
        return None if value is None else function(value, *given, **named)

    return of


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    **{each.__name__: each for each in (ago, number, stamp)},
    **{
        each.__name__: _unless_none(each)
        for each in (
            ago_text, count_text, duration_text, iso_text, plural, rate, share_text, size,
            size_text,
        )
    },
}  # fmt: skip
