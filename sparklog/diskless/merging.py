"""Merges: extents are rewritten as segments, an entry replaces them, then manifests are written.

    the logs        written under unique names, not yet referenced by an entry
    the entry       a MergeRecord, valid if the extents still exist and the term is ours: from now
                    on all readers use the segments
    the manifests   with the entry's time, so that a reader of manifests alone (a broker, a restore
                    without the ledger) sees committed records, and the later one of two overlapping

An interruption before the entry leaves logs that the sweep of a later service recognizes by their
term; after the entry, segments without a manifest, which are read from their start until a service
writes the manifest.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO, Final

import crc32c

from sparklog.common import TopicPartition
from sparklog.diskless.entries import MergeRecord, ObjectKey
from sparklog.diskless.extent_objects import ExtentObjects
from sparklog.diskless.extents import Extent, Extents, find, segment_extent
from sparklog.diskless.merge_plan import Merge
from sparklog.diskless.merge_source import Slice, SourceData, SourceReader, cut
from sparklog.diskless.names import Level, level_of, segment_id
from sparklog.diskless.segments import DisklessSegments, partition_state
from sparklog.diskless.service_log import ConflictError, NewEntry, ServiceLog
from sparklog.diskless.state import DisklessState, term_lost
from sparklog.errors import CommitUnknownError, DataCorruptionError, SparklogError
from sparklog.format.index import RELATIVE_MAX, TIME_ENTRY, TXN_ENTRY, parse_entries
from sparklog.format.producer_snapshot import format_snapshot
from sparklog.log.batch_windows import WINDOW_BYTES
from sparklog.log.cleaner_options import Throttle, unthrottled
from sparklog.storage.leader_epochs import clipped
from sparklog.storage.segment_store import LogSegmentData, SegmentPut, SourceChangedError
from sparklog.storage.segments import StaleReadError
from sparklog.tiered.copying.rewritten_log import RewrittenData
from sparklog.tiered.copying.segment_objects import LogObject, look_at_log, put_log
from sparklog.tiered.encryption.envelope import open_data_key
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.layout.manifest import log_object
from sparklog.tiered.reading.block_cache import BlockCache
from sparklog.tiered.reading.remote_objects import RemoteObjects
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState

_LOGGER: Final = logging.getLogger("sparklog.service")


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of a merge: `segments` replace `sources` since entry `number`."""

    key: TopicPartition
    topic_id: str
    number: int
    sources: Extents
    segments: tuple[RemoteSegment, ...]
    stored_bytes: int


@dataclass(slots=True)
class RewrittenSegment:
    """A segment that a rewrite has left in a temporary file, before its upload.

    Attributes:
        file: The log of the segment.
        base: The first offset.
        end: The offset after the last record.
        size: The size of the log in bytes.
        aborted: The transaction index.
        snapshot: The producer snapshot at the end.
    """

    file: IO[bytes]
    base: int
    end: int
    size: int = 0
    aborted: bytes = b""
    snapshot: bytes = b""


