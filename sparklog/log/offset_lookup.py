"""Look up offsets: a cache of the segment listing and the offset indexes of a partition.

Indexes are hints (no checksum, zero tails, bit flips): a search starts at a position from an index.
Only indexes of settled segments are mapped or, if small, read completely. A segment is settled if
the next segment begins below the reader's end, because such a segment is never truncated again.
Other indexes are read entry by entry.
"""

import bisect
import contextlib
import struct
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from sparklog.format.names import INDEX, TIMEINDEX
from sparklog.storage.segments import (
    IndexBytes,
    IndexKind,
    PartitionSegments,
    SegmentLog,
    StaleReadError,
)

MAPPED_MAX: Final = 128  # each mapping occupies a file descriptor
SMALL_KEPT_BYTES: Final = 16 << 20  # total size of the small indexes in memory
OPEN_MAX: Final = 32
OFFSET_ITEM: Final = struct.Struct(">ii")
TIME_ITEM: Final = struct.Struct(">qi")
_NEVER: Final = 2**63
_Index = tuple[int, IndexKind]


class Entries:
    """The entries of an index, in memory or in a file: pairs of integers.

    An entry of zeros, which a broker preallocates behind its last entry, counts as larger than all
    others.
    """

    def __init__(self, item: struct.Struct, source: SegmentLog | memoryview) -> None:
        self._item, self._source = item, source
        size = len(source) if isinstance(source, memoryview) else source.size()
        self.count = size // item.size

    def __getitem__(self, slot: int) -> tuple[int, int]:
        at, size = slot * self._item.size, self._item.size
        source = self._source
        raw = source[at : at + size] if isinstance(source, memoryview) else source.pread(size, at)
        if len(raw) < size:
            return _NEVER, _NEVER  # the index was truncated
        first, second = self._item.unpack(raw)
        # A broker preallocates the active index: zeros are behind its last entry.
        return (first, second) if first or second else (_NEVER, _NEVER)

    def last(self, wanted: Callable[[tuple[int, int]], bool], *, count: int | None = None) -> int:
        """Return the index of the last entry for which `wanted` is True, or -1; a binary search.

        `wanted` must be True for all entries before that entry, and False after it. With `count`,
        only the first `count` entries are searched.
        """
        low, high = 0, self.count if count is None else count
        while low < high:
            middle = (low + high) // 2
            if wanted(self[middle]):
                low = middle + 1
            else:
                high = middle
        return low - 1


