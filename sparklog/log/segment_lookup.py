"""Where in a partition's files an offset lies: the segment listing and the offset indexes, cached.

Indexes are hints (no checksum, zero tails, bit flips): a position given here is where to start
looking, not the truth. Only indexes of settled segments are mapped: a segment is settled if the
next one begins below the reader's end, for then nobody will ever cut it again; small ones are
read whole. Others are read by pread, entry by entry.
"""

import bisect
import struct
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sparklog.format.names import index_name, log_name, timeindex_name
from sparklog.fs import File, FileSystem, Mapping, read_bytes
from sparklog.logdir.segment_files import joined, segment_bases
from sparklog.storage.segments import StaleReadError

MAPPED_MAX: Final = 128  # each map holds a descriptor
SMALL_BYTES: Final = 64 << 10  # an index up to this is read whole instead
SMALL_KEPT_BYTES: Final = 16 << 20  # of these that are kept
OPEN_MAX: Final = 32
OFFSET_ITEM: Final = struct.Struct(">ii")
TIME_ITEM: Final = struct.Struct(">qi")
_NEVER: Final = 2**63


class Entries:
    """An index's entries, from its bytes or its file. Zero entries count as past every other."""

    def __init__(self, item: struct.Struct, source: File | memoryview) -> None:
        self._item, self._source = item, source
        size = len(source) if isinstance(source, memoryview) else source.size()
        self.count = size // item.size

    def __getitem__(self, slot: int) -> tuple[int, int]:
        at, size = slot * self._item.size, self._item.size
        source = self._source
        raw = source[at : at + size] if isinstance(source, memoryview) else source.pread(size, at)
        if len(raw) < size:
            return _NEVER, _NEVER  # cut off meanwhile
        first, second = self._item.unpack(raw)
        return (first, second) if first or second else (_NEVER, _NEVER)

    def last(self, wanted: Callable[[tuple[int, int]], bool], *, count: int | None = None) -> int:
        """The last of the leading entries for which `wanted` holds; -1 if it holds for none."""
        low, high = 0, self.count if count is None else count
        while low < high:
            middle = (low + high) // 2
            if wanted(self[middle]):
                low = middle + 1
            else:
                high = middle
        return low - 1


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """A segment as listed: offsets [base, end), `end` None for the last; `size` in bytes."""

    base: int
    end: int | None
    path: str
    size: int


class Lookup:
    """The segments of one partition directory. Threads may share it after construction."""

    def __init__(self, fs: FileSystem, directory: str, *, gaps: bool = False) -> None:
        self.fs, self.directory = fs, directory
        self.gaps = gaps  # a compacted log: offsets may be missing, closed segments be swapped
        self._bases: list[int] | None = None
        self._maps: OrderedDict[str, Mapping] = OrderedDict()
        self._small: dict[str, memoryview] = {}
        self._small_bytes = 0
        self._logs: OrderedDict[int, File] = OrderedDict()
        self._copies: dict[str, tuple[int, memoryview | None]] = {}

    @property
    def bases(self) -> list[int]:
        """Base offsets, ascending; listed once. Raises StaleReadError if there is no segment."""
        if self._bases is None:
            try:
                self._bases = segment_bases(self.fs, self.directory)
            except FileNotFoundError as error:
                raise StaleReadError(f"{self.directory} is gone") from error
        if not self._bases:
            self._bases = None
            raise StaleReadError(f"{self.directory} holds no segment")
        return self._bases

    def refresh(self) -> None:
        """Forget everything that was read."""
        self._bases = None
        self._maps.clear()
        self._small, self._small_bytes = {}, 0
        self._logs.clear()
        self._copies.clear()

    def floor(self, offset: int) -> int:
        """The greatest base at or below `offset`. Raises StaleReadError if all lie above."""
        at = bisect.bisect_right(self.bases, offset) - 1
        if at < 0:
            raise StaleReadError(f"{self.directory}: no segment holds offset {offset}")
        return self.bases[at]

    def following(self, base: int) -> int | None:
        """The next segment's base, None behind the last."""
        bases = self.bases
        at = bisect.bisect_right(bases, base)
        return bases[at] if at < len(bases) else None

    def is_settled(self, base: int, end: int) -> bool:
        """Tell whether a reader up to `end` may take the segment for closed."""
        following = self.following(base)
        return following is not None and following < end

    def log(self, base: int) -> File:
        """Open a segment's log. Raises StaleReadError if it is gone."""
        file = self._logs.get(base)
        if file is None:
            try:
                file = self.fs.open(joined(self.directory, log_name(base)))
            except FileNotFoundError as error:
                what = f"segment {base} of {self.directory} is gone"
                raise StaleReadError(f"{what}: {error.strerror or error}") from error
            self._logs[base] = file
            if len(self._logs) > OPEN_MAX:
                self._logs.popitem(last=False)
        return file

    def position(self, base: int, offset: int, end: int) -> int:
        """Where to start looking for `offset` in the segment: 0, or what the index says."""
        if offset <= base:
            return 0
        entries = self.offsets(base, end)
        if entries is None:
            return 0
        relative = offset - base
        slot = entries.last(lambda entry: entry[0] <= relative)
        position = entries[slot][1] if slot >= 0 else 0
        return position if 0 <= position < self.log(base).size() else 0

    def offsets(self, base: int, end: int) -> Entries | None:
        """The segment's offset index; None if there is none."""
        return self._entries(index_name(base), OFFSET_ITEM, self.is_settled(base, end), end)

    def times(self, base: int, end: int) -> Entries | None:
        """The segment's time index; None if there is none."""
        return self._entries(timeindex_name(base), TIME_ITEM, self.is_settled(base, end), end)

    def _entries(self, name: str, item: struct.Struct, settled: bool, end: int) -> Entries | None:
        path = joined(self.directory, name)
        try:
            if not settled:
                return self._growing(path, item, end)
            small = self._small.get(path)
            if small is not None:
                return Entries(item, small)
            mapping = self._maps.pop(path, None)
            if mapping is None:
                if self.fs.size(path) <= SMALL_BYTES:
                    return Entries(item, self._keep(path))
                mapping = self.fs.map(path)
            self._maps[path] = mapping
            if len(self._maps) > MAPPED_MAX:
                self._maps.popitem(last=False)
            return Entries(item, mapping.data)
        except FileNotFoundError:
            return None

    def _keep(self, path: str) -> memoryview:
        data = memoryview(read_bytes(self.fs, path))
        if self._small_bytes + len(data) > SMALL_KEPT_BYTES:
            self._small, self._small_bytes = {}, 0
        self._small[path] = data
        self._small_bytes += len(data)
        return data

    def _growing(self, path: str, item: struct.Struct, end: int) -> Entries:
        """An active segment's index: what it says below an end stays. Copied at the second look."""
        seen, copy = self._copies.get(path, (-1, None))
        if seen < end:
            if len(self._copies) > OPEN_MAX:
                self._copies.clear()
            self._copies[path] = (end, None)
            return Entries(item, self.fs.open(path))
        if copy is None:
            copy = memoryview(read_bytes(self.fs, path))
            self._copies[path] = (seen, copy)
        return Entries(item, copy)
