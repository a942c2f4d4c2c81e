"""Erases records from a partition's copies, after they were erased from local segments.

    a copy of a local segment       is replaced by a copy of the segment's current content if they
                                    differ in size or checksum (a batch that loses a record may
                                    compress to as many bytes as before); equal bytes need
                                    no erasure
    a copy without a local segment  is read; if it has such records, it is rewritten into a
                                    temporary file and stored under a new id
    an unreferenced copy            is deleted now, not in the next round

A segment that is moved or cleaned during its copy gets no copy; it is listed again.

Each new copy is published as COPY_STARTED, uploaded, and published as COPY_FINISHED, which replaces
the old copies. Then the old copies are deleted, manifests first. After a crash a service finishes
or removes a started copy, and the same call again does the rest. Erasing requires the lease.
Reading does not, because copies are immutable.

Between two calls a service may lead, and expire, copy and replace segments. So each call lists the
copies again. The erasure is complete when a listing leaves no work: every copy was read, or belongs
to a local segment. After that no copy with such records can appear, because no upload is running
and new copies are made of local segments.
"""

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from tempfile import SpooledTemporaryFile
from typing import IO, Final

import crc32c

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError, SparklogError
from sparklog.format.erasure import RecordPredicate
from sparklog.format.names import log_name
from sparklog.format.scan import scan
from sparklog.log.batch_windows import Window
from sparklog.log.record_erasure import PieceEraser, Rewrite, Tally, WindowEraser
from sparklog.logdir.segment_files import joined
from sparklog.pluralize import pluralize
from sparklog.service.tiering.copy_task import CopyTask
from sparklog.service.tiering.remote_log import RemoteLog, TieredPartition
from sparklog.storage.erasure_report import PartitionErasure
from sparklog.storage.round_report import Report
from sparklog.storage.segment_store import SegmentPut, SegmentStore
from sparklog.tiered.copying.orphans import find_orphans
from sparklog.tiered.copying.plan import CandidateSegment, unreferenced_segments
from sparklog.tiered.copying.rewritten_log import RewrittenData, intact_windows
from sparklog.tiered.layout.manifest import (
    MANIFEST_BYTES_MAX,
    directory_of,
    log_object,
    manifest_object,
    parse,
)
from sparklog.tiered.layout.object_names import Directory
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.reading.remote_objects import LogRanges, OpenedSegment, RemoteObjects
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState, new_segment_id

_LOGGER: Final = logging.getLogger("sparklog.service")
_TRIES: Final = 8
_ANY_TIME_MS: Final = 1 << 62
_READ: Final = 1 << 20
_IN_MEMORY: Final = 32 << 20  # larger rewritten copies use a temporary file


@dataclass(slots=True)
class CopyErasure:
    """The erasure of a partition's copies, in turns with other processes. Copies are immutable.

    Attributes:
        clean: The ids of copies without records to erase.
        tallies: The counts of records to erase, by id of the copy.
        reported: The ids of copies that are in the report.
    """

    predicate: RecordPredicate
    report: PartitionErasure
    dry_run: bool = False
    clean: set[str] = field(default_factory=set)
    tallies: dict[str, Tally] = field(default_factory=dict)
    reported: set[str] = field(default_factory=set)
    left: Sequence[CandidateSegment] = ()
    """Local segments whose copies differed in the last listing."""
    tries: int = 0
    """How often the listing found the same segments."""

    @property
    def key(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.report.topic, self.report.partition)

    def note_left(self, segments: Sequence[CandidateSegment]) -> None:
        """Remember the segments that remain to be copied again.

        Raises:
            SparklogError: The same segments remained before, so the erasure makes no progress.
        """
        # Another process may rewrite a segment again and again; the erasure must not loop forever.
        self.tries = self.tries + 1 if segments and segments == self.left else 0
        self.left = segments
        if self.tries >= _TRIES:
            raise SparklogError(f"the local segments changed {_TRIES} times while they were copied")

    def counted(self, copy: RemoteSegment, tally: Tally) -> None:
        """Remember the result of reading a copy."""
        if tally.records:
            self.tallies[copy.id] = tally
        else:
            self.clean.add(copy.id)


