"""Erasure in log dirs: per partition first local segments, then copies in remote storage.

An error in a partition is reported, and the others continue. Besides segments, the erasure
handles staged files and readers' block caches, and reports directories of deleted topics and
quarantined files.
"""

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sparklog.clock import attempts
from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError, InvalidRequestError, SparklogError
from sparklog.format.names import is_retired_dir_of
from sparklog.log.batch_windows import walk
from sparklog.log.record_erasure import WindowEraser, erase_records
from sparklog.logdir.chunk_files import CHUNK_PREFIX, dead_chunks
from sparklog.logdir.cleaning.erasure import ErasableSegments
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.erasures_file import LOCK_NAME, note_erasure, note_unfinished
from sparklog.logdir.segment_files import joined
from sparklog.pluralize import pluralize
from sparklog.service.tiering.erasure_task import CopyErasure
from sparklog.service.tiering.remote_log import is_tiered
from sparklog.service.tiering.remote_log_manager import RemoteLogManager
from sparklog.service.verification.leftover_files import is_quarantined_of
from sparklog.storage.erasure_report import ErasureReport, PartitionErasure, RemovedFile
from sparklog.storage.lease import LeaseLostError
from sparklog.storage.log_state import LogState
from sparklog.storage.topic_state import TopicState
from sparklog.storage.unfinished_erasure import UnfinishedErasure
from sparklog.storage.upkeep import ErasureRequest, Loan
from sparklog.tiered.reading.block_cache import DIRECTORY_NAME

_LOGGER: Final = logging.getLogger("sparklog.service")
_POLL_MS: Final = 100  # poll interval while waiting for another erasure
_AGAIN: Final = "run the same erasure again then"
_NOT_COVERED: Final = (
    "running reads finish on the old segments, and a broker keeps files that it has open; the "
    "disk's blocks are freed, not overwritten",
)
_NOT_COVERED_REMOTE: Final = (
    "parts of uploads to remote storage that a killed process left: the service's sweep deletes "
    "them after a week",
    "backups and replicas of the bucket, and in other stores than S3 older versions of objects: "
    "delete those yourself",
    "block caches of readers (remote.cache.directory) keep blocks until newer blocks replace them",
)


def _refused(keys: Sequence[TopicPartition], manager: RemoteLogManager) -> list[str]:
    """Return a message per partition with copies that another service does not hand over."""
    leader = manager.remote_log.lease.describe()
    return [
        f"{key}: the copies in remote storage were not erased, because {leader} did not hand the "
        "lease over. Its next round replaces the copies of local segments; for the other copies, "
        f"wait longer (wait_ms) or stop that service; {_AGAIN}"
        for key in keys
    ]


