"""The commit ledger: partition `__sparklog_commits-0`, one record for each change of the log.

Writing a record is the commit point. The ledger is a Kafka partition like any other: one record
a batch, key = writer or null, value = JSON (see `sparklog.log.state`). A new segment begins with
a snapshot of the whole state, so older segments are history that nobody needs for opening.
"""

import json
import logging
import os
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from sparklog.config import TopicConfig
from sparklog.errors import DataCorruptionError
from sparklog.format.compression import Codec
from sparklog.format.names import log_name, parse_base
from sparklog.format.records import Decoder, encode
from sparklog.format.scan import scan
from sparklog.fs import FileSystem, read_bytes
from sparklog.log.partition import PartitionLog
from sparklog.log.reader import PartitionReader
from sparklog.log.state import FORMAT_VERSION, LogState, Record

LEDGER_TOPIC: Final = "__sparklog_commits"
LEDGER: Final = (LEDGER_TOPIC, 0)
LEDGER_DIR: Final = f"{LEDGER_TOPIC}-0"
SEGMENT_BYTES: Final = 16 << 20

_LOGGER = logging.getLogger(__name__)
_CONFIG: Final = {"retention.ms": "-1", "max.message.bytes": str(2**31 - 1)}
_SCHEMA: Final = pa.schema(
    [("key", pa.binary()), ("value", pa.binary()), ("timestamp", pa.timestamp("ms"))]
)


def ledger_config() -> TopicConfig:
    """Return the topic config of the ledger itself."""
    return TopicConfig.parse(_CONFIG)


def ledger_path(directory: str) -> str:
    """Return the ledger's directory in the first log dir."""
    return os.path.join(directory, LEDGER_DIR)


class Ledger:
    """The writer's view; used under the write lock only."""

    def __init__(self, log: PartitionLog, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.log = log
        self._segment_bytes = segment_bytes

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self.log.end_offset

    @property
    def wants_snapshot(self) -> bool:
        """Whether the next record should begin a new segment, with a snapshot."""
        return self.log.state.size >= self._segment_bytes

    def append(self, record: Record, *, epoch: int, time_ms: int, sync: bool) -> Record:
        """Append one record, complete with version, time and epoch; durable if `sync`."""
        whole = {"v": FORMAT_VERSION, **record, "time": time_ms, "epoch": epoch}
        writer = record.get("writer")
        row = (
            writer.encode() if writer else None,
            json.dumps(whole, separators=(",", ":")).encode(),
            time_ms,
        )
        # Scalars, for pa.array() of a list would import pandas (a second) to ask if it is a series.
        columns = [pa.repeat(pa.scalar(v, f.type), 1) for v, f in zip(row, _SCHEMA, strict=True)]
        batch = pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)
        encoded = encode(
            batch,
            codec=Codec.NONE,
            batch_size=2**31 - 1,
            max_message_bytes=2**31 - 1,
            timestamp_ms_default=time_ms,
        )
        self.log.append(encoded.data, epoch)
        if sync:
            self.log.sync()
        return whole


def fold(fs: FileSystem, directory: str, end: int, *, state: LogState, first: int | None) -> None:
    """Fold the records [first, end) into `state`; from the last snapshot if `first` is None.

    Cost: one pass over the ledger's last segment (16 MiB at most, a few milliseconds each MiB).
    """
    if first is None:
        first = max(base for base in ledger_bases(fs, directory) if base < max(end, 1))
    for _, record in replay(fs, directory, first, end):
        state.apply(record)


def ledger_bases(fs: FileSystem, directory: str) -> list[int]:
    """Return the base offsets of the ledger's segments, ascending."""
    names = fs.listdir(ledger_path(directory))
    return sorted(
        base for name in names if name.endswith(".log") and (base := parse_base(name)) is not None
    )


def replay(fs: FileSystem, directory: str, first: int, end: int) -> Iterator[tuple[int, Record]]:
    """Yield (offset, record) for first <= offset < end. Raises DataCorruptionError on damage."""
    if first >= end:
        return
    reader = PartitionReader(fs, ledger_path(directory), LEDGER_TOPIC, 0)
    for rows in reader.read(first, end, columns=("offset", "value")):
        yield from parse_rows(rows)


def parse_rows(rows: pa.RecordBatch) -> Iterator[tuple[int, Record]]:
    """Yield (offset, record) of ledger rows with columns offset and value."""
    offsets, values = rows.column("offset").to_pylist(), rows.column("value").to_pylist()
    for offset, value in zip(offsets, values, strict=True):
        yield offset, json.loads(value)


def _records(raw: bytes, path: str) -> Iterator[tuple[int, Record]]:
    batches = scan(raw, path=path)
    if batches.table.size:
        decoder = Decoder(["offset", "value"])
        decoder.add_many(raw, batches.table, path=path)
        yield from parse_rows(decoder.finish())


def whole_end(fs: FileSystem, directory: str) -> int:
    """Return the offset after the last whole record; for recovery, when nobody can tell.

    One torn last record is normal after a crash (it was never committed). Damage with a whole
    record behind it is not: DataCorruptionError. Records written with flush=none may be lost in
    any order after a power cut, so there the first damage is the end.
    """
    for base in reversed(ledger_bases(fs, directory)):
        path = os.path.join(ledger_path(directory), log_name(base))
        raw = read_bytes(fs, path)
        batches = scan(raw, path=path)
        if not batches.table.size:
            if base and not _whole_record_after(raw, 0, base, path):
                continue  # a new segment whose snapshot was never committed
            if not base and not raw:
                return 0
        first = int(batches.table["base_offset"][0]) if batches.table.size else -1
        end = int(batches.table["last_offset"][-1]) + 1 if batches.table.size else base
        if first == base and not _whole_record_after(raw, batches.end, end, path):
            return end
        if first == base and _unsynced(raw, path):
            _LOGGER.warning("%s: cut at the first damage, flush=none was in use", path)
            return end
        raise DataCorruptionError(
            "the commit ledger is damaged before its last record; restore this file from a copy",
            path=path,
            position=batches.end,
            first=end,
        )
    raise DataCorruptionError(
        "the commit ledger has no whole record; restore it from a copy, or remove the directory "
        "to take the partitions over as a broker's",
        path=ledger_path(directory),
        first=0,
    )


def _unsynced(raw: bytes, path: str) -> bool:
    """Tell whether the last whole record says that it was written without fsync."""
    batches = scan(raw, path=path)
    last = raw[int(batches.table["position"][-1]) : batches.end]
    return any(record.get("flush") == "none" for _, record in _records(last, path))


def _whole_record_after(raw: bytes, position: int, end: int, path: str) -> bool:
    """Tell whether a whole record with an offset past `end` lies behind the damage."""
    tail = memoryview(raw)[position:]
    for offset in range(end + 1, end + 64):
        at = raw.find(offset.to_bytes(8, "big"), position)
        while at >= 0:
            found = scan(tail[at - position :], path=path, max_batches=1)
            if found.table.size and int(found.table["base_offset"][0]) == offset:
                return True
            at = raw.find(offset.to_bytes(8, "big"), at + 1)
    return False
