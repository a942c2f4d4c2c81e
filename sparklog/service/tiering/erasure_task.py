"""Erases records from a partition's copies; its local segments were gone through before.

    a copy whose segment is still here     is replaced by a copy of that segment as it is now, if
                                           they differ, by size or by checksum (a batch that loses
                                           a record may compress to as many bytes as before); the
                                           same bytes have nothing to erase
    any other one                          is read; if it holds such records, it is rewritten into
                                           a temporary file and put under a new id
    copies that nobody reads any more      go now, not with the next round

A segment that moves, or is cleaned, while it is copied gets no copy: it is looked at again.

Each new copy is COPY_STARTED, put, COPY_FINISHED, in the place of those that it replaces; then they
go, manifests first. Cut anywhere, a service finishes or removes what was begun, and the same call
again does the rest. Who does this holds the lease; reading needs none, for nobody changes a copy.

A service may lead between two calls, and expire, copy and replace what it likes. So each call lists
anew, and it is done when one listing has nothing left to do: every copy there was read, or is of a
local segment. From then on no copy can come to be with such records: none is on its way, and they
are made of local segments.
"""

import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from tempfile import SpooledTemporaryFile
from typing import IO, Final

import crc32c

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError, SparklogError
from sparklog.format.erasure import RecordPredicate
from sparklog.format.names import log_name
from sparklog.format.scan import scan
from sparklog.log.batch_windows import walk
from sparklog.log.record_erasure import Tally, WindowEraser
from sparklog.logdir.segment_files import joined
from sparklog.pluralize import pluralize
from sparklog.service.tiering.copy_task import CopyTask
from sparklog.service.tiering.remote_log import RemoteLog, TieredPartition
from sparklog.storage.erasure_report import ErasedFrom, PartitionErasure
from sparklog.storage.round_report import Report
from sparklog.storage.segment_store import SegmentPut, SegmentStore
from sparklog.tiered.copying.deletion import delete_copies
from sparklog.tiered.copying.orphans import find_orphans
from sparklog.tiered.copying.plan import CandidateSegment, unreferenced_segments
from sparklog.tiered.copying.rewritten_log import RewrittenData
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
_IN_MEMORY: Final = 32 << 20  # bytes of a rewritten copy; what is more goes to a temporary file


@dataclass(slots=True)
class SeenCopies:
    """What an erasure knows of a partition's copies, by their ids: each is what it is for good.

    `clean`: they hold no such record. `holding`: they do. `told`: they are in the report.
    """

    clean: set[str] = field(default_factory=set)
    holding: set[str] = field(default_factory=set)
    told: set[str] = field(default_factory=set)
    left: Sequence[CandidateSegment] = ()
    """Local segments that the last listing found to have copies that differ."""
    tries: int = 0
    """How often it found the very same ones."""

    def note_left(self, found: Sequence[CandidateSegment]) -> None:
        """Take down what is left to be copied. Raises SparklogError if that stays the same."""
        self.tries = self.tries + 1 if found and found == self.left else 0
        self.left = found
        if self.tries >= _TRIES:
            raise SparklogError(f"its segments changed {_TRIES} times while they were copied")


class _CopyLog:
    """A copy's log: `sparklog.storage.segments.SegmentLog`."""

    def __init__(self, path: str, ranges: LogRanges) -> None:
        self.path, self._ranges = path, ranges

    def size(self) -> int:
        """Return the size in bytes, in plain."""
        return self._ranges.size

    def pread(self, size: int, at: int) -> bytes:
        """Return the bytes [at, at + size), in plain."""
        end = min(at + size, self._ranges.size)
        return self._ranges.get(at, end) if end > at else b""