class Merger:
    """Creates segments of a log from extents. Not thread-safe.

    Each call may be interrupted at any point.

    Args:
        term: Returns the service's term, or 0 without a service.
        check: Called before each step. An error that it raises (a lost lease) ends the work.
    """

    def __init__(
        self,
        log: ServiceLog,
        *,
        term: Callable[[], int],
        keyring: Keyring | None = None,
        throttle: Throttle = unthrottled,
        check: Callable[[], None] = lambda: None,
        threads: int = 1,
    ) -> None:
        self._log, self._term, self._keyring = log, term, keyring
        self._throttle, self._check, self._threads = throttle, check, threads
        self.manifested: set[str] = set()
        """Ids of the segments whose manifests this object has written."""

    @property
    def term(self) -> int:
        """The term of new merges."""
        return self._term()

    def without_lease(self) -> "Merger":
        """Return a merger for a process that is not the service.

        Like a writer's merges, its merges are void after a service has taken over.
        """
        return Merger(
            self._log, term=lambda: self._log.state.term, keyring=self._keyring,
            threads=self._threads,
        )  # fmt: skip

    def reader(self, state: DisklessState, wanted: Sequence[Extent] = ()) -> SourceReader:
        """Return a reader for extents of `state`.

        Args:
            state: The state with the data keys of encrypted objects.
            wanted: The extents that will be read. Ranges that are close together are fetched by a
                single request.
        """
        entries = self._log.commits.head.entries.cache
        reader = SourceReader(self._log.store, state.keys, self._keyring, entries)
        pieces = [each for each in wanted if not each.segment and not each.pieces]
        reader.objects.plan(map(reader.stored, pieces))
        return reader

    def segments(self, key: TopicPartition, state: DisklessState) -> DisklessSegments:
        """Return the segments of a partition in `state`, for their indexes."""
        known, store = state, self._log.store

        def follow() -> None:
            nonlocal known
            known = self._log.follow()

        objects = ExtentObjects(RemoteObjects(lambda: store, BlockCache(0), self._keyring))
        return DisklessSegments(
            f"{store.url}/{key}", key, self._log.log_id, objects,
            lambda: partition_state(known, key), follow,
        )  # fmt: skip

    def merge(
        self, merge: Merge, state: DisklessState, reader: SourceReader | None = None
    ) -> Merged:
        """Run a merge that was planned on `state`.

        Cost: each byte is read and written once; a few MiB of memory.

        Raises:
            ConflictError: The extents don't exist any more.
            SourceChangedError: Their objects were deleted.
            DataCorruptionError: They are damaged.
            StorageUnavailableError: The store does not answer, or refuses the request.
            LeaseLostError: Another process has taken over the lease.
        """
        reader = reader or self.reader(state)
        term = self._term()
        parts = self._segments(merge, reader)
        made = self.write(self._put(merge, slices, state, reader, term) for slices in parts)
        return self.swap(merge, made, term=term)

    def replace(
        self,
        merge: Merge,
        originals: Extents,
        state: DisklessState,
        reader: SourceReader,
        *,
        crc: int | None = None,
    ) -> Merged:
        """Make segments from other extents with the same offsets, to replace a merge's sources.

        Args:
            merge: The merge, with the extents to replace as `sources`.
            originals: The extents to read.
            state: The state on which the merge was planned.
            reader: The reader for `originals`.
            crc: The CRC-32C of the log, if there is a single segment and its checksum is known.

        Raises the errors of `merge`.

        Raises:
            DataCorruptionError: The CRC of the log is not `crc`.
        """
        term = self._term()
        parts = self._segments(replace(merge, sources=originals), reader)
        made = self.write(self._put(merge, slices, state, reader, term) for slices in parts)
        if crc is not None and [log.crc32c for log in made] != [crc]:
            self._discard(made)
            raise DataCorruptionError(
                "the CRC-32C of the sources differs from the CRC-32C of the merged segment",
                path=f"{self._log.store.url}/{merge.sources[0].object}",
                first=merge.sources[0].base, end=merge.sources[-1].end,
            )  # fmt: skip
        return self.swap(merge, made, term=term)

    def write(self, logs: Iterable[LogObject]) -> list[LogObject]:
        """Collect the logs that the iterator `logs` writes; after an error delete these logs."""
        made: list[LogObject] = []
        try:
            made.extend(logs)
        except (SparklogError, OSError):
            self._discard(made)
            raise
        return made

    def swap(
        self, merge: Merge, made: Sequence[LogObject], *, term: int, gaps: bool = False
    ) -> Merged:
        """Create the ledger entry that replaces a merge's sources, then write the manifests.

        Args:
            merge: The merge with the extents to replace.
            made: The logs of the new segments, which are already written.
            term: The service's term. If the log has another term, the merge fails.
            gaps: Whether offsets may be missing in the partition from now on.

        Raises the errors of `merge`.
        """
        record = MergeRecord(
            term=term, topic=merge.key.topic, topic_id=merge.topic_id,
            partition=merge.key.partition, gaps=gaps,
            sources=tuple(extent.place for extent in merge.sources),
        )  # fmt: skip
        extents = tuple((merge.key, segment_extent(log.put.segment, log.crc32c)) for log in made)
        keys = {
            log_object(log.put.segment): ObjectKey(
                log.put.segment.id, log.wrapped, log.put.segment.size
            )
            for log in made
            if log.wrapped is not None
        }

        def decide(now: DisklessState) -> NewEntry:
            # Another service has taken over. Its sweep deletes segments of earlier terms, including
            # the segments of this merge.
            if now.term != term:
                raise term_lost(now, term)
            topic = now.log.topics.get(merge.key.topic)
            known = now.extents.get(merge.key, ())
            if topic is None or topic.id != merge.topic_id or find(known, record.sources) < 0:
                raise ConflictError(f"{merge.key}: the extents changed during the merge")
            return NewEntry(record=record, extents=extents, keys=keys)

        try:
            self._check()
            number, entry = self._log.create(decide)
        except (CommitUnknownError, DataCorruptionError):
            raise  # keep the logs: the entry may exist, or be created later
        except SparklogError:
            self._discard(made)
            raise
        # After the entry: readers of manifests alone must never see records before their commit.
        for log in made:
            self.put_manifest(log, entry.record.time_ms)
        stored = sum(log.stored_size for log in made)
        segments = tuple(log.put.segment for log in made)
        return Merged(merge.key, merge.topic_id, number, merge.sources, segments, stored)

    def put_manifest(self, made: LogObject, time_ms: int) -> None:
        """Write the manifest of a segment. `time_ms` is the time of the entry that committed it."""
        self._check()
        manifest, raw = made.manifest(time_ms)
        self._log.store.put(manifest.name, raw)
        self.manifested.add(manifest.segment.id)

    def make_manifest(
        self, key: TopicPartition, extent: Extent, state: DisklessState
    ) -> RemoteSegment:
        """Write the missing manifest of a segment, after reading the segment's log.

        Cost: a pass over the log.
        Raises the errors of `merge`.
        """
        assert extent.segment
        time_ms = self._log.time_of(extent.born)
        put = self._planned(key, (Slice.of(extent),), extent.segment, state, self.reader(state))
        made = self._look_at(put, state)
        self.put_manifest(made, time_ms)
        return put.segment

    def _look_at(self, put: SegmentPut[RemoteSegment], state: DisklessState) -> LogObject:
        """Read an existing log, and return the indexes and checksums that its manifest needs.

        `put_log` collects the same facts while it writes a log.
        """
        made = look_at_log(put, throttle=self._throttle, check=self._check)
        sealed = state.keys.get(log_object(put.segment))
        if sealed is None:
            return made
        assert self._keyring is not None  # the log was just decrypted with it
        key = open_data_key(self._keyring, sealed.id, sealed.wrapped)
        stored_size = key.stored_size(put.segment.size)
        crc = at = 0
        while at < stored_size:
            self._check()
            end = min(at + WINDOW_BYTES, stored_size)
            data = self._log.store.get(log_object(put.segment), at, end)
            crc, at = crc32c.crc32c(data, crc), end
        return replace(
            made, key=key, wrapped=sealed.wrapped, stored_size=stored_size, stored_crc32c=crc
        )

    def _put(
        self,
        merge: Merge,
        slices: tuple[Slice, ...],
        state: DisklessState,
        reader: SourceReader,
        term: int,
    ) -> LogObject:
        new_id = segment_id(term, merge.level)
        put = self._planned(merge.key, slices, new_id, state, reader)
        made = put_log(
            self._log.store, put, keyring=self._keyring, throttle=self._throttle, check=self._check
        )
        return made if slices[0].size == slices[0].extent.size else _measured(made)

    def _planned(
        self,
        key: TopicPartition,
        slices: tuple[Slice, ...],
        new_id: str,
        state: DisklessState,
        reader: SourceReader,
    ) -> SegmentPut[RemoteSegment]:
        """Return the description of the segment that is made from consecutive slices of extents."""
        base, end = slices[0].base, slices[-1].end
        lineage = tuple(clipped(list(state.epochs.get(key, ())), end=end))
        where = f"{self._log.store.url}/{key}"
        extents = dict.fromkeys(each.extent for each in slices)
        aborted, snapshot = self.transactions(key, state, tuple(extents), base, end)
        data = SourceData(where, slices, reader, lineage, snapshot, self._threads, aborted)
        segment = slices[0].extent._replace(
            base=base, end=end, size=sum(each.size for each in slices), segment=new_id,
            max_timestamp=max(each.extent.max_timestamp for each in slices),
        )  # fmt: skip
        return _segment_put(key, data, state, segment)

    def transactions(
        self, key: TopicPartition, state: DisklessState, extents: Extents, base: int, end: int
    ) -> tuple[bytes, bytes]:
        """Return the aborted transactions and the producers of a segment with offsets [base, end).

        The batches of the segment must be the same as in `extents`.

        Cost: the manifests of extents that may contain transactions; a pass over the extents
        without a manifest.

        Returns:
            (index of aborted transactions, producer snapshot at `end`).
        """
        foreign = may_hold_transactions(extents, state)
        if not foreign or key not in state.log.idempotent:
            return b"", snapshot_at(state, key, end)
        segments = self.segments(key, state)
        try:
            raw = b"".join(segments.transactions(extent.base) for extent in foreign)
            producers = segments.producers_at(end)
        except StaleReadError as error:
            raise SourceChangedError(str(error), path=segments.where) from error
        entries = parse_entries(raw, TXN_ENTRY, path=segments.where)
        markers = entries["last_offset"]
        aborted = entries[(markers >= base) & (markers < end)].tobytes()
        return aborted, format_snapshot(producers.entries())

    def put_rewritten(
        self, merge: Merge, made: RewrittenSegment, state: DisklessState, *, term: int
    ) -> LogObject:
        """Write the log of a rewritten segment that will replace a merge's sources.

        Raises the errors of `merge`.

        Args:
            term: The same that `swap` will get; if a log's id has another term than its entry, a
                sweep may delete it before the entry is created.
        """
        lineage = tuple(clipped(list(state.epochs.get(merge.key, ())), end=made.end))
        where = f"{self._log.store.url}/{merge.key}"
        data = RewrittenData(where, made.file, made.size, lineage, made.snapshot, made.aborted)
        segment = merge.sources[0]._replace(
            base=made.base, end=made.end, size=made.size, max_timestamp=-1,
            segment=segment_id(term, merge.level),
        )  # fmt: skip
        put = _segment_put(merge.key, data, state, segment)
        return _measured(
            put_log(
                self._log.store,
                put,
                keyring=self._keyring,
                throttle=self._throttle,
                check=self._check,
            )
        )

    def _segments(self, merge: Merge, reader: SourceReader) -> Iterator[tuple[Slice, ...]]:
        """Yield the slices of each new segment: small sources share one, large ones are cut."""
        path, size_max = f"{self._log.store.url}/{merge.key}", merge.config.roll_bytes
        pieces = [piece for extent in merge.sources for piece in reader.pieces(extent)]
        group: list[Slice] = []
        for piece in pieces:
            is_large = piece.size > size_max
            for part in cut(piece, size_max, reader, path) if is_large else [Slice.of(piece)]:
                self._check()
                if group and not _fits(group, part, size_max):
                    yield tuple(group)
                    group = []
                group.append(part)
        yield tuple(group)

    def _discard(self, made: Sequence[LogObject]) -> None:
        """Delete logs that no entry refers to, and never will."""
        try:
            self._log.store.delete([log_object(log.put.segment) for log in made])
        except SparklogError as error:
            _LOGGER.info("the logs of a failed merge remain until the next sweep: %s", error)


