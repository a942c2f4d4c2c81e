"""Rebuilds indexes and producer state in a pass over a segment, including CRCs.

Recovery and loading treat damage differently, but rebuild the same data: indexes, aborted
transactions, leader epochs, producer state. Source: LogSegment.recover (Kafka 4.1).
"""

from dataclasses import dataclass, field
from typing import Any, Final

from numpy.typing import NDArray

from sparklog.clock import stopwatch
from sparklog.errors import DataCorruptionError
from sparklog.format.index import IndexState, final_time_entry, index_entries, txn_entry
from sparklog.format.names import index_name, log_name, timeindex_name, txnindex_name
from sparklog.format.scan import is_rewritten, stored_crcs
from sparklog.fs import FileSystem
from sparklog.log.batch_windows import Window, marker_reader, walk
from sparklog.log.producer_state import ProducerState, has_producers
from sparklog.logdir.partition.batch_epochs import BatchEpochs, EpochRun
from sparklog.logdir.partition.repairs import cut, remove, replace
from sparklog.logdir.partition.validation import misplaced, out_of_order
from sparklog.logdir.segment_files import joined

NO_LIMIT: Final = 2**63 - 1
Table = NDArray[Any]


@dataclass(slots=True)
class Scanned:
    """A segment's data up to `end` (byte `size`); `error`: why the scan ended there.

    `epochs`: the leader epochs of its batches. `disk_bytes`: the file's size. `tail_crc`: the CRC
    field of the last batch, -1 if it was rewritten by compaction or erasure. `read_ms`: the
    duration of the pass.
    """

    base: int
    end: int
    size: int = 0
    disk_bytes: int = 0
    error: DataCorruptionError | None = None
    index: bytearray = field(default_factory=bytearray)
    timeindex: bytearray = field(default_factory=bytearray)
    txnindex: bytearray = field(default_factory=bytearray)
    epochs: list[EpochRun] = field(default_factory=list)
    read_ms: int = 0
    tail_crc: int = -1


class _Scan:
    """The state of a pass."""

    def __init__(self, base: int, producers: ProducerState, interval_bytes: int) -> None:
        self.found = Scanned(base, base)
        self._producers, self._interval_bytes = producers, interval_bytes
        self._state = IndexState()
        self._epochs = BatchEpochs()

    def take(self, window: Window, table: Table, path: str) -> None:
        found = self.found
        index, timeindex, self._state = index_entries(
            table, found.base, self._interval_bytes, self._state
        )
        found.index += index
        found.timeindex += timeindex
        if has_producers(table):
            for txn, stable in self._producers.apply(table, marker_reader(window, path)):
                if txn.aborted:
                    found.txnindex += txn_entry(
                        txn.producer_id, txn.first_offset, txn.last_offset, stable
                    )
        self._producers.end = found.end = int(table["last_offset"][-1]) + 1
        found.size = int(table["position"][-1] + table["size"][-1])
        last = table[-1:]
        crc = int.from_bytes(stored_crcs(window.data, last, window.position), "big")
        found.tail_crc = -1 if is_rewritten(last)[0] else crc
        self._epochs.take(path, table)

    def finish(self) -> Scanned:
        entry, self._state = final_time_entry(self.found.base, self._state)
        self.found.timeindex += entry
        self.found.epochs = self._epochs.runs
        return self.found


def scan_segment(
    fs: FileSystem,
    directory: str,
    base: int,
    *,
    producers: ProducerState,
    interval_bytes: int,
    limit: int = NO_LIMIT,
    gaps: bool | None = None,
) -> Scanned:
    """Read a segment's batches below offset `limit`, without changes on disk.

    Args:
        producers: The producer state at the segment's base; advanced to the result's end.
        gaps: False: offsets must be consecutive; True: offsets may be missing; None: offsets are
            not checked, as in Kafka's recovery.
    """
    path = joined(directory, log_name(base))
    scan, watch = _Scan(base, producers, interval_bytes), stopwatch()
    with fs.open(path) as file:
        scan.found.disk_bytes = file.size()
        for window in walk(file):
            table = window.batches.table
            fault = -1 if gaps is None else out_of_order(table, scan.found.end, limit, gaps=gaps)
            below = table[: fault if fault >= 0 else len(table)]
            below = below[below["base_offset"] < limit]
            if len(below):
                scan.take(window, below, path)
            scan.found.error = window.batches.error
            if fault >= 0 and int(table["base_offset"][fault]) < limit:
                scan.found.error = misplaced(path, table[fault], scan.found.end)
            if len(below) < len(table):
                break
    scan.found.read_ms = watch()
    return scan.finish()


def write_indexes(fs: FileSystem, directory: str, found: Scanned) -> None:
    """Replace a segment's index files by rename, durably: readers may have mapped the old files."""
    base = found.base
    replace(fs, joined(directory, index_name(base)), found.index)
    replace(fs, joined(directory, timeindex_name(base)), found.timeindex)
    path = joined(directory, txnindex_name(base))
    if found.txnindex:
        replace(fs, path, found.txnindex)
    else:
        remove(fs, path, "no transaction was aborted")


def cut_log(fs: FileSystem, directory: str, found: Scanned, why: str) -> str:
    """Cut a segment's file after the last good batch, durably.

    Returns the range that was cut, or "".
    """
    path = joined(directory, log_name(found.base))
    why = f"offsets from {found.end} on, {why}"
    return cut(fs, path, found.size, why, sync=True, read_ms=found.read_ms)
