"""The segments of a partition, for the erasure of records by a predicate; offsets stay.

The steps of an erasure (`sparklog.log.record_erasure`) are here:

    count     reads the segments, without the lock
    rewrites  if the active segment contains selected records, it is closed first, under the lock
    replace   writes `.cleaned` files without the lock; swaps them in (`partition/segment_swap`)
              under the lock, if the segment is unchanged
    finish    unlinks `.deleted` and `.cleaned` files of the partition, whatever their delay

A cleaner that has read the old segment finds another inode and stops. Records that are committed
after the erasure starts stay.
"""

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError
from sparklog.format.names import CLEANED, DELETED, LOG, log_name
from sparklog.log.batch_windows import Window
from sparklog.log.record_erasure import Rewrite, Tally, WindowEraser
from sparklog.logdir.cleaning.cleaned_segment import (
    CleanedSegment,
    remove_cleaned,
    segment_windows,
)
from sparklog.logdir.cleaning.plan import Segment, list_segments
from sparklog.logdir.cleaning.rewrite import Rewritten, discard, is_possible, swap_of
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.partition.segment_swap import perform
from sparklog.logdir.retention.segment_deletion import roll_if_active
from sparklog.logdir.segment_files import joined
from sparklog.storage.erasure_report import PartitionErasure, RemovedFile
from sparklog.storage.segment_store import SourceChangedError

_LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Partition:
    """A partition's directory, topic id, segments and end offset, as read under the lock."""

    directory: str
    topic_id: str
    segments: list[Segment]
    bases: list[int]
    end: int
    interval_bytes: int


