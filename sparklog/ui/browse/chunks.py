"""Reads record batches of a partition from an offset as Arrow columns.

In contrast to a consumer, the pages also show records of aborted transactions and transaction
markers. Each record has the attributes of its batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparklog.errors import DataCorruptionError
from sparklog.format.batch import CONTROL, HEADER_SIZE, unpack_header
from sparklog.format.decoder import Decoder
from sparklog.format.scan import Batches, scan
from sparklog.log.aborted_transactions import AbortedFilter
from sparklog.log.batch_windows import Window, abort_reader
from sparklog.log.offset_lookup import Lookup
from sparklog.log.partition_reader import PartitionReader
from sparklog.log.raw_batches import RawBatches, read_batches
from sparklog.log.read_retry import PartitionRead, retry_on_stale_read
from sparklog.storage.view import View
from sparklog.ui.browse.limits import Budget, ChunkReadBudget

CHUNK_BYTES: Final = 2 << 20
# A few compressed bytes can decompress to any size, so the decoded size is limited as well:
_GIVEN_BYTES: Final = 16 << 20  # keys and values after which the decoder returns
_UNPACKED_BYTES: Final = 64 << 20  # decoded bytes after which a chunk ends
_FAULTS_TOLD: Final = 3
COLUMNS: Final = ("key", "value", "offset", "timestamp", "timestampType", "headers")
BATCH_FIELDS: Final = ("attributes", "producer_id", "leader_epoch", "batch_bytes")
Table = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Source:
    """A partition at the start of a request. `mark`: the high watermark at that time."""

    view: View
    topic: str
    partition: int
    topic_id: str | None
    incarnation: int
    mark: int

    @property
    def key(self) -> str:
        """The name of the partition, for messages."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records of the offsets [start, end) in ascending order.

    Attributes:
        start: The first offset.
        end: The offset after the chunk, where the next chunk starts.
        rows: The records, with the columns COLUMNS, BATCH_FIELDS and `aborted`. May be empty.
        fault: Why records in [start, end) are missing; "" if the chunk is complete.
    """

    start: int
    end: int
    rows: Sequence[pa.RecordBatch]
    fault: str = ""


def read_chunk(
    source: Source, start: int, budget: Budget, *, max_bytes: int = CHUNK_BYTES
) -> Chunk:
    """Read `max_bytes` of the log from offset `start`, and at least a whole batch.

    The chunk ends at the high watermark of `source` if no records follow. Damage does not raise an
    error: the chunk has a `fault`, and the next chunk starts after the damage. Other errors of
    `sparklog.log.raw_batches.read_batches` are raised.

    Cost: an index lookup, a pread per 2 MiB, CRC, decoding.
    """
    end, room = source.mark, ChunkReadBudget(max_bytes, budget.limits.batch_bytes)
    try:
        raw = _read(source, start, room)
    except DataCorruptionError as error:
        # Continue after the damage. If the end of the damage is unknown, nothing after it can be
        # read. At least one offset is skipped, or the caller would loop.
        reached = end if error.end is None else min(max(error.end, start + 1), end)
        where = f"offsets [{start}, {reached})"
        return Chunk(start, reached, (), f"{where} can't be read: {error.reason}")
    if not raw.parts and room.refused_bytes:
        return _too_large(source, start, end, room.refused_bytes, budget)
    reached = min(raw.next_offset, end) if raw.parts else end
    return _decoded(source, raw, start, reached, budget)


def _read(source: Source, start: int, room: ChunkReadBudget) -> RawBatches:
    read = PartitionRead(
        # read_committed loads the list of aborted transactions; `_decoded` marks their records, and
        # does not drop them.
        source.view, source.topic, source.partition, start, source.mark, "read_committed",
        source.topic_id, source.incarnation,
    )  # fmt: skip
    return read_batches(read, room)


def _decoded(source: Source, raw: RawBatches, start: int, end: int, budget: Budget) -> Chunk:
    batch_bytes = budget.limits.batch_bytes
    # plain_bytes_max: the decoder rejects a batch that would decompress to more.
    decoder = Decoder(list(COLUMNS), max_bytes=_GIVEN_BYTES, plain_bytes_max=batch_bytes)
    dropped = AbortedFilter(list(raw.aborted))
    found: list[pa.RecordBatch] = []
    faults: list[str] = []
    unpacked, reached = 0, end
    for part in raw.parts:
        batches = scan(part, path=source.key, check_crc=False)  # read_batches checked it
        within = batches.table[batches.table["base_offset"] < end]
        if not len(within):
            break
        batches = Batches(within, batches.end, None)
        window = Window(part, 0, batches)
        aborted = dropped.aborted(batches.table, abort_reader(window, source.key))
        for rows, following, fault in _records(decoder, window, start, end, source.key):
            if fault:
                faults.append(fault)
            if rows.num_rows:
                found.append(_with_batches(rows, batches.table, aborted))
            unpacked += rows.nbytes
            if unpacked >= _UNPACKED_BYTES and following < end:
                reached = following
                break
        if reached < end:
            break
    budget.read_bytes += raw.size_bytes
    return Chunk(start, reached, found, "; ".join(faults[:_FAULTS_TOLD]))


def _records(
    decoder: Decoder, window: Window, start: int, end: int, path: str
) -> Iterator[tuple[pa.RecordBatch, int, str]]:
    """Yield (rows, next offset, fault) for the batches of a window.

    The rows include transaction markers. `fault` describes damage, and is "" without damage.
    """
    table = window.batches.table.copy()
    table["attributes"] &= ~CONTROL  # otherwise the decoder skips markers
    while len(table):
        fault = ""
        try:
            done = decoder.add_many(window.data, table, first=start, end=end, path=path)
        except DataCorruptionError as error:
            # The decoder holds the records of the batches before the damaged one. Continue after
            # the damaged batch: one bad batch must not hide all later records.
            at = len(window.data) if error.position is None else error.position
            done = max(int(np.searchsorted(table["position"], at, side="right")), 1)
            base, last = table["base_offset"][done - 1], table["last_offset"][done - 1]
            fault = f"offsets [{base}, {last + 1}) can't be shown: {error.reason}"
        yield decoder.finish(), int(table["last_offset"][done - 1]) + 1, fault
        table = table[done:]


def _with_batches(rows: pa.RecordBatch, table: Table, aborted: NDArray[np.bool_]) -> pa.RecordBatch:
    """Return `rows` with the columns BATCH_FIELDS and `aborted`."""
    offsets = rows.column("offset").to_numpy()
    at = np.searchsorted(table["last_offset"], offsets)
    columns = {name: rows.column(name) for name in rows.schema.names}
    for name in BATCH_FIELDS:
        field = "size" if name == "batch_bytes" else name
        columns[name] = pa.array(np.ascontiguousarray(table[field][at]))
    columns["aborted"] = pa.array(aborted[at])
    return pa.RecordBatch.from_pydict(columns)


def _too_large(source: Source, start: int, end: int, size: int, budget: Budget) -> Chunk:
    """Return an empty chunk with a fault for a batch that is too large to decode in memory."""
    fault = (
        f"the record batch at offset {start} has {size:,} bytes, more than the limit of "
        f"{budget.limits.batch_bytes:,} for pages: `sparklog consume` reads it"
    )
    return Chunk(start, _behind_batch(source, start, end), (), fault)


def _behind_batch(source: Source, start: int, end: int) -> int:
    """Return the offset after the batch that contains `start`, reading only batch headers."""

    def ask(reader: PartitionReader) -> int:
        lookup = Lookup(reader.segments)
        base = lookup.floor(start)
        file, position = lookup.log(base), lookup.position(base, start, end)
        while len(raw := file.pread(HEADER_SIZE, position)) == HEADER_SIZE:
            header = unpack_header(raw, 0)
            # A size of 0 is damage, and would make this loop endless.
            if header.last_offset >= start or header.size <= 0:
                return min(max(header.last_offset, start) + 1, end)
            position += header.size
        return min(start + 1, end)

    return retry_on_stale_read(source.view, source.topic, source.partition, start, end, ask)