class ErasureTask:
    """See the module's text. `objects`: reads the copies, with the key ring that they need.

    `together`: so many local segments are copied again in a step.

    One thread uses it at a time.
    """

    def __init__(
        self,
        remote_log: RemoteLog,
        store: Store,
        segment_store: SegmentStore[RemoteSegment],
        copy_task: CopyTask,
        objects: RemoteObjects,
        *,
        check: Callable[[], None],
        together: int = 1,
    ) -> None:
        self._remote_log, self._store, self._segment_store = remote_log, store, segment_store
        self._copy_task, self._objects, self._check = copy_task, objects, check
        self._together = together

    def look(
        self,
        key: TopicPartition,
        predicate: RecordPredicate,
        report: PartitionErasure,
        seen: SeenCopies,
    ) -> None:
        """Read the copies that only the store has. Wants no lease; what changes meanwhile may.

        Raises: StorageUnavailableError, DataCorruptionError, SparklogError, OSError.
        Cost: reads each once, however often it is called; of the others the manifests, and their
        segments here.
        """
        one = self._remote_log.partitions().get(key)
        if one is None:
            return
        unsaid = replace(report, erased_from=[*report.erased_from]), replace(seen, told=set())
        for copy in self._sorted(one, key, *unsaid, dry_run=False)[1]:  # replaced by the leader
            if copy.id in seen.holding:
                continue
            try:
                ranges = self._objects.ranges(copy)
                eraser = WindowEraser(predicate, end=report.end)
                tally, _, _ = self._read(copy, ranges, eraser, None)
            except FileNotFoundError:  # it has expired, or another took its place
                continue
            report.bytes_read += tally.bytes_read
            (seen.holding if tally.records else seen.clean).add(copy.id)

    def run(
        self,
        key: TopicPartition,
        predicate: RecordPredicate,
        report: PartitionErasure,
        seen: SeenCopies,
        *,
        is_over: Callable[[], bool] = lambda: False,
        dry_run: bool = False,
    ) -> list[str] | None:
        """Erase from a partition's copies, or count only; returns what is left to others.

        None: there is more to do, but the time `is_over`, after at least a step: call it again.
        Raises: StorageUnavailableError, DataCorruptionError, LeaseLostError, SparklogError; what
        was done until then is in the report.
        Cost: as `look`, unless that was called; what holds such records is read once more.
        """
        round_report = Report(path="", time_ms=self._remote_log.clock(), dry_run=dry_run)
        if not dry_run:
            self._copy_task.resume(self._remote_log.partitions(), round_report)
        while True:
            one = self._remote_log.partitions().get(key)
            if one is None:
                return []
            outdated, remote = self._sorted(one, key, report, seen, dry_run=dry_run)
            if not remote:
                seen.note_left(outdated)
            for copy in remote:
                self._rewrite(copy, one, predicate, report, seen, dry_run=dry_run)
                if is_over():
                    return None
            if dry_run:
                return []
            if not remote and not outdated:
                return self._tidy(key)
            for at in range(0, len(outdated), self._together):
                some = outdated[at : at + self._together]
                self._copy_task.copy_again(key, one, some, round_report)
                if round_report.errors:
                    raise SparklogError("; ".join(round_report.errors))
                if is_over():
                    return None

    def _sorted(
        self,
        one: TieredPartition,
        key: TopicPartition,
        report: PartitionErasure,
        seen: SeenCopies,
        *,
        dry_run: bool,
    ) -> tuple[list[CandidateSegment], list[RemoteSegment]]:
        """Return (local segments whose copies differ, other copies that aren't known to be clean).

        Those of local segments that are as these are have nothing to erase, as these have not.
        What is to be replaced goes into the report, but for the copies that were `told` before.
        """
        held = self._remote_log.segments(key, one.place)
        closed = [
            CandidateSegment(each.base, following.base, each.size)
            for each, following in itertools.pairwise(held)
        ]
        lost = {(e.base, e.end): e for e in report.erased_from if e.place == "local"}
        outdated: dict[int, CandidateSegment] = {}
        remote: list[RemoteSegment] = []
        for copy in one.valid_copies:
            if copy.id in seen.clean:
                continue
            over = [each for each in closed if each.base < copy.end and each.end > copy.base]
            first = max(copy.base, one.place.log_start)
            if not over or over[0].base > first or over[-1].end < copy.end:
                remote.append(copy)
                continue
            changed = over != [CandidateSegment(copy.base, copy.end, copy.size)] or (
                self._differs(copy, one)
            )
            local = [lost[each.base, each.end] for each in over if (each.base, each.end) in lost]
            if changed or (dry_run and local):
                outdated |= {each.base: each for each in over}
                if copy.id in seen.told:
                    continue
                seen.told.add(copy.id)
                self._note(
                    report, copy, self._url(copy), after=sum(each.size for each in over),
                    records=sum(e.records for e in local), batches=sum(e.batches for e in local),
                )  # fmt: skip
            else:
                seen.clean.add(copy.id)
        return list(outdated.values()), remote

    def _differs(self, copy: RemoteSegment, one: TieredPartition) -> bool:
        """Tell whether a copy isn't its segment as that is now, of the same size: by checksums.

        Cost: a get of its manifest, and a pass over the segment.
        """
        name, crc = manifest_object(copy), 0
        path = joined(one.place.directory, log_name(copy.base))
        try:
            raw = self._store.get(name, limit=MANIFEST_BYTES_MAX)
            manifest, _ = parse(raw, path=f"{self._store.url}/{name}")
            with self._remote_log.fs.open(path) as file:
                for at in range(0, copy.size, _READ):
                    crc = crc32c.crc32c(file.pread(min(_READ, copy.size - at), at), crc)
        except (DataCorruptionError, FileNotFoundError):  # copied again, it is mended
            return True
        return crc != manifest.crc32c

    def _url(self, copy: RemoteSegment) -> str:
        return f"{self._store.url}/{log_object(copy)}"

    @staticmethod
    def _note(
        report: PartitionErasure,
        copy: RemoteSegment,
        name: str,
        *,
        after: int,
        records: int,
        batches: int,
    ) -> None:
        report.erased_from.append(
            ErasedFrom(
                place="remote", name=name, base=copy.base, end=copy.end, batches=batches,
                records=records, bytes_before=copy.size, bytes_after=after,
            )
        )  # fmt: skip

    # --- copies that only the store has --------------------------------------------------------

    def _rewrite(
        self,
        copy: RemoteSegment,
        one: TieredPartition,
        predicate: RecordPredicate,
        report: PartitionErasure,
        seen: SeenCopies,
        *,
        dry_run: bool,
    ) -> None:
        ranges, tally, size = self._objects.ranges(copy), Tally(), copy.size
        if copy.id not in seen.holding:
            tally, _, _ = self._read(copy, ranges, WindowEraser(predicate, end=report.end), None)
            report.bytes_read += tally.bytes_read
            (seen.holding if tally.records else seen.clean).add(copy.id)
        if copy.id in seen.clean:
            return
        if not dry_run:
            with SpooledTemporaryFile(_IN_MEMORY) as file:
                eraser = WindowEraser(predicate, end=report.end)
                tally, size, latest = self._read(copy, ranges, eraser, file)
                seen.clean.add(self._replace(copy, one, ranges.opened, file, size, latest))
        self._note(
            report, copy, self._url(copy), after=size, records=tally.records, batches=tally.batches
        )
        report.offsets.merge(tally.offsets)

    def _read(
        self, copy: RemoteSegment, ranges: LogRanges, eraser: WindowEraser, file: IO[bytes] | None
    ) -> tuple[Tally, int, int]:
        """Go through a copy, and write what stays to `file`: (counts, bytes, largest time)."""
        path, at, size, latest = self._url(copy), 0, 0, -1
        for window in walk(_CopyLog(path, ranges)):
            self._check()
            if window.batches.error is not None:
                raise window.batches.error
            if file is None:
                eraser.look(window, path)
            else:
                for piece in eraser.filter(window, path):
                    found = scan(piece, path=path, position=size, check_crc=False).table
                    latest = max(latest, int(found["max_timestamp"].max()))
                    file.write(piece)
                    size += len(piece)
            at = window.batches.end
        if at != copy.size:
            raise DataCorruptionError(
                f"it ends in a torn batch, {copy.size} bytes are expected; restore the object from "
                "a copy of the bucket",
                path=path,
                position=at,
            )
        return eraser.tally, size, latest

    def _replace(
        self,
        copy: RemoteSegment,
        one: TieredPartition,
        opened: OpenedSegment,
        file: IO[bytes],
        size: int,
        latest: int,
    ) -> str:
        """Put the new copy in the place of the old one, which goes; returns its id."""
        remote_log = self._remote_log
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
            interval_bytes=one.place.config.index_interval_bytes, replaces=(copy,),
            gaps=opened.manifest.gaps,
        )  # fmt: skip
        remote_log.publish([segment])
        (done,) = self._segment_store.put([put], check=self._check)
        if done.segment is None:
            self._delete([segment])
            assert done.error is not None
            raise done.error
        remote_log.publish([done.segment])
        self._delete([copy])
        self._objects.forget(copy)
        return segment.id

    # --- what goes -----------------------------------------------------------------------------

    def _delete(self, copies: Sequence[RemoteSegment]) -> None:
        remote_log = self._remote_log
        for _ in delete_copies(
            remote_log.session, remote_log.clock, self._segment_store, copies, check=self._check
        ):
            pass

    def _tidy(self, key: TopicPartition) -> list[str]:
        """Delete the copies that nobody reads any more; returns what stays all the same.

        Uploads of this partition that a killed service left unfinished are given up as well,
        however young: they may hold erased records, and under the lease nobody else copies.
        """
        one = self._remote_log.partitions()[key]
        self._check()
        self._store.sweep_uploads(_ANY_TIME_MS, Directory(*key, one.topic_id).prefix)
        with self._remote_log.locked_cache() as cache:
            copies = cache.all(one.id)
        gone = unreferenced_segments(copies, one.valid_copies, log_start=one.place.log_start)
        self._delete(gone)
        ids = {copy.id for copy in gone}
        left = [copy for copy in copies if copy.id not in ids]
        others = len(left) - len({copy.id for copy in left} & {c.id for c in one.valid_copies})
        pending = []
        where = (
            f"{self._store.url}/{directory_of(left[0] if left else gone[0]).prefix}"
            if (left or gone)
            else ""
        )
        if others:
            pending.append(
                f"{pluralize(others, 'copy', 'copies')} below {where} of another history of {key}, "
                "or past the log's end, not looked at: delete them if no log needs them, and none "
                "was restored to an earlier state"
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
                    f"{pluralize(len(unknown), 'object')} below {where} that belong to no copy of "
                    "this log, not looked at: a service's sweep deletes them an hour after they "
                    "came"
                )
        _LOGGER.info("%s: copies gone through, %d deleted", key, len(gone))
        return pending
