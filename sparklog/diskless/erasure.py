"""Erases records of a log in a bucket by a predicate. Offsets of other records don't change.

    count     read all extents of the topic's partitions up to their ends
    rewrites  extents with matching records are replaced by segments without them, by the entry of
              a merge. An object contains the records of a task or commit, of many partitions: the
              other extents in such an object are moved to segments as well, unchanged
    finish    delete objects that no extent refers to any more, replaced segments, and inline data
              of entries, at once: readers fold the new entries and find the new locations

If another process was faster (a merge, retention), the entry is void.
With the log's lease all other garbage is deleted too; without it (a service has it) the erasure
reports the garbage that the service has not deleted yet.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from tempfile import SpooledTemporaryFile
from typing import IO, Final, NamedTuple

from sparklog.common import TopicPartition
from sparklog.diskless.entries import MergeRecord
from sparklog.diskless.erasure_notes import note_ended, note_unfinished
from sparklog.diskless.extents import Extent, Extents
from sparklog.diskless.garbage import Garbage, is_past
from sparklog.diskless.lease import TermLease
from sparklog.diskless.merge_plan import Merge, grouped
from sparklog.diskless.merge_source import Slice, SourceLog, SourceReader
from sparklog.diskless.merging import Merger, RewrittenSegment
from sparklog.diskless.names import (
    Level,
    entry_name,
    ledger_prefix,
    level_of,
    parse_staged,
    staged_prefix,
)
from sparklog.diskless.service_log import ConflictError, ServiceLog
from sparklog.diskless.state import DisklessState
from sparklog.errors import DataCorruptionError, SparklogError
from sparklog.format.batch import LOG_OVERHEAD
from sparklog.format.erasure import RecordPredicate
from sparklog.format.scan import scan
from sparklog.log.batch_windows import Window
from sparklog.log.record_erasure import Rewrite, Tally, WindowEraser, Windows, erase_records
from sparklog.pluralize import pluralize
from sparklog.storage.erasure_report import ErasureReport, PartitionErasure, RemovedFile
from sparklog.storage.log_state import LogState
from sparklog.storage.round_report import Report
from sparklog.storage.segment_store import SourceChangedError
from sparklog.storage.topic_state import TopicState
from sparklog.storage.unfinished_erasure import UnfinishedErasure
from sparklog.storage.upkeep import ErasureRequest, Loan
from sparklog.tiered.copying.rewritten_log import intact_windows
from sparklog.tiered.layout.object_names import Directory, manifest_name, parse_log, parse_manifest
from sparklog.tiered.object_store.store import versions_left

_ENTRIES: Final = 64  # ledger entries requested concurrently
_IN_MEMORY: Final = 32 << 20  # maximum bytes of a segment in memory; larger segments go to a file
_UPLOAD_MS: Final = 3_600_000
"""Age (ms) at which an erasure assumes that an unfinished upload has no writer any more."""
_NOT_COVERED: Final = (
    "backups and replicas of the bucket, and older object versions in stores other than S3: delete "
    "those yourself",
    "parts of uploads that a killed process left less than an hour ago (on a disk `.partial` "
    "files): run the same erasure once more after that hour",
    "block caches of readers (remote.cache.directory) keep blocks until newer blocks replace them",
)
_CUT: Final = "data in an entry, cut"
Reports = Mapping[TopicPartition, PartitionErasure]


class PartitionExtent(NamedTuple):
    """An extent, and the partition to which it belongs."""

    key: TopicPartition
    extent: Extent


def _temporary() -> IO[bytes]:
    return SpooledTemporaryFile(_IN_MEMORY)


class ErasableExtents:
    """The extents of partitions: a `sparklog.log.record_erasure.ErasableStore`. Not thread-safe.

    Args:
        merger: Rewrites extents with the service's own term, or the log's term.
        check: Called before each step. An error that it raises ends the work.

    Cost:
        Reads all data of the partitions once; extents with matching records, and other extents in
        the same objects, a second time.
    """

    kind = "extents"
    changes: tuple[type[Exception], ...] = (ConflictError, SourceChangedError)

    def __init__(
        self,
        log: ServiceLog,
        merger: Merger,
        garbage: Garbage,
        predicate: RecordPredicate,
        reports: Reports,
        *,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._log, self._merger, self._garbage = log, merger, garbage
        self._predicate, self._reports, self._check = predicate, reports, check
        self.path = log.store.url
        self._state: DisklessState  # when the extents were listed
        self._reader: SourceReader  # of the partition that is listed
        self._objects = set[str]()  # with matching records

    def pieces(self) -> Iterator[PartitionExtent]:
        """Yield the extents (pieces) to check: those below the ends of the reports' partitions."""
        self._state = self._log.follow()
        for key, report in self._reports.items():
            extents = [e for e in self._state.extents.get(key, ()) if e.base < report.end]
            self._reader = self._merger.reader(self._state, extents)
            for extent in extents:
                yield PartitionExtent(key, extent)

    def report_of(self, piece: PartitionExtent) -> PartitionErasure:
        """Return the report of the extent's partition."""
        return self._reports[piece.key]

    def windows(self, piece: PartitionExtent) -> Windows:
        """Yield the batches of an extent, in windows of bounded size."""
        return self._windows(piece.key, (piece.extent,), self._reader)

    def _windows(
        self, key: TopicPartition, extents: Sequence[Extent], reader: SourceReader
    ) -> Iterator[tuple[Window, str]]:
        path = f"{self.path}/{key}"
        for window in intact_windows(SourceLog(path, _slices(extents, reader), reader)):
            yield window, path

    # --- rewriting -----------------------------------------------------------------------------

    def rewrites(
        self, hits: Mapping[PartitionExtent, Tally], *, dry_run: bool
    ) -> Iterator[Rewrite[PartitionExtent]]:
        """Yield rewrites: of extents with matching records, and of other extents in their objects.

        Args:
            hits: The extents with matching records, and the numbers of matches.
            dry_run: Has no effect: a dry run has the same rewrites.
        """
        objects = [self._garbage.objects_of(piece.extent) for piece in hits]
        self._objects = set[str]().union(*objects)
        # Such a part can only be deleted with its object, so the extents in it are moved as well.
        for part in self._parts_unnamed(self._state):
            if part.object not in self._objects and self._holds(part, self._state):
                self._objects.add(part.object)
        for merge in list(self._merges(self._state)):
            report = self._reports.get(merge.key)
            name = merge.sources[0].object
            yield Rewrite(
                pieces=tuple(PartitionExtent(merge.key, extent) for extent in merge.sources),
                report=report or next(iter(self._reports.values())), place="bucket",
                name=f"{self.path}/{name if report else f'{merge.key}: {name}'}",
                base=merge.sources[0].base, end=merge.sources[-1].end, size=merge.size,
                bound=report.end if report else 0,
            )  # fmt: skip

    def _parts_unnamed(self, state: DisklessState) -> Iterator[Extent]:
        """Yield objects that extents use, but that may also contain data which no extent uses.

        Such data were merged while other extents still needed the object, or an erasure was
        interrupted. Each object is yielded as an extent that covers its whole data.
        Cost: a list request, and a GET per entry with inline data that an extent still refers to.
        """
        named: dict[str, int] = {}
        tabled: set[str] = set()
        for extents in state.kept_extents():
            for extent in extents:
                if extent.pieces:
                    tabled |= self._garbage.objects_of(extent) - {extent.object}
                elif not extent.segment:
                    named[extent.object] = named.get(extent.object, 0) + extent.size
        for each in self._log.store.list(staged_prefix(self._log.log_id)):
            sealed = state.keys.get(each.name)
            size = each.size if sealed is None else sealed.size
            if each.name in tabled or named.get(each.name, size) < size:
                yield _whole(each.name, size)
        numbers = sorted(state.names_by_entry())
        for at in range(0, len(numbers), _ENTRIES):
            window = numbers[at : at + _ENTRIES]
            for number, entry in zip(
                window, self._log.commits.head.entries.known(window), strict=True
            ):
                name = entry_name(self._log.log_id, number)
                size = sum(extent.size for _, extent in entry.extents if not extent.object)
                if named[name] < size:
                    start = 0 if name in state.keys else entry.data_at
                    yield _whole(name, size, start)

    def _merges(self, state: DisklessState) -> Iterator[Merge]:
        """Yield merges that move all extents out of the objects with matching records."""
        for key, extents in state.extents.items():
            topic = state.log.topics.get(key.topic)
            if topic is None:
                continue
            run: list[Extent] = []
            for extent in (*extents, None):
                is_affected = extent is not None and bool(
                    self._garbage.objects_of(extent) & self._objects
                )
                if extent is None or not is_affected or extent.segment:
                    for group in grouped(run, topic.parsed()):
                        yield self._merge(key, group)
                    run = []
                if extent is None or not is_affected:
                    continue
                if extent.segment:
                    yield self._merge(key, (extent,))
                else:
                    run.append(extent)

    def _merge(self, key: TopicPartition, extents: Extents) -> Merge:
        topic, segment = self._state.log.topics[key.topic], extents[0].segment
        level = level_of(segment, term=self._state.term) if segment else Level.PIECES
        return Merge(key, topic.id, topic.parsed(), extents, level, "erasure")

    def replace(self, rewrite: Rewrite[PartitionExtent], eraser: WindowEraser) -> int:
        """Replace the extents of a rewrite by segments without the erased records.

        Returns:
            The total size of the new segments in bytes.
        """
        merge = self._merge(rewrite.pieces[0].key, tuple(piece.extent for piece in rewrite.pieces))
        term, state = self._merger.term, self._state
        made = self._merger.write(
            self._merger.put_rewritten(merge, segment, state, term=term)
            for segment in self._segments(merge, self._merger.reader(state, merge.sources), eraser)
        )
        done = self._merger.swap(merge, made, term=term, gaps=bool(eraser.tally.records))
        return sum(segment.size for segment in done.segments)

    def _segments(
        self, merge: Merge, reader: SourceReader, eraser: WindowEraser
    ) -> Iterator[RewrittenSegment]:
        """Yield the records that remain after an erasure, in segments of up to segment.bytes.

        The temporary file of a segment is closed when the next segment is requested.
        """
        roll_bytes = merge.config.roll_bytes
        several = merge.size > roll_bytes
        base = merge.sources[0].base
        segment = RewrittenSegment(_temporary(), base, base)
        try:
            for window, path in self._windows(merge.key, merge.sources, reader):
                if several and segment.size and segment.size + len(window.data) > roll_bytes:
                    yield self._with_transactions(segment, merge)
                    segment.file.close()
                    segment = RewrittenSegment(_temporary(), segment.end, segment.end)
                for batches in eraser.filter(window, path):
                    segment.file.write(batches)
                    segment.size += len(batches)
                segment.end = int(window.batches.table["last_offset"][-1]) + 1
            segment.end = merge.sources[-1].end
            yield self._with_transactions(segment, merge)
        finally:
            segment.file.close()

    def _with_transactions(self, segment: RewrittenSegment, merge: Merge) -> RewrittenSegment:
        segment.aborted, segment.snapshot = self._merger.transactions(
            merge.key, self._state, merge.sources, segment.base, segment.end
        )
        return segment

    # --- deleting ------------------------------------------------------------------------------

    def finish(self, *, dry_run: bool) -> list[str]:
        """Delete the objects with matching records, to which no extent refers any more.

        If such an object is a ledger entry, only its inline data are removed. Does nothing in a dry
        run.

        Returns:
            Messages about objects that remain because they also contain a deleted topic that can be
            restored.
        """
        if dry_run:
            return []
        before, state = self._state, self._log.follow()
        stay = self._objects & self._garbage.live(state)
        deletable = self._objects - stay
        if stay & {
            name
            for extents in state.extents.values()
            for extent in extents
            for name in self._garbage.objects_of(extent)
        }:
            raise ConflictError("new extents refer to objects that the erasure would delete")
        segments: dict[str, list[str]] = {}
        for key, extents in before.extents.items():
            for extent in extents:
                if extent.segment and extent.object in deletable:
                    prefix = Directory(*key, before.log.topics[key.topic].id).prefix
                    manifest = manifest_name(
                        extent.base, extent.segment, extent.end, extent.max_timestamp
                    )
                    # The manifest first, so that no manifest refers to a log that was deleted.
                    segments[extent.object] = [prefix + manifest, extent.object]
        store, ledger = self._log.store, entry_name(self._log.log_id, 0)[:-20]
        any_report = next(iter(self._reports.values()))
        tables = {e.object for some in before.extents.values() for e in some if e.pieces}
        for name in sorted(deletable, key=lambda name: (name in tables, name)):
            self._check()
            if name.startswith(ledger):
                (stored,) = self._log.stored_entries([int(name[-20:])])
                if stored.data:
                    self._log.cut(stored)
                self._note_removed(any_report, name, why=_CUT)
            else:
                for each in segments.get(name, [name]):
                    store.delete([each])
                self._note_removed(any_report, name)
        return [
            f"{store.url}/{name} still contains such records, because the object also contains "
            "data of a deleted topic that can be restored: give up that topic "
            "(`sparklog topics delete PATH --topic T --now`), then run the same erasure again"
            for name in sorted(stay)
        ]

    def strip(
        self, state: DisklessState, *, cut_below: int, let_go: Collection[str]
    ) -> None:
        """Delete unreferenced data that may contain matching records, with or without the lease.

        Garbage never becomes live again, so this needs no lease: inline data that no extent refers
        to, segments of past terms, and segments that an entry referred to once.
        Cost: a GET per entry from `cut_below` on, a list request per partition.

        Args:
            state: The log's state.
            cut_below: The first ledger entry that may contain inline data that are not needed any
                more.
            let_go: The ids of segments that an entry removed from the log (`lease.ServiceNotes`).
        """
        once = self._cut_entries(state, cut_below)
        live, store = self._garbage.live(state), self._log.store
        for key, report in self._reports.items():
            prefix = Directory(*key, state.log.topics[key.topic].id).prefix
            ids: dict[str, str] = {}
            manifests: dict[str, str] = {}
            for each in store.list(prefix):
                name = each.name.removeprefix(prefix)
                if (log := parse_log(name)) is not None:
                    ids[each.name] = log[1]
                elif (manifest := parse_manifest(name)) is not None:
                    manifests[manifest.id] = each.name
            deletable = [
                name
                for name, found in ids.items()
                if name not in live
                and (found in let_go or name in once or is_past(found, state.term))
            ]
            for extent in state.extents.get(key, ()) if deletable else ():
                if extent.segment and extent.segment not in manifests:  # before deleting sources
                    self._merger.make_manifest(key, extent, state)
            for name in deletable:
                self._check()
                store.delete([manifests[ids[name]]] if ids[name] in manifests else [])
                store.delete([name])
                self._note_removed(report, name)

    def _cut_entries(self, state: DisklessState, cut_below: int) -> set[str]:
        """Remove unreferenced inline data from ledger entries if it may contain records to erase.

        Data that can't be read are removed, too. Entries with numbers from `cut_below` on are
        examined.

        Returns:
            All objects to which the examined entries refer.
        """
        once, inline = set[str](), state.names_by_entry()
        any_report = next(iter(self._reports.values()))
        for stored in self._log.stored_entries(range(cut_below, state.next_number)):
            number, entry, data = stored.number, stored.entry, stored.data
            name = entry_name(self._log.log_id, number)
            once |= {extent.object for _, extent in entry.extents}
            if isinstance(entry.record, MergeRecord):
                once |= {place[2] for place in entry.record.sources}
            if number in inline or not data:
                continue
            if entry.keys or self._has_hits(data, f"{self.path}/{name}"):
                self._check()
                self._log.cut(stored)
                self._note_removed(any_report, name, len(data), why=_CUT)
        return once

    def _note_removed(
        self, report: PartitionErasure, name: str, size: int = 0, *, why: str = "replaced"
    ) -> None:
        report.removed.append(
            RemovedFile(place="bucket", name=f"{self.path}/{name}", bytes=size, why=why)
        )

    def leftovers(self, state: DisklessState, *, dry_run: bool = False) -> list[str]:
        """Return messages about unreferenced matching records that another process deletes.

        Staged objects that an entry referred to once, and segments of an interrupted erasure, are
        deleted here.
        Cost: a list request per partition and another for staged objects; reads staged objects, and
            for those with matching records the entries since their staging.
        """
        store, messages = self._log.store, []
        for key in self._reports:
            named = {e.object for e in state.extents.get(key, ())}
            prefix = Directory(*key, state.log.topics[key.topic].id).prefix
            logs = [o for o in store.list(prefix) if parse_log(o.name.removeprefix(prefix))]
            left = [each for each in logs if each.name not in named]
            if left:
                messages.append(
                    f"{pluralize(len(left), 'segment')} below {store.url}/{prefix} that no entry "
                    "refers to: the running service deletes them after file.delete.delay.ms, or "
                    "with its next sweep"
                )
        live = self._garbage.live(state)
        held = [
            each.name
            for each in store.list(staged_prefix(self._log.log_id))
            if each.name not in live and self._holds(_whole(each.name, each.size), state)
        ]
        named = self._named_once(held, state)
        if named and not dry_run:
            self._check()
            store.delete(sorted(named))
            held = [name for name in held if name not in named]
        if held:
            messages.append(
                f"{pluralize(len(held), 'staged object')} below "
                f"{store.url}/{staged_prefix(self._log.log_id)} that no commit refers to contain "
                "such records. They belong to a micro-batch in progress, or to a failed attempt; "
                "objects of failed attempts are deleted after diskless.stage.retention.ms"
            )
        return messages

    def _named_once(self, held: Sequence[str], state: DisklessState) -> set[str]:
        """Return the staged objects that a ledger entry already references.

        They must not be committed again.
        """
        numbers = [parse_staged(self._log.log_id, name) for name in held]
        first = min((n for n in numbers if n is not None), default=state.next_number)
        referenced: set[str] = set()
        for at in range(first, state.next_number, _ENTRIES):
            window = range(at, min(at + _ENTRIES, state.next_number))
            for entry in self._log.commits.head.entries.known(list(window)):
                for _, extent in entry.extents:
                    if extent.object.startswith(staged_prefix(self._log.log_id)):
                        with contextlib.suppress(FileNotFoundError):  # its table is deleted already
                            referenced |= self._garbage.objects_of(extent)
        return referenced & set(held)

    def _holds(self, part: Extent, state: DisklessState) -> bool:
        """Return True if this part of an object contains matching records, of any topic.

        If the part can't be read, for example because its key is unknown, the result is False.
        """
        with contextlib.suppress(SourceChangedError, DataCorruptionError):
            data = self._merger.reader(state).read(part, 0, part.size) if part.size else b""
            return self._has_hits(data, f"{self._log.store.url}/{part.object}")
        return False

    def _has_hits(self, data: bytes, path: str) -> bool:
        eraser = WindowEraser(self._predicate, check=self._check)
        return eraser.count((window, path) for window in _chunks(data, path)).records > 0


