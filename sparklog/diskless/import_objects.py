"""Creates a log from existing objects: a fork, remote segments, or a log dir.

    sparklog.import      the origin of the new log; alone it does not make the prefix a log
    logs, staged         copies of the old log's objects, made by the store itself if possible
    ledger-<log id>/..   a snapshot, then entries with the locations of the records
    state-<log id>/..
    sparklog.home        created: from here on the log exists, and is complete
    manifests            written last, because they would make the prefix look like a partial
        archive

After an interruption before `sparklog.home` no log exists; a second call reuses the copied objects,
under a new log id. After an interruption later, a second call copies missing manifests, which a
service would write too, and deletes leftovers.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from sparklog.clock import Clock, system_clock
from sparklog.common import TopicPartition
from sparklog.diskless.capability_check import check_capabilities
from sparklog.diskless.entries import (
    ENTRY_BYTES_MAX,
    Entry,
    EntryRecord,
    Epochs,
    ImportRecord,
    ObjectKey,
    ProducerBatch,
    encode,
    new_attempt_id,
)
from sparklog.diskless.extents import Extent, Extents
from sparklog.diskless.home_object import known_home, place_home
from sparklog.diskless.names import HOME, IMPORT, entry_name, staged_prefix, state_prefix
from sparklog.diskless.state import DisklessState
from sparklog.diskless.state_objects import StateObjects
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    SparklogError,
    StorageUnavailableError,
)
from sparklog.log.copied_log import copy_all, offsets_by_topic
from sparklog.log.topic_names import new_topic_id
from sparklog.progress import Progress
from sparklog.storage.ledger_records import LastMicroBatch, ResetRecord, SnapshotRecord
from sparklog.storage.ledger_records import encode as encode_record
from sparklog.storage.segment_store import SegmentPut
from sparklog.storage.stored_json import seal, unseal
from sparklog.tiered.copying.segment_objects import LogObject, look_at_log, put_log
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.layout.manifest import log_object, manifest_object
from sparklog.tiered.layout.topic_owners import PREFIX as OWNERS
from sparklog.tiered.layout.topic_owners import owner_bytes
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.remote_segment import RemoteSegment

_STEP_BYTES: Final = ENTRY_BYTES_MAX // 4
"""Estimated size of an entry's parts; the estimate may be wrong by half."""
_WRITERS_BYTES: Final = ENTRY_BYTES_MAX // 2


