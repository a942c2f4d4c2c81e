"""A new home made of objects that are there: a fork, or a tier or log dir that becomes such a log.

    sparklog.import      of what this is made; while it lies there alone, nobody takes it for a log
    logs, staged         copies of the old log's, by the store itself where it can
    ledger-<log id>/..   a snapshot, then where the records lie
    state-<log id>/..
    sparklog.home        created: from here on it is a log, whole
    manifests            before it they would make the place look like an archive, half a one

Broken off before `sparklog.home`, nothing is there for anybody; a second call takes over what was
copied, under a new log id. Broken off after it, a second call copies the manifests that miss, which
a service would make too, and tidies up. Source: DISKLESS, The store; Entry.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sparklog.common import TopicPartition
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
from sparklog.diskless.names import HOME, IMPORT, entry_name, staged_prefix, state_prefix
from sparklog.diskless.state import DisklessState
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.progress import Progress
from sparklog.storage.checksummed_json import seal, unseal
from sparklog.storage.ledger_records import LastMicroBatch, ResetRecord, SnapshotRecord
from sparklog.storage.ledger_records import encode as encode_record
from sparklog.tiered.layout.topic_owners import PREFIX as OWNERS
from sparklog.tiered.layout.topic_owners import owner_bytes
from sparklog.tiered.object_store.store import Store

_STEP_BYTES: Final = ENTRY_BYTES_MAX // 4
"""So large the parts of one entry may be by their estimate, which may be wrong by half."""
_WRITERS_BYTES: Final = ENTRY_BYTES_MAX // 2



@dataclass(frozen=True, slots=True)
class NewObject:
    """An object of the new home: `write` puts it there; `size` in bytes, -1 if not known."""

    name: str
    size: int
    write: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPartition:
    """A partition of the new home; its log start and end are in the snapshot."""

    key: TopicPartition
    extents: Extents = ()
    epochs: Epochs = ()
    gaps: bool = False
    producers: tuple[ProducerBatch, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLog:
    """What a home is to be. `snapshot`: its state, with the ends that the partitions will have.

    `objects`: what the extents name; `manifests`: what goes with them. `keys`: of encrypted ones.
    """

    log_id: str
    snapshot: SnapshotRecord
    partitions: Sequence[NewPartition]
    objects: Sequence[NewObject]
    manifests: Sequence[NewObject] = ()
    keys: Mapping[str, ObjectKey] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of the objects that extents name."""
        return sum(max(one.size, 0) for one in self.objects)


