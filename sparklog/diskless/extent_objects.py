"""Reads ranges of the objects that contain a log's records.

A range is requested without asking for the object's size, and without data of other partitions in
the same object. Large ranges are read in blocks, with prefetching for sequential readers; small
ranges that are close together in an object are read by a single request.
"""

import errno
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import crc32c

from sparklog.diskless.entries import ObjectKey
from sparklog.diskless.entry_cache import EntryCache, check_number
from sparklog.diskless.extents import Extent
from sparklog.diskless.names import HOME, parse_entry
from sparklog.errors import DataCorruptionError, InvalidRequestError, StorageUnavailableError
from sparklog.lru_cache import LruCache
from sparklog.metrics import meters
from sparklog.storage.segments import StaleReadError, UndeterminedLossError
from sparklog.tiered.encryption.envelope import DataKey, open_data_key
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.reading.meters import fetching
from sparklog.tiered.reading.range_fetcher import BLOCK_BYTES, RUN_BYTES
from sparklog.tiered.reading.remote_objects import RemoteObjects

GAP_BYTES: Final = 64 << 10
"""Maximum gap between two small ranges that are fetched together.

Reading the gap takes less time than the request that this saves.
"""
_TIMES: Final = 10_000  # cached times of objects; many partitions share an object


def content_of(extents: Iterable[Extent]) -> int:
    """Return a checksum of the extents' checksums, or -1 if a checksum is unknown."""
    crcs = [extent.crc for extent in extents]
    if min(crcs, default=-1) < 0:
        return -1
    return crc32c.crc32c(b"".join(crc.to_bytes(4, "big") for crc in crcs))


def get_range(store: Store, name: str, start: int, end: int) -> bytes:
    """Return the bytes [start, end) of an object, fewer if the object ends earlier.

    Inline data of a ledger entry are read with the entry's first bytes, which contain its number.

    Raises:
        FileNotFoundError: The object does not exist.
        DataCorruptionError: The object is another entry.
    """
    if parse_entry(name) is None:
        return store.get(name, start, end)
    raw = store.get(name, 0, end)
    check_number(raw, name, store.url)
    return raw[start:]


class ObjectEndsError(StaleReadError):
    """An object ends before the requested bytes: they were cut off, or are lost."""


class ExtentObjects:
    """Reads the objects of a log for a process. Thread-safe.

    Args:
        remote: The store, its caches and its retries; also reads manifests of closed segments.
    """

    def __init__(self, remote: RemoteObjects) -> None:
        self.remote = remote
        self.entries = EntryCache()
        self._data_keys: dict[ObjectKey, DataKey] = {}
        self._put_ms = LruCache[str, int](_TIMES)

    @property
    def store(self) -> Store:
        """The store."""
        return self.remote.store

    def url(self, name: str) -> str:
        """The URL of an object, for messages."""
        return f"{self.store.url}/{name}"

    def put_ms(self, name: str) -> int | None:
        """Return when an object was written (ms), or None.

        Cost: a listing, once.
        """
        known = self._put_ms.get(name)
        if known is None:
            listed = self.remote.retry.call(lambda: self.store.list(name))
            known = next((stored.time_ms for stored in listed if stored.name == name), None)
            if known is not None:
                self._put_ms.put(name, known)
        return known

    def data_key(self, key: ObjectKey) -> DataKey:
        """Return the data key of an object.

        Raises:
            InvalidRequestError: The keyring does not have the key that encrypts the data key.
        """
        ring = self.remote.keys
        if ring is None:
            raise InvalidRequestError(
                f"{self.store.url} has encrypted objects: pass the key ring that contains key "
                f"{key.wrapped.key_id!r} (option remote.keyring)"
            )
        opened_key = self._data_keys.get(key)
        if opened_key is None:
            if len(self._data_keys) > 1024:
                self._data_keys.clear()
            opened_key = self._data_keys[key] = open_data_key(ring, key.id, key.wrapped)
        return opened_key

    def judge(self, name: str, log_id: str, error: FileNotFoundError) -> FileNotFoundError:
        """Determine why an object is missing. Only a definite absence counts as a loss.

        Cost: a GET and a LIST.

        Args:
            name: The name of the object.
            log_id: The id of the log to which the object belongs.
            error: The error of the request.

        Returns:
            A FileNotFoundError with more details; UndeterminedLossError if the object may still
            exist.
        """
        try:
            try:
                # A wrong endpoint or URL can lead to another store, which is no loss of the log.
                is_home = log_id.encode() in self.store.get(HOME)
            except FileNotFoundError:
                is_home = False
            listed = is_home and any(stored.name == name for stored in self.store.list(name))
        except (StorageUnavailableError, DataCorruptionError) as failed:
            return UndeterminedLossError(
                errno.ENOENT, f"{error}, and the store can't be checked: {failed}"
            )
        if not is_home:
            return UndeterminedLossError(
                errno.ENOENT,
                f"{self.store.url} isn't the log with id {log_id}: the read was planned for "
                "another store, or the log was replaced. Correct the URL, "
                "endpoint_url and credentials (storage_options, or the environment)",
            )
        if listed:
            return UndeterminedLossError(
                errno.ENOENT,
                f"{error}, but the store lists the object, so it can't be reached at present; "
                "try again, then look at the store",
            )
        return FileNotFoundError(errno.ENOENT, f"{error}, although the log exists")


