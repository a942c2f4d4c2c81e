"""Prints time indexes like kafka-dump-log, and compares them with their log."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from sparklog.errors import DataCorruptionError
from sparklog.format.batch import MAGIC
from sparklog.format.index import OFFSET_ENTRY, TIME_ENTRY, Entries
from sparklog.format.names import INDEX, LOG
from sparklog.format.records import Decoder
from sparklog.format.scan import scan
from sparklog.fs import File, FileSystem
from sparklog.tools.dump.batch import DumpedBatch
from sparklog.tools.dump.index import (
    IndexFaults,
    IndexStyle,
    base_of,
    beside,
    insane,
    whole_entries,
)
from sparklog.tools.dump.log import batch_ahead, batch_at, size_of
from sparklog.tools.dump.records import MICROS_MAX

_WARM_BYTES: Final = 8192  # the end of an index, which Kafka searches first
_GROUP: Final = 256  # entries that are compared at once, or
_GROUP_BYTES: Final = 4 << 20  # this many bytes of batches


@dataclass(frozen=True, slots=True)
class _Found:
    """A time entry and the batch that the entry points to.

    Without such a batch, `last` is the offset that was found instead.
    """

    timestamp: int
    offset: int
    batch: DumpedBatch | None
    last: int = -1


class _TimeCheck:
    """Compares each entry of a time index with the log."""

    def __init__(self, log: File, offsets: Entries, base: int, faults: IndexFaults) -> None:
        self._log, self._end, self._base = log, size_of(log), base
        self._relatives = offsets["relative_offset"].tolist()
        self._positions = offsets["position"].tolist()
        self._faults = faults
        self._before = -1

    def find(self, timestamp: int, offset: int) -> _Found:
        """Find the batch of an entry.

        Raises:
            DataCorruptionError: The log is damaged, so Kafka's tool would throw here.
        """
        at = self._position(offset)
        if not 0 <= at <= self._end:
            raise DataCorruptionError(
                f"the offset index points to byte {at} of {self._end}", path=self._log.path
            )
        while True:
            size, last = batch_ahead(self._log, at, self._end)
            if not size:
                return _Found(timestamp, offset, None)
            if last >= offset:
                batch = batch_at(self._log, at, size) if last == offset else None
                return _Found(timestamp, offset, batch, last)
            at += size

    def check(self, group: list[_Found]) -> Iterator[tuple[int, int]]:
        """Record mismatches of entries; yield (timestamp, offset) of each checked entry."""
        highest = _highest_of([each.batch for each in group if each.batch is not None])
        for each in group:
            if each.batch is None:
                self._faults.missing.append((each.offset, each.last))
            else:
                if (there := next(highest)) != each.timestamp:
                    self._faults.times.append((each.timestamp, there))
                if self._before >= each.timestamp:
                    self._faults.order.append((each.timestamp, self._before))
            self._before = each.timestamp
            yield each.timestamp, each.offset

    def _position(self, offset: int) -> int:
        """Return the byte at which to search for an offset, also in an unordered index."""
        slot = _slot(self._relatives, offset - self._base)
        return 0 if slot < 0 else int(self._positions[slot])


def _slot(relatives: list[int], wanted: int) -> int:
    """Return the last entry at or below `wanted`, or -1.

    Source: AbstractIndex.indexSlotRangeFor.
    """
    if not relatives:
        return -1
    # The same steps as Kafka's, instead of bisect: in an unordered (damaged) index another search
    # would end at another entry, and print other mismatches than Kafka's tool.
    warm = max(0, len(relatives) - 1 - _WARM_BYTES // OFFSET_ENTRY.itemsize)
    if relatives[warm] < wanted:
        low, high = warm, len(relatives) - 1
    elif relatives[0] > wanted:
        return -1
    else:
        low, high = 0, warm
    while low < high:
        middle = (low + high + 1) // 2
        if relatives[middle] > wanted:
            high = middle - 1
        elif relatives[middle] < wanted:
            low = middle
        else:
            return middle
    return low


def dump_time_index(
    fs: FileSystem, path: str, style: IndexStyle, faults: IndexFaults
) -> Iterator[bytes]:
    """Yield the lines of a time index.

    Raises:
        DataCorruptionError: The index or the log is damaged, so Kafka's tool would throw here.
    """
    base = base_of(path)
    with fs.open(beside(path, LOG)) as log:
        offsets, _ = whole_entries(fs, beside(path, INDEX), OFFSET_ENTRY)
        entries, odd = whole_entries(fs, path, TIME_ENTRY)
        check = _TimeCheck(log, offsets, base, faults)
        rows = entries.tolist()
        if style.sanity_only:
            if odd or (rows and (rows[-1][0] < rows[0][0] or rows[-1][1] < 0)):
                raise DataCorruptionError(insane(odd, TIME_ENTRY.itemsize), path=path)
            yield f"{path} passed sanity check.\n".encode()
            return
        for group, failure in _groups(check, base, rows):
            lines = (f"timestamp: {time} offset: {offset}\n" for time, offset in check.check(group))
            for line in lines:
                if not style.verify_only:
                    yield line.encode()
            if failure is not None:
                raise failure


def _groups(
    check: _TimeCheck, base: int, rows: list[tuple[int, int]]
) -> Iterator[tuple[list[_Found], DataCorruptionError | None]]:
    """Yield entries with their batches, some MiB at a time, and finally the error, if any."""
    group: list[_Found] = []
    size = 0
    for number, (timestamp, relative) in enumerate(rows):
        if relative == 0 and number:  # the zeros of an index that was not trimmed
            break
        try:
            group.append(check.find(timestamp, base + relative))
        except DataCorruptionError as failure:
            yield group, failure
            return
        size += 0 if group[-1].batch is None else len(group[-1].batch.data)
        if len(group) == _GROUP or size > _GROUP_BYTES:
            yield group, None
            group, size = [], 0
    yield group, None


def _highest_of(batches: list[DumpedBatch]) -> Iterator[int]:
    """Yield the largest timestamp of each batch's records, at least -1."""
    found = _highest_at_once(batches)
    if found is not None:
        yield from found
        return
    for batch in batches:
        yield max(-1, max((record.timestamp for record in batch.records()), default=-1))


def _highest_at_once(batches: list[DumpedBatch]) -> list[int] | None:
    """Compute the largest timestamps by column, if possible; otherwise return None."""
    if any(batch.magic != MAGIC or batch.is_control or not batch.count for batch in batches):
        return None
    data = b"".join(batch.data for batch in batches)
    table = scan(data, path="", check_crc=False).table
    if not batches or len(table) != len(batches):
        return None
    decoder = Decoder(["timestamp"])
    try:
        if decoder.add_many(data, table, path="") < len(table):
            return None
    except DataCorruptionError:
        return None
    stamps = decoder.finish()["timestamp"].cast(pa.int64()).to_numpy()
    if np.abs(stamps).max() >= MICROS_MAX:
        return None
    starts = np.concatenate(([0], table["count"].astype(np.int64).cumsum()[:-1]))
    return [max(-1, top) for top in (np.maximum.reduceat(stamps, starts) // 1000).tolist()]