class Lookup:
    """Finds the segments of a partition's offsets, and positions in them. Thread-safe.

    The listing of the segments, open files and indexes are cached until `refresh`.
    """

    def __init__(self, segments: PartitionSegments) -> None:
        self.segments = segments
        self._bases: list[int] | None = None
        self._mapped: OrderedDict[_Index, IndexBytes] = OrderedDict()
        self._small: dict[_Index, memoryview] = {}
        self._small_bytes = 0
        self._logs: OrderedDict[int, SegmentLog] = OrderedDict()
        self._copies: dict[_Index, tuple[int, memoryview | None]] = {}

    @property
    def gaps(self) -> bool:
        """Whether the log is compacted: offsets may be missing, and closed segments replaced."""
        return self.segments.gaps

    @property
    def bases(self) -> list[int]:
        """The base offsets of the segments in ascending order. Listed again only after `refresh`.

        Raises:
            StaleReadError: There is no segment.
        """
        bases = self._bases  # another thread may `refresh` at any moment
        if bases is None:
            try:
                bases = self._bases = self.segments.bases()
            except FileNotFoundError as error:
                raise StaleReadError(f"{self.segments.where} was removed") from error
        if not bases:
            self._bases = None
            raise StaleReadError(f"{self.segments.where} has no segment")
        return bases

    def refresh(self) -> None:
        """Drop all cached data."""
        self._bases = None
        self._mapped.clear()
        self._small, self._small_bytes = {}, 0
        self._logs.clear()
        self._copies.clear()

    def floor(self, offset: int) -> int:
        """Return the greatest base offset at or below `offset`.

        Raises:
            StaleReadError: No segment contains the offset.
        """
        at = bisect.bisect_right(self.bases, offset) - 1
        if at < 0:
            raise StaleReadError(f"{self.segments.where}: no segment contains offset {offset}")
        return self.bases[at]

    def following(self, base: int) -> int | None:
        """Return the base offset of the segment after `base`; None for the last segment."""
        bases = self.bases
        at = bisect.bisect_right(bases, base)
        return bases[at] if at < len(bases) else None

    def is_settled(self, base: int, end: int) -> bool:
        """Return True if the segment after `base` begins below `end`.

        For a reader of the offsets below `end`, this segment can't change any more.
        """
        following = self.following(base)
        return following is not None and following < end

    def log(self, base: int) -> SegmentLog:
        """Open a segment's log.

        Raises:
            StaleReadError: The segment was deleted.
        """
        log = self._logs.get(base)
        if log is None:
            try:
                log = self.segments.log(base)
            except FileNotFoundError as error:
                segment = f"segment {base} of {self.segments.where} was removed"
                raise StaleReadError(f"{segment}: {error.strerror or error}") from error
            self._logs[base] = log
            _shrink(self._logs, OPEN_MAX)
        return log

    def position(self, base: int, offset: int, end: int) -> int:
        """Return the position of a batch at or before `offset`, or 0, where a search can start.

        The position is a hint from the offset index. It is in the file, but may be wrong.
        """
        if offset <= base:
            return 0
        entries = self.offsets(base, end)
        if entries is None:
            return 0
        relative = offset - base
        slot = entries.last(lambda entry: entry[0] <= relative)
        position = entries[slot][1] if slot >= 0 else 0
        # A damaged index can contain any number.
        return position if 0 <= position < self.log(base).size() else 0

    def offsets(self, base: int, end: int) -> Entries | None:
        """Return the segment's offset index for lookups below `end`; None without an index."""
        return self._entries(base, INDEX, OFFSET_ITEM, end)

    def times(self, base: int, end: int) -> Entries | None:
        """Return the segment's time index for lookups below `end`; None without an index."""
        return self._entries(base, TIMEINDEX, TIME_ITEM, end)

    def _entries(self, base: int, kind: IndexKind, item: struct.Struct, end: int) -> Entries | None:
        key = base, kind
        if not self.is_settled(base, end):
            return self._growing(key, item, end)
        small = self._small.get(key)
        if small is not None:
            return Entries(item, small)
        # Removed and inserted again below, so that the least recently used mapping is dropped.
        index = self._mapped.pop(key, None) or self.segments.closed_index(base, kind)
        if index is None:
            return None
        if index.mapping is None:
            self._keep(key, index.data)
        else:
            self._mapped[key] = index
            _shrink(self._mapped, MAPPED_MAX)
        return Entries(item, index.data)

    def _keep(self, key: _Index, data: memoryview) -> None:
        if self._small_bytes + len(data) > SMALL_KEPT_BYTES:
            self._small, self._small_bytes = {}, 0
        self._small[key] = data
        self._small_bytes += len(data)

    def _growing(self, key: _Index, item: struct.Struct, end: int) -> Entries | None:
        """Return an index of a segment that may still grow; None without the index.

        The first lookup below an end reads single entries from the file, in case it is the only
        one. The second lookup copies the index to memory. Entries below an end never change, so the
        copy stays valid for that end and for lower ends.
        """
        seen, copy = self._copies.get(key, (-1, None))
        if seen >= end and copy is not None:
            return Entries(item, copy)
        index = self.segments.index(*key)
        if index is None:
            return None
        if seen < end:
            # Perhaps the only lookup below this end: reading a few entries costs less than a copy.
            if len(self._copies) > OPEN_MAX:
                self._copies.clear()
            self._copies[key] = (end, None)
            return Entries(item, index)
        copy = memoryview(index.pread(index.size(), 0))
        self._copies[key] = (seen, copy)
        return Entries(item, copy)


def _shrink(cache: OrderedDict[Any, Any], size: int) -> None:
    if len(cache) > size:
        with contextlib.suppress(KeyError):  # another thread has cleared the cache
            cache.popitem(last=False)
