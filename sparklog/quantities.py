"""Units of sizes and durations, and their readable form."""

from typing import Final

SECOND_MS: Final = 1000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
YEAR_MS: Final = 365.25 * DAY_MS
_SPANS: Final = (
    (YEAR_MS, "y", DAY_MS), (DAY_MS, "d", HOUR_MS), (HOUR_MS, "h", MINUTE_MS),
    (MINUTE_MS, "min", SECOND_MS),
)  # fmt: skip


def size_text(count: float) -> str:
    """Format a number of bytes with a binary unit."""
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]
    while abs(size) >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    digits = 0 if units[0] == "B" or abs(size) >= 100 else 1
    return f"{size:.{digits}f} {units[0]}"


def duration_text(ms: float) -> str:
    """Format a duration with the largest fitting unit. Negative durations lose the sign."""
    size = abs(ms)
    for unit, name, finer in _SPANS:
        if size >= unit - finer / 2:  # else rounding could give 60 of the finer unit
            digits = 1 if size < 10 * unit and round(size / unit, 1) % 1 else 0
            return f"{size / unit:,.{digits}f} {name}"
    return f"{size / SECOND_MS:.0f} s" if size >= SECOND_MS else f"{size:.0f} ms"
