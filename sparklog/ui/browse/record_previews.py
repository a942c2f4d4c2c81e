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
    """A record. `key` and `value` are the first bytes of `key_bytes` and `value_bytes`.

    `marker`: for a control record, how it ends the transaction ("control" for other kinds).
    `headers`: the first of `header_count`, at most HEADERS_MAX and within the size limit, the last
    one truncated.
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
    """A header. `name` and `value` may be truncated. `value_bytes`: size of the whole value."""

    name: str
    value: bytes | None
    value_bytes: int


def record_previews(rows: pa.Table, *, most_bytes: int) -> Iterator[RecordPreview]:
    """Yield the rows of a range.

    `most_bytes`: limit of each key, of each value and of all headers.
    """
    if not rows.num_rows:
        return
    columns: dict[str, Any] = {
        name: rows.column(name)
        for name in ("partition", "offset", "timestampType", "attributes", "producer_id",
                     "leader_epoch", "batch_bytes", "aborted")
    }  # fmt: skip
    columns["timestamp"] = pc.cast(rows.column("timestamp"), pa.int64())
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
