"""Plans a fork: a log at another prefix with the state of an old log right after a commit.

The store itself copies closed segments and staged objects. Inline data of the old log's entries are
packed into new objects, and a segment that contains an end offset is cut there, which requires
reading it up to the cut. Topics get new ids, as in any fork, and the leader epoch is higher, so
that readers of the old history notice. The original log is not changed.
"""

import collections
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from sparklog.clock import Clock, system_clock
from sparklog.common import TopicPartition
from sparklog.diskless.entries import MergeRecord, ObjectKey
from sparklog.diskless.extent_logs import ExtentLogs
from sparklog.diskless.extent_objects import ExtentObjects
from sparklog.diskless.extents import Extent
from sparklog.diskless.fork_copies import ForkedObjects
from sparklog.diskless.fork_point import ForkPoint, entries_between, find_point
from sparklog.diskless.import_objects import NewLog, NewObject, NewPartition
from sparklog.diskless.ledger import EntryReader, StoreLedger
from sparklog.diskless.state import DisklessState
from sparklog.diskless.tier_import import batch_of
from sparklog.errors import DataCorruptionError
from sparklog.format.checkpoint_files import topic_id_text
from sparklog.format.producer_snapshot import format_snapshot
from sparklog.log.batch_windows import walk
from sparklog.log.fork_points import (
    ForkPointRequest,
    batch_is_cut,
    compacted,
    records_gone,
    topic_deleted,
)
from sparklog.log.timeline import within
from sparklog.log.topic_names import INTERNAL
from sparklog.storage.leader_epochs import clipped
from sparklog.storage.ledger_records import ForkedFrom, SnapshotRecord
from sparklog.storage.segment_store import SegmentPut
from sparklog.storage.segments import SegmentLog
from sparklog.tiered.copying.segment_objects import LogObject, put_log
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.layout.manifest import log_object, manifest_object
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState

_NO_EPOCHS: Final = ((0, 0),)
_TERM_BYTES: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkSource:
    """The log to fork, at its head; `older`: returns states in the store, newest first."""

    entries: EntryReader
    ledger: StoreLedger
    now: DisklessState
    objects: ExtentObjects
    older: Callable[[], Iterable[DisklessState]] = tuple

    def log(self, key: TopicPartition, extent: Extent) -> SegmentLog:
        """Open an extent's log as readers see it."""
        log_id = self.entries.log_id
        return ExtentLogs(self.objects, log_id, key.topic, (extent,), self.now.keys).open(0)


def plan_fork(
    source: ForkSource,
    target: Store,
    log_id: str,
    wanted: ForkPointRequest,
    *,
    keyring: Keyring | None = None,
    dry_run: bool = False,
    clock: Clock = system_clock,
) -> tuple[ForkPoint, NewLog]:
    """Plan a fork; segments that contain an end offset are cut and uploaded already.

    Args: keyring: encrypts cut segments if the old segment was encrypted.
    Raises: InvalidRequestError, OffsetOutOfRangeError: the requested records don't exist any more
        (retention, compaction, deleted topics); DataCorruptionError; StorageUnavailableError.
    Cost: see `find_point`; a pass over segments that contain an end offset, and over each partition
        that was compacted since.
    """
    point = find_point(
        source.entries, source.ledger, source.now, wanted, older=source.older
    )
    now, then = source.now, point.state.log
    topics = {name: topic for name, topic in then.topics.items() if name not in INTERNAL}
    ids = {name: derived_id(log_id, topic.id, 0) for name, topic in topics.items()}
    ends = {key: end for key, end in then.ends.items() if key.topic in topics}
    for key, end in sorted(ends.items()):
        _check(now, topics[key.topic].id, key, end)
    cleaned = _cleaned_since(source, point, ends)
    time_ms = max(clock(), now.log.time_ms)
    cutter = _Cutter(source, target, log_id, ids, keyring, time_ms, dry_run=dry_run)
    copies = ForkedObjects(source.entries, now, target, log_id, ids)
    partitions = [
        _partition(source, point, key, end, cutter, copies, dense=key in cleaned)
        for key, end in sorted(ends.items())
    ]
    then.topics = {
        name: replace(topic, id=ids[name], dirs=dict.fromkeys(topic.dirs, 0))
        for name, topic in topics.items()
    }
    then.ends = ends
    then.starts = {key: at for key in ends if (at := now.log.starts.get(key, 0))}
    then.local_starts, then.unsynced, then.deleted = {}, set(), {}
    then.idempotent &= ends.keys()
    then.abandoned = within(then.abandoned or {}, then)
    about = ForkedFrom(source.entries.store.url, point.count, then.time_ms)
    snapshot: SnapshotRecord = replace(
        then.snapshot(), fork=about, epoch=now.log.epoch + 1, time_ms=time_ms
    )
    return point, NewLog(
        log_id=log_id,
        snapshot=snapshot,
        partitions=partitions,
        objects=copies.objects(),
        manifests=[*copies.manifests, *cutter.manifests],
        keys=copies.keys | cutter.keys,
    )


def derived_id(log_id: str, old: str, zeros: int) -> str:
    """Return the id of a topic or segment in a fork or an archive.

    Always the same for the same input.

    `zeros`: number of bytes that are 0 (a segment's term).
    """
    for count in itertools.count():
        raw = hashlib.sha256(f"{log_id} {old} {count}".encode()).digest()
        text = topic_id_text(bytes(zeros) + raw[: 16 - zeros])
        if not text.startswith("-"):
            return text
    raise AssertionError


