"""Selects the records of a topic that a command line requests."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.clock import monotonic_ms
from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError
from sparklog.log.arrow_reads import TopicRead, check_isolation, follow, read_ranges, schema_of
from sparklog.log.log import Log, group_progress, home_of, view_of
from sparklog.log.positions import Position, resolve
from sparklog.log.timeline import timeline_of

_PLACES: Final = ("partition", "offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Conditions on records. A record is selected if all conditions match.

    Regular expressions have RE2's syntax.

    Attributes:
        headers: (header key, value) pairs; the value None stands for any value. A record matches if
            a header with this key has the value.
        header_regexes: (header key, pattern for the value) pairs.
    """

    key: bytes | None = None
    key_regex: str | None = None
    value_regex: str | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    header_regexes: Sequence[tuple[str, str]] = ()

    @property
    def columns(self) -> list[str]:
        """The columns that the conditions use."""
        key = self.key is not None or self.key_regex is not None
        headers = bool(self.headers or self.header_regexes)
        return (
            ["key"] * key + ["value"] * (self.value_regex is not None) + ["headers"] * headers
        )

    def check(self) -> None:
        """Raise InvalidRequestError for an invalid regular expression."""
        of_headers = [pattern for _, pattern in self.header_regexes]
        for pattern in (self.key_regex, self.value_regex, *of_headers):
            if pattern is not None:
                try:
                    pc.match_substring_regex(pa.array([b""]), pattern)
                except pa.ArrowInvalid as error:
                    raise InvalidRequestError(
                        f"{pattern!r} is not a regular expression of RE2: {error}"
                    ) from None

    def mask(self, rows: pa.RecordBatch) -> Any | None:
        """Return a mask of the matching rows, or None if all rows match. Nulls match no value."""
        masks = []
        if self.key is not None:
            masks.append(pc.equal(rows.column("key"), pa.scalar(self.key, pa.binary())))
        for name, pattern in (("key", self.key_regex), ("value", self.value_regex)):
            if pattern is not None:
                masks.append(pc.match_substring_regex(rows.column(name), pattern))
        masks += self._header_masks(rows)
        if not masks:
            return None
        whole = masks[0]
        for mask in masks[1:]:
            whole = pc.and_(whole, mask)
        return whole

    def _header_masks(self, rows: pa.RecordBatch) -> Iterator[Any]:
        """Yield a mask for each condition on headers."""
        if not (self.headers or self.header_regexes):
            return
        lists = rows.column("headers")
        flat, of_row = lists.flatten(), pc.list_parent_indices(lists)
        keys, values = flat.field("key"), flat.field("value")
        tests = [(k, None if v is None else pc.equal(values, v)) for k, v in self.headers]
        tests += [(k, pc.match_substring_regex(values, p)) for k, p in self.header_regexes]
        for key, fits in tests:
            hit = pc.equal(keys, key)
            hit = hit if fits is None else pc.and_(hit, fits)
            mask = np.zeros(rows.num_rows, bool)
            mask[of_row.filter(hit).to_numpy()] = True  # skips nulls
            yield pa.array(mask)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeRequest:
    """The topic, the range and the conditions of the records that a command prints.

    Attributes:
        columns: As of `Log.read`; partition and offset are added.
        match: Selects records; `max_messages` counts the selected records.
        follow_on: Wait for more records at the end of the log. The wait ends after `timeout_ms`
            without a new record, or never if `timeout_ms` is None.
        group: The reader to register. Continues at its committed offsets unless `start` names an
            offset or a time. A batch counts as consumed when the next batch is requested.
        timeline: See `Log.read`.
    """

    topic: str
    partitions: Sequence[int] | None = None
    start: Position = "earliest"
    isolation: str = "read_uncommitted"
    columns: Sequence[str] | None = None
    match: Match = field(default_factory=Match)
    max_messages: int | None = None
    follow_on: bool = False
    timeout_ms: int | None = None
    group: str | None = None
    timeline: str = "all"

    def check(self) -> None:
        """Raise InvalidRequestError for a value that no log accepts."""
        self.match.check()
        check_isolation(self.isolation)
        if self.max_messages is not None and self.max_messages < 1:
            raise InvalidRequestError(f"max_messages must be at least 1; got {self.max_messages}")