class LogDirErasure:
    """Log dirs in a single erasure: a `sparklog.log.erasure.ErasureHome`.

    Args:
        manager: Manages the copies in remote storage, if there are any.
    """

    not_covered: tuple[str, ...] = _NOT_COVERED

    def __init__(
        self, commits: LogDirCommits, manager: RemoteLogManager | None, request: ErasureRequest
    ) -> None:
        self._commits, self._manager, self._request = commits, manager, request
        self._predicate = request.selection()
        self._is_tiered = False  # whether the erased partitions have, or may have, copies
        self.path, self.now_ms = commits.home, commits.clock

    @property
    def log_id(self) -> str:
        """The log's id, as of the last time under the lock."""
        return self._commits.offline.dirs.log

    @contextlib.contextmanager
    def locked_state(self) -> Iterator[LogState]:
        """Provide the state under the lock."""
        with self._commits.exclusive():
            yield self._commits.state

    @contextlib.contextmanager
    def alone(self) -> Iterator[str | None]:
        """Acquire the erasure lock. Yield an error if another erasure runs."""
        path, has_reported = joined(self.path, LOCK_NAME), False
        with contextlib.closing(self._commits.fs.open_lock(path)) as file:
            for _ in attempts(int(self._request.wait_ms), longest_ms=_POLL_MS):
                if file.try_lock(0, 1, exclusive=True):
                    yield None
                    return
                if not has_reported:
                    self._request.waiting("another erasure of this log")
                    has_reported = True
        yield (
            f"{path}: another process or thread erases records of this log, and only one erasure "
            "can run at a time: wait for its end, then run this erasure again"
        )

    def begin(self, begun: UnfinishedErasure) -> UnfinishedErasure:
        """Record that an erasure starts; see `note_unfinished`."""
        with self._commits.exclusive():
            return note_unfinished(self._commits.fs, self.path, begun)

    def end(self, ended: UnfinishedErasure, report: ErasureReport) -> None:
        """Record the erased records and the remaining work. Readers then reopen rewritten files."""
        about = {
            "time_ms": report.time_ms, "topic": report.topic, "topic_id": report.topic_id,
            "partitions": {str(part.partition): part.records for part in report.partitions},
            "keys": len(report.keys_sha256), "complete": report.complete,
        }  # fmt: skip
        with self._commits.exclusive():
            note_erasure(self._commits.fs, self.path, about, ended)

    def erase(self, topic: TopicState, report: ErasureReport, loan: Loan) -> None:
        """Erase from local segments, then from copies, and from other files of the log dirs."""
        done = {
            TopicPartition(part.topic, part.partition): part
            for part in report.partitions
            if self._local(part)
        }
        manager = self._manager
        if manager is not None and (
            is_tiered(topic) or any(map(manager.remote_log.has_copies, done))
        ):
            self._is_tiered = True
            report.not_covered += _NOT_COVERED_REMOTE
            self._copies(done, manager, report, loan)
        self._leftovers(report)

    def _local(self, part: PartitionErasure) -> bool:
        """Erase from a partition's segments. Return False, and report the error, if this failed."""
        try:
            segments = ErasableSegments(self._commits, part)
            erase_records(segments, self._predicate, dry_run=self._request.dry_run)
        except (SparklogError, OSError) as error:
            part.error = str(error)
            return False
        return True

    def _copies(
        self,
        parts: Mapping[TopicPartition, PartitionErasure],
        manager: RemoteLogManager,
        report: ErasureReport,
        loan: Loan,
    ) -> None:
        """Read the partitions' copies, then replace copies with erased records while leading."""
        dry_run = self._request.dry_run
        erasures = [CopyErasure(self._predicate, part, dry_run) for part in parts.values()]
        # Reading copies takes long and needs no lease: another service can lead in the meantime.
        for erasure in erasures if not dry_run else ():
            self._scan(erasure, manager)
        for at, erasure in enumerate(erasures):
            try:
                left = self._remote(erasure, manager, loan)
            except (DataCorruptionError, InvalidRequestError) as error:
                erasure.report.error = str(error)
                continue
            except (LeaseLostError, SparklogError, OSError) as error:
                report.pending.append(
                    f"{erasure.key}: the copies in remote storage were not erased: {error}; "
                    f"{_AGAIN}"
                )
                continue
            if left is None:
                report.pending += _refused([each.key for each in erasures[at:]], manager)
                return
            report.pending += left

    def _remote(
        self, erasure: CopyErasure, manager: RemoteLogManager, loan: Loan
    ) -> list[str] | None:
        """Erase from a partition's copies. Return what remains, or None without the lease."""
        if erasure.dry_run:
            return manager.erase(erasure)
        while loan.begin():
            left = manager.erase(erasure, loan.is_over)
            if left is not None:
                return left
            loan.end()
            # Between two turns another process may have copied segments: read those copies, too.
            self._scan(erasure, manager)
        return None

    @staticmethod
    def _scan(erasure: CopyErasure, manager: RemoteLogManager) -> None:
        try:
            manager.scan(erasure)
        except (SparklogError, OSError) as error:  # `_remote` meets and reports the error again
            _LOGGER.info("%s: the copies in remote storage can't be read: %s", erasure.key, error)

    def older_versions(self, report: ErasureReport, until_ms: int) -> list[str]:
        """Return messages about older versions of replaced copies that remain in the bucket."""
        if self._manager is None or not self._is_tiered:
            return []
        keys = [TopicPartition(part.topic, part.partition) for part in report.partitions]
        try:
            return self._manager.older_versions(keys, report.topic_id, until_ms)
        except (SparklogError, OSError) as error:
            report.not_covered.append(f"whether the bucket keeps older versions: {error}")
            return []

    # --- files besides segments ----------------------------------------------------------------

    def _leftovers(self, report: ErasureReport) -> None:
        commits, topic = self._commits, self._request.topic
        partitions = [part.partition for part in report.partitions]
        for part in report.partitions:
            report.pending += [
                f"{segment.name} had {pluralize(segment.links, 'other name')} (a fork, or a backup "
                "by hard links), which still refer to the old file: erase the records there, too"
                for segment in part.erased_from
                if segment.place == "local" and segment.links
            ]
        with commits.exclusive():
            writers = {name: last.batch for name, last in commits.state.writers.items()}
        now_ms = commits.clock()
        dead = set(dead_chunks(commits.fs, commits.present, writers, now_ms=now_ms))
        for number, why in sorted(commits.offline.dirs.absent.items()):
            report.pending.append(
                f"{commits.offline.dirs.place(number)}: {why}; staged files, and files left by a "
                f"move or a deleted topic, were not checked in this log dir: {_AGAIN}"
            )
        for directory in commits.present:
            for name in commits.fs.listdir(directory):
                path = joined(directory, name)
                if name.startswith(CHUNK_PREFIX):
                    self._chunk(path, report, dead=path in dead)
                elif name == DIRECTORY_NAME:
                    self._blocks(path, report)
                elif is_quarantined_of(name, topic, partitions):
                    report.pending.append(f"{path} is in quarantine and was not checked: remove it")
                elif is_retired_dir_of(name, topic):
                    report.pending.append(
                        f"{path} was left by a deleted topic or a move and was not checked: wait "
                        "until the service deletes it, or remove it"
                    )

    def _chunk(self, path: str, report: ErasureReport, *, dead: bool) -> None:
        """Erase from a staged file: unlink a dead file, report a file that may be committed yet."""
        with contextlib.suppress(FileNotFoundError):
            size = self._commits.fs.size(path)
            eraser = WindowEraser(self._predicate)
            with (
                contextlib.suppress(DataCorruptionError, InvalidRequestError),
                self._commits.fs.open(path) as file,
            ):
                eraser.count((window, path) for window in walk(file, check_crc=False))
            if not eraser.tally.records:
                return
            if dead:
                if not self._request.dry_run:
                    self._commits.fs.unlink(path)
                why = "staged by an attempt that failed"
                report.partitions[0].removed.append(
                    RemovedFile(place="local", name=path, bytes=size, why=why)
                )
            else:
                report.pending.append(
                    f"{path} is staged and not committed, and contains such records. It belongs to "
                    "a running micro-batch, or to a failed attempt, which is swept within a week"
                )

    def _blocks(self, path: str, report: ErasureReport) -> None:
        """Delete the blocks that readers cached beside the log. Readers fetch them again."""
        fs = self._commits.fs
        for name in fs.listdir(path):
            if name.endswith(".block") and not self._request.dry_run:
                with contextlib.suppress(FileNotFoundError):
                    fs.unlink(joined(path, name))
