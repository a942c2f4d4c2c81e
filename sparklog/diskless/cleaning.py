"""Compaction of a log in a bucket: the newest record of each key remains.

The same rules as in log dirs choose the dirty segments (`sparklog.diskless.compacted_partitions`)
and the records to remove (`sparklog.log.record_cleaning`). The cleaned segments replace the old
segments by a ledger entry, as in a merge. The entry has no effect if an old segment was removed in
the meantime. The service's heartbeat stores the first dirty offset of each partition, as a hint for
the next service.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from tempfile import SpooledTemporaryFile
from typing import IO, Final

import crc32c

from sparklog.clock import monotonic_ms
from sparklog.diskless.compacted_partitions import CompactedPartition, compacted_partitions
from sparklog.diskless.extents import Extent, Extents
from sparklog.diskless.garbage import Garbage
from sparklog.diskless.lease import TermLease
from sparklog.diskless.merge_plan import Merge, grouped
from sparklog.diskless.merge_source import Slice, SourceLog, SourceReader
from sparklog.diskless.merging import Merger, RewrittenSegment, may_hold_transactions, snapshot_at
from sparklog.diskless.names import Level
from sparklog.diskless.options import UpkeepOptions
from sparklog.diskless.service_log import ConflictError, ServiceLog
from sparklog.diskless.state import DisklessState
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.format.compaction import OffsetMap
from sparklog.format.producer_snapshot import format_snapshot
from sparklog.format.scan import scan
from sparklog.log.batch_windows import Window, first_timestamp, marker_reader
from sparklog.log.cleaned_transactions import AbortedEntries, CleanedTransactions
from sparklog.log.cleaner_options import CleanerOptions, Throttle, unthrottled
from sparklog.log.dirty_ratio import within
from sparklog.log.producer_state import ProducerState
from sparklog.log.record_cleaning import (
    WindowFilter,
    build_offset_map,
    has_transactions,
    transactional,
    with_aborted,
)
from sparklog.log.rounds import QuarantinedPartitions
from sparklog.storage.round_report import CleanReport, Report
from sparklog.storage.segment_store import SourceChangedError
from sparklog.storage.segments import StaleReadError
from sparklog.storage.topic_state import TopicState
from sparklog.tiered.copying.rewritten_log import intact_windows
from sparklog.tiered.layout.manifest import log_object

_LOGGER: Final = logging.getLogger("sparklog.service")
_IN_MEMORY: Final = 32 << 20  # maximum bytes of a segment in memory; larger segments go to a file


class DisklessCleaner:
    """The cleaner of a log in a bucket: `sparklog.log.rounds.CleanerSteps`. Not thread-safe."""

    def __init__(
        self,
        log: ServiceLog,
        lease: TermLease,
        merger: Merger,
        garbage: Garbage,
        quarantined: QuarantinedPartitions,
        options: UpkeepOptions,
        *,
        throttle: Throttle = unthrottled,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._log, self._lease, self._merger, self._garbage = log, lease, merger, garbage
        self._quarantined, self._options, self._throttle = quarantined, options, throttle
        self._check = check
        self._state = log.state

    def compacted(self, now_ms: int) -> list[CompactedPartition]:
        """Return the compacted partitions with their dirty ratios."""
        self._state = self._log.follow()
        reader = self._merger.reader(self._state)
        return list(
            compacted_partitions(
                self._state, self._lease.notes.cleaned, now_ms=now_ms, time_of=self._log.time_of,
                earliest=lambda e: first_timestamp(SourceLog(e.object, [Slice.of(e)], reader)),
            )
        )  # fmt: skip

    def topics(self) -> Mapping[str, TopicState]:
        """Return the topics."""
        return self._state.log.topics

    def clean(self, partitions: Sequence[CompactedPartition], report: Report) -> None:
        """Clean partitions that the last call of `compacted` returned.

        Raises:
            StorageUnavailableError: The store does not answer, or refuses the request.
            LeaseLostError: Another process has taken over the lease.
        """
        for part in partitions:
            cleaned = CleanReport(topic=part.topic, partition=part.partition, dirt=part.dirt)
            try:
                self._clean(part, self._state, report.time_ms, cleaned)
            except (ConflictError, SourceChangedError, StaleReadError) as error:
                cleaned.interrupted = True
                _LOGGER.info("%s: %s", part.key, error)
            except (DataCorruptionError, InvalidRequestError) as error:
                self._quarantined.add(part.key, part.topic_id, error, report)
                continue
            report.cleaned.append(cleaned)

    # --- one partition -------------------------------------------------------------------------

    def _clean(
        self, part: CompactedPartition, state: DisklessState, now_ms: int, report: CleanReport
    ) -> None:
        began = monotonic_ms()
        cleaning = _Cleaning(self, part, state, self._merger, now_ms)
        offsets = cleaning.build_map(self._options.cleaner)
        rewriter = _Rewriter(cleaning, offsets)
        cleaned = [e for e in part.closed if e.base <= offsets.latest]
        for group in grouped(cleaned, part.config):
            self._check()
            with SpooledTemporaryFile(_IN_MEMORY) as file:
                made = rewriter.rewrite(group, file)
                size = made.segment.size
                report.add_group([extent.size for extent in group], size, made.records)
                # A segment that lost nothing keeps its object: no entry, no upload, no garbage.
                if not made.is_same:
                    self._swap(part, group, made.segment, state, now_ms)
        report.keys, report.utilization = len(offsets), offsets.utilization
        report.next_dirty = offsets.latest + 1
        self._lease.notes.cleaned[part.note] = offsets.latest + 1
        report.took_ms = monotonic_ms() - began

    def windows(self, extent: Extent, reader: SourceReader) -> Iterator[tuple[Window, str]]:
        """Yield (window, URL of the object): consecutive batches of a segment, with bounded memory.

        Raises:
            DataCorruptionError: The segment is incomplete.
            InvalidRequestError: The segment contains batches of magic 0 or 1.
        """
        path = f"{self._log.store.url}/{extent.object}"
        for window in intact_windows(SourceLog(path, [Slice.of(extent)], reader)):
            self._check()
            self._throttle(len(window.data))
            if int(window.batches.table["magic"].min()) < 2:
                raise InvalidRequestError(
                    f"{path} contains record batches of magic 0 or 1, which sparklog can't "
                    "compact: let a broker before 4.0 compact the topic, or copy its records "
                    "to a new topic"
                )
            yield window, path

    def _swap(
        self,
        part: CompactedPartition,
        group: Extents,
        made: RewrittenSegment,
        state: DisklessState,
        now_ms: int,
    ) -> None:
        term = self._lease.term
        merge = Merge(part.key, part.topic_id, part.config, group, Level.CLEANED, "compaction")
        log = self._merger.put_rewritten(merge, made, state, term=term)
        # Removed records leave offsets without records; without `gaps` readers would report damage.
        done = self._merger.swap(merge, [log], term=term, gaps=True)
        self._garbage.schedule_deletion(
            part.key, part.topic_id, group, kind="replaced", now_ms=now_ms,
            made=map(log_object, done.segments),
        )  # fmt: skip


class _Cleaning:
    """Reads the segments of a partition for a single cleaning."""

    def __init__(
        self,
        cleaner: DisklessCleaner,
        part: CompactedPartition,
        state: DisklessState,
        merger: Merger,
        now_ms: int,
    ) -> None:
        self.part, self.state, self.now_ms = part, state, now_ms
        self._cleaner, self._reader = cleaner, merger.reader(state)
        self.segments = merger.segments(part.key, state)
        self._aborted = AbortedEntries(
            self.segments,
            [each.base for each in may_hold_transactions(part.closed, state)],
            log_start=state.log.starts.get(part.key, 0),
        )

    @property
    def producers(self) -> dict[int, tuple[int, int]]:
        """The active producers: {id: (last offset or -1, epoch)}."""
        known = self.state.producers.get(self.part.key)
        entries = () if known is None else known.entries()
        return {e.producer_id: (e.last_offset, e.producer_epoch) for e in entries}

    def build_map(self, options: CleanerOptions) -> OffsetMap:
        """Return the offset map: the newest offset of each key in the dirty segments."""
        dirt, transactions = self.part.dirt, CleanedTransactions()
        dirty = within(self.part.closed, dirt.first_dirty, dirt.first_uncleanable)
        segments = ((extent.end, self.windows(extent, transactions)) for extent in dirty)
        return build_offset_map(options, segments, transactions, dirt.first_dirty)

    def windows(
        self, extent: Extent, transactions: CleanedTransactions
    ) -> Iterator[tuple[Window, str]]:
        """Yield (window, URL of the object): consecutive batches of a segment.

        The segment's aborted transactions are added to `transactions`.
        """
        windows = self._cleaner.windows(extent, self._reader)
        aborted = partial(self._aborted.touching, extent.base, extent.end)
        return with_aborted(windows, transactions, aborted)


@dataclass(frozen=True, slots=True)
class _Rewritten:
    """A cleaned segment. `records` is (number of records read, number of records retained)."""

    segment: RewrittenSegment
    records: tuple[int, int]
    is_same: bool


class _Rewriter:
    """Rewrites the segments of a partition, each group of adjacent extents to a single segment.

    The offset map and the transactions that are open at the end of a group are used for the next
    group as well.
    """

    def __init__(self, cleaning: _Cleaning, offsets: OffsetMap) -> None:
        self._cleaning, self._offsets = cleaning, offsets
        self._transactions = CleanedTransactions()
        self._kept = ProducerState(0)  # producers of the remaining transactional batches
        self._producers = cleaning.producers

    def rewrite(self, group: Extents, file: IO[bytes]) -> _Rewritten:
        """Write the remaining batches of a group to `file`."""
        part, now_ms = self._cleaning.part, self._cleaning.now_ms
        window_filter = WindowFilter(
            self._offsets,
            self._transactions,
            now_ms=now_ms,
            delete_retention_ms=part.config.delete_retention_ms,
            first_uncleanable=part.dirt.first_uncleanable,
            producers=self._producers,
        )
        size = crc = 0
        for extent in group:
            for window, path in self._cleaning.windows(extent, self._transactions):
                is_marked = has_transactions(window.batches.table)
                for piece in window_filter.filter(window, path):
                    data = piece.out[: piece.size]
                    file.write(data)
                    size, crc = size + piece.size, crc32c.crc32c(data, crc)
                    if is_marked:
                        self._keep(data, path)
        aborted = self._transactions.take_index()
        is_same = len(group) == 1 and size == group[0].size
        is_same = is_same and (not window_filter.rewritten or crc == group[0].crc)
        snapshot = b"" if is_same else self._snapshot(group[-1])
        segment = RewrittenSegment(file, group[0].base, group[-1].end, size, aborted, snapshot)
        return _Rewritten(segment, window_filter.records, is_same)

    def _keep(self, data: memoryview, path: str) -> None:
        window = Window(data, 0, scan(data, path=path, check_crc=False))
        table = window.batches.table
        self._kept.apply(table[transactional(table)], marker_reader(window, path))

    def _snapshot(self, last: Extent) -> bytes:
        """Return the producer snapshot at the end of the segment that replaces a group of extents.

        `last` is the last extent of the group. A transaction is listed as open only if batches of
        it remain after the cleaning. The next cleaning may remove the markers of all other
        transactions.
        """
        key, state, end = self._cleaning.part.key, self._cleaning.state, last.end
        if key not in state.log.idempotent or not may_hold_transactions((last,), state):
            return snapshot_at(state, key, end)
        firsts = {producer: first for first, producer in self._kept.open_txns.items()}
        return format_snapshot(
            replace(entry, current_txn_first_offset=firsts.get(entry.producer_id, -1))
            for entry in self._cleaning.segments.producers_at(end).entries()
        )
