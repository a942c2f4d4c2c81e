"""Staging in a bucket: the objects that the tasks of a micro-batch write before its commit.

A task's chunks of all partitions are stored back to back in an object of its own, written once
under a unique name. When an object is full, the task starts another object: this needs as many
requests as a multipart upload, but each object is complete, so a crash leaves no unfinished upload
behind. Objects are uploaded while the next rows are framed. Small amounts are sent to the driver
instead, and become part of the entry. Failed and speculative attempts leave garbage, which is
deleted when it can't be committed any more.
"""

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from sparklog.clock import Clock, system_clock
from sparklog.config import TopicConfig
from sparklog.diskless.checksums import checksum
from sparklog.diskless.names import HOME, new_staged_name
from sparklog.diskless.object_keys import new_object_key, to_text, transport_ring
from sparklog.diskless.staged_chunks import gathered, objects_of
from sparklog.errors import BatchConflictError, InvalidRequestError, SparklogError
from sparklog.format.names import partition_dir
from sparklog.fs import Buffer
from sparklog.log.chunk_stager import ChunksInMemory, ChunkStager
from sparklog.lru_cache import LruCache
from sparklog.secret_digest import secret_digest
from sparklog.storage.chunk_table import ChunkLocation, ChunkTable
from sparklog.storage.commits import Chunk, StagingExpiredError
from sparklog.storage.staging import INLINE_BYTES, Framing, GrowingChunk, Stager
from sparklog.storage.view import TopicInfo
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.target import open_store

_LOGGER: Final = logging.getLogger(__name__)
OBJECT_BYTES: Final = 16 << 20
"""Size of a staged object. Larger objects mean fewer extents, and more memory per task."""
UNDER_WAY: Final = 2
"""Concurrent uploads per task; each takes OBJECT_BYTES of memory."""
STORES_MAX: Final = 16
"""Stores that the tasks of a process keep open: one per log and set of storage options."""
_SMALL_TASKS: Final = 32
# After other errors the commit may have succeeded, so its objects must stay.
_REFUSALS: Final = (BatchConflictError, InvalidRequestError, StagingExpiredError)


def inline_bytes_max(task: int) -> int:
    """Return how many bytes, of all chunks together, task number `task` may send to the driver.

    INLINE_BYTES for the first tasks, then less: 2,000 tasks together send about 40 MiB at most.
    """
    return INLINE_BYTES // (1 + task // _SMALL_TASKS)