@dataclass(frozen=True, slots=True)
class ObjectRange:
    """Bytes [start, start + size) of an object's plain content.

    Attributes:
        objects: Reads the objects.
        log_id: The id of the log.
        topic: The topic, for metrics.
        object: The name of the object.
        start: The first byte.
        size: The number of bytes.
        key: The key of an encrypted object.
        content: The checksum of the extents in the range (`content_of`), or -1 if unknown.
    """

    objects: ExtentObjects
    log_id: str
    topic: str
    object: str
    start: int
    size: int
    key: ObjectKey | None = None
    content: int = -1

    @property
    def _stored(self) -> tuple[int, int]:
        """The first and end byte of the range in the stored object, which may be encrypted."""
        if self.key is None:
            return self.start, self.start + self.size
        opened = self.objects.data_key(self.key)
        end = self.start + self.size
        first, last = opened.stored_range(self.start, end, self.key.size)
        return self.key.at + first, self.key.at + last

    @property
    def cache_key(self) -> str:
        """The key of the range in caches: object, bytes, and the checksums of the extents.

        The checksums distinguish a copied or rolled back log, in which entries have the same names.
        """
        first, end = self._stored
        return f"{self.objects.url(self.object)}@{first}-{end}#{self.content}"

    @property
    def is_lasting(self) -> bool:
        """True if `cache_key` identifies the bytes; not for entries without checksums."""
        return parse_entry(self.object) is None or self.content >= 0

    @property
    def stored_size(self) -> int:
        """Number of stored bytes."""
        first, end = self._stored
        return end - first

    def fetch(self, start: int, end: int) -> bytes:
        """Return stored bytes, counted from the beginning of the range.

        For inline data the entire entry is fetched, because other partitions have data in it.
        Cost: a request, unless the entry is cached.

        Raises:
            FileNotFoundError: See `judge`.
            UndeterminedLossError: See `judge`.
            ObjectEndsError: The object ends before the requested bytes.
            DataCorruptionError: The object is another ledger entry.
        """
        kept = self._kept(start, end)
        if kept is not None:
            return kept
        first, (store, entries) = self._stored[0], (self.objects.store, self.objects.entries)
        with fetching(meters(store.url), self.topic) as got:
            try:
                if parse_entry(self.object) is None:
                    data = store.get(self.object, first + start, first + end)
                else:
                    raw = entries.fetch(store, self.object, first + end)
                    data = raw[first + start : first + end]
            except FileNotFoundError as error:
                raise self.objects.judge(self.object, self.log_id, error) from error
            got.size = len(data)
        if len(data) != end - start:
            raise ObjectEndsError(
                f"{self.objects.url(self.object)} ends at byte {first + start + len(data)}, "
                f"expected {first + end}"
            )
        return data

    def get(self, start: int, end: int) -> bytes:
        """Return the plain bytes [start, end) of the range; start < end.

        Waits for an unavailable store, and raises the errors of `fetch` as well.

        Raises:
            DataCorruptionError: Decryption failed.
        """
        if self.key is None:
            return self._read(start, end)
        opened = self.objects.data_key(self.key)
        low, high = self.start + start, self.start + end
        first, last = opened.stored_range(low, high, self.key.size)
        begin = self._stored[0] - self.key.at
        stored = self._read(first - begin, last - begin)
        return opened.open_range(
            stored, low, high, self.key.size, path=self.objects.url(self.object)
        )

    def _read(self, start: int, end: int) -> bytes:
        """Return the stored bytes [start, end) of the range.

        A cached ledger entry is read without the fetcher, its locks and blocks.
        """
        kept = self._kept(start, end)
        if kept is not None:
            return kept
        fetcher = self.objects.remote.fetcher
        return self.objects.remote.retry.call(lambda: fetcher.read(self, start, end))

    def _kept(self, start: int, end: int) -> bytes | None:
        first = self._stored[0]
        raw = self.objects.entries.find(self.object, first + end)
        return None if raw is None else raw[first + start : first + end]

    def prefetch(self, start: int, end: int) -> None:
        """Begin to fetch the bytes [start, end) in the background, unless the entry is cached."""
        if self._kept(0, self.stored_size) is not None:
            return
        fetcher = self.objects.remote.fetcher
        if self.key is None:
            fetcher.prefetch(self, start, end)
            return
        opened = self.objects.data_key(self.key)
        low, high = self.start + start, self.start + end
        first, last = opened.stored_range(low, high, self.key.size)
        begin = self._stored[0] - self.key.at
        fetcher.prefetch(self, first - begin, last - begin)

    def within(self, start: int, size: int) -> "PartOfRange":
        """Return a part of the range, which is fetched with the rest."""
        return PartOfRange(self, start, size)


