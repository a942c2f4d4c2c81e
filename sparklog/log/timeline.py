"""Find the commits of micro-batches in the ledger, and the offsets that `Log.reset` abandoned.

A micro-batch that a later reset abandoned counts as not committed. Its records stay readable; a
lookup finds the new commit of the batch, or none.

A reset record lists the offsets that its writers had committed after the batch they were reset to.
The folded ledger, and snapshots, keep these ranges until the log start offset has passed them.
Older versions of sparklog stored no offsets in reset records. For their logs, the ranges are
computed from all retained ledger records (`find_abandoned`).
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.log.arguments import refused
from sparklog.storage.commits import FollowedLedger, Ledger
from sparklog.storage.home import Home
from sparklog.storage.ledger_records import (
    CommitRecord,
    DropRecord,
    ResetRecord,
    SnapshotRecord,
    UndeleteRecord,
)
from sparklog.storage.log_state import LogState
from sparklog.storage.offset_ranges import OffsetRange, SpansByKey, clipped, merged
from sparklog.storage.segments import StaleReadError

TIMELINES: Final = ("all", "current")
_LOGGER: Final = logging.getLogger(__name__)


def find_commit(
    ledger: Ledger, end: int, writers: Collection[str], batch: int
) -> tuple[int, CommitRecord] | None:
    """Return (ledger offset, record) of the newest commit of `batch` by any of `writers`.

    Returns None if the ledger below `end` no longer contains the commit, or if a reset abandoned
    it.

    Cost: reads the ledger backwards to the commit, segment by segment. A home that indexes commits
        by writer reads only the commits of `writers`.
    """
    left = set(writers)
    for offset, record in ledger.commits_of(end, writers):
        match record:
            case CommitRecord() if record.batch == batch and record.writer in writers:
                return offset, record
            case CommitRecord() if record.batch < batch:
                left.discard(record.writer)  # its earlier commits have lower numbers
                if not left:
                    return None
            case ResetRecord() if any(w in writers for w in _writers_abandoning(record, batch)):
                return None
            case SnapshotRecord() if not _reached(record, writers, batch):
                return None  # no record before the snapshot can have the batch
    return None


def _writers_abandoning(record: ResetRecord, batch: int) -> list[str]:
    """Return the writers whose micro-batch `batch` a reset record abandons."""
    return [writer for writer, last in record.last_batches.items() if last < batch]


def _reached(snapshot: SnapshotRecord, writers: Collection[str], batch: int) -> bool:
    """Return True if a writer had committed `batch`, or a later batch, before the snapshot."""
    lasts = (snapshot.writers.get(writer) for writer in writers)
    return any(last is not None and last.batch >= batch for last in lasts)


def abandoned_by(ledger: Ledger, end: int, writers: Iterable[str], batch: int) -> SpansByKey:
    """Return {partition: offset ranges} that `writers` committed after `batch`.

    The result covers the ledger below `end`, as far as it goes back. Logs a warning for batches
    whose ledger records have expired. Cost: reads the ledger backwards to the last batch that
    stays. A home that indexes commits by writer reads only the commits of `writers`.
    """
    left = set(writers)
    abandoned: SpansByKey = {}
    oldest: dict[str, int] = {}
    for _, record in ledger.commits_of(end, sorted(left)) if left else ():
        if not isinstance(record, CommitRecord) or record.writer not in left:
            continue
        oldest[record.writer] = record.batch
        if record.batch > batch:
            _add(abandoned, record)
            continue
        left.discard(record.writer)  # its earlier commits have lower numbers or are abandoned
        if not left:
            break
    for writer in sorted(left) if ledger.oldest else ():
        # The oldest record found is not of the next batch: records of batches between expired.
        if oldest.get(writer, batch + 2) > batch + 1:
            _LOGGER.warning(
                "%s: the ledger no longer has all commits of %s after batch %d: rows of older "
                "batches stay in timeline=current, too", ledger.home, writer, batch,
            )  # fmt: skip
    return {key: merged(spans) for key, spans in abandoned.items()}


def find_abandoned(ledger: Ledger, end: int) -> SpansByKey:
    """Return {partition: offset ranges} that all resets abandoned, from the complete ledger.

    Only existing topics are included. Cost: two passes over the ledger below `end`.
    """
    first = ledger.oldest
    resets = [
        (offset, record) for offset, record in ledger.records(first, end)
        if isinstance(record, ResetRecord)
    ]  # fmt: skip
    abandoned: SpansByKey = {}
    deleted: dict[str, dict[int, list[OffsetRange]]] = {}  # spans of deleted topics, by topic id
    state = LogState()
    for offset, record in ledger.records(first, end):
        match record:
            case CommitRecord(writer=writer, batch=batch):
                later = (reset for at, reset in resets if at > offset)
                if any(writer in _writers_abandoning(reset, batch) for reset in later):
                    _add(abandoned, record)
            case ResetRecord() | SnapshotRecord():
                for key, spans in (record.abandoned or {}).items():
                    abandoned.setdefault(key, []).extend(spans)
            case DropRecord(topic=name, id=topic_id):
                dropped = [key for key in abandoned if key.topic == name]
                deleted[topic_id] = {key.partition: abandoned.pop(key) for key in dropped}
            case UndeleteRecord(topic=name, id=topic_id):
                for p, spans in deleted.pop(topic_id, {}).items():
                    abandoned[TopicPartition(name, p)] = spans
        state.apply(record)
    return within(abandoned, state)


def within(
    abandoned: Mapping[TopicPartition, Iterable[OffsetRange]], state: LogState
) -> SpansByKey:
    """Return the offset ranges merged and restricted to [log start, end) of each partition.

    Partitions that do not exist any more are left out.
    """
    sets = {
        key: clipped(merged(spans), state.starts.get(key, 0), state.ends[key])
        for key, spans in abandoned.items()
        if key in state.ends
    }
    return {key: spans for key, spans in sets.items() if spans}


def _add(abandoned: SpansByKey, record: CommitRecord) -> None:
    for key, span in record.ends.items():
        abandoned.setdefault(key, []).append(span)


class Timeline:
    """The offsets of micro-batches that resets abandoned in a log, for readers. Takes no lock.

    The result is cached, and completed from the new ledger records at each call.
    """

    def __init__(self, ledger: FollowedLedger) -> None:
        """Raise InvalidRequestError for an archive, which has no ledger."""
        self._ledger = ledger
        if not ledger.exists:
            raise InvalidRequestError(
                f"timeline=current: {ledger.home} is an archive, which has no ledger to list the "
                "records that resets abandoned: read the log dir itself"
            )
        self._state: LogState | None = None
        self._end = 0
        self._identity: object | None = None
        self._found: SpansByKey = {}

    def abandoned(self) -> SpansByKey:
        """Return {(topic, partition): offset ranges} of the records that are abandoned now.

        Raises:
            DataCorruptionError: The ledger is damaged.

        Cost:
            At first a ledger segment (at most 16 MiB), or the complete ledger if an older sparklog
            wrote to it; later the new records.
        """
        identity = self._ledger.identity()
        if identity is None:
            return {}
        end = self._ledger.end
        # A ledger that became shorter has another history: fold it from its beginning.
        if self._state is None or identity != self._identity or end < self._end:
            self._fold(end, None)
        elif end > self._end:
            try:
                self._fold(end, self._end)
            except (DataCorruptionError, StaleReadError, FileNotFoundError):
                self._fold(end, None)  # ledger segments have expired since
        self._identity = identity
        return self._found

    def of(self, topic: str, partition: int) -> list[OffsetRange]:
        return self.abandoned().get(TopicPartition(topic, partition), [])

    def _fold(self, end: int, first: int | None) -> None:
        state = LogState() if first is None or self._state is None else self._state
        self._state = None  # an error must not leave a partly folded state
        self._ledger.fold(state, end, first=first)
        if state.abandoned is None:
            state.abandoned = find_abandoned(self._ledger, end)
        self._state, self._end = state, end
        self._found = within(state.abandoned, state)


def timeline_of(home: Home, timeline: str) -> Timeline | None:
    """Return the timeline for a read without abandoned rows; for "all", return None.

    Raises:
        InvalidRequestError: `timeline` is not in `TIMELINES`, or is "current" for an archive.
    """
    if timeline not in TIMELINES:
        raise refused("timeline", timeline, f"one of {', '.join(TIMELINES)}")
    return Timeline(home.ledger) if timeline == "current" else None
