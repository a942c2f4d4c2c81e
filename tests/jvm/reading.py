"""The records of a batch, as Python reads them and as Scala does, in one form."""

import hashlib
import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from sparklog.errors import DataCorruptionError
from sparklog.format.batch import CRC_START, HEADER_SIZE, MAGIC_END
from sparklog.format.parser import FAULTS
from sparklog.format.records import Decoder
from sparklog.format.scan import read_header
from tests.jvm.probe import Probe, pack

OFFSET_MAX: Final = 2**63 - 1
SOUND, CUT, LEGACY = "sound", "cut", "legacy"
TOO_LARGE = "too large"
_HEADER_FAULTS: Final = {  # by what Python's texts have in common
    "batch length": "length", "magic": "magic", "base offset -": "base offset", "crc": "crc",
    "is unknown": "codec", "records up to": "count", "is too large": "offsets",
}  # fmt: skip
_RECORD_FAULTS: Final = [FAULTS[number] for number in sorted(FAULTS)]
STATUSES: Final = {  # as BatchHeader.scala and RecordCursor.scala number them
    **dict(enumerate([SOUND, CUT, LEGACY, *_HEADER_FAULTS.values()])),
    **dict(enumerate([*_RECORD_FAULTS, "codec's data", TOO_LARGE], 16)),
}


class Record(NamedTuple):
    """`micros`: since the epoch; `headers`: (key, value)."""

    offset: int
    micros: int
    type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


Read = tuple[str, list[Record]]
"""A status, and with SOUND the records."""


def python_reads(batch: bytes, first: int = 0, until: int = OFFSET_MAX) -> Read:
    """What Python makes of the batch at the beginning of `batch`."""
    try:
        header = read_header(batch, 0, path="t")
    except DataCorruptionError as error:
        text = str(error)
        if batch[16] in (0, 1) and "batch length" not in text:
            return LEGACY, []
        return next(fault for part, fault in _HEADER_FAULTS.items() if part in text), []
    if header is None or header.magic < 2:
        return (CUT if header is None else LEGACY), []
    decoder = Decoder()
    try:
        assert decoder.add(batch, 0, header, first=first, end=until, path="t")
    except DataCorruptionError as error:
        text = str(error)
        return next((f for f in _RECORD_FAULTS if f in text), "codec's data"), []
    table = decoder.finish()
    table = table.set_column(3, "timestamp", table["timestamp"].cast("int64"))
    return SOUND, [_record(row) for row in table.to_pylist()]


def _record(row: dict[str, Any]) -> Record:
    headers = [(header["key"], header["value"]) for header in row["headers"]]
    return Record(
        row["offset"], row["timestamp"], row["timestampType"], row["key"], row["value"], headers
    )


def scala_reads(
    probe: Probe, batches: Sequence[bytes], first: int = 0, until: int = OFFSET_MAX
) -> list[Read]:
    """What Scala makes of each of `batches`, by one call."""
    answer = _Answer(probe.call("records", struct.pack(">qq", first, until) + pack(batches)))
    return [(STATUSES[answer.take(">i")], list(answer.records())) for _ in batches]


def agree(probe: Probe, batches: Iterable[bytes], first: int = 0, until: int = OFFSET_MAX) -> None:
    """Assert that both make the same of each batch."""
    batches = list(batches)
    for batch, said in zip(batches, scala_reads(probe, batches, first, until), strict=True):
        assert said == python_reads(batch, first, until), batch.hex()


def resealed(batch: bytes | bytearray, records: bytes | None = None, **fields: int) -> bytes:
    """`batch` with other records, other header fields by name (see _FIELDS), and a good CRC."""
    out = bytearray(batch if records is None else batch[:HEADER_SIZE] + records)
    struct.pack_into(">i", out, 8, len(out) - 12)
    for name, value in fields.items():
        form, at = _FIELDS[name]
        struct.pack_into(form, out, at, value)
    struct.pack_into(">I", out, MAGIC_END, crc32c(out[CRC_START:]))
    return bytes(out)


_FIELDS: Final = {
    "base_offset": (">q", 0), "attributes": (">h", 21), "last_offset_delta": (">i", 23),
    "base_timestamp": (">q", 27), "max_timestamp": (">q", 35), "count": (">i", 57),
}  # fmt: skip


class _Answer:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return value

    def blob(self) -> bytes | None:
        size = self.take(">i")
        if size < 0:
            return None
        self._at += size
        return self._data[self._at - size : self._at]

    def records(self) -> Iterable[Record]:
        while self.take(">i"):
            offset, micros, kind = self.take(">q"), self.take(">q"), self.take(">i")
            key, value = self.blob(), self.blob()
            headers = [self.header() for _ in range(self.take(">i"))]
            yield Record(offset, micros, kind, key, value, headers)

    def header(self) -> tuple[str, bytes | None]:
        key = self.blob()
        assert key is not None
        return key.decode(), self.blob()


def varint(value: int) -> bytes:
    """A zig-zag number, from the format's definition."""
    bits = value * 2 if value >= 0 else -value * 2 - 1
    out = bytearray()
    while bits > 0x7F:
        out.append(bits & 0x7F | 0x80)
        bits >>= 7
    out.append(bits)
    return bytes(out)


def as_json(read: Read) -> dict[str, Any]:
    """The form of vectors/*.json: long byte strings by their size and digest."""
    status, records = read
    rows = [
        [r.offset, r.micros, r.type, _text(r.key), _text(r.value),
         [[key, _text(value)] for key, value in r.headers]]
        for r in records
    ]  # fmt: skip
    return {"status": status, "records": rows}


def _text(data: bytes | None) -> str | None:
    if data is None or len(data) <= 64:
        return None if data is None else data.hex()
    return f"{len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}"