@dataclass(frozen=True, slots=True)
class PartOfRange:
    """A part of a range: `sparklog.tiered.reading.remote_segment_log.Ranges`."""

    whole: ObjectRange
    start: int
    size: int

    def get(self, start: int, end: int) -> bytes:
        """Return the bytes [start, end) of the part."""
        return self.whole.get(self.start + start, self.start + end)

    def prefetch(self, start: int, end: int) -> None:
        """Start to fetch the bytes [start, end) of the part in the background."""
        self.whole.prefetch(self.start + start, self.start + end)


@dataclass(frozen=True, slots=True)
class Place:
    """The location of bytes: [start, start + size) of an object."""

    object: str
    start: int
    size: int


def grouped(places: Sequence[Place], at: int) -> range:
    """Return the indexes of the places to fetch together with number `at` by a single request.

    These places are small and ascending in the same object, with gaps below GAP_BYTES, and have up
    to RUN_BYTES in total.
    """
    first = at
    while first > 0 and _are_close(places[first - 1], places[first]):
        first -= 1
    while True:
        end = first + 1
        while (
            end < len(places)
            and _are_close(places[end - 1], places[end])
            and places[end].start + places[end].size - places[first].start <= RUN_BYTES
        ):
            end += 1
        if at < end:
            return range(first, end)
        first = end


def _are_close(one: Place, following: Place) -> bool:
    gap = following.start - (one.start + one.size)
    return (
        one.object == following.object
        and 0 <= gap <= GAP_BYTES
        and max(one.size, following.size) < BLOCK_BYTES
    )


def place_of(extent: Extent) -> Place:
    """Return the location of an extent that is not in a table."""
    return Place(extent.object, extent.start, extent.size)


Keys = Mapping[str, ObjectKey]
"""Data keys by the names of their objects."""
