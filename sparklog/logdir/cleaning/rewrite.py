"""Rewrites segments without the lock: builds the offset map, then a `.cleaned` segment per group.

Takes no lock and does not change the log: it reads closed segments and writes files that recovery
deletes. So it can run in a thread, or in a task on this host.
Source: Cleaner.buildOffsetMap, cleanSegments, cleanInto (Kafka 4.1).
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from sparklog.format.compaction import OffsetMap
from sparklog.format.names import CLEANED, OFFSET_MAX, log_name
from sparklog.fs import FileSystem
from sparklog.log.batch_windows import walk
from sparklog.log.cleaned_transactions import AbortedEntries, AbortedEntry, CleanedTransactions
from sparklog.log.cleaner_options import Throttle, unthrottled
from sparklog.log.dirty_ratio import within
from sparklog.log.record_cleaning import WindowFilter, Windows, build_offset_map, with_aborted
from sparklog.logdir.cleaning.cleaned_segment import (
    CleanedSegment,
    remove_cleaned,
    segment_windows,
)
from sparklog.logdir.cleaning.plan import CleanJob, Segment, grouped
from sparklog.logdir.partition.indexes import hint
from sparklog.logdir.partition.partition_segments import LogDirSegments
from sparklog.logdir.partition.segment_swap import SegmentSwap, remove_made
from sparklog.logdir.segment_files import joined


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """A new segment in `.cleaned` files, which replaces a group of segments; can be pickled.

    Attributes:
        base: The base offset.
        end: The offset after the last record, or `base` if the new segment is empty.
        size: The size of the new `.log` file in bytes.
        sources: The segments of the group.
        identity: The device and inode of the new `.log` file.
        parts: The names of the new index files, without the suffix `.cleaned`.
        is_same: The group has a single segment, and the rewrite left its batches unchanged.
        records_read: The number of records in the group.
        records_kept: The number of records in the new segment.
        next_dirty: The first offset that is still dirty after all groups of the job.
        keys: The number of keys in the cleaner's offset map.
        utilization: The used share of the offset map.
    """

    base: int
    end: int
    size: int
    sources: tuple[Segment, ...]
    identity: tuple[int, int]
    parts: tuple[str, ...]
    is_same: bool
    records_read: int
    records_kept: int
    next_dirty: int
    keys: int
    utilization: float


def rewrite(fs: FileSystem, job: CleanJob, throttle: Throttle = unthrottled) -> Iterator[Rewritten]:
    """Rewrite a job's groups of segments, and yield the new segment of each group.

    The caller may swap in a segment before it requests the next. Cost: reads the dirty part once
    and all segments up to its end once more, including CRCs.

    Raises:
        DataCorruptionError: A source is damaged.
        InvalidRequestError: A source contains batches of magic 0 or 1. After both errors, the files
            of the current group are removed, and the log is unchanged.
    """
    remove_cleaned(fs, job.directory)
    segments = LogDirSegments(fs, job.directory)
    aborted = AbortedEntries(segments, job.bases, log_start=job.log_start)
    offsets = build_map(fs, job, aborted, throttle)
    rewriter = _Rewriter(fs, job, offsets, aborted, throttle)
    for group in grouped(fs, job, offsets.latest + 1):
        yield rewriter.rewrite(group)


def build_map(
    fs: FileSystem, job: CleanJob, aborted: AbortedEntries, throttle: Throttle
) -> OffsetMap:
    """Return the newest offset of each key in the dirty part, as far as the map's memory allows."""
    first, end = job.dirt.first_dirty, job.dirt.first_uncleanable
    transactions = CleanedTransactions()
    dirty = within(job.segments, first, end)

    def segments() -> Iterator[tuple[int, Windows]]:
        for at, segment in enumerate(dirty):
            following = dirty[at + 1].base if at + 1 < len(dirty) else end
            windows = segment_windows(fs, job.directory, segment, job, first, throttle)
            entries = partial(aborted.touching, segment.base, following)
            yield following, with_aborted(windows, transactions, entries)

    return build_offset_map(job.options, segments(), transactions, first)


