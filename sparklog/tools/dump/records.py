"""Records as the lines of Kafka's dump tool, by column or individually."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import DataCorruptionError
from sparklog.format.batch import CONTROL, SEQUENCE_MAX
from sparklog.format.records import Decoder
from sparklog.format.scan import Table
from sparklog.tools.dump.batch import CREATE_TIME, DumpedBatch, DumpedRecord
from sparklog.tools.dump.remote_log_metadata import remote_payload
from sparklog.tools.dump.text import STRING, decode_column, decode_one, java_text

_BYTES_MAX: Final = 4 << 20  # bytes of keys and values that become text at once
MICROS_MAX: Final = 2**63 - 1  # replaces a time that does not fit into microseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordStyle:
    """The parts of a record that are printed: metadata and contents, with their decoders.

    With `remote_metadata`, values are decoded as records of the topic __remote_log_metadata, and
    keys are not printed.
    """

    metadata: bool = True
    contents: bool = False
    key_decoder: str = STRING
    value_decoder: str = STRING
    remote_metadata: bool = False


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of the records of some batches. Batch n has text[cuts[n]:cuts[n + 1]].

    Its records are [ends[n], ends[n + 1]) of `offsets`. Control batches have no lines here.
    """

    text: memoryview
    cuts: list[int]
    ends: list[int]
    offsets: Any  # NDArray[np.int64], of the records
    is_control: list[bool]


