"""The objects of remote segments: manifests with their small files, and ranges of logs."""

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from sparklog.errors import DataCorruptionError, InvalidRequestError, StorageUnavailableError
from sparklog.metrics import meters
from sparklog.storage.segments import UndeterminedLossError
from sparklog.tiered.encryption.envelope import DataKey, open_data_key
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.layout import manifest as manifests
from sparklog.tiered.layout.manifest import (
    MANIFEST_BYTES_MAX,
    Manifest,
    directory_of,
    manifest_object,
)
from sparklog.tiered.layout.topic_owners import is_owned
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.reading.block_cache import DIRECTORY_NAME, BlockCache
from sparklog.tiered.reading.meters import fetching
from sparklog.tiered.reading.options import RemoteOptions
from sparklog.tiered.reading.range_fetcher import Blocks, Fetcher
from sparklog.tiered.reading.store_retry import StoreRetry
from sparklog.tiered.remote_segment import RemoteSegment

MANIFESTS_BYTES: Final = 64 << 20  # maximum of cached manifests with their indexes


@dataclass(frozen=True, slots=True)
class OpenedSegment:
    """A remote segment whose manifest was read.

    Attributes:
        manifest: The first line of the manifest.
        body: The segment's small files, one after the other.
        data_key: The key of an encrypted segment.
    """

    manifest: Manifest
    body: bytes
    data_key: DataKey | None

    def part(self, name: str) -> bytes | None:
        """Return the part `name` (see `manifest.PARTS`), if the segment has it."""
        return manifests.part(self.manifest, self.body, name)


@dataclass(frozen=True, slots=True)
class LogRanges:
    """Reads ranges of a remote segment's log, which may be encrypted, in plain bytes."""

    store: Store
    fetcher: Fetcher
    opened: OpenedSegment
    retry: StoreRetry

    @property
    def name(self) -> str:
        return self.opened.manifest.log_name

    @property
    def cache_key(self) -> str:
        """The object and the object's checksum."""
        crc = self.opened.manifest.stored_crc32c
        return f"{self.store.url}/{self.name}#{crc:08x}"

    @property
    def is_lasting(self) -> bool:
        return True

    @property
    def stored_size(self) -> int:
        """The object's size in bytes."""
        return self.opened.manifest.stored_size

    @property
    def size(self) -> int:
        """The size of the plain log in bytes, as in Kafka."""
        return self.opened.manifest.segment.size

    def fetch(self, start: int, end: int) -> bytes:
        """Return stored bytes, by a single request.

        Raises:
            DataCorruptionError: The object is too short.
        """
        data = _fetched(
            self.store,
            self.opened.manifest.segment,
            self.name,
            lambda: self.store.get(self.name, start, end),
        )
        if len(data) != end - start:  # the store has confirmed the object's size
            raise DataCorruptionError(
                f"the object has {start + len(data)} bytes, but {self.stored_size} in the "
                "manifest; restore the object from a copy of the bucket",
                path=f"{self.store.url}/{self.name}",
                position=start + len(data),
            )
        return data

    def get(self, start: int, end: int) -> bytes:
        """Return the plain bytes [start, end); start < end."""
        key = self.opened.data_key
        if key is None:
            return self._read(start, end)
        stored = self._read(*key.stored_range(start, end, self.size))
        return key.open_range(stored, start, end, self.size, path=f"{self.store.url}/{self.name}")

    def _read(self, start: int, end: int) -> bytes:
        return self.retry.call(lambda: self.fetcher.read(self, start, end))

    def prefetch(self, start: int, end: int) -> None:
        """Fetch the plain bytes [start, end) in the background; start < end."""
        key = self.opened.data_key
        if key is not None:
            start, end = key.stored_range(start, end, self.size)
        self.fetcher.prefetch(self, start, end)


def _fetched(store: Store, segment: RemoteSegment, name: str, get: Callable[[], bytes]) -> bytes:
    """Return the bytes of a segment's object, as `get` requests them; count the request.

    Cost: for a missing object also a listing of its prefix, perhaps another GET.

    Raises:
        FileNotFoundError: The object was deleted.
        UndeterminedLossError: Whether the object was deleted is uncertain; see `_missing`.
    """
    with fetching(meters(store.url), segment.topic) as got:
        try:
            data = get()
        except FileNotFoundError as error:
            missing = error
        else:
            got.size = len(data)
            return data
        raise _missing(store, segment, name, missing) from missing


def _missing(
    store: Store, segment: RemoteSegment, name: str, error: FileNotFoundError
) -> FileNotFoundError:
    """Determine why an object is missing: only a definite absence counts as a loss."""
    try:
        names = {stored.name for stored in store.list(directory_of(segment).prefix)}
        known = bool(names) or is_owned(store, segment.topic_id)
    except StorageUnavailableError as failed:
        return UndeterminedLossError(
            errno.ENOENT, f"{error}, and the store can't be checked: {failed}"
        )
    if not known:
        return UndeterminedLossError(
            errno.ENOENT,
            f"{store.url} has no object of {segment.topic}-{segment.partition} (topic id "
            f"{segment.topic_id}), so this is not the store that the segment was copied to: "
            "correct endpoint_url and credentials (storage_options of this call, or the "
            "environment)",
        )
    if name in names:
        return UndeterminedLossError(
            errno.ENOENT,
            f"{error}, but the store lists the object: the listing is outdated, or the store "
            "can't reach the object at present; try again, then look at the store",
        )
    return FileNotFoundError(
        errno.ENOENT,
        f"{error}, though other objects of the topic exist; restore the object from a copy of the "
        "bucket",
    )