class _Rewriter:
    """Rewrites a job's groups of segments, one after the other.

    The offset map and the transactions that are open at the current position are shared by all
    groups.
    """

    def __init__(
        self,
        fs: FileSystem,
        job: CleanJob,
        offsets: OffsetMap,
        aborted: AbortedEntries,
        throttle: Throttle,
    ) -> None:
        self.fs, self.job, self.offsets = fs, job, offsets
        self.aborted, self.throttle = aborted, throttle
        self.transactions = CleanedTransactions()

    def rewrite(self, group: Sequence[Segment]) -> Rewritten:
        target = CleanedSegment(
            self.fs, self.job.directory, self.job.config.index_interval_bytes, group
        )
        records_filter = WindowFilter(
            self.offsets,
            self.transactions,
            now_ms=self.job.now_ms,
            delete_retention_ms=self.job.config.delete_retention_ms,
            first_uncleanable=self.job.dirt.first_uncleanable,
            producers=self.job.producers,
        )
        try:
            for at, segment in enumerate(group):
                windows = segment_windows(
                    self.fs, self.job.directory, segment, self.job, 0, self.throttle
                )
                entries = partial(self._aborted_in, group, at)
                for window, path in with_aborted(windows, self.transactions, entries):
                    for piece in records_filter.filter(window, path):
                        target.write(piece.out[: piece.size])
                        self.throttle(piece.size)
            parts = target.finish(self.transactions.take_index())
        except BaseException:  # also at Ctrl-C: the files would stay until the next rewrite
            target.discard()
            raise
        read, kept = records_filter.records
        return Rewritten(
            base=target.base,
            end=target.end,
            size=target.size,
            sources=tuple(group),
            identity=target.identity,
            parts=parts,
            is_same=len(group) == 1
            and target.size == group[0].size
            and not records_filter.rewritten,
            records_read=read,
            records_kept=kept,
            next_dirty=self.offsets.latest + 1,
            keys=len(self.offsets),
            utilization=self.offsets.utilization,
        )

    def _aborted_in(self, group: Sequence[Segment], at: int) -> list[AbortedEntry]:
        """Return the aborted transactions that touch the segment with index `at` of a group."""
        is_last = at + 1 == len(group)
        end = self._next_offset(group[at]) if is_last else group[at + 1].base
        return self.aborted.touching(group[at].base, end)

    def _next_offset(self, segment: Segment) -> int:
        """Return the offset after a segment's last batch. Source: LogSegment.readNextOffset."""
        fs, directory, end = self.fs, self.job.directory, segment.base
        with fs.open(joined(directory, log_name(segment.base))) as file:
            start = hint(fs, directory, segment.base, file, OFFSET_MAX - 1)
            for window in walk(file, start=start, limit=segment.size, check_crc=False):
                if len(window.batches):
                    end = int(window.batches.table["last_offset"][-1]) + 1
        return end


def swap_of(made: Rewritten) -> SegmentSwap:
    """Return the swap that replaces the sources by the new segment, for the lock file's intent.

    Another process completes an interrupted swap by this description.
    """
    # The first source has the base of the new segment: the swap's rename replaces it, so it is in
    # neither list.
    others = [source.base for source in made.sources[1:]]
    return SegmentSwap(
        base=made.base,
        parts=tuple(made.parts),
        log=made.identity,
        covered=tuple(base for base in others if base < made.end),
        trailing=tuple(base for base in others if base >= made.end),
    )


def is_possible(fs: FileSystem, directory: str, made: Rewritten) -> bool:
    """Return True if a new segment can still be swapped in.

    Its sources must be unchanged since they were read, and its `.cleaned` files must exist.
    """
    try:
        for source in made.sources:
            path = joined(directory, log_name(source.base))
            # The size too: a file system may give the inode of a deleted file to a new file.
            if fs.identity(path) != source.identity or fs.size(path) != source.size:
                return False
        log = joined(directory, log_name(made.base) + CLEANED)
        if fs.identity(log) != made.identity or fs.size(log) != made.size:
            return False
    except FileNotFoundError:
        return False
    return all(fs.exists(joined(directory, name + CLEANED)) for name in made.parts)


def discard(fs: FileSystem, directory: str, made: Rewritten) -> None:
    """Remove the `.cleaned` files of a new segment that won't be swapped in. Needs no lock.

    Files that another process has written meanwhile under the same names stay.
    """
    with contextlib.suppress(FileNotFoundError):
        if fs.identity(joined(directory, log_name(made.base) + CLEANED)) == made.identity:
            remove_made(fs, directory, made.base, made.parts, CLEANED)