class RecordLines:
    """Formats the batches of a scan's table as lines."""

    def __init__(self, style: RecordStyle, path: str) -> None:
        self._style, self._path = style, path
        columns = ["offset", "timestamp", "key", "value", "headers"]
        self._decoder = Decoder(columns, max_bytes=_BYTES_MAX)

    def many(self, data: memoryview, table: Table, position: int) -> Lines | None:
        """Return the lines of the first batches that can be rendered by column.

        Returns None if the first batch needs `one_by_one`.

        Args:
            data: The bytes of the file from `position` on.
            table: The batches. Positions count from the beginning of the file.
            position: The position of `data` in the file.
        """
        odd = np.flatnonzero((table["magic"] != 2) | (table["last_offset"] == 2**63 - 1))
        wanted = table[: odd[0]] if len(odd) else table
        if not len(wanted):
            return None
        is_control = (wanted["attributes"] & CONTROL) != 0
        counts = np.where(is_control, 0, wanted["count"]).astype(np.int64)  # markers are left out
        try:
            done = self._decoder.add_many(data, wanted, path=self._path, position=position)
        except DataCorruptionError:
            # Keep the batches that were added before the damage, according to the counts.
            done = int(counts.cumsum().searchsorted(self._decoder.rows, side="right"))
        rows = self._decoder.finish()
        stamps = rows["timestamp"].cast(pa.int64()).to_numpy()
        if not done or (len(stamps) and np.abs(stamps).max() >= MICROS_MAX):
            return None  # or the columns cannot represent a time
        counts = counts[:done]
        try:
            lines = self._text(rows, stamps // 1000, wanted[:done], counts)
        except (ValueError, pa.ArrowInvalid):
            return None  # a decoder rejects a value; continue line by line up to it
        ends = np.concatenate(([0], counts.cumsum()))
        places = np.frombuffer(lines.buffers()[1], np.int32, len(lines) + 1)
        text = lines.buffers()[2]
        view = memoryview(b"") if text is None else memoryview(text)
        offsets = rows["offset"].to_numpy()
        return Lines(
            view, places[ends].tolist(), ends.tolist(), offsets, is_control[:done].tolist()
        )

    def _text(self, rows: Any, stamps: Any, table: Table, counts: Any) -> Any:
        style, parts = self._style, list[Any]()
        if style.metadata:
            parts += self._metadata(rows, stamps, table, counts)
        if style.contents and style.remote_metadata:
            pairs = zip(rows["value"].to_pylist(), rows["offset"].to_pylist(), strict=True)
            texts = [remote_payload(raw, offset).encode() for raw, offset in pairs]
            parts += [b" payload: ", pa.array(texts, pa.binary())]
        elif style.contents:
            prefix = " " if style.metadata else "| "
            for name, label, decoder in (
                ("key", f"{prefix}key: ", style.key_decoder),
                ("value", " payload: ", style.value_decoder),
            ):
                column = rows[name]
                shown: Any = label.encode()
                if column.null_count:
                    shown = pc.if_else(column.is_valid(), pa.scalar(shown), pa.scalar(b""))
                parts += [shown, decode_column(column, decoder)]
        if not parts or not len(rows):
            return pa.array([b"\n"] * len(rows), pa.binary())
        parts += [b"\n", b""]  # the last part is the separator
        joined = pc.binary_join_element_wise(
            *[pa.scalar(p, pa.binary()) if isinstance(p, bytes) else p for p in parts],
            null_handling="replace", null_replacement="",
        )  # fmt: skip
        if isinstance(joined, pa.Scalar):
            return pa.array([joined.as_py()] * len(rows), pa.binary())
        return joined

    def _metadata(self, rows: Any, stamps: Any, table: Table, counts: Any) -> list[Any]:
        offsets = rows["offset"].to_numpy()
        bases = table["base_sequence"].astype(np.int64).repeat(counts)
        deltas = offsets - table["base_offset"].repeat(counts)
        sequences = np.where(bases < 0, -1, (bases + deltas) & SEQUENCE_MAX)
        append_time = (table["attributes"] & 8).astype(bool)
        label: Any = f" {CREATE_TIME}: ".encode()
        if append_time.any():
            kinds = pa.array(append_time.repeat(counts))
            label = pc.if_else(kinds, pa.scalar(b" LogAppendTime: "), pa.scalar(label))
        return [
            b"| offset: ", _digits(offsets), label, _digits(stamps),
            b" keySize: ", _sizes(rows["key"]), b" valueSize: ", _sizes(rows["value"]),
            b" sequence: ", b"-1" if (bases < 0).all() else _digits(sequences),
            b" headerKeys: [", self._header_keys(rows["headers"]), b"]",
        ]  # fmt: skip

    def _header_keys(self, headers: Any) -> Any:
        names = headers.values.field("key")
        if not len(names):
            return b""
        # The columns contain text, in which Python replaced invalid bytes.
        lists = pa.ListArray.from_arrays(headers.offsets, names.view(pa.binary()))
        return pc.binary_join(lists, pa.scalar(b",", pa.binary()))

    def one_by_one(self, batch: DumpedBatch) -> Iterator[tuple[int, bytes]]:
        """Yield (offset, line) of each record, read like Kafka's own reader does."""
        for record in batch.records():
            yield record.offset, self._line(batch, record)

    def _line(self, batch: DumpedBatch, record: DumpedRecord) -> bytes:
        style, line, prefix = self._style, b"", b"| "
        if style.metadata:
            line += (
                f"| offset: {record.offset} {batch.time_type}: {record.timestamp} "
                f"keySize: {_size(record.key)} valueSize: {_size(record.value)}"
            ).encode()
            prefix = b" "
            if batch.magic >= 2:
                names = ",".join(map(java_text, record.header_keys))
                line += f" sequence: {record.sequence} headerKeys: [{names}]".encode()
            line += record.note.encode()
            if batch.is_control:
                line += batch.marker(record).encode()
        if style.contents and style.remote_metadata and not batch.is_control:
            line += b" payload: " + remote_payload(record.value, record.offset).encode()
        elif style.contents and not batch.is_control:
            try:
                if record.key is not None:
                    line += prefix + b"key: " + decode_one(record.key, style.key_decoder)
                if record.value is not None:
                    line += b" payload: " + decode_one(record.value, style.value_decoder)
            except ValueError as error:
                raise batch.damage(f"the record at offset {record.offset}: {error}") from None
        return line + b"\n"


def _digits(numbers: Any) -> Any:
    return pa.array(numbers).cast(pa.string()).cast(pa.binary())


def _sizes(column: Any) -> Any:
    sizes = pc.binary_length(column)
    if column.null_count:
        sizes = sizes.fill_null(-1)
    return sizes.cast(pa.string()).cast(pa.binary())


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)