def consume(
    log: Log, request: ConsumeRequest, stopped: Callable[[], bool] = lambda: False
) -> Iterator[pa.RecordBatch]:
    """Yield the requested records as batches.

    Also raises the errors of `Log.read`.

    Args:
        log: The log.
        request: The records to read.
        stopped: If this function returns True, the iteration ends: between two batches, or while
            waiting for records.
    """
    request.check()
    topic, start, match = request.topic, request.start, request.match
    view, wanted = view_of(log), schema_of(request.columns).names
    numbers = _numbers(log, topic, request.partitions)
    schema = schema_of(list(dict.fromkeys([*wanted, *_PLACES, *match.columns])))
    spans = view.spans([TopicPartition(topic, p) for p in numbers])
    group = request.group
    progress = None if group is None else group_progress(log, group, topic)
    if progress is not None:
        start = progress.resume(numbers, start, spans)
    isolation = request.isolation
    reads = TopicRead(
        view=view, topic=topic, partitions=request.partitions, schema=schema, isolation=isolation,
        timeline=timeline_of(home_of(log), request.timeline),
    )  # fmt: skip
    first = resolve(view, topic, numbers, start, spans, name="start", isolation=isolation)
    if progress is not None:
        progress.begin(dict(first))
    patience = _IdleTimeout(request.timeout_ms, stopped)
    if request.follow_on:
        batches = follow(reads, first, ended=patience.is_over)
    else:
        last = resolve(view, topic, numbers, "latest", spans, name="end", isolation=isolation)
        # The ids detect a topic that is deleted and created again while it is read.
        ids = {p: view.topic_id(topic, p) for p in numbers}
        batches = read_ranges(reads, first, last, ids)
    shown = [*wanted, *(name for name in _PLACES if name not in wanted)]
    try:
        for rows, behind in _limited(batches, match, request.max_messages):
            patience.renew()
            if rows.num_rows:
                yield rows.select(shown)
            # After the yield: the caller asks for the next batch when this one has been printed.
            # A crash before that prints the batch again instead of losing it.
            if progress is not None:
                progress.taken(*behind)
            if stopped():
                return
    finally:
        if progress is not None:
            progress.flush()


def _numbers(log: Log, topic: str, partitions: Sequence[int] | None) -> list[int]:
    known = view_of(log).partitions(topic)
    numbers = list(dict.fromkeys(known if partitions is None else partitions))
    for number in numbers:
        if number not in known:
            raise InvalidRequestError(
                f"topic {topic} has no partition {number}; its partitions are {known}"
            )
    return numbers


def _limited(
    batches: Iterator[pa.RecordBatch], match: Match, most: int | None
) -> Iterator[tuple[pa.RecordBatch, tuple[int, int]]]:
    """Yield at most `most` matching rows, and (partition, next offset) after each batch."""
    for rows in batches:
        chosen, behind = _chosen(rows, match, most)
        most = None if most is None else most - chosen.num_rows
        yield chosen, behind
        if most == 0:
            return


def _chosen(
    rows: pa.RecordBatch, match: Match, most: int | None
) -> tuple[pa.RecordBatch, tuple[int, int]]:
    """Return the first `most` matching rows, and (partition, offset after the consumed rows)."""
    partition, offsets = rows.column("partition")[0].as_py(), rows.column("offset")
    last = offsets[len(offsets) - 1].as_py()
    mask = match.mask(rows)
    if mask is not None:
        rows = rows.filter(mask)
    if most is not None and rows.num_rows >= most:
        rows = rows.slice(0, most)
        last = rows.column("offset")[most - 1].as_py()
    return rows, (partition, last + 1)


class _IdleTimeout:
    """Limits how long `consume` waits for new records."""

    def __init__(self, timeout_ms: int | None, stopped: Callable[[], bool]) -> None:
        self._timeout_ms, self._stopped = timeout_ms, stopped
        self.renew()

    def renew(self) -> None:
        self._since = monotonic_ms()

    def is_over(self) -> bool:
        late = self._timeout_ms is not None and monotonic_ms() - self._since >= self._timeout_ms
        return late or self._stopped()
