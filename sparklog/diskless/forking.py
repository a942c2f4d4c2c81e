"""Plans a fork: a log at another prefix with the state of an old log right after a commit.

The store itself copies closed segments and staged objects. Inline data of the old log's entries are
packed into new objects, and a segment that contains an end offset is cut there, which requires
reading it up to the cut. Topics get new ids, as in any fork, and the leader epoch is higher, so
that readers of the old history notice. The original log is not changed.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from sparklog.common import TopicPartition
from sparklog.diskless.entries import MergeRecord
from sparklog.diskless.extent_logs import ExtentLogs
from sparklog.diskless.extent_objects import ExtentObjects
from sparklog.diskless.extents import Extent, segment_extent
from sparklog.diskless.fork_copies import ForkedObjects
from sparklog.diskless.fork_point import ForkPoint, entries_between, find_point
from sparklog.diskless.import_objects import BucketTarget, NewLog, NewPartition, NewSegments
from sparklog.diskless.ledger import EntryReader, StoreLedger
from sparklog.diskless.state import DisklessState
from sparklog.diskless.tier_import import batch_of
from sparklog.errors import DataCorruptionError
from sparklog.format.checkpoint_files import topic_id_text
from sparklog.format.producer_snapshot import format_snapshot
from sparklog.log.batch_windows import walk
from sparklog.log.copied_log import (
    check_dense,
    copied_state,
    copied_topics,
    next_epoch,
    prefix_below,
)
from sparklog.log.fork_points import ForkPointRequest, forked_start
from sparklog.storage.leader_epochs import clipped
from sparklog.storage.ledger_records import ForkedFrom
from sparklog.storage.segment_store import SegmentPut
from sparklog.storage.segments import SegmentLog
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState

_NO_EPOCHS: Final = ((0, 0),)
_TERM_BYTES: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkSource:
    """The log to fork, as of its newest ledger entry.

    Attributes:
        entries: Reads ledger entries.
        ledger: The ledger.
        now: The newest state.
        objects: Reads the objects with records.
        older: Returns the states in the store, newest first.
    """

    entries: EntryReader
    ledger: StoreLedger
    now: DisklessState
    objects: ExtentObjects
    older: Callable[[], Iterable[DisklessState]] = tuple

    def log(self, key: TopicPartition, extent: Extent) -> SegmentLog:
        """Open an extent as a log with committed offsets, as for readers."""
        log_id = self.entries.log_id
        return ExtentLogs(self.objects, log_id, key.topic, (extent,), self.now.keys).open(0)


def plan_fork(
    source: ForkSource,
    target: BucketTarget,
    log_id: str,
    wanted: ForkPointRequest,
    *,
    keyring: Keyring | None = None,
) -> tuple[ForkPoint, NewLog]:
    """Plan a fork. This call cuts and uploads the segments that contain an end offset of the fork.

    Cost: see `find_point`; a pass over the segments to cut, and over each partition that was
    compacted after the fork point.

    Args:
        keyring: Encrypts cut segments if the old segment was encrypted.

    Raises:
        InvalidRequestError: The requested records don't exist any more (compaction, deleted
            topics).
        OffsetOutOfRangeError: Retention or delete_records has deleted the requested records.
        DataCorruptionError: An object is damaged.
        StorageUnavailableError: The store does not answer, or refuses the request.
    """
    point = find_point(
        source.entries, source.ledger, source.now, wanted, older=source.older
    )
    now, then = source.now, point.state.log
    topics = copied_topics(then)
    ids = {name: derived_id(log_id, topic.id, 0) for name, topic in topics.items()}
    ends = {key: end for key, end in then.ends.items() if key.topic in topics}
    starts = {
        key: forked_start(now.log, topics[key.topic].id, key, end)
        for key, end in sorted(ends.items())
    }
    cleaned = _cleaned_since(source, point, ends)
    time_ms = max(target.clock(), now.log.time_ms)
    segments = NewSegments(target.store, time_ms)
    cutter = _Cutter(source, segments, log_id, ids, keyring, dry_run=target.dry_run)
    copies = ForkedObjects(source.entries, now, target.store, log_id, ids)
    partitions = [
        _partition(source, point, key, end, cutter, copies, dense=key in cleaned)
        for key, end in sorted(ends.items())
    ]
    state = copied_state(
        then,
        {name: replace(topic, id=ids[name], dirs=dict.fromkeys(topic.dirs, 0))
         for name, topic in topics.items()},
        starts=starts, epoch=next_epoch(now.log.epoch, now.epochs.values()), time_ms=time_ms,
    )  # fmt: skip
    fork = ForkedFrom(source.entries.store.url, point.count, then.time_ms)
    return point, NewLog(
        log_id=log_id,
        snapshot=replace(state.snapshot(), fork=fork),
        partitions=partitions,
        objects=copies.objects(),
        manifests=[*copies.manifests, *segments.manifests],
        keys=copies.keys | segments.keys,
    )


def derived_id(log_id: str, old: str, zeros: int) -> str:
    """Return the id of a topic or segment in a fork or an archive.

    The result depends only on the arguments, so a repeated call finds the same names. The first
    `zeros` bytes, in which a segment's id has the term, are 0.
    """
    for count in itertools.count():
        raw = hashlib.sha256(f"{log_id} {old} {count}".encode()).digest()
        text = topic_id_text(bytes(zeros) + raw[: 16 - zeros])
        # As Uuid.randomUuid of Kafka: a leading "-" would look like an option.
        if not text.startswith("-"):
            return text
    raise AssertionError


def _cleaned_since(
    source: ForkSource, point: ForkPoint, ends: Mapping[TopicPartition, int]
) -> set[TopicPartition]:
    """Return the partitions that may have lost records of the fork by a later compaction.

    A compaction after the fork's point removes a record if a later record has the same key, and the
    fork does not contain the later record.
    """
    doubtful = {
        k for k, end in ends.items() if k in source.now.gaps and end < source.now.log.ends[k]
    }
    if not doubtful:
        return set()
    between = entries_between(source.entries, point.count, source.now.next_number)
    return doubtful & {
        entry.record.topic_partition
        for _, entry in between
        if isinstance(entry.record, MergeRecord) and entry.record.gaps
    }


def _partition(
    source: ForkSource,
    point: ForkPoint,
    key: TopicPartition,
    end: int,
    cutter: "_Cutter",
    copies: ForkedObjects,
    *,
    dense: bool,
) -> NewPartition:
    now = source.now
    start = now.log.starts.get(key, 0)
    held = [
        extent for extent in now.extents.get(key, ()) if extent.end > start and extent.base < end
    ]
    if start == end:
        held = []
    if dense:
        windows = (walk(source.log(key, extent), check_crc=False) for extent in held)
        check_dense(key, start, end, itertools.chain.from_iterable(windows))
    whole = held if not held or held[-1].end <= end else held[:-1]
    extents = copies.copied(key, whole)
    epochs = tuple(clipped(list(now.epochs.get(key, ())), start=start, end=end))
    if len(whole) < len(held):
        extents = (*extents, cutter.cut(key, held[-1], end, point.state, epochs))
    producers = point.state.producers.get(key)
    entries = () if producers is None else producers.entries()
    return NewPartition(
        key=key,
        extents=extents,
        epochs=epochs,
        gaps=key in now.gaps,
        producers=tuple(batch_of(entry) for entry in entries if entry.last_offset < end),
    )


# -- cut segments


@dataclass(frozen=True, slots=True)
class _BeginningOfLog:
    """The first batches of a segment, from which a fork makes its own last segment.

    Implements `sparklog.storage.segment_store.LogSegmentData`.
    """

    where: str
    source: SegmentLog
    epochs: tuple[tuple[int, int], ...]
    snapshot: bytes

    def version(self) -> object:
        return self.where

    @contextmanager
    def log(self) -> Iterator[SegmentLog]:
        yield self.source

    def transaction_index(self) -> bytes:
        return b""

    def producer_snapshot(self) -> bytes:
        return self.snapshot

    def leader_epochs(self) -> list[tuple[int, int]]:
        return list(self.epochs)


class _Cutter:
    """Makes new segments from the first bytes of old segments."""

    def __init__(
        self,
        source: ForkSource,
        segments: NewSegments,
        log_id: str,
        ids: Mapping[str, str],
        keyring: Keyring | None,
        *,
        dry_run: bool,
    ) -> None:
        self._source, self._segments, self._ids = source, segments, ids
        self._log_id, self._keyring, self._dry_run = log_id, keyring, dry_run

    def cut(
        self,
        key: TopicPartition,
        extent: Extent,
        end: int,
        then: DisklessState,
        epochs: tuple[tuple[int, int], ...],
    ) -> Extent:
        """Upload a segment with the records below offset `end`; return the new extent."""
        log, now = self._source.log(key, extent), self._source.now
        prefix = prefix_below(log, extent.base, end, reads_rest=extent.crc >= 0)
        if prefix.end < end and key not in now.gaps:
            raise DataCorruptionError(
                "the segment ends before the fork's end offset, so no fork was created; "
                "restore it from a copy of the bucket",
                path=log.path, position=prefix.size, first=prefix.end, end=end,
            )  # fmt: skip
        config = then.log.topics[key.topic].parsed()
        producers = then.producers.get(key)
        entries = () if producers is None else producers.entries()
        segment = RemoteSegment(
            topic=key.topic, topic_id=self._ids[key.topic], partition=key.partition,
            id=derived_id(self._log_id, extent.segment, _TERM_BYTES), base=extent.base, end=end,
            max_timestamp=prefix.max_timestamp, size=prefix.size,
            epochs=tuple(clipped(list(epochs), start=extent.base)) or _NO_EPOCHS,
            state=SegmentState.COPY_STARTED, time_ms=0,
        )  # fmt: skip
        if self._dry_run or not prefix.size:
            return segment_extent(segment)
        put = SegmentPut(
            segment=segment,
            data=_BeginningOfLog(
                log.path, log, epochs,
                format_snapshot(producer for producer in entries if producer.last_offset < end),
            ),
            config=config.to_dict(),
            interval_bytes=config.index_interval_bytes,
            gaps=key in now.gaps or config.compact,
        )  # fmt: skip
        is_encrypted = extent.object in now.keys
        made = self._segments.upload(put, self._keyring if is_encrypted else None)
        return segment_extent(segment, made.crc32c)
