"""Erasure in log dirs: per partition first local segments, then copies in remote storage.

An error in a partition is reported, and the others continue. Besides segments, the erasure
handles staged files and readers' block caches, and reports directories of deleted topics and
quarantined files.
"""

import contextlib
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from sparklog.clock import attempts
from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError, InvalidRequestError, SparklogError
from sparklog.format.names import is_retired_dir_of
from sparklog.log.admin import unknown
from sparklog.log.batch_windows import walk
from sparklog.log.record_erasure import WindowEraser
from sparklog.logdir.chunk_files import CHUNK_PREFIX, dead_chunks
from sparklog.logdir.cleaning.erasure import SegmentEraser
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.erasures_file import LOCK_NAME, note_erasure, note_unfinished
from sparklog.logdir.segment_files import joined
from sparklog.pluralize import pluralize
from sparklog.service.tiering.erasure_task import SeenCopies
from sparklog.service.tiering.remote_log import is_tiered
from sparklog.service.tiering.remote_log_manager import RemoteLogManager
from sparklog.service.verification.leftover_files import is_quarantined_of
from sparklog.storage.erasure_report import ErasureReport, PartitionErasure, RemovedFile
from sparklog.storage.lease import LeaseLostError
from sparklog.storage.topic_state import TopicState
from sparklog.storage.unfinished_erasure import UnfinishedErasure
from sparklog.storage.upkeep import ErasureRequest, Loan
from sparklog.tiered.reading.block_cache import DIRECTORY_NAME

_LOGGER: Final = logging.getLogger("sparklog.service")
_POLL_MS: Final = 100  # poll interval while waiting for another erasure
_AGAIN: Final = "run the same erasure again then"
_NOT_COVERED: Final = (
    "reads that are under way finish on the old segments, and a broker's files that are open; the "
    "disk's blocks are freed, not overwritten",
)
_NOT_COVERED_REMOTE: Final = (
    "pieces of uploads to remote storage that a killed process left: the service's sweep takes "
    "them after a week",
    "backups and replicas of the bucket; in other stores than S3 older versions, too: delete those "
    "yourself",
    "block caches of readers (remote.cache.directory) keep blocks until others take their place",
)


def _missing(topic: str, home: str, known: Collection[str], lives: Sequence[str]) -> SparklogError:
    """Return the error for a topic that does not exist, or can still be undeleted."""
    return InvalidRequestError(lives[0]) if lives else unknown(topic, home, known)


def _refused(keys: Sequence[TopicPartition], manager: RemoteLogManager) -> list[str]:
    """Return a message per partition with copies that another service does not hand over."""
    leader = manager.remote_log.lease.describe()
    return [
        f"{key}: its copies in remote storage, which {leader} keeps and didn't hand over: of "
        "segments that are here too it makes new ones in its next round; for the others wait "
        f"longer, or stop it; {_AGAIN}"
        for key in keys
    ]