class ErasableSegments:
    """The segments of a partition in a log dir, from which records can be erased.

    A `sparklog.log.record_erasure.ErasableStore`. Cost: all segments are read once, and segments
    with selected records twice; a few MiB of memory.
    """

    kind = "segments"
    changes: tuple[type[Exception], ...] = (SourceChangedError, FileNotFoundError)

    def __init__(self, commits: LogDirCommits, report: PartitionErasure) -> None:
        self._commits, self._report = commits, report
        self._key = TopicPartition(report.topic, report.partition)
        self._partition: _Partition
        self.path = str(self._key)

    def pieces(self) -> list[Segment]:
        """List the segments, the active segment last.

        Raises:
            UnknownTopicError: The partition was deleted.
            DataCorruptionError: The partition is offline.
        """
        self._partition = self._list()
        return self._partition.segments

    def _list(self) -> _Partition:
        commits = self._commits
        with commits.exclusive():
            directory = commits.partition_path(*self._key)
            if self._key in commits.offline:
                raise commits.offline[self._key]
            topic = commits.state.topics[self._key.topic]
            segments = list_segments(commits.fs, directory)
            return _Partition(
                directory, topic.id, segments, [s.base for s in segments],
                commits.state.ends[self._key], topic.parsed().index_interval_bytes,
            )  # fmt: skip

    def report_of(self, piece: Segment) -> PartitionErasure:
        return self._report

    def windows(self, piece: Segment) -> Iterator[tuple[Window, str]]:
        """Yield (window, path) of a segment: blocks of complete batches, and the log file's path.

        Raises:
            DataCorruptionError: The segment is damaged.
            SourceChangedError: The segment was replaced since it was listed.
        """
        try:
            yield from segment_windows(
                self._commits.fs, self._partition.directory, piece, self._partition
            )
        except DataCorruptionError as error:
            if self._is_replaced(piece):
                raise SourceChangedError(str(error), path=error.path) from error
            raise

    def _is_replaced(self, segment: Segment) -> bool:
        """Return True if a closed segment has another size than in the listing.

        In this case it was replaced since, by a cleaner or a move.
        """
        partition = self._partition
        size = self._commits.fs.size(joined(partition.directory, log_name(segment.base)))
        # The active segment grows by commits, so its size proves nothing.
        return segment.base != partition.bases[-1] and size != segment.size

    def rewrites(
        self, hits: Mapping[Segment, Tally], *, dry_run: bool
    ) -> Iterator[Rewrite[Segment]]:
        """Yield the rewrite of each segment in `hits`, the segments with selected records.

        Except in a dry run, an active segment among them is closed first.
        """
        commits, selected = self._commits, [segment.base for segment in hits]
        if not dry_run:
            if selected:
                with commits.exclusive():
                    commits.make_durable()  # commits with flush=none are rewritten too
            # A writer has the active segment open and appends to it, so it can't be replaced.
            active = self._partition.bases[-1]
            if active in selected:
                with commits.exclusive():
                    roll_if_active(commits, self._key, active)
                self._partition = self._list()
            if not set(selected) <= set(self._partition.bases[:-1]):
                raise SourceChangedError("segments to erase from were deleted", path=self.path)
            remove_cleaned(commits.fs, self._partition.directory)
        partition = self._partition
        by_base = {segment.base: segment for segment in partition.segments}
        for base in selected:
            segment, path = by_base[base], joined(partition.directory, log_name(base))
            yield Rewrite(
                pieces=(segment,), report=self._report, place="local", name=path, base=base,
                end=next((b for b in partition.bases if b > base), partition.end),
                size=segment.size, bound=self._report.end,
                links=commits.fs.links(path) - 1 if dry_run else 0,
            )  # fmt: skip

    def replace(self, rewrite: Rewrite[Segment], eraser: WindowEraser) -> int | None:
        """Rewrite a segment and swap the new segment in; return the new size in bytes.

        Returns None if the segment has no records to erase.

        Raises:
            SourceChangedError: The segment was replaced since it was listed.
        """
        fs, partition = self._commits.fs, self._partition
        made = self._rewritten(rewrite.pieces[0], eraser)
        if not eraser.tally.records:
            discard(fs, partition.directory, made)
            return None
        with self._commits.exclusive():
            # While the new segment was written without the lock, the topic may have been deleted
            # and created again, the partition moved, or the segment cleaned.
            topic = self._commits.state.topics.get(self._key.topic)
            possible = (
                topic is not None
                and topic.id == partition.topic_id
                and self._key not in self._commits.offline
                and self._commits.partition_path(*self._key) == partition.directory
                and is_possible(fs, partition.directory, made)
            )
            if possible:
                rewrite.links = fs.links(rewrite.name) - 1
                with self._commits.changing_files(swap=(self._key, swap_of(made))):
                    perform(fs, partition.directory, swap_of(made))
        if not possible:
            discard(fs, partition.directory, made)
            raise SourceChangedError(
                f"{rewrite.name} was replaced while its records were erased", path=rewrite.name
            )
        return made.size

    def _rewritten(self, segment: Segment, eraser: WindowEraser) -> Rewritten:
        directory, interval_bytes = self._partition.directory, self._partition.interval_bytes
        target = CleanedSegment(self._commits.fs, directory, interval_bytes, (segment,))
        try:
            for batches in eraser.remaining(self.windows(segment)):
                target.write(batches)
            parts = target.finish(None)  # aborted transactions are unchanged
        except BaseException:
            target.discard()
            raise
        return Rewritten(
            base=target.base, end=target.end, size=target.size, sources=(segment,),
            identity=target.identity, parts=parts, is_same=False, records_read=0, records_kept=0,
            next_dirty=-1, keys=0, utilization=0,
        )  # fmt: skip

    def finish(self, *, dry_run: bool) -> list[str]:
        """Unlink at once the segment files that retention, compaction or an erasure removed.

        Otherwise these files, which may contain erased records, would remain until
        file.delete.delay.ms is over. Files of unfinished rewrites are also unlinked.

        Args:
            dry_run: Report the files, but unlink none.

        Returns:
            An empty list, because no bytes remain; see `erase_records`.
        """
        fs, directory, report = self._commits.fs, self._partition.directory, self._report
        with self._commits.exclusive():
            for name in fs.listdir(directory):
                if not name.endswith((DELETED, CLEANED)):
                    continue
                path = joined(directory, name)
                size = fs.size(path)
                if not dry_run:
                    fs.unlink(path)
                if name.endswith((LOG + DELETED, LOG + CLEANED)):
                    report.removed.append(
                        RemovedFile(
                            place="local", name=path, bytes=size,
                            why="deleted or compacted before, and not unlinked yet",
                        )
                    )  # fmt: skip
            if not dry_run:
                fs.sync_dir(directory)
        _LOGGER.info(
            "%s: %d records erased from %d segments",
            os.path.basename(directory), report.records, len(report.erased_from),
        )  # fmt: skip
        return []
