"""Where a look begins and ends, as people write it: an offset, a time, or so far from now.

    earliest, latest            the log start, the high watermark
    1234                        an offset
    -10                         so many records before the end (of each partition)
    2013-07-03T14:00-04:00      a time; without a zone it is UTC
    @1372874400000              a time in ms since the epoch
    -90s, -30m, -1h, -7d        so long ago

A time means the first record at or after it, as Kafka finds it (ListOffsets).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from sparklog.errors import InvalidRequestError
from sparklog.format.batch import OFFSET_MAX
from sparklog.log.positions import to_ms

_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AGO: Final = re.compile(r"-(\d{1,9})([smhd])")
_WANTED: Final = "want earliest, latest, an offset, -10, a time such as 2013-07-03T14:00Z, or -1h"


class Kind(StrEnum):
    """What a bound says."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    BACK = "back"
    TIME = "time"
    AGO = "ago"


@dataclass(frozen=True, slots=True)
class Bound:
    """`value`: an offset, records before the end, ms since the epoch, or ms before now."""

    kind: Kind
    value: int = 0

    def at(self, start: int, end: int, *, now_ms: int, find: Callable[[int], int | None]) -> int:
        """Return the offset in a partition that holds [start, end), within these.

        `find`: gives the first offset at or after a time in ms; None: there is none.
        """
        if self.kind is Kind.EARLIEST:
            return start
        if self.kind is Kind.LATEST:
            return end
        if self.kind is Kind.OFFSET:
            return min(max(self.value, start), end)
        if self.kind is Kind.BACK:
            return max(end - self.value, start)
        when = self.value if self.kind is Kind.TIME else now_ms - self.value
        found = find(max(when, 0))  # below 0 Kafka has -1 for the end, -2 for the log start
        return end if found is None else min(max(found, start), end)


EARLIEST: Final = Bound(Kind.EARLIEST)
LATEST: Final = Bound(Kind.LATEST)


def parse_bound(text: str, *, name: str, default: Kind) -> Bound:
    """Read a bound; "" is the default.

    Raises: InvalidRequestError with `name` and what is meant.
    """
    text = text.strip()
    if not text or text in (Kind.EARLIEST, Kind.LATEST):
        return Bound(Kind(text) if text else default)
    if (ago := _AGO.fullmatch(text)) is not None:
        return Bound(Kind.AGO, int(ago[1]) * _UNITS_MS[ago[2]])
    if text.isascii() and text.removeprefix("-").removeprefix("@").isdigit() and len(text) < 20:
        if text.startswith("@"):
            return Bound(Kind.TIME, int(text[1:]))
        value = int(text) if text.lstrip("-").isdigit() else None
        if value is not None and abs(value) <= OFFSET_MAX:
            return Bound(Kind.BACK, -value) if text.startswith("-") else Bound(Kind.OFFSET, value)
    try:
        when = datetime.fromisoformat(text)
        zoned = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
        return Bound(Kind.TIME, to_ms(zoned))
    except (ValueError, OverflowError):
        raise InvalidRequestError(f"{name}={text[:100]}: {_WANTED}") from None
