"""Compaction of a log in a store: of each key the newest record stays.

Which stretch is dirty (`sparklog.diskless.compacted_partitions`) and which records go is decided
as in every home (`sparklog.log.record_cleaning`). The swap is a merge of one segment or more, void
if they aren't there any more. Up to where a partition is clean goes with the service's sign of
life, as a hint.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from typing import IO, Final

from sparklog.clock import monotonic_ms
from sparklog.diskless.compacted_partitions import CompactedPartition, compacted_partitions
from sparklog.diskless.damaged_partitions import DamagedPartitions
from sparklog.diskless.extents import Extent, Extents
from sparklog.diskless.garbage import Garbage
from sparklog.diskless.lease import TermLease
from sparklog.diskless.merge_plan import Merge, grouped
from sparklog.diskless.merge_source import Slice, SourceLog, SourceReader
from sparklog.diskless.merging import Merger, snapshot_at
from sparklog.diskless.options import UpkeepOptions
from sparklog.diskless.segment_ids import Level
from sparklog.diskless.service_log import ServiceLog, VoidError
from sparklog.diskless.state import DisklessState
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.format.batch import CONTROL, TRANSACTIONAL
from sparklog.format.compaction import OffsetMap
from sparklog.log.batch_windows import Window, walk
from sparklog.log.cleaned_transactions import CleanedTransactions
from sparklog.log.cleaner_options import Throttle, unthrottled
from sparklog.log.dirt import within
from sparklog.log.record_cleaning import WindowFilter, fold_window
from sparklog.storage.leader_epochs import clipped
from sparklog.storage.round_report import Cleanable, CleanReport, Report
from sparklog.storage.segment_store import SourceChangedError
from sparklog.tiered.copying.rewritten_log import RewrittenData
from sparklog.tiered.layout.manifest import log_object

_LOGGER: Final = logging.getLogger("sparklog.service")
_IN_MEMORY: Final = 32 << 20  # bytes of a cleaned segment; what is more goes to a temporary file
_HEAD_BYTES: Final = 4096


class Cleaner:
    """Cleans the compacted topics of one log. One thread uses it at a time."""

    def __init__(
        self,
        log: ServiceLog,
        lease: TermLease,
        merger: Merger,
        garbage: Garbage,
        damaged: DamagedPartitions,
        options: UpkeepOptions,
        *,
        throttle: Throttle = unthrottled,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._log, self._lease, self._merger, self._garbage = log, lease, merger, garbage
        self._damaged, self._options, self._throttle = damaged, options, throttle
        self._check = check
        self.compacted: list[Cleanable] = []
        """How dirty the compacted partitions were when it looked last."""

    def clean(
        self, report: Report, topics: Collection[str] | None = None, *, every: bool = False
    ) -> bool:
        """Clean what is dirty enough, the dirtiest first; tells whether there was something.

        `topics`: only these. `every`: whatever has anything that can be cleaned.
        Raises: StorageUnavailableError, LeaseLostError.
        """
        state = self._log.follow()
        parts = sorted(self._partitions(state, report.time_ms), key=lambda p: -p.dirt.ratio)
        self.compacted = [part.found for part in parts]
        wanted = [
            part
            for part in parts
            if (part.found.wanted or (every and part.dirt.cleanable_bytes))
            and (part.key, part.topic_id) not in self._damaged
            and (topics is None or part.key.topic in topics)
        ]
        for part in wanted:
            cleaned = CleanReport(
                topic=part.key.topic, partition=part.key.partition, dirt=part.dirt,
                dry_run=report.dry_run,
            )  # fmt: skip
            if not report.dry_run:
                try:
                    self._clean(part, state, report.time_ms, cleaned)
                except (VoidError, SourceChangedError) as error:
                    cleaned.interrupted = True
                    _LOGGER.info("%s: %s", part.key, error)
                except (DataCorruptionError, InvalidRequestError) as error:
                    self._damaged.note(part.key, part.topic_id, error, report)
                    continue
            report.cleaned.append(cleaned)
        return bool(wanted)

    # --- what is dirty -------------------------------------------------------------------------

    def _partitions(self, state: DisklessState, now_ms: int) -> Iterator[CompactedPartition]:
        reader = self._merger.reader(state)
        return compacted_partitions(
            state, self._lease.notes.cleaned, now_ms=now_ms, time_of=self._log.time_of,
            earliest=lambda extent: _first_timestamp(extent, reader),
        )  # fmt: skip

    # --- one partition -------------------------------------------------------------------------

    def _clean(
        self, part: CompactedPartition, state: DisklessState, now_ms: int, report: CleanReport
    ) -> None:
        began = monotonic_ms()
        reader = self._merger.reader(state)
        offsets = self._offset_map(part, reader)
        producers = state.producers.get(part.key)
        rewriter = _Rewriter(
            self,
            part,
            reader,
            offsets,
            now_ms,
            {}
            if producers is None
            else {e.producer_id: (e.last_offset, e.producer_epoch) for e in producers.entries()},
        )
        cleaned = [e for e in part.closed if e.base <= offsets.latest]
        for group in grouped(cleaned, part.config):
            self._check()
            with SpooledTemporaryFile(_IN_MEMORY) as file:
                made = rewriter.rewrite(group, file)
                report.groups += 1
                report.segments += len(group)
                report.bytes_before += sum(extent.size for extent in group)
                report.bytes_after += made.size
                report.records_read += made.records[0]
                report.records_kept += made.records[1]
                if not made.is_same:
                    self._swap(part, group, made, state, now_ms)
        report.keys, report.utilization = len(offsets), offsets.utilization
        report.next_dirty = offsets.latest + 1
        self._lease.notes.cleaned[part.note] = offsets.latest + 1
        report.took_ms = monotonic_ms() - began

    def _offset_map(self, part: CompactedPartition, reader: SourceReader) -> OffsetMap:
        """The newest offset of each key of the dirty part, as far as the map's memory goes."""
        options, dirt = self._options.cleaner, part.dirt
        offsets = OffsetMap(options.dedupe_buffer_bytes, options.load_factor)
        dirty = within(part.closed, dirt.first_dirty, dirt.first_uncleanable)
        for extent in dirty:
            for window, path in self.windows(extent, reader):
                if not fold_window(offsets, CleanedTransactions(), window, dirt.first_dirty, path):
                    return offsets
            offsets.skip_to(extent.end - 1)
        return offsets

    def windows(self, extent: Extent, reader: SourceReader) -> Iterator[tuple[Window, str]]:
        """Yield a segment's windows; all of it must be whole, and free of transactions."""
        path, at = f"{self._log.store.url}/{extent.object}", 0
        for window in walk(SourceLog(path, [Slice.of(extent)], reader)):
            self._check()
            self._throttle(len(window.data))
            if window.batches.error is not None:
                raise window.batches.error
            table = window.batches.table
            if len(table):
                if ((table["attributes"] & (CONTROL | TRANSACTIONAL)) != 0).any():
                    raise InvalidRequestError(
                        f"{path} holds transactions, which a broker wrote: a log in a store can't "
                        "compact them; let a broker, or a log dir, compact the topic, and import it"
                    )
                if int(table["magic"].min()) < 2:
                    raise InvalidRequestError(
                        f"{path} holds record batches of magic 0 or 1, which can't be compacted "
                        "here: let a broker before 4.0 compact the topic, or write it anew"
                    )
                yield window, path
            at = window.batches.end
        if at != extent.size:
            raise DataCorruptionError(
                f"it ends in a torn batch, {extent.size} bytes are expected; restore the object "
                "from a copy of the bucket",
                path=path,
                position=at,
            )

    def _swap(
        self,
        part: CompactedPartition,
        group: Extents,
        made: "_Rewritten",
        state: DisklessState,
        now_ms: int,
    ) -> None:
        term = self._lease.term
        merge = Merge(part.key, part.topic_id, part.config, group, Level.CLEANED, "compaction")
        end = group[-1].end
        lineage = tuple(clipped(list(state.epochs.get(part.key, ())), end=end))
        where = f"{self._log.store.url}/{part.key}"
        snapshot = snapshot_at(state, part.key, end)
        data = RewrittenData(where, made.file, made.size, lineage, snapshot)
        log = self._merger.put_rewritten(merge, data, made.size, state, term=term)
        done = self._merger.swap(merge, [log], term=term, gaps=True)
        self._garbage.let_go(
            part.key, part.topic_id, group, kind="replaced", now_ms=now_ms,
            made=map(log_object, done.segments),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Rewritten:
    """A group's new log in a temporary file; `records`: read and kept."""

    file: IO[bytes]
    size: int
    records: tuple[int, int]
    is_same: bool


class _Rewriter:
    """What goes on from group to group: the map, and what is known of producers."""

    def __init__(
        self,
        cleaner: Cleaner,
        part: CompactedPartition,
        reader: SourceReader,
        offsets: OffsetMap,
        now_ms: int,
        producers: dict[int, tuple[int, int]],
    ) -> None:
        self._cleaner, self._part, self._reader = cleaner, part, reader
        self._offsets, self._now_ms, self._producers = offsets, now_ms, producers

    def rewrite(self, group: Sequence[Extent], file: IO[bytes]) -> _Rewritten:
        """Write what stays of a group's batches into `file`."""
        config, dirt = self._part.config, self._part.dirt
        window_filter = WindowFilter(
            self._offsets,
            CleanedTransactions(),
            now_ms=self._now_ms,
            horizon_ms=self._now_ms + config.delete_retention_ms,
            first_uncleanable=dirt.first_uncleanable,
            producers=self._producers,
        )
        size = 0
        for extent in group:
            for window, path in self._cleaner.windows(extent, self._reader):
                for piece in window_filter.filter(window, path):
                    file.write(piece.out[: piece.size])
                    size += piece.size
        is_same = len(group) == 1 and size == group[0].size and not window_filter.rewritten
        return _Rewritten(file, size, window_filter.records, is_same)


def _first_timestamp(extent: Extent, reader: SourceReader) -> int:
    """The largest timestamp (ms) of a segment's first batch; -1 if it holds none."""
    log = SourceLog(extent.object, [Slice.of(extent)], reader)
    for window in walk(log, check_crc=False, window_bytes=_HEAD_BYTES):
        if len(window.batches):
            return int(window.batches.table["max_timestamp"][0])
    return -1
