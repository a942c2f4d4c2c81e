"""The copy task of a round: plans which segments to copy, and copies several in parallel.

    under the lock   check the segments of a batch again; publish COPY_STARTED in a commit
    without it       upload a few segments at a time
    per upload       publish COPY_FINISHED; or remove a failed copy and publish DELETE_FINISHED

After a crash, a COPY_STARTED without an end is resumed if the same segment still exists. Source:
RemoteLogManager.RLMCopyTask (Kafka 4.1), which copies segments in sequence.
"""

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError
from sparklog.format.names import TXNINDEX
from sparklog.log.due_segments import largest_timestamps
from sparklog.log.rounds import QuarantinedPartitions
from sparklog.logdir.partition.log_segment_data import LogDirSegmentData
from sparklog.logdir.partition.partition_segments import LogDirSegments
from sparklog.logdir.retention.partition_retention import PartitionRetention, retention_by_partition
from sparklog.logdir.segment_files import closed_segment_bytes
from sparklog.service.tiering.ledger_appends import LedgerAppends
from sparklog.service.tiering.remote_log import RemoteLog, TieredPartition, is_tiered
from sparklog.storage.lease import LeaseLostError
from sparklog.storage.round_report import Report, Uploaded
from sparklog.storage.segment_store import PutResult, SegmentPut, SegmentStore, SourceChangedError
from sparklog.storage.segments import StaleReadError
from sparklog.tiered.copying.plan import CandidateSegment, epochs_of, segments_to_copy
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState, new_segment_id

_LOGGER: Final = logging.getLogger("sparklog.service")
_Put = SegmentPut[RemoteSegment]
_DONE_TOGETHER: Final = 16
"""Finished copies per commit. After a crash up to this many uploads are checked again."""


@dataclass(frozen=True, slots=True)
class _SegmentToCopy:
    key: TopicPartition
    partition: TieredPartition
    candidate: CandidateSegment


