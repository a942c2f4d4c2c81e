"""Record batches as bytes for a terminal or pipe: Kafka's text, JSON lines, hex, raw values.

Arrow kernels process entire columns. Only batches with text that JSON cannot represent directly are
processed in Python.
"""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidRequestError

Format: TypeAlias = Callable[[pa.RecordBatch], "memoryview | bytes"]

FORMATS: Final = ("text", "json", "hex", "raw")
_KINDS: Final = ("CreateTime", "LogAppendTime")
_PRINTS: Final = {
    "print.timestamp": "timestamp", "print.partition": "partition", "print.offset": "offset",
    "print.headers": "headers", "print.key": "key", "print.value": "value",
}  # fmt: skip
_TEXTS: Final = {
    "key.separator": b"\t", "line.separator": b"\n", "headers.separator": b",",
    "null.literal": b"null",
}  # fmt: skip
_DESERIALIZERS: Final[dict[str, int | None]] = {
    "String": None, "ByteArray": None, "Long": 8, "Integer": 4, "Short": 2,
}  # fmt: skip
"""Kafka's deserializers: bytes of a number, or None to print bytes unchanged."""
_DECODED: Final = {"key.deserializer": "key", "value.deserializer": "value"}
_HEX: Final = pa.binary()
_ESCAPES: Final = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))
_SPACE: Final = 0x20
_NAMED: Final = np.array([ord(character) for character, _ in _ESCAPES], np.uint8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Fields of the text format. `prints` has the columns in Kafka's order."""

    prints: tuple[str, ...] = ("value",)
    separator: bytes = b"\t"
    line_end: bytes = b"\n"
    headers_separator: bytes = b","
    null: bytes = b"null"
    widths: Mapping[str, int] = field(default_factory=dict)
    """{"key" or "value": bytes of the number}, for columns that are numbers."""

    @classmethod
    def parse(cls, properties: dict[str, str]) -> "Layout":
        """Parse the properties of kafka-console-consumer (DefaultMessageFormatter, Kafka 4.1).

        Raises:
            InvalidRequestError: A property is unknown or invalid.
        """
        shown = {name: name == "print.value" for name in _PRINTS}
        texts, widths = dict(_TEXTS), dict[str, int]()
        for name, value in properties.items():
            if name in shown:
                if value.lower() not in ("true", "false"):
                    raise InvalidRequestError(f"{name}={value} must be true or false")
                shown[name] = value.lower() == "true"
            elif name in texts:
                texts[name] = value.encode()
            elif name in _DECODED:
                width = _width(name, value)
                widths |= {} if width is None else {_DECODED[name]: width}
            else:
                known = ", ".join([*shown, *texts, *_DECODED])
                raise InvalidRequestError(f"property {name} is unknown; the properties are {known}")
        return cls(
            prints=tuple(column for name, column in _PRINTS.items() if shown[name]),
            separator=texts["key.separator"],
            line_end=texts["line.separator"],
            headers_separator=texts["headers.separator"],
            null=texts["null.literal"],
            widths=widths,
        )


def _width(name: str, value: str) -> int | None:
    """Return the number of bytes that a deserializer requires, or None for any number.

    Raises:
        InvalidRequestError: The deserializer is unknown.
    """
    plain = value.removeprefix("org.apache.kafka.common.serialization.")
    plain = plain.removesuffix("Deserializer")
    if plain not in _DESERIALIZERS:
        raise InvalidRequestError(
            f"{name}={value} must be Kafka's class for {', '.join(_DESERIALIZERS)}; for other "
            "formats read the topic with sparklog.open(path).read(topic) and decode its columns"
        )
    return _DESERIALIZERS[plain]


def formatter(name: str, layout: Layout | None = None) -> tuple[Format, list[str]]:
    """Return a function that formats batches as bytes, and the names of the columns to read."""
    layout = layout or Layout()
    if name == "raw":
        return _raw, ["value"]
    if name == "json":
        return _json, ["topic", "partition", "offset", "timestamp", "timestampType", "headers",
                       "key", "value"]  # fmt: skip
    if name not in ("text", "hex"):
        raise InvalidRequestError(
            f"formatter {name} is unknown; it must be one of {', '.join(FORMATS)}"
        )
    columns = [*layout.prints, *(["timestampType"] if "timestamp" in layout.prints else [])]
    return lambda rows: _text(rows, layout, to_hex if name == "hex" else _same), columns


def _same(column: Any) -> Any:
    return column


def _raw(rows: pa.RecordBatch) -> memoryview | bytes:
    return _bytes_of(rows.column("value"))


def _bytes_of(column: Any) -> memoryview | bytes:
    """Return all values of a binary or string array as a single buffer."""
    if column.null_count:
        column = column.drop_null()
    _, offsets, data = column.buffers()
    if not len(column) or data is None:
        return b""
    starts = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    return memoryview(data)[int(starts[0]) : int(starts[-1])]


# --- Kafka's text ------------------------------------------------------------------------------


def _text(rows: pa.RecordBatch, layout: Layout, show: Callable[[Any], Any]) -> memoryview | bytes:
    parts: list[Any] = []
    for name in layout.prints:
        column = rows.column(name)
        if name == "timestamp":
            parts.append(_stamps(column, rows.column("timestampType")))
        elif name in ("partition", "offset"):
            label = b"Partition:" if name == "partition" else b"Offset:"
            parts.append(_joined(label, _digits(column)))
        elif name == "headers":
            parts.append(_headers(column, layout, show))
        elif name in layout.widths:
            parts.append(_numbers(column, layout.widths[name], name))
        else:
            parts.append(show(column))
    if not parts:
        return b""
    line = parts[0].fill_null(layout.null)
    for part in parts[1:]:
        line = _joined(line, part.fill_null(layout.null), separator=layout.separator)
    return _bytes_of(_joined(line, b"", separator=layout.line_end))


def _numbers(column: Any, width: int, name: str) -> Any:
    """Return big-endian numbers as text.

    Raises:
        InvalidRequestError: A value has another length.
    """
    sizes = pc.binary_length(column)
    if not pc.all(pc.equal(sizes, width), min_count=0).as_py():
        raise InvalidRequestError(
            f"a {name} is not a number of {width} bytes; without {name}.deserializer it is printed "
            "unchanged"
        )
    found = [
        None if r is None else int.from_bytes(r, "big", signed=True) for r in column.to_pylist()
    ]
    return _digits(pa.array(found, pa.int64()))


def _binary(column: Any) -> Any:
    return column.cast(pa.binary())


def _digits(column: Any) -> Any:
    return _binary(column.cast(pa.string()))


def _joined(*parts: Any, separator: bytes = b"") -> Any:
    """Join columns element by element; bytes are constants. Null if any part is null."""
    given: list[Any] = []
    for part in parts:
        if isinstance(part, bytes) and not separator and given and isinstance(given[-1], bytes):
            given[-1] += part  # reduces the number of parts
        else:
            given.append(part)
    given = [pa.scalar(p, pa.binary()) if isinstance(p, bytes) else p for p in given]
    return pc.binary_join_element_wise(*given, pa.scalar(separator, pa.binary()))


def _stamps(times: Any, kinds: Any) -> Any:
    """Return timestamps as Kafka prints them: CreateTime:1700000000000, or NO_TIMESTAMP for -1."""
    ms = _millis(times)
    names = pa.array([kind.encode() for kind in _KINDS], pa.binary()).take(kinds)
    text = _joined(names, _digits(ms), separator=b":")
    return pc.if_else(pc.less(ms, 0), pa.scalar(b"NO_TIMESTAMP", pa.binary()), text)


def _millis(times: Any) -> Any:
    ticks = times.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return pa.array(np.floor_divide(ticks, 1000))


def _headers(column: Any, layout: Layout, show: Callable[[Any], Any]) -> Any:
    flat = column.flatten()
    values = show(flat.field("value")).fill_null(layout.null)
    pairs = _joined(_binary(flat.field("key")), values, separator=b":")
    lists = _lists(column, pairs)
    text = pc.binary_join(lists, pa.scalar(layout.headers_separator, pa.binary()))
    none = pc.equal(pc.list_value_length(lists), 0)
    return pc.if_else(none, pa.scalar(b"NO_HEADERS", pa.binary()), text)


def _lists(like: Any, values: Any) -> Any:
    """Return lists of `values` with the lengths of the lists in `like`."""
    lengths = pc.list_value_length(like).fill_null(0).to_numpy(zero_copy_only=False)
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), values)


