"""Rebuilds indexes and producer state in a pass over a segment, including CRCs.

Recovery and loading treat damage differently, but rebuild the same data: indexes, aborted
transactions, leader epochs, producer state. Source: LogSegment.recover (Kafka 4.1).
"""

from typing import Any, Final

from numpy.typing import NDArray

from sparklog.clock import stopwatch
from sparklog.errors import DataCorruptionError
from sparklog.format.index import SegmentIndexes
from sparklog.format.names import TXNINDEX, index_name, log_name, timeindex_name, txnindex_name
from sparklog.format.scan import is_rewritten, stored_crcs
from sparklog.fs import FileSystem
from sparklog.log.batch_windows import Window, marker_reader, walk
from sparklog.log.producer_state import ProducerState, has_producers
from sparklog.logdir.partition.batch_epochs import BatchEpochs
from sparklog.logdir.partition.repairs import cut, remove, replace
from sparklog.logdir.partition.validation import misplaced, out_of_order
from sparklog.logdir.segment_files import joined

NO_LIMIT: Final = 2**63 - 1
Table = NDArray[Any]


class RebuiltSegment:
    """The data derived from a segment's batches up to offset `end`, at byte `size` of the file.

    Attributes:
        indexes: The contents of the index files.
        txnindex: The contents of the transaction index.
        producers: The producer state at `end`.
        epochs: The leader epochs of the batches.
        tail_crc: The CRC field of the last batch; -1 if compaction or erasure rewrote it.
        error: Why the pass over the file ended at `end`, if that is not the file's end.
        disk_bytes: The size of the file.
        read_ms: The duration of the pass.
    """

    def __init__(
        self, path: str, base: int, producers: ProducerState | None = None, interval_bytes: int = 0
    ) -> None:
        """Begin with the segment file `path`, before its first batch.

        `producers` is the producer state at `base`, which is advanced with the batches.
        """
        self.path, self.base, self.end, self.size = path, base, base, 0
        self.producers = ProducerState(base) if producers is None else producers
        self.indexes, self.txnindex = SegmentIndexes(base, interval_bytes), bytearray()
        self.epochs = BatchEpochs()
        self.tail_crc = -1
        self.error: DataCorruptionError | None = None
        self.disk_bytes = self.read_ms = 0

    def take(self, window: Window, table: Table) -> None:
        """Add the batches of `table`, which follow the earlier ones; `window` has their bytes."""
        self.indexes.take(table)
        if has_producers(table):
            self.txnindex += self.producers.apply(table, marker_reader(window, self.path))
        self.producers.end = self.end = int(table["last_offset"][-1]) + 1
        self.size = int(table["position"][-1] + table["size"][-1])
        last = table[-1:]
        crc = int.from_bytes(stored_crcs(window.data, last, window.position), "big")
        self.tail_crc = -1 if is_rewritten(last)[0] else crc
        self.epochs.take(self.path, table)

    @property
    def index_files(self) -> dict[str, bytearray]:
        """{name: contents} of the index files. An empty transaction index must not be written."""
        base = self.base
        return {
            index_name(base): self.indexes.index,
            timeindex_name(base): self.indexes.timeindex,
            txnindex_name(base): self.txnindex,
        }


def scan_segment(
    fs: FileSystem,
    directory: str,
    base: int,
    *,
    producers: ProducerState,
    interval_bytes: int,
    limit: int = NO_LIMIT,
    gaps: bool | None = None,
) -> RebuiltSegment:
    """Rebuild a segment's derived data from its batches, without changes on disk.

    Args:
        fs: The file system.
        directory: The partition's directory.
        base: The base offset of the segment.
        producers: The producer state at the base, which is advanced to the end of the batches.
        interval_bytes: The topic's index.interval.bytes.
        limit: Batches from this offset on are ignored.
        gaps: False: offsets must be consecutive; True: offsets may be missing; None: offsets are
            not checked, as in Kafka's recovery.
    """
    path, watch = joined(directory, log_name(base)), stopwatch()
    rebuilt = RebuiltSegment(path, base, producers, interval_bytes)
    with fs.open(path) as file:
        rebuilt.disk_bytes = file.size()
        for window in walk(file):
            table = window.batches.table
            fault = -1 if gaps is None else out_of_order(table, rebuilt.end, limit, gaps=gaps)
            below = table[: fault if fault >= 0 else len(table)]
            below = below[below["base_offset"] < limit]
            if len(below):
                rebuilt.take(window, below)
            rebuilt.error = window.batches.error
            if fault >= 0 and int(table["base_offset"][fault]) < limit:
                rebuilt.error = misplaced(path, table[fault], rebuilt.end)
            if len(below) < len(table):
                break
    rebuilt.indexes.finish()
    rebuilt.read_ms = watch()
    return rebuilt


def write_indexes(fs: FileSystem, directory: str, rebuilt: RebuiltSegment) -> None:
    """Replace a segment's index files by rename, durably: readers may have mapped the old files."""
    for name, content in rebuilt.index_files.items():
        path = joined(directory, name)
        if content or not name.endswith(TXNINDEX):
            replace(fs, path, content)
        else:
            remove(fs, path, "no transaction was aborted")


def cut_log(fs: FileSystem, rebuilt: RebuiltSegment, why: str) -> str:
    """Cut a segment's file after the last good batch, durably.

    Returns the range that was cut, or "".
    """
    why = f"offsets from {rebuilt.end} on, {why}"
    return cut(fs, rebuilt.path, rebuilt.size, why, sync=True, read_ms=rebuilt.read_ms)