def _whole(name: str, size: int, start: int = 0) -> Extent:
    return Extent(0, 0, name, start, size, -1, 0, -1)


def _chunks(data: bytes, path: str) -> Iterator[Window]:
    """Yield the batches of each chunk in a staged object. Offsets count from 0 in each chunk."""
    at = 0
    while at + LOG_OVERHEAD <= len(data):
        size = LOG_OVERHEAD + int.from_bytes(data[at + 8 : at + LOG_OVERHEAD], "big")
        batch = data[at : at + size]
        batches = scan(batch, path=path, position=at)
        if batches.error is not None or not len(batches):
            return  # encrypted, or an extent table
        yield Window(batch, at, batches)
        at += size


def _slices(extents: Sequence[Extent], reader: SourceReader) -> list[Slice]:
    return [Slice.of(piece) for extent in extents for piece in reader.pieces(extent)]


class DisklessErasure:
    """An erasure in a log in a bucket: `sparklog.log.erasure.ErasureHome`.

    The arguments `log`, `lease`, `merger` and `garbage` are those of the log's `DisklessUpkeep`.
    """

    not_covered: tuple[str, ...] = _NOT_COVERED

    def __init__(
        self,
        log: ServiceLog,
        lease: TermLease,
        merger: Merger,
        garbage: Garbage,
        request: ErasureRequest,
        *,
        check: Callable[[], None],
    ) -> None:
        self._log, self._lease, self._garbage, self._check = log, lease, garbage, check
        self._merger, self._request = merger, request
        self.path, self.log_id, self.now_ms = log.store.url, log.log_id, log.clock

    def locked_state(self) -> AbstractContextManager[LogState]:
        """Return a context with the newest state, an immutable snapshot. Takes no lock."""
        return nullcontext(self._log.follow().log)

    def alone(self) -> AbstractContextManager[None]:
        """Return an empty context: erasures may run at the same time."""
        return nullcontext()

    def begin(self, begun: UnfinishedErasure) -> UnfinishedErasure:
        """Store the record of an erasure that starts; return the record (see `note_unfinished`)."""
        return note_unfinished(self._log.store, begun)

    def end(self, ended: UnfinishedErasure, report: ErasureReport) -> None:
        """Store which parts of an erasure remain, or delete the record if it is complete."""
        note_ended(self._log.store, ended)

    def older_versions(self, report: ErasureReport, until_ms: int) -> list[str]:
        """Return messages about older versions of entries, staged objects and segments."""
        prefixes = [ledger_prefix(self.log_id), staged_prefix(self.log_id)]
        prefixes += [
            Directory(part.topic, part.partition, report.topic_id).prefix
            for part in report.partitions
        ]
        return versions_left(self._log.store, prefixes, until_ms)

    def erase(self, topic: TopicState, report: ErasureReport, loan: Loan) -> None:
        """Erase the matching records, with the lease or while another process holds the lease."""
        dry_run = self._request.dry_run
        leads = not dry_run and self._leads(loan, report)
        parts = {TopicPartition(part.topic, part.partition): part for part in report.partitions}
        check = self._check if leads else lambda: None
        predicate = self._request.selection()
        extents = ErasableExtents(
            self._log, self._merger if leads else self._merger.without_lease(), self._garbage,
            predicate, parts, check=check,
        )  # fmt: skip
        try:
            report.pending += erase_records(extents, predicate, check=check, dry_run=dry_run)
            if leads:
                self._garbage.purge(Report(path=self.path, time_ms=self.now_ms()))
            elif not dry_run:
                notes = self._lease.known_notes()
                extents.strip(
                    self._log.follow(), cut_below=notes.cut_below, let_go=notes.let_go
                )
            if not dry_run:
                # Parts of an interrupted upload may contain matching records too.
                self._log.store.sweep_uploads(self.now_ms() - _UPLOAD_MS)
            report.pending += extents.leftovers(self._log.follow(), dry_run=dry_run)
        except (SparklogError, OSError) as error:
            report.errors.append(f"{self._request.topic}: {error}")

    def _leads(self, loan: Loan, report: ErasureReport) -> bool:
        try:
            return loan.begin()
        except (SparklogError, OSError) as error:
            report.errors.append(f"{self.path}: {error}")
            return False
