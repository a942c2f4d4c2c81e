"""Erases records of a log in a bucket by a predicate. Offsets of other records don't change.

    scan      read all extents of the topic's partitions up to their present ends
    rewrite   replace extents with matching records by segments without them, by the entry of a
              merge. An object contains the records of a task or commit, of many partitions: the
              other extents in such an object are moved to segments as well, unchanged
    delete    delete objects that no extent refers to any more, replaced segments, and inline data
              of entries, at once: readers fold the new entries and find the new locations

If another process was faster (a merge, retention), the entry is void and the scan is repeated.
After an interruption each extent is either old or new; repeating the call completes the erasure.
With the log's lease all other garbage is deleted too; without it (a service has it) the erasure
reports the garbage that the service has not deleted yet.
"""

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from tempfile import SpooledTemporaryFile
from typing import IO, Any, Final

from sparklog.common import TopicPartition
from sparklog.diskless.entries import ENTRY_BYTES_MAX, MergeRecord, decode
from sparklog.diskless.erasure_notes import note_ended, note_unfinished
from sparklog.diskless.extents import Extent
from sparklog.diskless.garbage import Garbage, is_past
from sparklog.diskless.lease import TermLease
from sparklog.diskless.merge_plan import Merge, grouped
from sparklog.diskless.merge_source import Slice, SourceLog, SourceReader
from sparklog.diskless.merging import Merger
from sparklog.diskless.names import entry_name, ledger_prefix, parse_staged, staged_prefix
from sparklog.diskless.segment_ids import Level, level_of
from sparklog.diskless.service_log import ConflictError, ServiceLog
from sparklog.diskless.state import DisklessState
from sparklog.errors import DataCorruptionError, SparklogError
from sparklog.format.batch import LOG_OVERHEAD
from sparklog.format.erasure import RecordPredicate
from sparklog.format.scan import scan
from sparklog.log.batch_windows import Window, walk
from sparklog.log.record_erasure import Tally, WindowEraser
from sparklog.pluralize import pluralize
from sparklog.storage.erasure_report import ErasedFrom, ErasureReport, PartitionErasure, RemovedFile
from sparklog.storage.leader_epochs import clipped
from sparklog.storage.log_state import LogState
from sparklog.storage.round_report import Report
from sparklog.storage.segment_store import SourceChangedError
from sparklog.storage.topic_state import TopicState
from sparklog.storage.unfinished_erasure import UnfinishedErasure
from sparklog.storage.upkeep import ErasureRequest, Loan
from sparklog.tiered.copying.older_versions import versions_left
from sparklog.tiered.copying.rewritten_log import RewrittenData
from sparklog.tiered.copying.segment_objects import LogObject
from sparklog.tiered.layout.object_names import Directory, manifest_name, parse_log, parse_manifest

_LOGGER: Final = logging.getLogger("sparklog.service")
_TRIES: Final = 8
_ENTRIES: Final = 64  # ledger entries requested concurrently
_IN_MEMORY: Final = 32 << 20  # maximum bytes of a segment in memory; larger segments go to a file
_UPLOAD_MS: Final = 3_600_000
"""Age (ms) at which an erasure assumes that an unfinished upload has no writer any more."""
_NOT_COVERED: Final = (
    "backups and replicas of the bucket; in other stores than S3 older versions, too: delete those "
    "yourself",
    "pieces of uploads that a killed process left less than an hour ago (of a disk `.partial` "
    "files): run the same erasure once more after that hour",
    "block caches of readers (remote.cache.directory) keep blocks until others take their place",
)
Reports = Mapping[TopicPartition, PartitionErasure]


@dataclass(slots=True)
class _Scanned:
    """Result of a scan: {(partition, place): counts} of the extents with matching records."""

    hits: dict[tuple[TopicPartition, Any], Tally] = field(default_factory=dict)
    objects: set[str] = field(default_factory=set)  # with matching records


def _temporary() -> IO[bytes]:
    return SpooledTemporaryFile(_IN_MEMORY)


@dataclass(slots=True)
class _Part:
    """A new segment, in a temporary file."""

    end: int
    file: IO[bytes] = field(default_factory=_temporary)
    size: int = 0


