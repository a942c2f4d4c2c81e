"""Finds the offset ranges that `Log.reset` made invalid, by the commit ledger.

A `reset` record names the offsets that its writers had committed after the batch they went back
to; the fold keeps them, snapshots too, until the log start has passed them. Older sparklogs wrote
no offsets: there they are found in all of the ledger that is still held (`find_abandoned`).
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.log.arguments import refused
from sparklog.log.committed_batches import writers_abandoning
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


def abandoned_by(ledger: Ledger, end: int, writers: Iterable[str], batch: int) -> SpansByKey:
    """Return what `writers` committed after `batch`, as far as the ledger below `end` holds it.

    A warning tells of batches whose records have expired. Cost: the ledger is read back to the
    last batch that stays; where a home knows whose a commit is, the writers' alone.
    """
    left = set(writers)
    found: SpansByKey = {}
    oldest: dict[str, int] = {}
    for _, record in ledger.commits_of(end, sorted(left)) if left else ():
        if not isinstance(record, CommitRecord) or record.writer not in left:
            continue
        oldest[record.writer] = record.batch
        if record.batch > batch:
            _add(found, record)
            continue
        left.discard(record.writer)  # what it had committed before has lower numbers, or is
        if not left:  # abandoned already
            break
    for writer in sorted(left) if ledger.oldest else ():
        if oldest.get(writer, batch + 2) > batch + 1:
            _LOGGER.warning(
                "%s: the ledger no longer holds all commits of %s after batch %d: what its older "
                "batches wrote stays in timeline=current, too", ledger.home, writer, batch,
            )  # fmt: skip
    return {key: merged(spans) for key, spans in found.items()}


def find_abandoned(ledger: Ledger, end: int) -> SpansByKey:
    """Return what all resets abandoned of the topics that are there now, by the whole ledger.

    Cost: two passes over the ledger below `end`.
    """
    first = ledger.oldest
    resets = [
        (offset, record) for offset, record in ledger.records(first, end)
        if isinstance(record, ResetRecord)
    ]  # fmt: skip
    found: SpansByKey = {}
    held: dict[str, dict[int, list[OffsetRange]]] = {}  # of deleted topics, by id
    state = LogState()
    for offset, record in ledger.records(first, end):
        match record:
            case CommitRecord(writer=writer, batch=batch):
                later = (reset for at, reset in resets if at > offset)
                if any(writer in writers_abandoning(reset, batch) for reset in later):
                    _add(found, record)
            case ResetRecord() | SnapshotRecord():
                for key, spans in (record.abandoned or {}).items():
                    found.setdefault(key, []).extend(spans)
            case DropRecord(topic=name, id=topic_id):
                gone = [key for key in found if key.topic == name]
                held[topic_id] = {key.partition: found.pop(key) for key in gone}
            case UndeleteRecord(topic=name, id=topic_id):
                for p, spans in held.pop(topic_id, {}).items():
                    found[TopicPartition(name, p)] = spans
        state.apply(record)
    return within(found, state)


def within(found: Mapping[TopicPartition, Iterable[OffsetRange]], state: LogState) -> SpansByKey:
    """Return spans as a set, without what lies outside of [log start, end)."""
    sets = {
        key: clipped(merged(spans), state.starts.get(key, 0), state.ends[key])
        for key, spans in found.items()
        if key in state.ends
    }
    return {key: spans for key, spans in sets.items() if spans}


def _add(found: SpansByKey, record: CommitRecord) -> None:
    for key, span in record.ends.items():
        found.setdefault(key, []).append(span)


class Timeline:
    """What resets had abandoned of a log when somebody asked last. For readers: takes no lock."""

    def __init__(self, ledger: FollowedLedger) -> None:
        """Raises: InvalidRequestError: an archive, which has no ledger."""
        self._ledger = ledger
        if not ledger.exists:
            raise InvalidRequestError(
                f"timeline=current: {ledger.home} is an archive, which doesn't have the commit "
                "ledger that tells what resets abandoned: read the log dir itself"
            )
        self._state: LogState | None = None
        self._end = 0
        self._identity: object | None = None
        self._found: SpansByKey = {}

    def abandoned(self) -> SpansByKey:
        """Return what is abandoned by now, {(topic, partition): spans}.

        Cost: at first one segment of the ledger (16 MiB at most), or all of it where an older
        sparklog wrote to it; then what is new. Raises: DataCorruptionError: the ledger.
        """
        identity = self._ledger.identity()
        if identity is None:
            return {}
        end = self._ledger.end
        if self._state is None or identity != self._identity or end < self._end:
            self._fold(end, None)
        elif end > self._end:
            try:
                self._fold(end, self._end)
            except (DataCorruptionError, StaleReadError, FileNotFoundError):
                self._fold(end, None)  # segments of it have expired since
        self._identity = identity
        return self._found

    def of(self, topic: str, partition: int) -> list[OffsetRange]:
        """Return what is abandoned of one partition."""
        return self.abandoned().get(TopicPartition(topic, partition), [])

    def _fold(self, end: int, first: int | None) -> None:
        state = LogState() if first is None or self._state is None else self._state
        self._state = None  # not half folded, if it raises
        self._ledger.fold(state, end, first=first)
        if state.abandoned is None:
            state.abandoned = find_abandoned(self._ledger, end)
        self._state, self._end = state, end
        self._found = within(state.abandoned, state)


def timeline_of(home: Home, timeline: str) -> Timeline | None:
    """Return the timeline by which a read leaves out abandoned rows; None for "all".

    Raises:
        InvalidRequestError: `timeline` is not one of `TIMELINES`, or is "current" for an archive.
    """
    if timeline not in TIMELINES:
        raise refused("timeline", timeline, f"one of {', '.join(TIMELINES)}")
    return Timeline(home.ledger) if timeline == "current" else None