class CopyTask:
    """Copies due segments. Skips partitions with damage until the service restarts."""

    def __init__(
        self,
        remote_log: RemoteLog,
        store: SegmentStore[RemoteSegment],
        *,
        batch: int,
        stopping: Callable[[], bool],
    ) -> None:
        self._remote_log, self._store = remote_log, store
        self._batch, self._stopping = batch, stopping
        self._quarantined = QuarantinedPartitions()
        self._appends = LedgerAppends(remote_log.commits)  # of the current round

    def plan(
        self, known: dict[TopicPartition, TieredPartition], report: Report
    ) -> list[_SegmentToCopy]:
        """Return the segments to copy: the oldest of each partition first, in turns."""
        turns: list[tuple[int, _SegmentToCopy]] = []
        self._appends = LedgerAppends(self._remote_log.commits)
        self._quarantined.release_replaced_topics(self._remote_log.commits.state.topics)
        with self._remote_log.locked_cache() as cache:
            for key, tiered in known.items():
                started = [s for s in cache.all(tiered.id) if s.state is SegmentState.COPY_STARTED]
                for turn, candidate in enumerate(self._due(key, tiered, started)):
                    turns.append((turn, _SegmentToCopy(key, tiered, candidate)))
                    report.remote_lag_bytes += candidate.size
                report.remote_lag_bytes += sum(s.size for s in started)
        turns.sort(key=lambda pair: (pair[0], pair[1].key))
        return [wanted for _, wanted in turns]

    def _due(
        self, key: TopicPartition, tiered: TieredPartition, started: list[RemoteSegment]
    ) -> list[CandidateSegment]:
        place = tiered.place
        if key in self._quarantined:
            return []
        with contextlib.suppress(FileNotFoundError):
            return segments_to_copy(
                self._remote_log.segments(key, place),
                [*tiered.valid_copies, *started],
                place.config,
                log_start=place.log_start,
                stable=place.end,
            )
        return []

    def copy_again(
        self,
        key: TopicPartition,
        partition: TieredPartition,
        segments: Sequence[CandidateSegment],
        report: Report,
    ) -> None:
        """Copy local segments that were rewritten, even if they are not due; see `run`."""
        self.run([_SegmentToCopy(key, partition, each) for each in segments], report)

    def run(self, wanted: list[_SegmentToCopy], report: Report) -> None:
        """Copy the segments batch by batch. Raises errors of the store, which end the round.

        Errors of a segment are added to the report.
        """
        self._appends.load((one.key, one.candidate.base) for one in wanted)
        for first in range(0, len(wanted), self._batch):
            puts = self._begin(wanted[first : first + self._batch], report)
            if puts:
                self._remote_log.publish([put.segment for put in puts])
                self._carry_out(puts, report)
            if self._stopping():
                return

    def _begin(self, wanted: list[_SegmentToCopy], report: Report) -> list[_Put]:
        # Checked again under the lock, because a roll within a commit that is still running looks
        # like a closed segment, and may be undone (PROTOCOL, H5).
        commits = self._remote_log.commits
        with commits.exclusive():
            known = retention_by_partition(commits, only=is_tiered)
            sure = [each for each in wanted if self._is_still_there(each, known.get(each.key))]
        puts = []
        for segment in sure:
            try:
                puts.append(self._planned_put(segment))
            except (FileNotFoundError, StaleReadError) as error:  # retention, or a move
                _LOGGER.info("%s-%d: %s", *segment.key, error)
            except DataCorruptionError as error:
                self._quarantine(segment.key, segment.partition.topic_id, error, report)
        return puts

    def planned_copies(self, wanted: list[_SegmentToCopy], report: Report) -> list[RemoteSegment]:
        """Return the copies that `run` would make, for a dry run, without publishing or changes."""
        copies = []
        for segment in wanted:
            try:
                copies.append(self._planned_put(segment).segment)
            except (FileNotFoundError, StaleReadError) as error:  # retention, or a move
                _LOGGER.info("%s-%d: %s", *segment.key, error)
            except DataCorruptionError as error:
                report.errors.append(f"{segment.key}: {error}")
        now = self._remote_log.clock()
        return [copy.become(SegmentState.COPY_FINISHED, now) for copy in copies]

    def _is_still_there(self, wanted: _SegmentToCopy, place: PartitionRetention | None) -> bool:
        """Return True if a chosen segment is unchanged, and closed. Requires the write lock.

        Cost: a listing.
        """
        commits, candidate = self._remote_log.commits, wanted.candidate
        if place is None or commits.state.topics[wanted.key.topic].id != wanted.partition.topic_id:
            return False
        size = closed_segment_bytes(commits.fs, place.directory, candidate.base, candidate.end)
        return size == candidate.size and candidate.end <= place.end

    def _planned_put(self, wanted: _SegmentToCopy) -> _Put:
        (topic, p), place, candidate = wanted.key, wanted.partition.place, wanted.candidate
        base, end = candidate.base, candidate.end
        local = LogDirSegments(self._remote_log.fs, place.directory)
        transactions = local.closed_index(base, TXNINDEX)
        segment = RemoteSegment(
            topic=topic,
            topic_id=wanted.partition.topic_id,
            partition=p,
            id=new_segment_id(),
            base=base,
            end=end,
            max_timestamp=largest_timestamps(local, place.end)(base),
            size=candidate.size,
            epochs=epochs_of(local.leader_epochs(), base, end),
            state=SegmentState.COPY_STARTED,
            time_ms=self._remote_log.clock(),
            has_txn_index=transactions is not None and len(transactions.data) > 0,
        )
        return self._as_put(segment, wanted.partition)

    def _as_put(
        self, segment: RemoteSegment, tiered: TieredPartition, *, resumed: bool = False
    ) -> _Put:
        place = tiered.place
        return SegmentPut(
            segment=segment,
            data=LogDirSegmentData(
                fs=self._remote_log.fs,
                directory=place.directory,
                base=segment.base,
                end=segment.end,
                size=segment.size,
                log_start=place.log_start,
            ),
            config=place.config.to_dict(),
            interval_bytes=place.config.index_interval_bytes,
            resumed=resumed,
            replaces=tuple(
                c for c in tiered.valid_copies if c.base < segment.end and c.end > segment.base
            ),
            gaps=place.gaps,
            committed=self._appends.committed(
                TopicPartition(segment.topic, segment.partition), place
            ),
        )

    # --- copies that an earlier process started --------------------------------------------------

    def resume(self, known: dict[TopicPartition, TieredPartition], report: Report) -> bool:
        """Resume copies that an earlier process started. Remove copies that can't be resumed.

        Returns:
            Whether any copy was started.
        """
        by_id = {one.id: one for one in known.values()}
        resumed: list[tuple[RemoteSegment, TieredPartition]] = []
        failed = []
        with self._remote_log.locked_cache() as cache:
            for key in list(cache.keys()):
                for segment in cache.all(key) if self._remote_log.is_ours(key.topic_id) else ():
                    if segment.state is SegmentState.COPY_STARTED:
                        one = by_id.get(key)
                        if one is not None and self._can_resume(segment, one):
                            resumed.append((segment, one))
                        else:
                            failed.append(segment)
        self._remote_log.delete(self._store, failed)
        self._appends.load(
            (TopicPartition(segment.topic, segment.partition), segment.base)
            for segment, _ in resumed
        )
        puts = [self._as_put(segment, one, resumed=True) for segment, one in resumed]
        self._carry_out(puts, report)
        return bool(puts or failed)

    def _can_resume(self, segment: RemoteSegment, tiered: TieredPartition) -> bool:
        place = tiered.place
        key = TopicPartition(segment.topic, segment.partition)
        try:
            held = self._remote_log.segments(key, place)
        except FileNotFoundError:
            return False
        due = segments_to_copy(
            held, tiered.valid_copies, place.config, log_start=place.log_start, stable=place.end
        )
        return CandidateSegment(segment.base, segment.end, segment.size) in due

    # --- uploading --------------------------------------------------------------------------------

    def _carry_out(self, puts: list[_Put], report: Report) -> None:
        finished: list[RemoteSegment] = []
        failed: list[RemoteSegment] = []
        fatal: Exception | None = None
        for done in self._store.put(puts, check=self._check):
            if done.segment is not None:
                # Commits are published in groups, because each takes the write lock and an fsync.
                finished.append(done.segment)
                report.uploaded.append(_uploaded(done))
                report.remote_lag_bytes -= done.segment.size
                if len(finished) >= _DONE_TOGETHER:
                    self._remote_log.publish(finished)
                    finished = []
            elif self._is_given_up(done, report):
                failed.append(done.put.segment)
            else:
                fatal = fatal or done.error
        if not isinstance(fatal, LeaseLostError):  # else the new leader resumes these copies
            self._remote_log.publish(finished)
        if fatal is not None:
            raise fatal
        # Otherwise objects without an end of their copy would stay in the bucket. Source:
        # testFailedCopyShouldDeleteTheDanglingSegment (Kafka).
        self._remote_log.delete(self._store, failed)

    def _is_given_up(self, done: PutResult[RemoteSegment], report: Report) -> bool:
        """Return True if a failed copy is given up. Other copies are retried under the same id."""
        error, segment = done.error, done.put.segment
        key = TopicPartition(segment.topic, segment.partition)
        if isinstance(error, SourceChangedError | FileNotFoundError):
            _LOGGER.info("%s-%d: %s", *key, error)
            return True
        if isinstance(error, DataCorruptionError):
            self._quarantine(key, segment.topic_id, error, report)
            return True
        return False

    def _check(self) -> None:
        if self._stopping():
            raise LeaseLostError(
                "the service is stopping; it continues to copy segments at the next start"
            )
        self._remote_log.lease.check()

    def _quarantine(
        self, key: TopicPartition, topic_id: str, error: DataCorruptionError, report: Report
    ) -> None:
        if f"{key}: {error}" not in report.errors:  # reported for a segment of the same append
            self._quarantined.add(key, topic_id, error, report)


def _uploaded(done: PutResult[RemoteSegment]) -> Uploaded:
    s = done.put.segment
    return Uploaded(
        topic=s.topic, partition=s.partition, base=s.base, end=s.end,
        bytes=s.size, stored_bytes=done.stored_bytes,
    )  # fmt: skip