@dataclass(frozen=True, slots=True)
class NewObject:
    """An object of the new log: `write` writes it; `size` in bytes, -1 if unknown."""

    name: str
    size: int
    write: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPartition:
    """A partition of the new log. Its log start and end are in the snapshot of `NewLog`."""

    key: TopicPartition
    extents: Extents = ()
    epochs: Epochs = ()
    gaps: bool = False
    producers: tuple[ProducerBatch, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLog:
    """The plan of a new log.

    Attributes:
        snapshot: The state of the log, including the ends of all partitions.
        objects: The objects that extents refer to.
        manifests: The manifests of closed segments.
        keys: The keys of encrypted objects.
    """

    log_id: str
    snapshot: SnapshotRecord
    partitions: Sequence[NewPartition]
    objects: Sequence[NewObject]
    manifests: Sequence[NewObject] = ()
    keys: Mapping[str, ObjectKey] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Size of the objects that extents refer to, in bytes."""
        return sum(max(new.size, 0) for new in self.objects)


class NewSegments:
    """Closed segments that are written for a new log, with their keys and manifests.

    Args:
        target: The store of the new log.
        time_ms: The time of the upload.

    Attributes:
        objects: The log objects to write, for `NewLog.objects`.
        manifests: The manifests to write, for `NewLog.manifests`.
        keys: The keys of encrypted segments, for `NewLog.keys`. The keys of planned segments are
            known after the upload.
    """

    def __init__(self, target: Store, time_ms: int) -> None:
        self._target, self._time_ms = target, time_ms
        self._uploaded: dict[str, LogObject] = {}
        self.objects: list[NewObject] = []
        self.manifests: list[NewObject] = []
        self.keys: dict[str, ObjectKey] = {}

    def plan(self, put: SegmentPut[RemoteSegment], keyring: Keyring | None) -> None:
        """Add a segment to `objects` and `manifests`, encrypted if a key ring is given."""
        write = partial(self._put_log, put, keyring)
        self.objects.append(NewObject(log_object(put.segment), put.segment.size, write))
        self._plan_manifest(put)

    def upload(self, put: SegmentPut[RemoteSegment], keyring: Keyring | None) -> LogObject:
        """Upload a segment's log immediately, and add the manifest to `manifests`."""
        self._put_log(put, keyring)
        self._plan_manifest(put)
        return self._uploaded[log_object(put.segment)]

    def _put_log(self, put: SegmentPut[RemoteSegment], keyring: Keyring | None) -> None:
        name = log_object(put.segment)
        made = self._uploaded[name] = put_log(self._target, put, keyring=keyring)
        if made.wrapped is not None:
            self.keys[name] = ObjectKey(put.segment.id, made.wrapped, put.segment.size)

    def _plan_manifest(self, put: SegmentPut[RemoteSegment]) -> None:
        write = partial(self._put_manifest, put)
        self.manifests.append(NewObject(manifest_object(put.segment), -1, write))

    def _put_manifest(self, put: SegmentPut[RemoteSegment]) -> None:
        """Write the manifest; an earlier call may have uploaded the log."""
        made = self._uploaded.get(log_object(put.segment)) or look_at_log(put)
        manifest, raw = made.manifest(self._time_ms)
        self._target.put(manifest.name, raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeLog:
    """A log that was created from another log, or (`dry_run`) would be.

    Attributes:
        offsets: {topic: {partition: (log start, end)}}.
        writers: {writer: last batch}.
        copied_objects: The number of objects that the store itself copied, if both prefixes are in
            the same object store.
        copied_bytes: The size of these objects.
        ledger_offset: For a fork, the position after the last record of the old ledger that the
            fork includes.
        time_ms: For a fork, the time of this record.
    """

    path: str
    epoch: int
    offsets: dict[str, dict[int, tuple[int, int]]]
    writers: dict[str, int]
    copied_objects: int
    copied_bytes: int
    took_ms: int
    dry_run: bool
    ledger_offset: int = 0
    time_ms: int = 0


def _nothing() -> None:
    """The default of `BucketTarget.finish`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketTarget:
    """The place of a new log in a bucket, and how the log is created there.

    Args:
        store: The place. It must be empty, or contain what an interrupted call left.
        threads: The number of objects to copy in parallel.
        dry_run: Plan the log and write nothing.
        log_id: The id of the new log, if no other process can use the place; random by default.
        finish: Called last, once the log exists. If it fails, or is never called, a second call
            completes the log and calls it.
        clock: The current time.
    """

    store: Store
    threads: int = 8
    dry_run: bool = False
    log_id: str | None = None
    finish: Callable[[], object] = _nothing
    clock: Clock = system_clock

    def create(
        self, origin: str, plan: Callable[[str], NewLog], progress: Progress | None = None
    ) -> NewLog:
        """Create the log that `plan` returns for a log id.

        Args:
            origin: Describes the source. A second call must pass the same to complete what this
                call left.
            plan: Returns the contents of the new log.
            progress: Called with the copied bytes, and the bytes to copy.

        Returns:
            The contents of the log. With `dry_run` no log was created.

        Raises:
            InvalidRequestError: Other objects are stored there, another log is being imported, or
                another call has created a log in the meantime.
            DataCorruptionError: The plan is inconsistent.
            StorageUnavailableError: The store does not answer, or refuses the request.
        """
        home = LogImport(self, origin)
        is_log = home.claim()
        try:
            new = plan(known_home(self.store).log_id if is_log else self.log_id or new_topic_id())
        except SparklogError as error:  # release the prefix, so that another call can use it
            if not isinstance(error, StorageUnavailableError):
                home.release()
            raise
        if self.dry_run:
            return new
        if is_log:
            home.complete(new)
        else:
            if self.log_id is None:  # else no other process can use the place
                check_capabilities(self.store)
            home.run(new, progress)
        return new

    def describe(self, new: NewLog, took_ms: int, **more: int) -> MadeLog:
        """Return a description of the new log, for people and scripts."""
        snapshot = new.snapshot
        return MadeLog(
            path=self.store.url,
            epoch=snapshot.epoch,
            offsets=offsets_by_topic(snapshot.ends, snapshot.starts),
            writers={name: last.batch for name, last in sorted(snapshot.writers.items())},
            copied_objects=len(new.objects),
            copied_bytes=new.size,
            took_ms=took_ms,
            dry_run=self.dry_run,
            **more,
        )


class LogImport:
    """Creates a log at a prefix. Not thread-safe; other processes may try the same.

    Args:
        origin: Describes the source; a second call must pass the same.
    """

    def __init__(self, target: BucketTarget, origin: str) -> None:
        self._target, self._store, self._origin = target, target.store, origin
        self._held: dict[str, int] = {}
        self._claimed = False

    def claim(self) -> bool:
        """Claim the prefix; return True if the log exists already, perhaps without manifests.

        Cost: a listing of the prefix.

        Raises:
            InvalidRequestError: Other objects are stored there, or another log is being imported.
        """
        store = self._store
        self._held = {stored.name: stored.size for stored in store.list()}
        if IMPORT in self._held:
            self._check_origin()
        elif self._held:
            contents = "a log already" if HOME in self._held else "other objects"
            raise InvalidRequestError(
                f"{store.url} contains {contents}: choose an empty prefix", path=store.url
            )
        elif not self._target.dry_run:
            self._claimed = store.create(IMPORT, seal("import", {"of": self._origin}))
            if not self._claimed:
                self._check_origin()
        return HOME in self._held

    def release(self) -> None:
        """Release a prefix that this call has claimed, unless other objects are stored there.

        Cost: a listing and a deletion.
        """
        if self._claimed and [stored.name for stored in self._store.list()] == [IMPORT]:
            self._store.delete([IMPORT])

    def _check_origin(self) -> None:
        path = f"{self._store.url}/{IMPORT}"
        cure = "delete all objects there, and call again"
        if is_log := HOME in self._held:  # its writers may have committed since: keep all objects
            cure = f"delete the object {IMPORT}, and choose another prefix for the copy"
        origin = unseal("import", self._store.get(IMPORT), path=path, cure=cure).get("of")
        if origin != self._origin and is_log:
            raise InvalidRequestError(
                f"{self._store.url} contains a log already, created from {origin}: choose an empty "
                "prefix",
                path=path,
            )
        if origin != self._origin:
            raise InvalidRequestError(
                f"{self._store.url} is an incomplete import of {origin}, but this call imports "
                f"{self._origin}. Repeat the first import to complete it, or {cure}",
                path=path,
            )

    def run(self, new: NewLog, progress: Progress | None = None) -> None:
        """Create the log. Call `claim` first.

        Cost: a copy per object that does not exist yet, and a PUT per few thousand of them.

        Raises:
            InvalidRequestError: Another call has created a log here in the meantime.
            DataCorruptionError: The plan is inconsistent.
            StorageUnavailableError: The store does not answer, or refuses the request.
            FileNotFoundError: An object to copy was deleted.
        """
        self._bring(new.objects, new.size, progress)
        state = self._write_ledger(new)
        StateObjects(self._store, lambda: new.log_id).write(state)
        for topic_id in sorted({topic.id for topic in new.snapshot.topics.values()}):
            owner = owner_bytes(new.log_id, self._store.url, new.snapshot.time_ms)
            self._store.put(OWNERS + topic_id, owner)
        if place_home(self._store, new.log_id, self._target.clock).log_id != new.log_id:
            raise InvalidRequestError(
                f"another call has created a log at {self._store.url}: choose another prefix",
                path=self._store.url,
            )
        self.complete(new)

    def complete(self, new: NewLog) -> None:
        """Write the manifests of a log that exists, and delete leftovers of earlier calls.

        `BucketTarget.finish` is called before the object `sparklog.import` is deleted, so a second
        call repeats it after an interruption.
        """
        self._bring(new.manifests, 0, None)
        kept = (entry_name(new.log_id, 0)[:-20], state_prefix(new.log_id),
                staged_prefix(new.log_id))  # fmt: skip
        left = [
            name for name in self._held
            if name.startswith(("ledger-", "state-", "staged-")) and not name.startswith(kept)
        ]  # fmt: skip
        if left:
            self._store.delete(left)
        self._target.finish()
        self._store.delete([IMPORT])

    def _bring(self, objects: Sequence[NewObject], total: int, progress: Progress | None) -> None:
        """Write the objects that an earlier call has not written, several concurrently."""
        done = 0
        jobs = (partial(self._write_missing, new) for new in objects)
        for new in copy_all(jobs, self._target.threads):
            done += max(new.size, 0)
            if progress is not None:
                progress(done, total)

    def _write_missing(self, new: NewObject) -> NewObject:
        # An object of unknown size (-1), such as a manifest, is always written again.
        if self._held.get(new.name) != new.size:
            new.write()
        return new

    def _write_ledger(self, new: NewLog) -> DisklessState:
        """Write the entries.

        No other process knows the log id, so conditional creates are not needed.
        """
        state = DisklessState(new.log_id)
        for entry in entries_of(new):
            name = entry_name(new.log_id, state.next_number)
            entry = replace(entry, prev=state.entry_id)
            raw = encode(state.next_number, entry)
            state.apply(entry, path=f"{self._store.url}/{name}")
            self._store.put(name, raw)
        _check_whole(state, self._store.url)
        return state


def _check_whole(state: DisklessState, url: str) -> None:
    for key, end in state.log.ends.items():
        start, extents = state.log.starts.get(key, 0), state.extents.get(key, ())
        reached = extents[-1].end if extents else start
        first = extents[0].base if extents else start
        if reached != end or first > start:
            raise DataCorruptionError(
                f"{key}: records of [{start}, {end}) are missing", path=url,
                first=reached if first <= start else start, end=end if first <= start else first,
            )  # fmt: skip


# -- the entries


def entries_of(new: NewLog) -> Iterator[Entry]:
    """Yield the entries of a new log, each below ENTRY_BYTES_MAX; `prev` is not set yet."""
    time_ms, epoch = new.snapshot.time_ms, new.snapshot.epoch
    first, later = _without_many_writers(new.snapshot)
    yield _entry(first)
    for some in later:
        writer = next(iter(some))
        yield _entry(
            ResetRecord(
                writer=writer, batch=some[writer].batch + 1, writers=some, abandoned={},
                time_ms=time_ms, epoch=epoch,
            )
        )  # fmt: skip
    for extents in _steps(_extents(new)):
        names = {extent.object for _, extent in extents} & new.keys.keys()
        keys = {name: new.keys[name] for name in sorted(names)}
        yield _entry(ImportRecord(time_ms=time_ms, epoch=epoch), extents=tuple(extents), keys=keys)
    for about in _steps((part, 200 + 40 * len(part.epochs)) for part in new.partitions):
        yield _entry(
            ImportRecord(
                time_ms=time_ms,
                epoch=epoch,
                epochs={part.key: part.epochs for part in about if part.epochs},
                gaps=frozenset(part.key for part in about if part.gaps),
            )
        )
    for part in new.partitions:
        for batches in _steps((batch, 120) for batch in part.producers):
            record = ImportRecord(time_ms=time_ms, epoch=epoch, epochs={part.key: part.epochs})
            yield _entry(record, producers={part.key: tuple(batches)})


def _entry(record: EntryRecord, **fields: Any) -> Entry:
    return Entry(id=new_attempt_id(), prev="", record=record, **fields)


def _extents(new: NewLog) -> Iterator[tuple[tuple[TopicPartition, Extent], int]]:
    """Yield ((partition, extent), approximate number of bytes in an entry)."""
    named: set[str] = set()
    for partition in new.partitions:
        for extent in partition.extents:
            is_new = extent.object in new.keys and extent.object not in named
            named.add(extent.object)
            size = 200 + len(partition.key.topic.encode()) + 2 * len(extent.object.encode())
            yield (partition.key, extent), size + (500 + len(extent.object) if is_new else 0)


def _steps(sized: Iterable[tuple[Any, int]]) -> Iterator[list[Any]]:
    """Group items of a known size into lists, each small enough for a ledger entry.

    `sized` yields (item, bytes in the entry).
    """
    held: list[Any] = []
    total = 0
    for part, size in sized:
        if held and total + size > _STEP_BYTES:
            yield held
            held, total = [], 0
        held.append(part)
        total += size
    if held:
        yield held


def _without_many_writers(
    snapshot: SnapshotRecord,
) -> tuple[SnapshotRecord, list[dict[str, LastMicroBatch]]]:
    """Return a snapshot that fits into a ledger entry, and the writers that were left out.

    If the snapshot with all writers is small enough, it is returned unchanged. Otherwise it gets no
    writers, and their last micro-batches are returned in several parts of {writer: last
    micro-batch}, each for a reset record, which can set them.
    """
    if len(encode_record(snapshot)) <= _WRITERS_BYTES:
        return snapshot, []
    bare = replace(snapshot, writers={})
    return bare, [
        dict(some)
        for some in _steps(
            ((name, last), 200 + len(json.dumps(name)) + 80 * len(last.ends or ()))
            for name, last in sorted(snapshot.writers.items())
        )
    ]