def to_hex(column: Any) -> Any:
    """Return a binary array in hexadecimal, two digits per byte. Nulls stay null."""
    valid, offsets, data = column.buffers()
    if not len(column):
        return column
    starts = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    low, high = int(starts[0]), int(starts[-1])
    digits = b"" if data is None else bytes(memoryview(data)[low:high]).hex().encode()
    wider = ((starts.astype(np.int64) - low) * 2).astype(np.int32)
    whole = pa.Array.from_buffers(
        _HEX, len(column), [None, pa.py_buffer(wider), pa.py_buffer(digits)]
    )
    if valid is None or not column.null_count:
        return whole
    return pc.if_else(column.is_valid(), whole, pa.scalar(None, pa.binary()))


# --- JSON lines --------------------------------------------------------------------------------


def _json(rows: pa.RecordBatch) -> memoryview | bytes:
    """Return a JSON object per line.

    Keys and values that are not UTF-8 are encoded in base64, as keyBase64 and valueBase64.
    """
    kinds = pa.array([f'"{kind}"'.encode() for kind in _KINDS], pa.binary())
    topic = json.dumps(rows.column("topic")[0].as_py()).encode() if rows.num_rows else b""
    line = _joined(
        b'{"topic":' + topic + b',"partition":', _digits(rows.column("partition")),
        b',"offset":', _digits(rows.column("offset")),
        b',"timestamp":', _digits(_millis(rows.column("timestamp"))),
        b',"timestampType":', kinds.take(rows.column("timestampType")),
        b',"headers":[', _json_headers(rows.column("headers")),
        b"],", _json_field(rows.column("key"), "key"),
        b",", _json_field(rows.column("value"), "value"), b"}\n",
    )  # fmt: skip
    return _bytes_of(line)


