"""Formats of Kafka's dump tool: batches, decoders, Java text, and the order of files."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidRequestError
from sparklog.tools.dump.batch import DumpedBatch

STRING: Final = "org.apache.kafka.tools.api.StringDecoder"
LONG: Final = "org.apache.kafka.tools.api.LongDecoder"
INTEGER: Final = "org.apache.kafka.tools.api.IntegerDecoder"
_WIDTHS: Final = {LONG: 8, INTEGER: 4}
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def check_decoder(name: str) -> str:
    """Return the full name of a decoder class.

    Raises:
        InvalidRequestError: The class is not supported. DefaultDecoder is refused too, because
            Kafka's tool then prints the address of a Java object.
    """
    for known in (STRING, LONG, INTEGER):
        if name in (known, known.rpartition(".")[2]):
            return known
    raise InvalidRequestError(
        f"decoder {name} is not supported: use {STRING}, {LONG} or {INTEGER}; for other formats "
        "read the topic with sparklog.open(path).read(topic) and decode its columns"
    )


def java_text(data: bytes) -> str:
    """Decode UTF-8, replacing invalid bytes as `new String(data, UTF_8)` does.

    The two differ where three bytes encode a surrogate: Java replaces it once, Python three times.
    Only such sequences begin with 0xED, so they can be replaced by a single invalid byte.
    """
    return _SURROGATE.sub(b"\xff", data).decode("utf-8", "replace")


def utf8_column(column: Any) -> Any:
    """Return a binary column with valid UTF-8, in which invalid bytes are replaced as in Java."""
    try:
        column.view(pa.string()).validate(full=True)
    except pa.ArrowInvalid:
        texts = [None if raw is None else java_text(raw).encode() for raw in column.to_pylist()]
        return pa.array(texts, pa.binary())
    return column


def decode_column(column: Any, decoder: str) -> Any:
    """Return a binary column as the decoder's text, in UTF-8.

    Numbers are the first 8 or 4 bytes, as in Java.

    Raises:
        ValueError: A value is shorter than a number.
    """
    if decoder == STRING:
        return utf8_column(column)
    width = _WIDTHS[decoder]
    least = pc.min(pc.binary_length(column)).as_py()
    if least is not None and least < width:
        name = decoder.rpartition(".")[2]
        raise ValueError(f"{name} needs {width} bytes, but a value has {least}")
    raws = column.to_pylist()
    numbers = [None if r is None else int.from_bytes(r[:width], "big", signed=True) for r in raws]
    return pa.array(numbers, pa.int64()).cast(pa.string()).cast(pa.binary())


def decode_one(data: bytes, decoder: str) -> bytes:
    """Return a key or value as the decoder's text.

    Raises:
        ValueError: The value is shorter than a number.
    """
    return bytes(decode_column(pa.array([data], pa.binary()), decoder)[0].as_py())


def batch_line(batch: DumpedBatch) -> str:
    """Return the line that kafka-dump-log prints for a batch."""
    if batch.magic < 2:
        head = f"offset: {batch.last_offset}"
    else:
        head = BatchHead(
            batch.base_offset, batch.last_offset, batch.count, batch.base_sequence,
            batch.last_sequence, batch.producer_id, batch.producer_epoch, batch.leader_epoch,
            batch.attributes, batch.base_timestamp,
        ).text()  # fmt: skip
    return (
        f"{head} position: {batch.position} {batch.time_type}: {batch.max_timestamp} "
        f"size: {len(batch.data)} magic: {batch.magic} compresscodec: {batch.codec.name.lower()} "
        f"crc: {batch.crc} isvalid: {str(batch.is_valid).lower()}\n"
    )


class BatchHead(NamedTuple):
    """The header of a v2 batch."""

    base: int
    last: int
    records: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    leader_epoch: int
    attributes: int
    base_timestamp: int

    def text(self) -> str:
        """Return the first half of the batch's line."""
        base, last, count, first, final, producer, producer_epoch, epoch, bits, time_ms = self
        horizon = f"OptionalLong[{time_ms}]" if bits & 0x40 else "OptionalLong.empty"
        return (
            f"baseOffset: {base} lastOffset: {last} count: {count} baseSequence: {first} "
            f"lastSequence: {final} producerId: {producer} producerEpoch: {producer_epoch} "
            f"partitionLeaderEpoch: {epoch} "
            f"isTransactional: {'true' if bits & 0x10 else 'false'} "
            f"isControl: {'true' if bits & 0x20 else 'false'} deleteHorizonMs: {horizon}"
        )


@dataclass(frozen=True, slots=True)
class _Slot:
    hash: int
    name: str


def scala_order(names: Iterable[str]) -> list[str]:
    """Return names in the iteration order of Scala's mutable.HashMap.

    Kafka's tool stores mismatches in such maps, keyed by file. Source:
    scala.collection.mutable.HashMap (2.13): improveHash, addOne, growTable.
    """
    slots = [_Slot(_spread(_java_hash(name)), name) for name in names]
    size = 16
    for count in range(len(slots)):
        if count + 1 >= size * 3 // 4:
            size *= 2
    ordered = sorted(slots, key=lambda slot: (slot.hash & (size - 1), _signed(slot.hash)))
    return [slot.name for slot in ordered]


def _java_hash(text: str) -> int:
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value


def _spread(value: int) -> int:
    return value ^ (value >> 16)


def _signed(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value