class RemoteObjects:
    """Reads the objects of a store. Manifests are fetched completely and cached. Thread-safe."""

    def __init__(
        self,
        connect: Callable[[], Store],
        cache: Blocks,
        keys: Keyring | None = None,
        *,
        threads: int = 4,
        retry: StoreRetry | None = None,
    ) -> None:
        """Make no connection yet.

        Args:
            connect: Opens the store. Called when the first remote object is needed.
            cache: The cache of the objects' blocks.
            keys: Decrypts encrypted copies.
            threads: The number of concurrent prefetching requests.
            retry: Retries requests while the store is unavailable; by default they fail at once.
        """
        self.retry = retry or StoreRetry()
        self._connect = connect
        self._store: Store | None = None
        self.fetcher = Fetcher(cache, threads=threads)
        self._cache, self.keys = cache, keys
        self._opened: OrderedDict[str, OpenedSegment] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def store(self) -> Store:
        """The store. Raises the errors of `connect`."""
        if self._store is None:
            self._store = self._connect()
        return self._store

    def open(self, segment: RemoteSegment, *, patient: bool = True) -> OpenedSegment:
        """Return the segment's manifest. Cost: a single request, unless cached.

        Args:
            segment: The copy.
            patient: Wait for an unavailable store. Set it only in a reader's own thread, because
                waits in other threads would delay the end of the process.

        Raises:
            FileNotFoundError: The copy was deleted.
            DataCorruptionError: The manifest is damaged.
            InvalidRequestError: The copy is encrypted, and the key is missing.
        """
        with self._lock:
            cached = self._opened.get(segment.id)
            if cached is not None:
                self._opened.move_to_end(segment.id)
                return cached
        name = manifest_object(segment)
        opened = self._cached(segment, name)
        if opened is None:
            ask = partial(self.store.get, name, limit=MANIFEST_BYTES_MAX)
            raw = (self.retry if patient else StoreRetry()).call(
                lambda: _fetched(self.store, segment, name, ask)
            )
            opened = self._parsed(segment, raw, name)
            self._cache.put(self._cache_key(name), 0, raw)
        self._keep(opened)
        return opened

    def ranges(self, segment: RemoteSegment, *, patient: bool = True) -> LogRanges:
        """Return access to ranges of the segment's log. Errors and cost are those of `open`."""
        opened = self.open(segment, patient=patient)
        return LogRanges(self.store, self.fetcher, opened, self.retry)

    def open_many(self, segments: Sequence[RemoteSegment]) -> list[OpenedSegment | Exception]:
        """Open several segments concurrently; the result contains an error for each that failed."""
        answers = self.store.get_many(
            [manifest_object(segment) for segment in segments], limit=MANIFEST_BYTES_MAX
        )
        results: list[OpenedSegment | Exception] = []
        for segment, answer in zip(segments, answers, strict=True):
            if isinstance(answer, bytes):
                try:
                    results.append(self._parsed(segment, answer, manifest_object(segment)))
                except (DataCorruptionError, InvalidRequestError) as error:
                    results.append(error)
            else:
                results.append(answer)
        return results

    def _cached(self, segment: RemoteSegment, name: str) -> OpenedSegment | None:
        """Return a manifest from the disk cache, or None for a missing or outdated manifest."""
        raw = self._cache.get(self._cache_key(name), 0)
        try:
            return None if raw is None else self._parsed(segment, raw, name)
        except (DataCorruptionError, InvalidRequestError):  # e.g. its key was rotated since
            return None

    def _cache_key(self, name: str) -> str:
        return f"{self.store.url}/{name}"

    def _parsed(self, segment: RemoteSegment, raw: bytes, name: str) -> OpenedSegment:
        manifest, body = manifests.parse_of(segment, raw, path=f"{self.store.url}/{name}")
        if manifest.encryption is None:
            return OpenedSegment(manifest, body, None)
        if self.keys is None:
            raise InvalidRequestError(
                f"{self.store.url}/{name} is encrypted: set option remote.keyring to a key ring "
                f"that contains the key {manifest.encryption.key_id!r}"
            )
        key = open_data_key(self.keys, manifest.segment.id, manifest.encryption)
        return OpenedSegment(manifest, key.open_body(body, path=name), key)

    def _keep(self, opened: OpenedSegment) -> None:
        with self._lock:
            self._opened[opened.manifest.segment.id] = opened
            self._bytes += len(opened.body)
            while self._bytes > MANIFESTS_BYTES and len(self._opened) > 1:
                _, dropped = self._opened.popitem(last=False)
                self._bytes -= len(dropped.body)

    def forget(self, segment: RemoteSegment) -> None:
        """Drop the cached manifest of a deleted copy."""
        with self._lock:
            opened = self._opened.pop(segment.id, None)
            self._bytes -= len(opened.body) if opened is not None else 0


def open_objects(
    connect: Callable[[], Store],
    options: RemoteOptions,
    stopped: Callable[[], bool] = lambda: False,
) -> RemoteObjects:
    """Return the objects of the store that `connect` opens at their first use.

    Args:
        connect: Opens the store.
        options: The options of remote reads.
        stopped: Ends waits for an unavailable store when it returns True.

    Raises:
        InvalidRequestError: The key ring is invalid.
    """
    directory = options.remote_cache_directory
    cache = BlockCache(
        options.remote_cache_memory_bytes,
        directory=os.path.join(directory, DIRECTORY_NAME) if directory else None,
        disk_bytes=options.remote_cache_disk_bytes if directory else 0,
    )
    keys = Keyring.load(options.remote_keyring) if options.remote_keyring else None
    retry = StoreRetry(
        options.patience_ms(following=False),
        follow_timeout_ms=options.patience_ms(following=True),
        stopped=stopped,
    )
    return RemoteObjects(connect, cache, keys, threads=options.remote_fetch_threads, retry=retry)