class LogImport:
    """The place where a home is made. Not thread-safe; the place may have other callers.

    Args: origin: of what it is made, in words; a second call must say the same. create_home: makes
        the place the log with this id; returns the id of the log that it is then.
    """

    def __init__(
        self,
        store: Store,
        origin: str,
        *,
        write_state: Callable[[Store, DisklessState], None],
        create_home: Callable[[Store, str], str],
        threads: int = 8,
    ) -> None:
        self._store, self._origin, self._threads = store, origin, max(1, threads)
        self._write_state, self._create_home = write_state, create_home
        self._held: dict[str, int] = {}
        self._claimed = False

    def claim(self, *, dry_run: bool = False) -> bool:
        """Take the place; True: it is a log already, but what goes with it may be missing.

        Raises: InvalidRequestError: something else lies there, or is made there.
        Cost: a listing of the place.
        """
        store = self._store
        self._held = {one.name: one.size for one in store.list()}
        if IMPORT in self._held:
            self._check_origin()
        elif self._held:
            what = "a log already" if HOME in self._held else "other objects"
            raise InvalidRequestError(
                f"{store.url} holds {what}: choose a place that is empty", path=store.url
            )
        elif not dry_run:
            self._claimed = store.create(IMPORT, seal("import", {"of": self._origin}))
            if not self._claimed:
                self._check_origin()
        return HOME in self._held

    def release(self) -> None:
        """Give the place back if this call has taken it, and nothing else is there yet.

        Cost: a listing and a deletion.
        """
        if self._claimed and [one.name for one in self._store.list()] == [IMPORT]:
            self._store.delete([IMPORT])

    def _check_origin(self) -> None:
        path = f"{self._store.url}/{IMPORT}"
        cure = "remove all that lies there, and call again"
        if is_log := HOME in self._held:  # its writers may have committed since: nothing goes
            cure = f"delete the object {IMPORT}, and choose another place for the copy"
        said = unseal("import", self._store.get(IMPORT), path=path, cure=cure).get("of")
        if said != self._origin and is_log:
            raise InvalidRequestError(
                f"{self._store.url} holds a log already, made of {said}: choose a place that is "
                "empty",
                path=path,
            )
        if said != self._origin:
            raise InvalidRequestError(
                f"{self._store.url} was to become {said}, and isn't yet; this would make it "
                f"{self._origin}. Call that again to complete it, or {cure}",
                path=path,
            )

    def run(
        self,
        new: NewLog,
        *,
        progress: Progress | None = None,
        finish: Callable[[], object] = lambda: None,
    ) -> None:
        """Make the home. Call `claim` first; for `finish` see `complete`.

        Raises: InvalidRequestError: another call has made the place a log meanwhile;
            DataCorruptionError: what was planned doesn't fit together; StorageUnavailableError;
            FileNotFoundError: an object to be copied is gone.
        Cost: a copy for each object that isn't there, and a put for each few thousand of them.
        """
        self._bring(new.objects, new.size, progress)
        state = self._write_ledger(new)
        self._write_state(self._store, state)
        for topic_id in sorted({topic.id for topic in new.snapshot.topics.values()}):
            owner = owner_bytes(new.log_id, self._store.url, new.snapshot.time_ms)
            self._store.put(OWNERS + topic_id, owner)
        if self._create_home(self._store, new.log_id) != new.log_id:
            raise InvalidRequestError(
                f"{self._store.url} was made a log by another call meanwhile", path=self._store.url
            )
        self.complete(new, finish=finish)

    def complete(self, new: NewLog, *, finish: Callable[[], object] = lambda: None) -> None:
        """Bring what goes with a log that is there, and remove what earlier calls left.

        `finish` is the last to be called, while a second call would still come here.
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
        finish()
        self._store.delete([IMPORT])

    def _bring(self, objects: Sequence[NewObject], total: int, progress: Progress | None) -> None:
        """Write what isn't there in its size, several at a time."""
        done = 0
        with ThreadPoolExecutor(self._threads, "sparklog-import") as pool:
            wanted = [
                (one, None if self._held.get(one.name) == one.size else pool.submit(one.write))
                for one in objects
            ]
            try:
                for one, future in wanted:
                    if future is not None:
                        future.result()
                    done += max(one.size, 0)
                    if progress is not None:
                        progress(done, total)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _write_ledger(self, new: NewLog) -> DisklessState:
        """Write the entries; nobody else knows the log id, so they need not be created."""
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
                f"{key}: records are missing where [{start}, {end}) was to come", path=url,
                first=reached if first <= start else start, end=end if first <= start else first,
            )  # fmt: skip


# -- the entries


def entries_of(new: NewLog) -> Iterator[Entry]:
    """Yield the entries of a new log, each below ENTRY_BYTES_MAX; `prev` is still to be set."""
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
    for part in _steps(_extents(new)):
        names = {extent.object for _, extent in part} & new.keys.keys()
        keys = {name: new.keys[name] for name in sorted(names)}
        yield _entry(ImportRecord(time_ms=time_ms, epoch=epoch), extents=tuple(part), keys=keys)
    for about in _steps((one, 200 + 40 * len(one.epochs)) for one in new.partitions):
        yield _entry(
            ImportRecord(
                time_ms=time_ms,
                epoch=epoch,
                epochs={one.key: one.epochs for one in about if one.epochs},
                gaps=frozenset(one.key for one in about if one.gaps),
            )
        )
    for one in new.partitions:
        for batches in _steps((batch, 120) for batch in one.producers):
            record = ImportRecord(time_ms=time_ms, epoch=epoch, epochs={one.key: one.epochs})
            yield _entry(record, producers={one.key: tuple(batches)})


def _entry(record: EntryRecord, **fields: Any) -> Entry:
    return Entry(id=new_attempt_id(), prev="", record=record, **fields)


def _extents(new: NewLog) -> Iterator[tuple[tuple[TopicPartition, Extent], int]]:
    """Every extent with about the bytes that naming it takes."""
    named: set[str] = set()
    for one in new.partitions:
        for extent in one.extents:
            is_new = extent.object in new.keys and extent.object not in named
            named.add(extent.object)
            size = 200 + len(one.key.topic.encode()) + 2 * len(extent.object.encode())
            yield (one.key, extent), size + (500 + len(extent.object) if is_new else 0)


def _steps(sized: Iterable[tuple[Any, int]]) -> Iterator[list[Any]]:
    """Group what comes as (part, bytes) into entries."""
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
    """Split off writers where a snapshot with all of them were too large for an entry.

    A reset record can set a writer's last micro-batch, so the rest comes in some of these.
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
