"""Erases records from a partition's local segments: on demand, by a predicate; offsets stay.

    scan      without the lock: find segments that contain such records
    roll      if the active segment does, close it, under the lock
    rewrite   each segment, without the lock, into `.cleaned` files
    swap      each segment (`partition/segment_swap`), under the lock, if it is unchanged
    unlink    `.deleted` and `.cleaned` files of the partition, whatever their delay

If retention or a cleaner changed a segment in between, the scan starts again. A cleaner that has
read the old segment finds another inode and stops. After a crash, each segment is either the old or
the new file; the same call again finishes. Records that are committed after the scan starts stay.
"""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError, SparklogError
from sparklog.format.erasure import RecordPredicate
from sparklog.format.names import CLEANED, DELETED, LOG, log_name
from sparklog.log.cleaner_options import Throttle, unthrottled
from sparklog.log.record_erasure import Tally, WindowEraser
from sparklog.logdir.cleaning.cleaned_segment import (
    CleanedSegment,
    remove_cleaned,
    segment_windows,
)
from sparklog.logdir.cleaning.plan import Segment, list_segments
from sparklog.logdir.cleaning.rewrite import Rewritten, discard, is_possible, swap_of
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.partition.segment_swap import perform
from sparklog.logdir.retention.idle_rolling import roll_if_active
from sparklog.logdir.segment_files import joined
from sparklog.storage.erasure_report import ErasedFrom, PartitionErasure, RemovedFile

_LOGGER: Final = logging.getLogger(__name__)
_TRIES: Final = 8


@dataclass(frozen=True, slots=True)
class _Partition:
    """A partition's state under the lock."""

    directory: str
    topic_id: str
    segments: list[Segment]
    bases: list[int]
    end: int
    interval_bytes: int