class _CopyLog:
    """The log of a copy: a `sparklog.storage.segments.SegmentLog`."""

    def __init__(self, path: str, ranges: LogRanges) -> None:
        self.path, self._ranges = path, ranges

    def size(self) -> int:
        """Return the size in bytes, decrypted."""
        return self._ranges.size

    def pread(self, size: int, at: int) -> bytes:
        """Return the bytes [at, at + size), decrypted."""
        end = min(at + size, self._ranges.size)
        return self._ranges.get(at, end) if end > at else b""


class ErasableCopies:
    """The copies of a partition: a `sparklog.log.record_erasure.PieceStore`. Not thread-safe.

    Args:
        objects: Reads the copies, with the keyring for encrypted copies.
        together: The number of local segments that are copied again per step.
    """

    def __init__(
        self,
        erasure: CopyErasure,
        remote_log: RemoteLog,
        store: Store,
        segment_store: SegmentStore[RemoteSegment],
        copy_task: CopyTask,
        objects: RemoteObjects,
        *,
        check: Callable[[], None],
        together: int = 1,
    ) -> None:
        self._erasure, self._remote_log, self._store = erasure, remote_log, store
        self._segment_store, self._copy_task, self._objects = segment_store, copy_task, objects
        self._check, self._together = check, together
        self._key = erasure.key
        self._tiered: TieredPartition | None = None  # when the copies were listed
        self._eraser = PieceEraser(self, erasure.predicate, check=check, dry_run=erasure.dry_run)

    def scan(self) -> None:
        """Read the copies that have no local segment. Requires no lease.

        Raises:
            StorageUnavailableError: The store does not answer.
            DataCorruptionError: A copy is damaged.

        Cost: reads each copy once, also over several calls. Of a copy with a local segment, reads
        the manifest and that segment.
        """
        tiered = self._remote_log.partitions().get(self._key)
        if tiered is None:
            return
        _, remote = self._classify_copies(tiered, with_report=False)
        for copy in remote:  # the leader replaces outdated copies of local segments
            if copy.id not in self._erasure.tallies:
                with contextlib.suppress(FileNotFoundError):  # it expired or was replaced
                    self._erasure.counted(copy, self._eraser.count(copy))

    def erase(self, is_over: Callable[[], bool] = lambda: False) -> list[str] | None:
        """Erase records from the copies, or only count them in a dry run.

        Returns:
            Messages on copies that remain. None if `is_over` returned True after a step and there
            is more to do; the method must then be called again.

        Raises:
            StorageUnavailableError: The store does not answer.
            DataCorruptionError: A copy is damaged.
            LeaseLostError: Another service leads now.
            SparklogError: A local segment changed during each attempt to copy it.

        After an error, the report includes the work done until then.

        Cost: the cost of `scan`, unless `scan` was called. Copies with such records are read once
        more.
        """
        erasure, dry_run = self._erasure, self._erasure.dry_run
        round_report = Report(path="", time_ms=self._remote_log.clock(), dry_run=dry_run)
        if not dry_run:
            self._copy_task.resume(self._remote_log.partitions(), round_report)
        while True:
            self._tiered = tiered = self._remote_log.partitions().get(self._key)
            if tiered is None:
                return []
            outdated, remote = self._classify_copies(tiered)
            if not remote:
                erasure.note_left(outdated)
            for copy in remote:
                if copy.id not in erasure.tallies:
                    erasure.counted(copy, self._eraser.count(copy))
                if copy.id in erasure.tallies:
                    self._eraser.rewrite({copy: erasure.tallies[copy.id]})
                if is_over():
                    return None
            if dry_run:
                return []
            if not remote and not outdated:
                return self._delete_unreferenced()
            for at in range(0, len(outdated), self._together):
                some = outdated[at : at + self._together]
                self._copy_task.copy_again(self._key, tiered, some, round_report)
                if round_report.errors:
                    raise SparklogError("; ".join(round_report.errors))
                if is_over():
                    return None

    def _classify_copies(
        self, tiered: TieredPartition, *, with_report: bool = True
    ) -> tuple[list[CandidateSegment], list[RemoteSegment]]:
        """Return (local segments with different copies, other copies that may have such records).

        Copies to replace are added to the report, unless they were `reported` before.
        """
        # A copy that equals its local segment needs no erasure: the segment was erased before.
        erasure = self._erasure
        held = self._remote_log.segments(self._key, tiered.place)
        closed = [
            CandidateSegment(each.base, following.base, each.size)
            for each, following in itertools.pairwise(held)
        ]
        erased = {(e.base, e.end): e for e in erasure.report.erased_from if e.place == "local"}
        outdated: dict[int, CandidateSegment] = {}
        remote: list[RemoteSegment] = []
        for copy in tiered.valid_copies:
            if copy.id in erasure.clean:
                continue
            over = [each for each in closed if each.base < copy.end and each.end > copy.base]
            first = max(copy.base, tiered.place.log_start)
            if not over or over[0].base > first or over[-1].end < copy.end:
                remote.append(copy)
                continue
            changed = over != [CandidateSegment(copy.base, copy.end, copy.size)] or (
                self._differs(copy, tiered)
            )
            local = [erased[s.base, s.end] for s in over if (s.base, s.end) in erased]
            if changed or (erasure.dry_run and local):
                outdated |= {each.base: each for each in over}
                if with_report and copy.id not in erasure.reported:
                    erasure.reported.add(copy.id)
                    tally = Tally(
                        records=sum(each.records for each in local),
                        batches=sum(each.batches for each in local),
                    )
                    self._rewrite(copy).note([tally], sum(each.size for each in over))
            else:
                erasure.clean.add(copy.id)
        return list(outdated.values()), remote

    def _differs(self, copy: RemoteSegment, tiered: TieredPartition) -> bool:
        """Return True if a copy and a local segment of the same size have other checksums.

        Cost: a GET of the manifest, and a pass over the segment.
        """
        name, crc = manifest_object(copy), 0
        path = joined(tiered.place.directory, log_name(copy.base))
        try:
            raw = self._store.get(name, limit=MANIFEST_BYTES_MAX)
            manifest, _ = parse(raw, path=f"{self._store.url}/{name}")
            with self._remote_log.fs.open(path) as file:
                for at in range(0, copy.size, _READ):
                    crc = crc32c.crc32c(file.pread(min(_READ, copy.size - at), at), crc)
        except (DataCorruptionError, FileNotFoundError):  # another copy repairs it
            return True
        return crc != manifest.crc32c

    def _url(self, copy: RemoteSegment) -> str:
        return f"{self._store.url}/{log_object(copy)}"

    def _rewrite(self, copy: RemoteSegment) -> Rewrite[RemoteSegment]:
        report = self._erasure.report
        return Rewrite(
            pieces=(copy,), report=report, place="remote", name=self._url(copy), base=copy.base,
            end=copy.end, size=copy.size, bound=report.end,
        )  # fmt: skip

    # --- copies without a local segment -----------------------------------------------------------

    def report_of(self, piece: RemoteSegment) -> PartitionErasure:
        """Return the partition's report."""
        return self._erasure.report

    def windows(self, piece: RemoteSegment) -> Iterator[tuple[Window, str]]:
        """Read a copy."""
        return self._windows(piece, self._objects.ranges(piece))

    def _windows(self, copy: RemoteSegment, ranges: LogRanges) -> Iterator[tuple[Window, str]]:
        path = self._url(copy)
        for window in intact_windows(_CopyLog(path, ranges), subject="the copy"):
            yield window, path

    def rewrites(
        self, hits: Mapping[RemoteSegment, Tally], *, dry_run: bool
    ) -> list[Rewrite[RemoteSegment]]:
        """Return a rewrite of each copy with selected records."""
        return [self._rewrite(copy) for copy in hits]

    def replace(self, rewrite: Rewrite[RemoteSegment], eraser: WindowEraser) -> int:
        """Store a new copy, and delete the old copy."""
        (copy,) = rewrite.pieces
        ranges, size, latest = self._objects.ranges(copy), 0, -1
        with SpooledTemporaryFile(_IN_MEMORY) as file:
            for batches in eraser.remaining(self._windows(copy, ranges)):
                table = scan(batches, path=rewrite.name, position=size, check_crc=False).table
                latest = max(latest, int(table["max_timestamp"].max()))
                file.write(batches)
                size += len(batches)
            self._erasure.clean.add(self._put(copy, ranges.opened, file, size, latest))
        return size

    def _put(
        self,
        copy: RemoteSegment,
        opened: OpenedSegment,
        file: IO[bytes],
        size: int,
        latest: int,
    ) -> str:
        """Store a new copy, and delete the old copy. Return the new id."""
        remote_log, tiered = self._remote_log, self._tiered
        assert tiered is not None
        segment = replace(
            copy, id=new_segment_id(), size=size, max_timestamp=latest,
            state=SegmentState.COPY_STARTED, time_ms=remote_log.clock(),
        )  # fmt: skip
        data = RewrittenData(
            self._url(copy), file, size, copy.epochs, opened.part(".snapshot") or b"",
            opened.part(".txnindex") or b"",
        )  # fmt: skip
        put = SegmentPut(
            segment=segment, data=data, config=opened.manifest.config,
            interval_bytes=tiered.place.config.index_interval_bytes, replaces=(copy,),
            gaps=opened.manifest.gaps,
        )  # fmt: skip
        remote_log.publish([segment])
        (done,) = self._segment_store.put([put], check=self._check)
        if done.segment is None:
            remote_log.delete(self._segment_store, [segment])
            assert done.error is not None
            raise done.error
        remote_log.publish([done.segment])
        remote_log.delete(self._segment_store, [copy])
        self._objects.forget(copy)
        return segment.id

    # --- deletions --------------------------------------------------------------------------------

    def _delete_unreferenced(self) -> list[str]:
        """Delete unreferenced copies and unfinished uploads. Return messages on other objects."""
        key = self._key
        tiered = self._remote_log.partitions()[key]
        self._check()
        # However young: uploads may contain erased records, and no other process copies now,
        # because this process has the lease.
        self._store.sweep_uploads(_ANY_TIME_MS, Directory(*key, tiered.topic_id).prefix)
        with self._remote_log.locked_cache() as cache:
            copies = cache.all(tiered.id)
        gone = unreferenced_segments(copies, tiered.valid_copies, log_start=tiered.place.log_start)
        self._remote_log.delete(self._segment_store, gone)
        ids = {copy.id for copy in gone}
        left = [copy for copy in copies if copy.id not in ids]
        others = len(left) - len({copy.id for copy in left} & {c.id for c in tiered.valid_copies})
        pending = []
        where = (
            f"{self._store.url}/{directory_of(left[0] if left else gone[0]).prefix}"
            if (left or gone)
            else ""
        )
        if others:
            pending.append(
                f"{pluralize(others, 'copy', 'copies')} below {where} belong to another history of "
                f"{key}, or end past the log end, and were not checked: delete them if no log "
                "needs them, and none was restored to an earlier state"
            )
        if left:
            found = find_orphans(
                self._store, left, directory_of(left[0]), now_ms=self._remote_log.clock(),
                grace_ms=-(1 << 62),
            )  # fmt: skip
            names = {log_object(copy) for copy in gone}
            unknown = [o for o in found.orphans if o.name not in names]
            if unknown:
                pending.append(
                    f"{pluralize(len(unknown), 'object')} below {where} belong to no copy of this "
                    "log, and were not checked: a service's sweep deletes them an hour after their "
                    "creation"
                )
        _LOGGER.info("%s: all copies were checked, %d were deleted", key, len(gone))
        return pending