def _check(now: DisklessState, topic_id: str, key: TopicPartition, end: int) -> None:
    known = now.log.topics.get(key.topic)
    if known is None or known.id != topic_id:
        raise topic_deleted(key.topic)
    start = now.log.starts.get(key, 0)
    if start > end:
        raise records_gone(str(key), start, end, now.log.ends[key])


def _cleaned_since(
    source: ForkSource, point: ForkPoint, ends: Mapping[TopicPartition, int]
) -> set[TopicPartition]:
    """Return the partitions that were compacted after the point by records that the fork lacks."""
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
        _check_dense(source, key, start, end, held)
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


def _check_dense(
    source: ForkSource, key: TopicPartition, start: int, end: int, extents: Sequence[Extent]
) -> None:
    """Raise InvalidRequestError if a record of [start, end) is missing. Cost: reads all of them."""
    at = start
    for extent in extents:
        for window in walk(source.log(key, extent), check_crc=False):
            if window.batches.error is not None:
                raise window.batches.error
            table = window.batches.table
            table = table[(table["last_offset"] >= start) & (table["base_offset"] < end)]
            if not len(table):
                continue
            first, last = table["base_offset"], table["last_offset"]
            whole = (last - first + 1 == table["count"]).all()
            if not whole or first[0] > at or (first[1:] != last[:-1] + 1).any():
                raise compacted(str(key), end)
            at = int(last[-1]) + 1
    if at < end:
        raise compacted(str(key), end)


# -- cut segments


@dataclass(frozen=True, slots=True)
class _BeginningOfLog:
    """The first bytes of a segment: `sparklog.storage.segment_store.LogSegmentData`."""

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
        target: Store,
        log_id: str,
        ids: Mapping[str, str],
        keyring: Keyring | None,
        time_ms: int,
        *,
        dry_run: bool,
    ) -> None:
        self._source, self._target, self._ids = source, target, ids
        self._log_id = log_id
        self._keyring, self._time_ms, self._dry_run = keyring, time_ms, dry_run
        self.manifests: list[NewObject] = []
        self.keys: dict[str, ObjectKey] = {}

    def cut(
        self,
        key: TopicPartition,
        extent: Extent,
        end: int,
        then: DisklessState,
        epochs: tuple[tuple[int, int], ...],
    ) -> Extent:
        """Upload a segment of the records below offset `end`; return its extent."""
        log = self._source.log(key, extent)
        size, latest = self._place_of(key, log, extent, end)
        config = then.log.topics[key.topic].parsed()
        producers = then.producers.get(key)
        entries = () if producers is None else producers.entries()
        segment = RemoteSegment(
            topic=key.topic, topic_id=self._ids[key.topic], partition=key.partition,
            id=derived_id(self._log_id, extent.segment, _TERM_BYTES), base=extent.base, end=end,
            max_timestamp=latest, size=size,
            epochs=tuple(clipped(list(epochs), start=extent.base)) or _NO_EPOCHS,
            state=SegmentState.COPY_STARTED, time_ms=0,
        )  # fmt: skip
        name, crc = log_object(segment), -1
        if not self._dry_run and size:
            put = SegmentPut(
                segment=segment,
                data=_BeginningOfLog(
                    log.path, log, epochs,
                    format_snapshot(producer for producer in entries if producer.last_offset < end),
                ),
                config=config.to_dict(),
                interval_bytes=config.index_interval_bytes,
                gaps=key in self._source.now.gaps or config.compact,
            )  # fmt: skip
            sealed = extent.object in self._source.now.keys
            made = put_log(self._target, put, keyring=self._keyring if sealed else None)
            crc = made.crc32c
            if made.wrapped is not None:
                self.keys[name] = ObjectKey(segment.id, made.wrapped, size)
            write = partial(self._put_manifest, made)
            self.manifests.append(NewObject(manifest_object(segment), -1, write))
        return Extent(
            extent.base,
            end,
            name,
            0,
            size,
            latest,
            segment.epochs[-1][0],
            -1,
            segment.id,
            crc=crc,
        )

    def _put_manifest(self, made: LogObject) -> None:
        manifest, raw = made.manifest(self._time_ms)
        self._target.put(manifest.name, raw)

    def _place_of(
        self, key: TopicPartition, log: SegmentLog, extent: Extent, end: int
    ) -> tuple[int, int]:
        """Return (bytes, largest timestamp) of the batches below offset `end`."""
        size, reached, latest = 0, extent.base, -1
        windows = walk(log, check_crc=False)
        for window in windows:
            if window.batches.error is not None:
                raise window.batches.error
            table = window.batches.table
            below = table[table["last_offset"] < end]
            if len(below):
                size = int(below["position"][-1] + below["size"][-1])
                reached = int(below["last_offset"][-1]) + 1
                latest = max(latest, int(below["max_timestamp"].max()))
            if len(below) < len(table):
                first = int(table["base_offset"][len(below)])
                if first < end:
                    last = int(table["last_offset"][len(below)])
                    raise batch_is_cut(log.path, first, last, end)
                if extent.crc >= 0:
                    collections.deque(windows, maxlen=0)  # only the entire extent has a checksum
                break
        if reached < end and key not in self._source.now.gaps:
            raise DataCorruptionError(
                "the segment is too short; restore it from a copy. Nothing was forked",
                path=log.path, position=size, first=reached, end=end,
            )  # fmt: skip
        return size, latest