class SegmentEraser:
    """Erases from the local segments of a partition. `until`: the first offset that is not erased.

    `check` is called before each step; an exception from it ends the work there.
    """

    def __init__(
        self,
        commits: LogDirCommits,
        key: TopicPartition,
        predicate: RecordPredicate,
        *,
        until: int | None = None,
        check: Callable[[], None] = lambda: None,
        throttle: Throttle = unthrottled,
    ) -> None:
        """Raises: UnknownTopicError; DataCorruptionError: the partition is offline."""
        self._commits, self._key, self._predicate = commits, key, predicate
        self._check, self._throttle = check, throttle
        place = self._place()
        self._topic_id = place.topic_id
        self.until = place.end if until is None else min(until, place.end)
        """Records below this offset are checked."""

    def run(self, report: PartitionErasure, *, dry_run: bool = False) -> None:
        """Erase, or only count; completed work is in the report even after an error.

        Raises: DataCorruptionError: a segment is damaged; InvalidRequestError: it has magic 0 or 1;
        SparklogError: the segments change too often.
        Cost: reads all segments once, and segments with such records twice; a few MiB of memory.
        """
        for _ in range(_TRIES):
            try:
                if self._make_pass(report, dry_run=dry_run):
                    return
            except FileNotFoundError as error:  # it was moved to another log dir
                _LOGGER.info("%s: starting again: %s", self._key, error)
        raise SparklogError(
            f"{self._key}: its segments changed {_TRIES} times while they were checked; run it "
            "again"
        )

    def _make_pass(self, report: PartitionErasure, *, dry_run: bool) -> bool:
        """Make a pass; return False if another process changed the segments."""
        place = self._place()
        found: dict[int, Tally] = {}
        for segment in place.segments:
            try:
                tally = self._scan(place, segment)
            except FileNotFoundError:  # retention renamed it to `.deleted`
                return False
            except DataCorruptionError:
                if self._is_other(place, segment):
                    return False
                raise
            report.bytes_read += tally.bytes_read
            if tally.records:
                found[segment.base] = tally
        if dry_run:
            for segment in place.segments:
                if segment.base in found:
                    self._note(report, place, segment, found[segment.base], after=None)
            self._leftovers(report, place, dry_run=True)
            return True
        active = place.segments[-1].base
        if found:
            with self._commits.exclusive():
                self._commits.make_durable()  # commits with flush=none are rewritten too
        if active in found:
            with self._commits.exclusive():
                roll_if_active(self._commits, self._key, active)
            place = self._place()
        by_base = {segment.base: segment for segment in place.segments[:-1]}
        if found.keys() - by_base.keys():
            return False
        remove_cleaned(self._commits.fs, place.directory)
        done = all(self._erase(report, place, by_base[base]) for base in found)
        if done:
            self._leftovers(report, place, dry_run=False)
        return done

    def _place(self) -> _Partition:
        commits = self._commits
        self._check()
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

    def _is_other(self, place: _Partition, segment: Segment) -> bool:
        """Return True if a cleaner or a move has replaced a segment since."""
        try:
            size = self._commits.fs.size(joined(place.directory, log_name(segment.base)))
        except FileNotFoundError:
            return True
        return segment.base != place.bases[-1] and size != segment.size

    # --- one segment ---------------------------------------------------------------------------

    def _scan(self, place: _Partition, segment: Segment) -> Tally:
        eraser = WindowEraser(self._predicate, end=self.until)
        for window, path in segment_windows(
            self._commits.fs, place.directory, segment, place, throttle=self._throttle
        ):
            self._check()
            eraser.look(window, path)
        return eraser.tally

    def _erase(self, report: PartitionErasure, place: _Partition, segment: Segment) -> bool:
        fs = self._commits.fs
        try:
            made, tally = self._rewrite(place, segment)
        except FileNotFoundError:
            return False
        except DataCorruptionError:
            if self._is_other(place, segment):
                return False
            raise
        if not tally.records:
            discard(fs, place.directory, made)
            return True
        self._check()
        with self._commits.exclusive():
            topic = self._commits.state.topics.get(self._key.topic)
            possible = (
                topic is not None
                and topic.id == place.topic_id
                and self._key not in self._commits.offline
                and self._commits.partition_path(*self._key) == place.directory
                and is_possible(fs, place.directory, made)
            )
            if possible:
                links = fs.links(joined(place.directory, log_name(segment.base))) - 1
                with self._commits.changing_files(swap=(self._key, swap_of(made))):
                    perform(fs, place.directory, swap_of(made))
        if not possible:
            discard(fs, place.directory, made)
            return False
        self._note(report, place, segment, tally, after=made.size, links=links)
        return True

    def _rewrite(self, place: _Partition, segment: Segment) -> tuple[Rewritten, Tally]:
        fs, eraser = self._commits.fs, WindowEraser(self._predicate, end=self.until)
        target = CleanedSegment(fs, place.directory, place.interval_bytes, (segment,))
        try:
            for window, path in segment_windows(
                fs, place.directory, segment, place, throttle=self._throttle
            ):
                self._check()
                for piece in eraser.filter(window, path):
                    target.write(piece)
                    self._throttle(len(piece))
            parts = target.finish(None)  # aborted transactions are unchanged
        except BaseException:
            target.discard()
            raise
        made = Rewritten(
            base=target.base, end=target.end, size=target.size, sources=(segment,),
            identity=target.identity, parts=parts, is_same=False, records_read=0, records_kept=0,
            next_dirty=-1, keys=0, utilization=0,
        )  # fmt: skip
        return made, eraser.tally

    def _note(
        self,
        report: PartitionErasure,
        place: _Partition,
        segment: Segment,
        tally: Tally,
        *,
        after: int | None,
        links: int = 0,
    ) -> None:
        """Add an erased segment to the report; `after`: its new size, None in a dry run."""
        following = (base for base in place.bases if base > segment.base)
        path = joined(place.directory, log_name(segment.base))
        if after is None:
            links = self._commits.fs.links(path) - 1
        report.erased_from.append(
            ErasedFrom(
                place="local", name=path, base=segment.base, end=next(following, place.end),
                batches=tally.batches, records=tally.records, bytes_before=segment.size,
                bytes_after=segment.size if after is None else after, links=links,
            )
        )  # fmt: skip
        report.offsets.merge(tally.offsets)

    # --- files that no reader opens ------------------------------------------------------------

    def _leftovers(self, report: PartitionErasure, place: _Partition, *, dry_run: bool) -> None:
        """Unlink files of retention, cleaning and compaction before their delay is over."""
        fs = self._commits.fs
        with self._commits.exclusive():
            for name in fs.listdir(place.directory):
                if not name.endswith((DELETED, CLEANED)):
                    continue
                path = joined(place.directory, name)
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
                fs.sync_dir(place.directory)
        _LOGGER.info(
            "%s: %d records erased from %d segments",
            os.path.basename(place.directory), report.records, len(report.erased_from),
        )  # fmt: skip