def _json_headers(column: Any) -> Any:
    flat = column.flatten()
    if not len(flat):
        return b""
    names = _json_field(_binary(flat.field("key")), "key")
    pairs = _joined(b"{", names, b",", _json_field(flat.field("value"), "value"), b"}")
    return pc.binary_join(_lists(column, pairs), pa.scalar(b",", pa.binary()))


def _json_field(column: Any, name: str) -> Any:
    """Return a column as `"name":"text"`, `"name":null` or `"nameBase64":"..."`.

    The result is bytes if all values are null.
    """
    if column.null_count == len(column):
        return f'"{name}":null'.encode()
    try:
        escaped = _escaped(column.cast(pa.string()))
    except pa.ArrowInvalid:
        return pa.array([_slow_field(v, name) for v in column.to_pylist()], pa.binary())
    if escaped is None:
        return pa.array([_slow_field(v, name) for v in column.to_pylist()], pa.binary())
    text = _joined(f'"{name}":"'.encode(), _binary(escaped), b'"')
    return text.fill_null(f'"{name}":null'.encode())


def _escaped(text: Any) -> Any | None:
    """Escape text for JSON; return None for control characters that need numeric escapes."""
    held = np.frombuffer(_bytes_of(text), np.uint8)
    low = held[held < _SPACE]
    known = np.isin(low, _NAMED)
    if not known.all():
        return None
    for character, escape in _ESCAPES:
        code = ord(character)
        if ((low if code < _SPACE else held) == code).any():
            text = pc.replace_substring(text, character, escape)
    return text


def _slow_field(value: bytes | None, name: str) -> bytes:
    if value is None:
        return f'"{name}":null'.encode()
    try:
        return f'"{name}":{json.dumps(value.decode(), ensure_ascii=False)}'.encode()
    except UnicodeDecodeError:
        return f'"{name}Base64":"{base64.b64encode(value).decode()}"'.encode()
