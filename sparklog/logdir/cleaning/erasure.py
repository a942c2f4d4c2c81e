"""Erases records from a partition's local segments: on demand, by a predicate, offsets kept.

    scan      without the lock: which segments hold such records
    roll      if the active one does, it is closed, under the lock
    rewrite   each of them, without the lock, into `.cleaned` files
    swap      under the lock, each at once (`partition/segment_swap`), if it is still that segment
    unlink    `.deleted` and `.cleaned` files of the partition, whatever their delay

Who was quicker (retention, a cleaner) makes it look again. A cleaner that has read the old segment
finds another inode in its place, and gives up. Cut anywhere, each segment is the old or the new
one; the same call again finishes. What is committed after the look at the log's end stays.
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
    """A partition as it stood under the lock."""

    directory: str
    topic_id: str
    segments: list[Segment]
    bases: list[int]
    end: int
    interval_bytes: int


class SegmentEraser:
    """Erases from the local segments of one partition. `until`: records from there on stay.

    `check` is called before each step; what it raises ends the work there.
    """

    def __init__(
        self,
        session: LogDirCommits,
        key: TopicPartition,
        predicate: RecordPredicate,
        *,
        until: int | None = None,
        check: Callable[[], None] = lambda: None,
        throttle: Throttle = unthrottled,
    ) -> None:
        """Raises: UnknownTopicError; DataCorruptionError: the partition is offline."""
        self._session, self._key, self._predicate = session, key, predicate
        self._check, self._throttle = check, throttle
        place = self._place()
        self._topic_id = place.topic_id
        self.until = place.end if until is None else min(until, place.end)
        """Records at offsets below it are looked at."""

    def run(self, report: PartitionErasure, *, dry_run: bool = False) -> None:
        """Erase, or count only; what was done is in the report even if it fails then.

        Raises: DataCorruptionError: a segment is damaged; InvalidRequestError: it is of magic 0 or
        1; SparklogError: the segments keep changing.
        Cost: reads all segments once, those that hold such records twice; a few MiB of memory.
        """
        for _ in range(_TRIES):
            try:
                if self._once(report, dry_run=dry_run):
                    return
            except FileNotFoundError as error:  # it moved to another log dir just now
                _LOGGER.info("%s: looking again: %s", self._key, error)
        raise SparklogError(
            f"{self._key}: its segments changed {_TRIES} times while they were looked at; run it "
            "again"
        )

    def _once(self, report: PartitionErasure, *, dry_run: bool) -> bool:
        """One pass; False if somebody else changed the segments meanwhile."""
        place = self._place()
        found: dict[int, Tally] = {}
        for segment in place.segments:
            try:
                tally = self._scan(place, segment)
            except FileNotFoundError:  # retention took it: what it was is among the `.deleted`
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
            with self._session.exclusive():
                self._session.make_durable()  # what was committed with flush=none is rewritten too
        if active in found:
            with self._session.exclusive():
                roll_if_active(self._session, self._key, active)
            place = self._place()
        by_base = {segment.base: segment for segment in place.segments[:-1]}
        if found.keys() - by_base.keys():
            return False
        remove_cleaned(self._session.fs, place.directory)
        done = all(self._erase(report, place, by_base[base]) for base in found)
        if done:
            self._leftovers(report, place, dry_run=False)
        return done

    def _place(self) -> _Partition:
        session = self._session
        self._check()
        with session.exclusive():
            directory = session.partition_path(*self._key)
            if self._key in session.offline:
                raise session.offline[self._key]
            topic = session.state.topics[self._key.topic]
            segments = list_segments(session.fs, directory)
            return _Partition(
                directory, topic.id, segments, [s.base for s in segments],
                session.state.ends[self._key], topic.parsed().index_interval_bytes,
            )  # fmt: skip

    def _is_other(self, place: _Partition, segment: Segment) -> bool:
        """Tell whether a cleaner, or a move, put another file in a segment's place since."""
        try:
            size = self._session.fs.size(joined(place.directory, log_name(segment.base)))
        except FileNotFoundError:
            return True
        return segment.base != place.bases[-1] and size != segment.size

    # --- one segment ---------------------------------------------------------------------------

    def _scan(self, place: _Partition, segment: Segment) -> Tally:
        eraser = WindowEraser(self._predicate, end=self.until)
        for window, path in segment_windows(
            self._session.fs, place.directory, segment, place, throttle=self._throttle
        ):
            self._check()
            eraser.look(window, path)
        return eraser.tally

    def _erase(self, report: PartitionErasure, place: _Partition, segment: Segment) -> bool:
        fs = self._session.fs
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
        with self._session.exclusive():
            topic = self._session.state.topics.get(self._key.topic)
            possible = (
                topic is not None
                and topic.id == place.topic_id
                and self._key not in self._session.offline
                and self._session.partition_path(*self._key) == place.directory
                and is_possible(fs, place.directory, made)
            )
            if possible:
                links = fs.links(joined(place.directory, log_name(segment.base))) - 1
                with self._session.changing_files(swap=(self._key, swap_of(made))):
                    perform(fs, place.directory, swap_of(made))
        if not possible:
            discard(fs, place.directory, made)
            return False
        self._note(report, place, segment, tally, after=made.size, links=links)
        return True

    def _rewrite(self, place: _Partition, segment: Segment) -> tuple[Rewritten, Tally]:
        fs, eraser = self._session.fs, WindowEraser(self._predicate, end=self.until)
        target = CleanedSegment(fs, place.directory, place.interval_bytes, (segment,))
        try:
            for window, path in segment_windows(
                fs, place.directory, segment, place, throttle=self._throttle
            ):
                self._check()
                for piece in eraser.filter(window, path):
                    target.write(piece)
                    self._throttle(len(piece))
            parts = target.finish(None)  # the same transactions were aborted, at the same offsets
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
        """Take down what one segment lost; `after`: its bytes now, None in a rehearsal."""
        following = (base for base in place.bases if base > segment.base)
        path = joined(place.directory, log_name(segment.base))
        if after is None:
            links = self._session.fs.links(path) - 1
        report.erased_from.append(
            ErasedFrom(
                place="local", name=path, base=segment.base, end=next(following, place.end),
                batches=tally.batches, records=tally.records, bytes_before=segment.size,
                bytes_after=segment.size if after is None else after, links=links,
            )
        )  # fmt: skip
        report.offsets.merge(tally.offsets)

    # --- what no reader sees any more ----------------------------------------------------------

    def _leftovers(self, report: PartitionErasure, place: _Partition, *, dry_run: bool) -> None:
        """Unlink what retention, cleaning and compaction left, whose delay isn't over yet."""
        fs = self._session.fs
        with self._session.exclusive():
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