def _segment_put(
    key: TopicPartition, data: LogSegmentData, state: DisklessState, extent: Extent
) -> SegmentPut[RemoteSegment]:
    """Return the description of a segment's upload.

    If the state has no leader epochs for the partition, the segment gets the extent's epoch.
    """
    topic = state.log.topics[key.topic]
    lineage = clipped(list(state.epochs.get(key, ())), end=extent.end)
    config = topic.parsed()
    segment = RemoteSegment(
        topic=key.topic,
        topic_id=topic.id,
        partition=key.partition,
        id=extent.segment,
        base=extent.base,
        end=extent.end,
        max_timestamp=extent.max_timestamp,
        size=extent.size,
        epochs=tuple(clipped(lineage, start=extent.base)) or ((extent.epoch, extent.base),),
        state=SegmentState.COPY_STARTED,
        time_ms=0,
        has_txn_index=bool(data.transaction_index()),
    )
    return SegmentPut(
        segment=segment,
        data=data,
        config=config.to_dict(),
        interval_bytes=config.index_interval_bytes,
        gaps=key in state.gaps or config.compact,
    )


def _fits(group: Sequence[Slice], part: Slice, size_max: int) -> bool:
    """Return True if a segment may contain another slice."""
    size = sum(each.size for each in group) + part.size
    return size <= size_max and part.end - group[0].base <= RELATIVE_MAX


def snapshot_at(state: DisklessState, key: TopicPartition, end: int) -> bytes:
    """Return a snapshot of the producers with their last batch below `end`.

    The newest state contains producers that have written later.
    """
    producers = state.producers.get(key)
    entries = () if producers is None else producers.entries()
    return format_snapshot(entry for entry in entries if entry.last_offset < end)


def may_hold_transactions(extents: Extents, state: DisklessState) -> list[Extent]:
    """Return the extents that may contain a broker's transactions: its segments, rewritten or not.

    Commits to this log contain no transactions, and neither do segments that were merged only from
    such commits.
    """
    return [
        extent
        for extent in extents
        if extent.segment and level_of(extent.segment, term=state.term) is not Level.PIECES
    ]


def _measured(made: LogObject) -> LogObject:
    """Return the log with the largest timestamp in its time index as the segment's.

    The extent's largest timestamp may belong to a removed record, or to another part of an extent
    that was split.
    """
    times = parse_entries(made.parts[".timeindex"], TIME_ENTRY, path=made.put.data.where)
    latest = int(times["timestamp"][-1]) if len(times) else -1
    segment = replace(made.put.segment, max_timestamp=latest)
    return replace(made, put=replace(made.put, segment=segment))
