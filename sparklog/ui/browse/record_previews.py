"""`RecordPreview`: a record as Python values, truncated to the displayed size."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.format.batch import CODEC_MASK, CONTROL, TRANSACTIONAL
from sparklog.format.compression import Codec

HEADERS_MAX: Final = 100
"""Maximum number of displayed headers."""
_HEADERS_MIN: Final = 16 << 10  # bytes of a record's headers that are always displayed
_KINDS: Final = {b"\0\0\0\0": "abort", b"\0\0\0\1": "commit"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPreview:
    """A record, truncated for display.

    Attributes:
        partition: The partition.
        offset: The offset.
        timestamp_ms: The timestamp, or None without a timestamp.
        append_time: Whether the timestamp is LogAppendTime. Otherwise it is CreateTime.
        key: The first bytes of the key, or None for a null key.
        key_bytes: The full size of the key.
        value: The first bytes of the value, or None for a null value.
        value_bytes: The full size of the value.
        headers: The first headers, up to HEADERS_MAX and the size limit.
        header_count: The number of all headers.
        codec: The compression codec of the batch.
        batch_bytes: The size of the batch.
        producer_id: The producer id of the batch, or None.
        leader_epoch: The leader epoch of the batch, or None.
        transactional: Whether the record belongs to a transaction.
        aborted: Whether the transaction was aborted.
        marker: "commit" or "abort" for the marker of a transaction's end, "control" for other
            control records, None for data.
    """

    partition: int
    offset: int
    timestamp_ms: int | None
    append_time: bool
    key: bytes | None
    key_bytes: int
    value: bytes | None
    value_bytes: int
    headers: tuple["HeaderPreview", ...]
    header_count: int
    codec: str
    batch_bytes: int
    producer_id: int | None
    leader_epoch: int | None
    transactional: bool
    aborted: bool
    marker: str | None


class HeaderPreview(NamedTuple):
    """A header of a record; `name` and `value` may be truncated, `value_bytes` is the full size."""

    name: str
    value: bytes | None
    value_bytes: int


def record_previews(rows: pa.Table, *, most_bytes: int) -> Iterator[RecordPreview]:
    """Yield the records of a range, truncated for display.

    Args:
        rows: The rows of a `RecordRange`.
        most_bytes: The maximum bytes of each key, of each value, and of all headers of a record.
    """
    if not rows.num_rows:
        return
    columns: dict[str, Any] = {
        name: rows.column(name)
        for name in ("partition", "offset", "timestampType", "attributes", "producer_id",
                     "leader_epoch", "batch_bytes", "aborted")
    }  # fmt: skip
    columns["timestamp"] = pc.cast(rows.column("timestamp"), pa.int64())
    # Arrow truncates the bytes first: to_pylist would copy whole values of up to 100 MB.
    for name in ("key", "value"):
        columns[name] = pc.binary_slice(rows.column(name), 0, most_bytes)
        columns[f"{name}_bytes"] = pc.binary_length(rows.column(name))
    headers = rows.column("headers")
    columns["header_count"] = pc.list_value_length(headers)
    columns["headers"] = pc.list_slice(headers, 0, HEADERS_MAX)
    for row in pa.table(columns).to_pylist():
        yield _shown(row, most_bytes)


def _shown(row: dict[str, Any], most_bytes: int) -> RecordPreview:
    attributes, micros = row["attributes"], row["timestamp"]
    is_marker = bool(attributes & CONTROL)
    codec = attributes & CODEC_MASK
    return RecordPreview(
        partition=row["partition"],
        offset=row["offset"],
        timestamp_ms=None if micros is None else micros // 1000,
        append_time=row["timestampType"] == 1,
        key=row["key"],
        key_bytes=row["key_bytes"] or 0,
        value=row["value"],
        value_bytes=row["value_bytes"] or 0,
        headers=tuple(_headers(row["headers"] or (), max(most_bytes, _HEADERS_MIN))),
        header_count=row["header_count"] or 0,
        codec=Codec(codec).name.lower() if codec in set(Codec) else f"codec {codec}",
        batch_bytes=row["batch_bytes"],
        producer_id=row["producer_id"] if row["producer_id"] >= 0 else None,
        leader_epoch=row["leader_epoch"] if row["leader_epoch"] >= 0 else None,
        transactional=bool(attributes & TRANSACTIONAL),
        aborted=row["aborted"],
        marker=_KINDS.get(row["key"] or b"", "control") if is_marker else None,
    )


def _headers(given: Sequence[Any], room: int) -> Iterator[HeaderPreview]:
    for header in given:
        if room <= 0:
            return
        name, value = header["key"][:room], header["value"]
        room -= len(name)
        cut = None if value is None else value[: max(room, 0)]
        room -= len(cut or b"")
        yield HeaderPreview(name, cut, len(value or b""))
