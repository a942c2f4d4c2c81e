"""Extents as the log of a segment: their batches as readers see them, in bounded memory.

Batches of an extent that is not a segment have offsets that count from 0. This module patches base
offset and leader epoch window by window, and with LogAppendTime also the CRC after checking the old
CRC. The module also checks that the offsets fill the extent without a gap, because the CRC does not
cover base offset and leader epoch.
"""

import bisect
import itertools
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Self

import crc32c

from sparklog.diskless.checksums import ExtentSum
from sparklog.diskless.entries import ObjectKey
from sparklog.diskless.entry_cache import EntryCache
from sparklog.diskless.extent_objects import get_range
from sparklog.diskless.extent_tables import TableHead, block_size, pieces_of, read_head
from sparklog.diskless.extents import Extent, Extents
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.format.scan import Table, rebase, scan, stamp
from sparklog.log.batch_windows import walk
from sparklog.storage.segment_store import SourceChangedError
from sparklog.tiered.encryption.envelope import DataKey, open_data_key
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.object_store.store import Store

SPAN_BYTES: Final = 8 << 20  # of an object shared by several partitions, read by a single request
KEPT_BYTES: Final = 64 << 20
Range = tuple[str, int, int]
"""(object, first byte, end byte), as stored."""


class ObjectBytes:
    """Reads ranges of objects for a round of merges, with few requests per object.

    A task's object contains the chunks of all its partitions back to back, and the merge of each
    partition needs another range of it. `plan` announces the ranges of a round; ranges within
    SPAN_BYTES are fetched together and cached, up to KEPT_BYTES. Thread-safe.
    """

    def __init__(self, store: Store, *, kept_bytes: int = KEPT_BYTES) -> None:
        self._store, self._kept_bytes = store, kept_bytes
        self._spans: dict[str, tuple[int, int]] = {}
        self._kept: OrderedDict[str, tuple[int, bytes]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def plan(self, wanted: Iterable[Range]) -> None:
        """Announce ranges that will be read, each once."""
        shared: dict[str, tuple[int, int, int]] = {}
        for name, start, end in wanted:
            low, high, count = shared.get(name, (start, end, 0))
            shared[name] = min(low, start), max(high, end), count + 1
        self._spans |= {
            name: (low, high)
            for name, (low, high, count) in shared.items()
            if count > 1 and high - low <= SPAN_BYTES
        }

    def get(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes [start, end) of an object.

        Raises:
            SourceChangedError: It was deleted, or was cut because no extent refers to the data.
            DataCorruptionError: It is another ledger entry.
        """
        low, high = self._spans.get(name, (start, end))
        if not low <= start <= end <= high:
            low, high = start, end
        with self._lock:
            kept = self._kept.get(name)
        if kept is not None and kept[0] <= start and end <= kept[0] + len(kept[1]):
            return kept[1][start - kept[0] : end - kept[0]]
        data = self._fetched(name, low, high)
        # A range that only one merge needs would displace ranges that are still to be read.
        if (low, high) != (start, end):
            self._keep(name, low, data)
        return data[start - low : end - low]

    def _fetched(self, name: str, start: int, end: int) -> bytes:
        path = f"{self._store.url}/{name}"
        try:
            data = get_range(self._store, name, start, end)
        except FileNotFoundError as error:
            raise SourceChangedError(f"{path} was deleted", path=path) from error
        if len(data) < end - start:
            raise SourceChangedError(
                f"{path} ends at byte {start + len(data)}, expected {end}", path=path
            )
        return data

    def _keep(self, name: str, start: int, data: bytes) -> None:
        with self._lock:
            if name in self._kept:
                return
            self._kept[name] = start, data
            self._size += len(data)
            while self._size > self._kept_bytes:
                self._size -= len(self._kept.popitem(last=False)[1][1])


class SourceReader:
    """Reads and decrypts the bytes of extents. Thread-safe.

    Args:
        keys: The keys of encrypted objects. Extent tables contain the keys of the objects that they
            refer to.
        entries: Cached ledger entries. Reading their inline data needs no request.
    """

    def __init__(
        self,
        store: Store,
        keys: Mapping[str, ObjectKey],
        keyring: Keyring | None,
        entries: EntryCache | None = None,
    ) -> None:
        self.objects, self._entries = ObjectBytes(store), entries
        self._store, self._keyring, self._keys = store, keyring, dict(keys)
        self._heads: dict[str, TableHead] = {}

    def pieces(self, extent: Extent) -> Extents:
        """Return the extents that an extent consists of: itself, or the rows of its extent table.

        Cost: two requests for a table, and another per further partition in it.

        Raises:
            SourceChangedError: The table was deleted.
            DataCorruptionError: An object is damaged.
        """
        if not extent.pieces:
            return (extent,)
        path, name = f"{self._store.url}/{extent.object}", extent.object
        try:
            if name not in self._heads:
                self._heads[name] = read_head(partial(self._store.get, name), path=path)
            block = self._store.get(name, extent.start, extent.start + block_size(extent))
        except FileNotFoundError as error:
            raise SourceChangedError(f"{path} was deleted", path=path) from error
        head = self._heads[name]
        self._keys.update(head.keys)
        return pieces_of(extent, head, block, path=path)

    def stored(self, extent: Extent, start: int = 0, end: int | None = None) -> Range:
        """Return the object and byte range where the extent's bytes [start, end) are stored.

        If the object is encrypted, the range covers complete encrypted chunks.
        """
        first = extent.start + start
        last = extent.start + (extent.size if end is None else end)
        sealed = self._keys.get(extent.object)
        if sealed is None:
            return extent.object, first, last
        low, high = self._key(sealed).stored_range(first, last, sealed.size)
        return extent.object, sealed.at + low, sealed.at + high

    def read(self, extent: Extent, start: int, end: int) -> bytes:
        """Return the bytes [start, end) of an extent as they were staged; start < end.

        Raises:
            SourceChangedError: An object was deleted or cut.
            DataCorruptionError: Decryption failed.
            InvalidRequestError: Decryption failed.
        """
        kept = self._kept(extent)
        if kept is not None:
            return kept[start:end]
        name, low, high = self.stored(extent, start, end)
        return self._plain(extent, self.objects.get(name, low, high), start, end)

    def _kept(self, extent: Extent) -> bytes | None:
        """Return the data of an inline extent from the cache of ledger entries.

        Returns None if the entry is not cached, or if its bytes fail the extent's checksum.
        """
        name, low, high = self.stored(extent)
        entry = None if self._entries is None else self._entries.find(name, high)
        if entry is None:
            return None
        try:
            data = self._plain(extent, entry[low:high], 0, extent.size)
        except DataCorruptionError:
            return None
        return data if crc32c.crc32c(data) == extent.crc else None

    def _plain(self, extent: Extent, data: bytes, start: int, end: int) -> bytes:
        sealed = self._keys.get(extent.object)
        if sealed is None:
            return data
        first, last = extent.start + start, extent.start + end
        return self._key(sealed).open_range(data, first, last, sealed.size, path=extent.object)

    def _key(self, sealed: ObjectKey) -> DataKey:
        if self._keyring is None:
            raise InvalidRequestError(
                f"records are encrypted under master key {sealed.wrapped.key_id!r}: pass the key "
                "ring to the service (keyring=)"
            )
        return open_data_key(self._keyring, sealed.id, sealed.wrapped)


@dataclass(frozen=True, slots=True)
class Slice:
    """The bytes [start, stop) of an extent: the entire batches with offsets [base, end).

    Attributes:
        extent: The extent.
        start: The first byte, counted from the beginning of the extent.
        stop: The byte after the last byte.
        base: The first offset.
        end: The offset after the last record.
        total: The checksum of the whole extent, which all slices of the extent share.
    """

    extent: Extent
    start: int
    stop: int
    base: int
    end: int
    total: ExtentSum = field(repr=False, compare=False)

    @classmethod
    def of(cls, extent: Extent) -> Self:
        """Return the entire extent as a single slice."""
        return cls(extent, 0, extent.size, extent.base, extent.end, ExtentSum(extent))

    @property
    def size(self) -> int:
        """The number of bytes of the extent that the slice contains."""
        return self.stop - self.start


class SourceLog:
    """Slices of extents as the log of a segment: `sparklog.storage.segments.SegmentLog`.

    Made for sequential reads from batch to batch: `pread` writes the committed offsets into the
    headers of complete batches if the read begins at the beginning of a batch. `threads` is the
    number of concurrent requests.
    """

    def __init__(
        self, path: str, slices: Sequence[Slice], reader: SourceReader, *, threads: int = 1
    ) -> None:
        self.path, self._slices, self._reader = path, slices, reader
        self._threads = threads
        self._starts = [0, *itertools.accumulate(each.size for each in slices)]
        self._next: dict[int, tuple[int, int]] = {}  # slice: (byte, offset) at the start of a batch

    def size(self) -> int:
        """Return the total size in bytes."""
        return self._starts[-1]

    def pread(self, size: int, at: int) -> bytes:
        """Return the bytes [at, at + size), fewer only at the end of the log.

        Raises:
            SourceChangedError: An object was deleted or cut.
            DataCorruptionError: Wrong offsets, or a wrong CRC of a batch that gets a new CRC.
        """
        pieces = list(self._pieces(at, min(at + size, self.size())))
        return b"".join(self._read(pieces))

    def _pieces(self, at: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield the parts of slices that make up the log's bytes [at, end).

        Each part is (index of the slice, first byte in the slice's extent, end byte).
        """
        index = bisect.bisect_right(self._starts, at) - 1
        while at < end:
            first, skip = self._starts[index], self._slices[index].start
            last = min(end, self._starts[index + 1])
            if at < last:
                yield index, skip + at - first, skip + last - first
            at, index = last, index + 1

    def _read(self, pieces: Sequence[tuple[int, int, int]]) -> Iterable[bytes | bytearray]:
        def one(piece: tuple[int, int, int]) -> bytes:
            return self._reader.read(self._slices[piece[0]].extent, *piece[1:])

        if self._threads > 1 and len(pieces) > 1:
            with ThreadPoolExecutor(min(self._threads, len(pieces)), "sparklog-merge") as pool:
                raw = list(pool.map(one, pieces))
        else:
            raw = [one(piece) for piece in pieces]
        return [self._patched(data, *piece) for data, piece in zip(raw, pieces, strict=True)]

    def _patched(self, data: bytes, index: int, start: int, stop: int) -> bytes | bytearray:
        """Return `data`, read from byte `start` of an extent on, with committed offsets."""
        part = self._slices[index]
        extent = part.extent
        part.total.take(data, start, path=self._where(extent))
        if extent.segment:
            return data
        out = bytearray(data)
        # With an append time each batch gets a new CRC, which would hide earlier damage.
        batches = scan(
            out, path=self._where(extent), position=start, check_crc=extent.stamp_ms >= 0
        )
        if batches.error is not None:
            raise batches.error
        if len(batches):
            self._check_offsets(batches.table, index, start)
            self._next[index] = batches.end, int(batches.table["last_offset"][-1]) + 1
            self._patch(memoryview(out)[: batches.end - start], batches.table, extent, start)
        if stop == part.stop and batches.end == stop:
            _, after = self._next.get(index, (0, 0))
            if extent.base + after != part.end:
                raise self._torn(
                    extent, start, f"the last batch ends with offset {extent.base + after - 1}"
                )
        return out

    def _check_offsets(self, table: Table, index: int, start: int) -> None:
        """Check that each batch starts at the end of the previous, within and between windows."""
        part, offsets = self._slices[index], table["base_offset"]
        byte, offset = self._next.get(index, (-1, 0))
        if start == part.start:
            byte, offset = start, part.base - part.extent.base
        gap = (offsets[1:] != table["last_offset"][:-1] + 1).any()
        if gap or (byte == start and int(offsets[0]) != offset):
            raise self._torn(part.extent, start, "the offsets of its batches are not consecutive")

    @staticmethod
    def _patch(view: memoryview, table: Table, extent: Extent, start: int) -> None:
        rebase(view, extent.base, extent.epoch)
        if extent.stamp_ms >= 0:
            starts = table["position"] - start
            stops = starts + table["size"]
            stamp(view, starts.tolist(), stops.tolist(), extent.stamp_ms)

    def _where(self, extent: Extent) -> str:
        return f"{self.path}: {extent.object}"

    def _torn(self, extent: Extent, position: int, fault: str) -> DataCorruptionError:
        return DataCorruptionError(
            f"{fault}; the extent is not merged. Restore the object from a copy of the bucket",
            path=self._where(extent),
            position=extent.start + position,
            first=extent.base,
            end=extent.end,
        )


def cut(extent: Extent, size_max: int, reader: SourceReader, path: str) -> Iterator[Slice]:
    """Read an extent, and split the extent into slices of up to `size_max` bytes.

    A slice contains at least a batch. Raises the errors of `SourceLog.pread`.

    Raises:
        DataCorruptionError: The extent is incomplete.
    """
    total = ExtentSum(extent)  # the slices are read, and compared, a second time later
    log = SourceLog(path, [Slice.of(extent)], reader)
    start, base, at = 0, extent.base, 0
    for window in walk(log, check_crc=False):
        if window.batches.error is not None:
            raise window.batches.error
        table = window.batches.table
        ends = (table["position"] + table["size"]).tolist()
        for stop, first in zip(ends, table["base_offset"].tolist(), strict=True):
            if stop - start > size_max and at > start:
                yield Slice(extent, start, at, base, first, total)
                start, base = at, first
            at = stop
    if at != extent.size:
        raise DataCorruptionError(
            "the extent ends within a batch; restore the object from a copy of the bucket",
            path=f"{path}: {extent.object}",
            position=extent.start + at,
            first=extent.base,
            end=extent.end,
        )
    yield Slice(extent, start, at, base, extent.end, total)


@dataclass(frozen=True, slots=True)
class SourceData:
    """The source of a new segment: a `sparklog.storage.segment_store.LogSegmentData`."""

    where: str
    slices: tuple[Slice, ...]
    reader: SourceReader
    epochs: tuple[tuple[int, int], ...]
    snapshot: bytes
    threads: int = 1
    aborted: bytes = b""

    def version(self) -> object:
        """Return a constant: extents are immutable, because object names are never reused."""
        return self.slices

    @contextmanager
    def log(self) -> Iterator[SourceLog]:
        """Open the log."""
        yield SourceLog(self.where, self.slices, self.reader, threads=self.threads)

    def transaction_index(self) -> bytes:
        """Return the index of aborted transactions, for segments that a broker wrote."""
        return self.aborted

    def producer_snapshot(self) -> bytes:
        """Return the producer snapshot at the end."""
        return self.snapshot

    def leader_epochs(self) -> list[tuple[int, int]]:
        """Return the leader epochs up to the end."""
        return list(self.epochs)
