"""Numbers, sizes and times as people read them; short enough for a table on a phone.

A number and its unit stay on one line, with a no-break space between. Times are in UTC, and those
of `stamp` and `ago` become the viewer's in a browser with JavaScript (page.js). `FILTERS` are the
filters of the templates with these names.
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
    """Bytes with a binary unit."""
    return quantities.size_text(count).replace(" ", _NB)


def count_text(count: int) -> str:
    """A number, in full up to a million, then with a decimal prefix."""
    if abs(count) < _PLAIN_MAX:
        return f"{count:,}"
    size, prefixes = float(count), list(" kMGTPE")
    while abs(size) >= 1000 and len(prefixes) > 1:
        size /= 1000
        prefixes.pop(0)
    return f"{size:.2f}{_NB}{prefixes[0]}"


def tick_text(value: float, *, binary: bool = False) -> str:
    """A round number beside an axis; `binary`: of bytes."""
    words = size_text(value) if binary and value else count_text(round(value))
    number, dot, rest = words.partition(".")
    digits, gap, unit = rest.partition(_NB)
    digits = digits.rstrip("0")
    return f"{number}{dot if digits else ''}{digits}{gap}{unit}" if dot else words


def size(count: float) -> Markup:
    """A size, with the bytes as its title."""
    return Markup('<span title="{} bytes">{}</span>').format(f"{round(count):,}", size_text(count))


def number(count: int | None) -> Markup:
    """A count or an offset; if it is shortened, in full as its title."""
    if count is None:
        return Markup("<span>{}</span>").format(NONE)
    if abs(count) < _PLAIN_MAX:
        return Markup("<span>{}</span>").format(count_text(count))
    return Markup('<span title="{}">{}</span>').format(f"{count:,}", count_text(count))


def rate(per_second: float) -> Markup:
    """Records per second."""
    if per_second >= 10 or per_second == 0:
        return Markup("<span>{}/s</span>").format(number(round(per_second)))
    words = f"{per_second:.1f}/s" if per_second >= 0.1 else "< 0.1/s"
    return Markup("<span>{}</span>").format(words)


def plural(count: int, noun: str) -> str:
    """A number of things."""
    return f"{count_text(count)}{_NB}{noun}{'' if count == 1 else 's'}"


def share_text(share: float) -> str:
    """A share of 1 as a percentage."""
    return f"{share * 100:.1f}{_NB}%" if 0 < share < 0.1 else f"{share * 100:.0f}{_NB}%"


def duration_text(ms: float) -> str:
    """A length of time by its largest unit that fits."""
    return quantities.duration_text(ms).replace(" ", _NB)


def per_text(ms: float) -> str:
    """A length of time for a rate: "per 3 h", "per h"."""
    return f"per{_NB}{duration_text(ms).removeprefix(f'1{_NB}')}"


def ago_text(time_ms: int, now_ms: int) -> str:
    """How long before or after now."""
    if abs(time_ms - now_ms) < 1000:
        return "now"
    length = duration_text(time_ms - now_ms)
    return f"{length}{_NB}ago" if time_ms < now_ms else f"in{_NB}{length}"


def time_text(time_ms: int | None, *, seconds: bool = False) -> str:
    """A time in UTC, or as its number if no calendar has it."""
    if time_ms is None:
        return NONE
    try:
        when = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return f"{time_ms:,}{_NB}ms"
    return f"{when:%Y-%m-%d %H:%M:%S}" if seconds else f"{when:%Y-%m-%d %H:%M}"


def iso_text(time_ms: int) -> str | None:
    """A time for a machine: ISO 8601 in UTC, or None if no calendar has it."""
    try:
        when = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return None
    return f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond // 1000:03d}Z"


def stamp(time_ms: int | None, *, seconds: bool = False) -> Markup:
    """A time that is shown in the viewer's zone."""
    words = time_text(time_ms, seconds=seconds)
    iso = None if time_ms is None else iso_text(time_ms)
    if iso is None:
        return Markup('<span class="nb">{}</span>').format(words)
    unit = "second" if seconds else "minute"
    return Markup('<time datetime="{}" data-as="{}">{}</time>').format(iso, unit, words)


def ago(time_ms: int | None, now_ms: int) -> Markup:
    """How long before or after now, with the time as its title."""
    iso = None if time_ms is None else iso_text(time_ms)
    if time_ms is None or iso is None:
        return stamp(time_ms)
    return Markup('<time datetime="{}" data-as="ago" title="{}">{}</time>').format(
        iso, time_text(time_ms, seconds=True), ago_text(time_ms, now_ms)
    )


def _unless_none(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that leaves None as it is: a table shows it as an empty cell.

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