class ObjectPuts:
    """Uploads objects of chunks concurrently. Not thread-safe.

    `wrapped_keys` is {object: wrapped data key} of the uploaded objects.

    Args:
        ring: Encrypts each object with a data key of its own.
        parallel: The number of concurrent uploads; 1 uploads in the caller's thread.
    """

    def __init__(self, store: Store, ring: Keyring | None, parallel: int) -> None:
        self._store, self._ring, self._parallel = store, ring, parallel
        self._pool: ThreadPoolExecutor | None = None
        self._under_way: list[Future[None]] = []
        self.names: list[str] = []
        self.wrapped_keys: dict[str, str] = {}

    def start(self, name: str, parts: Sequence[Buffer], size: int) -> None:
        """Upload an object in a thread.

        If needed, wait for an earlier upload and raise its error.
        """
        self.names.append(name)
        if self._parallel <= 1:
            self._put(name, parts, size)
            return
        self._wait(self._parallel - 1)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._parallel, thread_name_prefix="sparklog-stage")
        self._under_way.append(self._pool.submit(self._put, name, parts, size))

    def finish(self) -> None:
        """Wait for all uploads, and raise the error of a failed upload."""
        self._wait(0)
        self._close_pool()

    def discard(self) -> None:
        """Delete the uploaded objects, which no commit refers to.

        A sweep deletes any that remain.
        """
        self._close_pool()
        _delete(self._store, self.names)

    def _put(self, name: str, parts: Sequence[Buffer], size: int) -> None:
        if self._ring is None:
            self._store.put(name, b"".join(parts))
            return
        data_key, key = new_object_key(self._ring, size)
        self._store.put(name, b"".join(data_key.seal(parts, size)))
        self.wrapped_keys[name] = to_text(key)

    def _wait(self, left: int) -> None:
        while len(self._under_way) > left:
            self._under_way.pop(0).result()

    def _close_pool(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


class _InObject(NamedTuple):
    """The object that contains a closed chunk, the first byte there, and the chunk's CRC-32C."""

    name: str
    position: int
    crc: int


class StagedObjects:
    """A `sparklog.storage.staging.ChunkPlace`: collects chunks of all partitions in objects.

    For `ring` and `parallel` see `ObjectPuts`. Memory: (2 + `parallel`) * `object_bytes`.
    """

    is_memory = False

    def __init__(
        self,
        store: Store,
        new_name: Callable[[], str],
        *,
        inline_max: int,
        object_bytes: int = OBJECT_BYTES,
        parallel: int = UNDER_WAY,
        ring: Keyring | None = None,
    ) -> None:
        self.home = store.url
        self._puts, self._new_name = ObjectPuts(store, ring, parallel), new_name
        self._is_sealed = ring is not None
        self._inline_max, self._object_bytes = inline_max, object_bytes
        self._held = 0  # bytes of growing chunks and of `_parts`
        self._growing = 0
        self._name = ""  # of the object that closed chunks are appended to
        self._parts: list[memoryview] = []
        self._size = 0
        self._full = False

    def grow(self, chunk: GrowingChunk, data: memoryview) -> bool:
        """Copy batches to a growing chunk.

        Return True if all partitions together fill the object.
        """
        # A copy, because the stager encodes the next rows into the same buffer.
        chunk.parts.append(memoryview(bytes(data)))
        self._held += len(data)
        self._growing += len(data)
        self._full = self._held >= self._object_bytes
        return self._full

    def close(self, chunk: GrowingChunk) -> None:
        """Append a closed chunk to the object.

        The last chunk of a full object starts its upload.
        """
        if not self._name:
            self._name = self._new_name()
        chunk.place_state = _InObject(self._name, self._size, checksum(chunk.parts))
        self._parts += chunk.parts
        chunk.parts.clear()
        self._size += chunk.size_bytes
        self._growing -= chunk.size_bytes
        # Not while other chunks grow: a chunk must be one byte range of one object, so the object
        # ends only when all its chunks are closed.
        if self._full and not self._growing:
            self._send()

    def finish(self, chunks: Sequence[GrowingChunk]) -> Sequence[Chunk]:
        """Return the chunks: with their bytes if they are small, otherwise staged in objects.

        Waits for all uploads.
        """
        places: list[tuple[GrowingChunk, _InObject]] = [
            (chunk, chunk.place_state) for chunk in chunks
        ]
        # A small commit is stored within its ledger entry, which saves a PUT for the staged object.
        if not self._puts.names and self._size <= self._inline_max:
            data = memoryview(b"".join(self._parts))
            return [
                chunk.chunk(data=data[at.position : at.position + chunk.size_bytes], crc=at.crc)
                for chunk, at in places
            ]
        if self._size:
            self._send()
        self._puts.finish()
        keys = self._puts.wrapped_keys
        return [
            chunk.chunk(
                path=at.name, position=at.position, crc=at.crc,
                wrapped_key=keys[at.name] if self._is_sealed else None,
            )
            for chunk, at in places
        ]  # fmt: skip

    def _send(self) -> None:
        """Start the upload of the full object."""
        name, parts, size = self._name, self._parts, self._size
        self._name, self._parts, self._size, self._held, self._full = (
            "",
            [],
            0,
            self._growing,
            False,
        )
        self._puts.start(name, parts, size)

    def discard(self, chunks: Sequence[GrowingChunk]) -> None:
        """Delete the uploaded objects, which no commit refers to.

        A sweep deletes any that remain.
        """
        self._puts.discard()


def _delete(store: Store, names: Sequence[str]) -> None:
    if not names:
        return
    try:
        store.delete(names)
    except (SparklogError, OSError) as error:
        _LOGGER.debug("%s: staged objects remain until the next sweep: %s", store.url, error)


@dataclass(frozen=True, slots=True, kw_only=True)
class DisklessStaging:
    """The `sparklog.storage.staging.TaskStaging` of a log in a bucket. Hosts need no disk.

    The repr shows no secrets.

    Attributes:
        head: The number of the newest entry that was known at creation.
        transport_key: The key with which tasks encrypt staged objects and wrap data keys.
    """

    url: str
    log_id: str
    head: int
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    transport_key: bytes | None = field(default=None, repr=False)
    object_bytes: int = OBJECT_BYTES
    parallel: int = UNDER_WAY
    store: Store | None = field(default=None, repr=False, compare=False)
    clock: Clock = field(default=system_clock, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the fields with which a task opens the store in another process."""
        return _staging, (
            self.url, self.log_id, self.head, dict(self.storage_options), self.transport_key,
            self.object_bytes, self.parallel,
        )  # fmt: skip

    @property
    def home(self) -> str:
        """The URL."""
        return self.url

    def check(self) -> None:
        """Check once, by the home object, that this process reaches the log's store.

        Raises:
            InvalidRequestError: The URL leads to another store or place on this host.
        """
        store = self._opened()
        seen, this_log = _seen(store), (os.getpid(), self.log_id)
        if this_log in seen:
            return
        try:
            raw = store.get(HOME)
        except FileNotFoundError:
            raw = b""
        if self.log_id.encode() not in raw:
            raise InvalidRequestError(
                f"{self.url} on {socket.gethostname()} isn't the log that its driver writes: "
                f"{'another log is' if raw else 'no log is'} stored there. Give every host the "
                "same store: storage_options instead of an environment or profile of a single "
                "host, and file:// only for a disk that all hosts share",
                path=self.url,
            )
        seen.add(this_log)

    def stager(self, framing: Framing, *, label: str, task: int = 0) -> Stager:
        """Return a task's stager."""
        place = StagedObjects(
            self._opened(),
            lambda: self._new_name(label),
            inline_max=inline_bytes_max(task),
            object_bytes=self.object_bytes,
            parallel=self.parallel,
            ring=self._ring(),
        )
        return ChunkStager(place, self.clock, framing, spread=label)

    def memory_stager(self, framing: Framing, *, spread: str) -> Stager:
        """Return the stager of the driver, whose chunks stay in memory."""
        return ChunkStager(ChunksInMemory(self.url), self.clock, framing, spread=spread)

    @property
    def puts_objects(self) -> bool:
        """True: the JVM has no access to the store, so Python uploads objects."""
        return True

    def jvm_place(self) -> Mapping[str, Any]:
        """Return the settings by which JVM tasks return chunks, in a table per object to upload."""
        return {"kind": "objects", "object_bytes": self.object_bytes}

    def jvm_topic(self, topic: TopicInfo) -> Mapping[str, Any]:
        """Return an empty mapping: all partitions share the same objects."""
        return {}

    def put(self, tables: Iterable[ChunkTable], *, label: str, task: int = 0) -> ChunkTable:
        """Upload an object per table; each table has `object_bytes`, except the last.

        Memory: 1 + `parallel` tables; the first table waits until a second table follows, because a
            single small table is sent to the driver.
        """
        puts = ObjectPuts(self._opened(), self._ring(), self.parallel)
        sent: list[tuple[str, ChunkTable]] = []
        first: ChunkTable | None = None
        try:
            for table in tables:
                if first is not None:
                    sent.append(self._sent(puts, first, label))
                first = table if not sent else None
                if sent:
                    sent.append(self._sent(puts, table, label))
            if first is not None and len(first.data) <= inline_bytes_max(task):
                return first
            if first is not None:
                sent.append(self._sent(puts, first, label))
            puts.finish()
        except BaseException:
            puts.discard()
            raise
        keys = puts.wrapped_keys
        return ChunkTable.joined(
            [table.placed(ChunkLocation(name, wrapped_key=keys.get(name))) for name, table in sent]
        )

    def _sent(self, puts: ObjectPuts, table: ChunkTable, label: str) -> tuple[str, ChunkTable]:
        """Upload a table's data; return the object's name, and the table without data."""
        name = self._new_name(label)
        puts.start(name, [table.data], len(table.data))
        return name, replace(table, data=b"")

    def _new_name(self, label: str) -> str:
        return new_staged_name(self.log_id, max(self.head, 0), label)

    def _ring(self) -> Keyring | None:
        return None if self.transport_key is None else transport_ring(self.transport_key)

    def planned_topic(self, name: str, partitions: int, config: TopicConfig) -> TopicInfo:
        """Return a topic that will be created, without an id."""
        dirs = {p: f"{self.url.rstrip('/')}/{partition_dir(name, p)}" for p in range(partitions)}
        return TopicInfo(name, "", partitions, config, dirs)

    def gathered(self, tables: Sequence[ChunkTable]) -> Sequence[Chunk]:
        """Return the chunks of a commit: a chunk per partition."""
        return gathered(tables, self.transport_key)

    def discard(self, chunks: Sequence[Chunk], *, cause: BaseException | None = None) -> None:
        """Delete staged objects if their commit was rejected.

        Otherwise they may be part of the log.
        """
        if not isinstance(cause, _REFUSALS):
            return
        _delete(self._opened(), sorted(objects_of(chunks)))

    def _opened(self) -> Store:
        return self.store or STORES.store(self.url, self.storage_options)


def _staging(
    url: str,
    log_id: str,
    head: int,
    storage_options: Mapping[str, Any],
    transport_key: bytes | None,
    object_bytes: int,
    parallel: int,
) -> DisklessStaging:
    return DisklessStaging(
        url=url, log_id=log_id, head=head, storage_options=storage_options,
        transport_key=transport_key, object_bytes=object_bytes, parallel=parallel,
    )  # fmt: skip


class OpenedStores:
    """The stores that the tasks of a process share, by URL and storage options.

    At most `size` stores are cached; beyond that the least recently used store is dropped. A
    dropped store is closed when the last task that uses it releases it, because s3fs closes a
    client when it is collected. Closing it earlier would break a task that is still writing.
    """

    def __init__(self, size: int) -> None:
        self._stores: LruCache[tuple[int, str], Store] = LruCache(size)

    def store(self, url: str, options: Mapping[str, Any]) -> Store:
        """Return an open store of this process for a URL and options.

        Raises:
            InvalidRequestError: See `open_store`.
        """
        key = os.getpid(), secret_digest(url, dict(options))
        return self._stores.get_or_make(key, lambda: open_store(url, options))

    def keys(self) -> list[tuple[int, str]]:
        """Return process id and digest of each store; neither URLs nor options."""
        return self._stores.keys()


STORES: Final = OpenedStores(STORES_MAX)
_mutex = threading.Lock()
_checked: WeakKeyDictionary[Store, set[tuple[int, str]]] = WeakKeyDictionary()
"""The logs that a process has found in a store. Does not keep a dropped store open."""


def _seen(store: Store) -> set[tuple[int, str]]:
    with _mutex:
        return _checked.setdefault(store, set())
