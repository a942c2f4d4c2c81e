"""Ranges of offsets, continuation and results that the exports share."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

import pyarrow as pa

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError, OffsetOutOfRangeError
from sparklog.log.arrow_reads import check_isolation
from sparklog.log.log import Log, view_of
from sparklog.log.positions import Position, resolve
from sparklog.log.read_retry import last_stable_offset
from sparklog.progress import Progress

Offsets: TypeAlias = dict[int, int]
_COLUMNS: Final = ("key", "value", "headers", "timestamp", "offset")


@dataclass(slots=True, kw_only=True)
class Exported:
    """The result of an export.

    Attributes:
        records: The number of exported records.
        offsets: {partition: (first, end)} offsets of the log; empty without new records.
        stopped: Whether the caller ended the export early.
    """

    topic: str
    to: str
    records: int = 0
    stopped: bool = False
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)
    took_ms: int = 0


@dataclass(frozen=True, slots=True)
class TopicRange:
    """The records [start, end) of a topic, which an export copies."""

    log: Log
    topic: str
    start: Position = "earliest"
    end: Position = "latest"
    isolation: str = "read_committed"

    def offsets(self) -> tuple[Offsets, Offsets]:
        """Return {partition: offset} of start and end.

        Also raises the errors of `Log.read`.

        Raises:
            InvalidRequestError: The end is before the start.
        """
        check_isolation(self.isolation)
        view, topic, isolation = view_of(self.log), self.topic, self.isolation
        numbers = sorted(self.log.topic(topic).dirs)
        spans = view.spans([TopicPartition(topic, p) for p in numbers])
        first = resolve(view, topic, numbers, self.start, spans, name="start", isolation=isolation)
        last = resolve(view, topic, numbers, self.end, spans, name="end", isolation=isolation)
        self._check_order(first, last)
        if isolation == "read_committed":
            for p, offset in last.items():
                last[p] = min(offset, last_stable_offset(view, topic, p, offset))
        return first, {p: max(offset, first[p]) for p, offset in last.items()}

    def _check_order(self, first: Offsets, last: Offsets) -> None:
        """Refuse times or offsets with the end before the start."""
        start, end = self.start, self.end
        if isinstance(start, datetime) and isinstance(end, datetime) and end < start:
            raise InvalidRequestError(
                f"topic {self.topic} would begin at {start.isoformat()} and end at "
                f"{end.isoformat()}: set an end after the start"
            )
        if isinstance(start, Mapping) and isinstance(end, Mapping):
            for p in sorted(start.keys() & end.keys()):
                if last[p] < first[p]:
                    raise InvalidRequestError(
                        f"{self.topic}-{p} would begin at {first[p]} and end at {last[p]}: set "
                        "an end after the start"
                    )

    def resume(self, first: Offsets, last: Offsets, done: Mapping[int, int], to: str) -> Offsets:
        """Return where to begin, given the ends (`done`) of the previous export to `to`.

        A caller that names a partition's offset as the start accepts that earlier records are left
        out.

        Raises:
            OffsetOutOfRangeError: Records since the previous export were deleted from the log.
        """
        starts = {p: low for p, (low, _) in self.log.offsets(self.topic).items()}
        named = self.start.keys() if isinstance(self.start, Mapping) else ()
        for p, offset in done.items():
            is_lost = p in first and offset < starts[p] < last[p] and first[p] <= starts[p]
            if is_lost and p not in named:
                raise OffsetOutOfRangeError(
                    f"{self.topic}-{p}: {to} has offsets up to {offset}, and the log starts at "
                    f"{starts[p]} now, so the records between are lost; export to a new place, or "
                    f"give offset {starts[p]} of this partition as the start",
                    offset=offset, start=starts[p], end=last[p],
                )  # fmt: skip
        return {p: max(offset, done.get(p, offset)) for p, offset in first.items()}

    def read(self, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the records [start, end) of a partition, with all columns that an export copies."""
        if start < end:
            yield from self.log.read(
                self.topic, [partition], {partition: start}, {partition: end},
                isolation=self.isolation, columns=_COLUMNS,
            )  # fmt: skip


class Meter:
    """Reports progress in offsets."""

    def __init__(self, first: Offsets, last: Offsets, tell: Progress | None) -> None:
        self._tell = tell
        self._total = sum(max(0, last[p] - at) for p, at in first.items())
        self._done = 0

    def add(self, offsets: int) -> None:
        """Count finished offsets."""
        self._done += offsets
        if self._tell is not None:
            self._tell(self._done, self._total)