class ExtentEraser:
    """Erases records from partitions of a log. Not thread-safe.

    `merger`: with the service's own term, or the log's. `check` is called before each step; an
    error that it raises ends the work.
    """

    def __init__(
        self,
        log: ServiceLog,
        merger: Merger,
        garbage: Garbage,
        predicate: RecordPredicate,
        *,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._log, self._merger, self._garbage = log, merger, garbage
        self._predicate, self._check = predicate, check

    def run(self, reports: Reports, *, dry_run: bool = False) -> list[str]:
        """Erase records, or only count them. If it fails, the reports contain the work done so far.

        Returns: messages about data that could not be deleted.
        Raises: StorageUnavailableError, LeaseLostError, DataCorruptionError, SparklogError: the
            extents keep changing. Cost: reads all data of the partitions once; extents with
            matching records, and other extents in the same objects, a second time.
        """
        for _ in range(_TRIES):
            state = self._log.follow()
            try:
                scanned = self._scan(state, reports)
                return self._rewrite(state, scanned, reports, dry_run=dry_run)
            except (ConflictError, SourceChangedError) as error:
                _LOGGER.info("%s: scanning again: %s", self._log.store.url, error)
        raise SparklogError(
            f"{self._log.store.url}: its extents changed {_TRIES} times while they were scanned; "
            "run it again"
        )

    # --- scanning ------------------------------------------------------------------------------

    def _scan(self, state: DisklessState, reports: Reports) -> _Scanned:
        scanned = _Scanned()
        for key, report in reports.items():
            extents = [e for e in state.extents.get(key, ()) if e.base < report.end]
            reader = self._merger.reader(state, extents)
            for extent in extents:
                eraser = WindowEraser(self._predicate, end=report.end)
                for window, path in self._windows(key, (extent,), reader):
                    eraser.look(window, path)
                report.bytes_read += eraser.tally.bytes_read
                if eraser.tally.records:
                    scanned.hits[key, extent.place] = eraser.tally
                    scanned.objects |= self._garbage.objects_of(extent)
        for part in self._parts_unnamed(state):
            if part.object not in scanned.objects and self._holds(part, state):
                scanned.objects.add(part.object)
        return scanned

    def _parts_unnamed(self, state: DisklessState) -> Iterator[Extent]:
        """Yield shared objects, as entire extents, that may contain data which no extent refers to.

        The data were merged while other extents still need the object, or an erasure was
        interrupted.
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

    def _windows(
        self, key: TopicPartition, extents: Sequence[Extent], reader: SourceReader
    ) -> Iterator[tuple[Any, str]]:
        path, at = f"{self._log.store.url}/{key}", 0
        log = SourceLog(path, _slices(extents, reader), reader)
        for window in walk(log):
            self._check()
            if window.batches.error is not None:
                raise window.batches.error
            if len(window.batches):
                yield window, path
            at = window.batches.end
        if at != log.size():
            raise DataCorruptionError(
                f"it ends in a torn batch, {log.size()} bytes are expected; restore the object "
                "from a copy of the bucket",
                path=path,
                position=at,
            )

    def _runs(
        self, state: DisklessState, scanned: _Scanned
    ) -> Iterator[tuple[TopicPartition, Merge]]:
        """Yield the extents to rewrite: those that lose records, and others in the same objects."""
        for key, extents in state.extents.items():
            topic = state.log.topics.get(key.topic)
            if topic is None:
                continue
            run: list[Extent] = []
            config = topic.parsed()
            for extent in (*extents, None):
                is_affected = extent is not None and bool(
                    self._garbage.objects_of(extent) & scanned.objects
                )
                if extent is None or not is_affected or extent.segment:
                    for group in grouped(run, config):
                        yield key, Merge(key, topic.id, config, group, Level.PIECES, "erasure")
                    run = []
                if extent is None or not is_affected:
                    continue
                if extent.segment:
                    level = level_of(extent.segment, term=state.term)
                    yield key, Merge(key, topic.id, config, (extent,), level, "erasure")
                else:
                    run.append(extent)

    # --- rewriting -----------------------------------------------------------------------------

    def _rewrite(
        self, state: DisklessState, scanned: _Scanned, reports: Reports, *, dry_run: bool
    ) -> list[str]:
        for key, merge in list(self._runs(state, scanned)):
            report = reports.get(key)
            if dry_run:
                tallies = [scanned.hits.get((key, e.place), Tally()) for e in merge.sources]
                self._note(merge, reports, tallies, after=merge.size)
                continue
            self._check()
            end = report.end if report is not None else 0
            eraser = WindowEraser(self._predicate, end=end)
            after = self._replace(merge, state, eraser)
            self._note(merge, reports, [eraser.tally], after=after)
        return [] if dry_run else self._delete_named_no_more(state, scanned, reports)

    def _replace(self, merge: Merge, state: DisklessState, eraser: WindowEraser) -> int:
        """Replace a merge's sources by segments; return their size in bytes."""
        term = self._merger.term
        made: list[LogObject] = []
        reader = self._merger.reader(state, merge.sources)
        base = merge.sources[0].base
        where = f"{self._log.store.url}/{merge.key}"
        try:
            for part in self._parts(merge, reader, eraser):
                lineage = tuple(clipped(list(state.epochs.get(merge.key, ())), end=part.end))
                aborted, snapshot = self._merger.transactions(
                    merge.key, state, merge.sources, base, part.end
                )
                data = RewrittenData(where, part.file, part.size, lineage, snapshot, aborted)
                made.append(
                    self._merger.put_rewritten(
                        merge, data, part.size, state, term=term, span=(base, part.end)
                    )
                )
                base = part.end
        except (SparklogError, OSError):
            self._merger.discard(made)
            raise
        done = self._merger.swap(merge, made, term=term, gaps=bool(eraser.tally.records))
        return sum(segment.size for segment in done.segments)

    def _parts(self, merge: Merge, reader: SourceReader, eraser: WindowEraser) -> Iterator["_Part"]:
        """Yield the remaining records in parts of segment.bytes.

        Each file exists until the next part.
        """
        roll_bytes = merge.config.roll_bytes
        several = merge.size > roll_bytes
        part = _Part(merge.sources[0].base)
        try:
            for window, path in self._windows(merge.key, merge.sources, reader):
                if several and part.size and part.size + len(window.data) > roll_bytes:
                    yield part
                    part.file.close()
                    part = _Part(part.end)
                for piece in eraser.filter(window, path):
                    part.file.write(piece)
                    part.size += len(piece)
                table = window.batches.table
                part.end = int(table["last_offset"][-1]) + 1
            part.end = merge.sources[-1].end
            yield part
        finally:
            part.file.close()

    def _note(
        self, merge: Merge, reports: Reports, tallies: Sequence[Tally], *, after: int
    ) -> None:
        """Add the result of a merge's sources to the report of their partition, or to any report.
        """
        report = reports.get(merge.key) or next(iter(reports.values()))
        name = merge.sources[0].object
        if merge.key not in reports:
            name = f"{merge.key}: {name}"
        report.erased_from.append(
            ErasedFrom(
                place="bucket", name=f"{self._log.store.url}/{name}", base=merge.sources[0].base,
                end=merge.sources[-1].end, batches=sum(t.batches for t in tallies),
                records=sum(t.records for t in tallies), bytes_before=merge.size,
                bytes_after=after,
            )
        )  # fmt: skip
        for tally in tallies:
            report.offsets.merge(tally.offsets)

    # --- deleting ------------------------------------------------------------------------------

    def _delete_named_no_more(
        self, before: DisklessState, scanned: _Scanned, reports: Reports
    ) -> list[str]:
        """Delete the objects with matching records that no extent refers to now, and cut entries.

        Returns: messages about objects that remain because they also contain a deleted topic that
            can be restored.
        """
        state = self._log.follow()
        stay = scanned.objects & self._garbage.live(state)
        deletable = scanned.objects - stay
        if stay & {
            name
            for extents in state.extents.values()
            for extent in extents
            for name in self._garbage.objects_of(extent)
        }:
            raise ConflictError("new extents refer to these objects")
        segments: dict[str, list[str]] = {}
        for key, extents in before.extents.items():
            for extent in extents:
                if extent.segment and extent.object in deletable:
                    prefix = Directory(*key, before.log.topics[key.topic].id).prefix
                    manifest = manifest_name(
                        extent.base, extent.segment, extent.end, extent.max_timestamp
                    )
                    segments[extent.object] = [prefix + manifest, extent.object]
        store, ledger = self._log.store, entry_name(self._log.log_id, 0)[:-20]
        some = next(iter(reports.values()))
        tables = {e.object for some in before.extents.values() for e in some if e.pieces}
        for name in sorted(deletable, key=lambda name: (name in tables, name)):
            self._check()
            if name.startswith(ledger):
                self._cut(name)
            else:
                for each in segments.get(name, [name]):
                    store.delete([each])
            some.removed.append(
                RemovedFile(
                    place="bucket", name=f"{store.url}/{name}", bytes=0,
                    why="data in an entry, cut" if name.startswith(ledger) else "replaced",
                )
            )  # fmt: skip
        return [
            f"{store.url}/{name} still contains such records, because a deleted topic that can be "
            "given back has data in it: give up that topic "
            "(`sparklog topics delete PATH --topic T --now`), then run the same erasure again"
            for name in sorted(stay)
        ]

    def _cut(self, name: str) -> None:
        """Overwrite an entry by its own first bytes, which removes its inline data."""
        raw = self._log.store.get(name, limit=ENTRY_BYTES_MAX)
        entry = decode(raw, number=int(name[-20:]), path=f"{self._log.store.url}/{name}")
        if len(raw) > entry.data_at:
            self._log.store.put(name, raw[: entry.data_at])

    def strip(
        self, state: DisklessState, reports: Reports, *, cut_below: int, let_go: Collection[str]
    ) -> None:
        """Delete unreferenced data that may contain matching records, with or without the lease.

        Garbage never becomes live again, so this needs no lease: inline data that no extent refers
        to, segments of past terms, and segments that an entry referred to once.
        Args: cut_below, let_go: from the service's notes. Cost: a GET per entry from `cut_below`
            on, a list request per partition.
        """
        once = self._cut_entries(state, reports, cut_below)
        live, store = self._garbage.live(state), self._log.store
        for key, report in reports.items():
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
                report.removed.append(
                    RemovedFile(place="bucket", name=f"{store.url}/{name}", bytes=0, why="replaced")
                )

    def _cut_entries(self, state: DisklessState, reports: Reports, cut_below: int) -> set[str]:
        """Cut entries with unreferenced inline data that contain matching records or can't be read.

        Returns: the objects that these entries, and their neighbors, have referred to.
        """
        store, once, inline = self._log.store, set[str](), state.names_by_entry()
        any_report = next(iter(reports.values()))
        for at in range(cut_below, state.next_number, _ENTRIES):
            numbers = range(at, min(at + _ENTRIES, state.next_number))
            names = [entry_name(self._log.log_id, number) for number in numbers]
            raws = store.get_many(names, limit=ENTRY_BYTES_MAX)
            for number, name, raw in zip(numbers, names, raws, strict=True):
                if isinstance(raw, Exception):
                    raise raw
                path = f"{store.url}/{name}"
                entry = decode(raw, number=number, path=path)
                once |= {extent.object for _, extent in entry.extents}
                if isinstance(entry.record, MergeRecord):
                    once |= {place[2] for place in entry.record.sources}
                data = raw[entry.data_at :]
                if number in inline or not data:
                    continue
                if entry.keys or self._has_hits(data, path):
                    self._check()
                    store.put(name, raw[: entry.data_at])
                    any_report.removed.append(
                        RemovedFile(
                            place="bucket", name=path, bytes=len(data), why="data in an entry, cut"
                        )
                    )
        return once

    def leftovers(
        self, state: DisklessState, reports: Reports, *, dry_run: bool = False
    ) -> list[str]:
        """Return messages about unreferenced matching records that another process deletes.

        Staged objects that an entry referred to once, and segments of an interrupted erasure, are
        deleted here.
        Cost: a list request per partition and another for staged objects; reads staged objects, and
            for those with matching records the entries since their staging.
        """
        store, messages = self._log.store, []
        for key in reports:
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
                "such records: of a micro-batch in progress, or of a failed attempt; those are "
                "deleted after diskless.stage.retention.ms"
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

        False if its key is unknown, because then it can't be read.
        """
        with contextlib.suppress(SourceChangedError, DataCorruptionError):
            data = self._merger.reader(state).read(part, 0, part.size) if part.size else b""
            return self._has_hits(data, f"{self._log.store.url}/{part.object}")
        return False

    def _has_hits(self, data: bytes, path: str) -> bool:
        eraser = WindowEraser(self._predicate)
        for window in _chunks(data, path):
            self._check()
            eraser.look(window, path)
        return eraser.tally.records > 0


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
    """A bucket: a `sparklog.log.erasure.ErasureHome`. Args: as `DisklessUpkeep`."""

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
        """Return the newest state, which nothing changes."""
        return nullcontext(self._log.follow().log)

    def alone(self) -> AbstractContextManager[None]:
        """Return an empty context: erasures may run at the same time."""
        return nullcontext()

    def begin(self, begun: UnfinishedErasure) -> UnfinishedErasure:
        """Record that an erasure starts; see `note_unfinished`."""
        return note_unfinished(self._log.store, begun)

    def end(self, ended: UnfinishedErasure, report: ErasureReport) -> None:
        """Record the rest of an erasure; see `note_ended`."""
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
        """Erase as the holder of the lease, or while another process is its holder."""
        dry_run = self._request.dry_run
        leads = not dry_run and self._leads(loan, report)
        eraser = ExtentEraser(
            self._log, self._merger if leads else self._merger.without_lease(), self._garbage,
            self._request.selection(), check=self._check if leads else lambda: None,
        )  # fmt: skip
        parts = {TopicPartition(part.topic, part.partition): part for part in report.partitions}
        try:
            report.pending += eraser.run(parts, dry_run=dry_run)
            if leads:
                self._garbage.purge(Report(path=self.path, time_ms=self.now_ms()))
            elif not dry_run:
                notes = self._lease.known_notes()
                eraser.strip(
                    self._log.follow(), parts, cut_below=notes.cut_below, let_go=notes.let_go
                )
            if not dry_run:
                self._log.store.sweep_uploads(self.now_ms() - _UPLOAD_MS)
            report.pending += eraser.leftovers(self._log.follow(), parts, dry_run=dry_run)
        except (SparklogError, OSError) as error:
            report.errors.append(f"{self._request.topic}: {error}")

    def _leads(self, loan: Loan, report: ErasureReport) -> bool:
        try:
            return loan.begin()
        except (SparklogError, OSError) as error:
            report.errors.append(f"{self.path}: {error}")
            return False