class LogDirErasure:
    """An erasure. `manager`: manages the copies in remote storage, if there are any."""

    def __init__(
        self, commits: LogDirCommits, manager: RemoteLogManager | None, request: ErasureRequest
    ) -> None:
        self._commits, self._manager, self._request = commits, manager, request

    def run(self, report: ErasureReport, loan: Loan) -> None:
        """Erase or, in a dry run, count the records; see `Upkeep.erase`."""
        commits, request = self._commits, self._request
        with commits.exclusive():
            known = commits.state.topics
            lives = request.deleted_topic_warnings(commits.state.deleted)
            if request.topic not in known:
                raise _missing(request.topic, commits.home, known, lives)
            topic = known[request.topic]
            report.log_id, report.topic_id = commits.dirs.log, topic.id
            partitions = request.partitions_of(topic.dirs)
        with self._alone(report) as alone:
            if alone:
                self._run(topic, partitions, lives, report, loan)

    @contextlib.contextmanager
    def _alone(self, report: ErasureReport) -> Iterator[bool]:
        """Acquire the erasure lock, except in a dry run. Yield False if another erasure runs."""
        commits, request = self._commits, self._request
        if report.dry_run:
            yield True
            return
        path, has_reported = joined(commits.home, LOCK_NAME), False
        with contextlib.closing(commits.fs.open_lock(path)) as file:
            for _ in attempts(int(request.wait_ms), longest_ms=_POLL_MS):
                if file.try_lock(0, 1, exclusive=True):
                    yield True
                    return
                if not has_reported:
                    request.waiting("another erasure of this log")
                    has_reported = True
        report.errors.append(
            f"{path}: another process, or thread, erases records of this log; one at a time: wait "
            "for it, then run this one again"
        )
        yield False

    def _run(
        self,
        topic: TopicState,
        partitions: list[int],
        lives: list[str],
        report: ErasureReport,
        loan: Loan,
    ) -> None:
        commits, request = self._commits, self._request
        begun = request.begun(report)
        if not report.dry_run:
            with commits.exclusive():
                begun = note_unfinished(commits.fs, commits.home, begun)
        report.pending += lives
        try:
            self._work(topic, partitions, begun, report, loan)
        except BaseException as error:
            report.errors.append(f"the erasure did not finish: {error!r}")
            raise
        finally:  # readers must close rewritten files, even if the erasure failed
            self._note(begun, report)

    def _note(self, begun: UnfinishedErasure, report: ErasureReport) -> None:
        """Record the erased records and the remaining work. Readers then reopen rewritten files."""
        if report.dry_run:
            return
        commits = self._commits
        about = {
            "time_ms": report.time_ms, "topic": report.topic, "topic_id": report.topic_id,
            "partitions": {str(part.partition): part.records for part in report.partitions},
            "keys": len(report.keys_sha256), "complete": report.complete,
        }  # fmt: skip
        with commits.exclusive():
            note_erasure(commits.fs, commits.home, about, begun.ended(report, commits.clock()))

    def _work(
        self,
        topic: TopicState,
        partitions: list[int],
        begun: UnfinishedErasure,
        report: ErasureReport,
        loan: Loan,
    ) -> None:
        request = self._request
        report.not_covered += _NOT_COVERED
        done: dict[TopicPartition, PartitionErasure] = {}
        for partition in partitions:
            key = TopicPartition(request.topic, partition)
            part = PartitionErasure(topic=key.topic, partition=partition, end=-1)
            report.partitions.append(part)
            if self._local(key, part, dry_run=report.dry_run):
                done[key] = part
        manager = self._manager
        if manager is not None and (
            is_tiered(topic) or any(map(manager.remote_log.has_copies, done))
        ):
            report.not_covered += _NOT_COVERED_REMOTE
            self._copies(done, manager, report, loan)
            self._versions(topic, begun, manager, report)
        self._leftovers(report, partitions)

    def _local(self, key: TopicPartition, part: PartitionErasure, *, dry_run: bool) -> bool:
        try:
            eraser = SegmentEraser(
                self._commits, key, self._request.predicate, until=self._request.before
            )
            part.end = eraser.until
            eraser.run(part, dry_run=dry_run)
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
        seen = {key: SeenCopies() for key in parts}
        if not report.dry_run:
            for key, part in parts.items():
                self._look(key, part, manager, seen[key])
        for at, (key, part) in enumerate(parts.items()):
            try:
                left = self._remote(key, part, manager, seen[key], loan, dry_run=report.dry_run)
            except (DataCorruptionError, InvalidRequestError) as error:
                part.error = str(error)
                continue
            except (LeaseLostError, SparklogError, OSError) as error:
                report.pending.append(f"{key}: its copies in remote storage: {error}; {_AGAIN}")
                continue
            if left is None:
                report.pending += _refused(list(parts)[at:], manager)
                return
            report.pending += left

    def _remote(
        self,
        key: TopicPartition,
        part: PartitionErasure,
        manager: RemoteLogManager,
        seen: SeenCopies,
        loan: Loan,
        *,
        dry_run: bool,
    ) -> list[str] | None:
        """Erase from a partition's copies. Return what remains, or None without the lease.

        Other processes may copy segments between two turns with the lease; those copies are read,
        too.
        """
        predicate = self._request.predicate
        if dry_run:
            return manager.erase(key, predicate, part, seen, dry_run=True)
        while loan.begin():
            left = manager.erase(key, predicate, part, seen, is_over=loan.is_over)
            if left is not None:
                return left
            loan.end()
            self._look(key, part, manager, seen)
        return None

    def _look(
        self,
        key: TopicPartition,
        part: PartitionErasure,
        manager: RemoteLogManager,
        seen: SeenCopies,
    ) -> None:
        try:
            manager.scan(key, self._request.predicate, part, seen)
        except (SparklogError, OSError) as error:  # `_remote` meets and reports the error again
            _LOGGER.info("%s: its copies can't be read: %s", key, error)

    def _versions(
        self,
        topic: TopicState,
        begun: UnfinishedErasure,
        manager: RemoteLogManager,
        report: ErasureReport,
    ) -> None:
        """Report older versions of replaced copies that remain in the bucket."""
        keys = [TopicPartition(part.topic, part.partition) for part in report.partitions]
        until_ms = begun.copied_until(report, self._commits.clock())
        try:
            report.pending += manager.older_versions(keys, topic.id, until_ms)
        except (SparklogError, OSError) as error:
            report.not_covered.append(f"whether the bucket keeps older versions: {error}")

    # --- files besides segments ----------------------------------------------------------------

    def _leftovers(self, report: ErasureReport, partitions: list[int]) -> None:
        commits, topic = self._commits, self._request.topic
        for part in report.partitions:
            shared = [one for one in part.erased_from if one.place == "local" and one.links]
            for one in shared:
                report.pending.append(
                    f"{one.name} had {pluralize(one.links, 'other name')} (a fork, or a backup by "
                    "hard links), where the old file still is: erase there too"
                )
        with commits.exclusive():
            writers = {name: last.batch for name, last in commits.state.writers.items()}
        now_ms = commits.clock()
        dead = set(dead_chunks(commits.fs, commits.present, writers, now_ms=now_ms))
        for number, why in sorted(commits.dirs.absent.items()):
            report.pending.append(
                f"{commits.dirs.place(commits.directories, number)}: {why}; what is staged there, "
                f"or was left of a move or a deleted topic, is not looked at: {_AGAIN}"
            )
        for directory in commits.present:
            for name in commits.fs.listdir(directory):
                path = joined(directory, name)
                if name.startswith(CHUNK_PREFIX):
                    self._chunk(path, report, dead=path in dead)
                elif name == DIRECTORY_NAME:
                    self._blocks(path, report)
                elif is_quarantined_of(name, topic, partitions):
                    report.pending.append(f"{path} is in quarantine, not looked at: remove it")
                elif is_retired_dir_of(name, topic):
                    report.pending.append(
                        f"{path} was left of a deleted topic or a move, and is not looked at: it "
                        "goes with its time, or remove it"
                    )

    def _chunk(self, path: str, report: ErasureReport, *, dead: bool) -> None:
        """Erase from a staged file: unlink a dead file, report a file that may be committed yet."""
        with contextlib.suppress(FileNotFoundError):
            size = self._commits.fs.size(path)
            eraser = WindowEraser(self._request.predicate)
            with (
                contextlib.suppress(DataCorruptionError, InvalidRequestError),
                self._commits.fs.open(path) as file,
            ):
                for window in walk(file, check_crc=False):
                    eraser.look(window, path)
            if not eraser.tally.records:
                return
            if dead:
                if not report.dry_run:
                    self._commits.fs.unlink(path)
                why = "staged by an attempt that failed"
                report.partitions[0].removed.append(
                    RemovedFile(place="local", name=path, bytes=size, why=why)
                )
            else:
                report.pending.append(
                    f"{path} is staged and not committed, and holds such records: of a micro-batch "
                    "on its way, or of an attempt that failed; those are swept within a week"
                )

    def _blocks(self, path: str, report: ErasureReport) -> None:
        """Delete the blocks that readers cached beside the log. Readers fetch them again."""
        fs = self._commits.fs
        for name in fs.listdir(path):
            if name.endswith(".block") and not report.dry_run:
                with contextlib.suppress(FileNotFoundError):
                    fs.unlink(joined(path, name))
