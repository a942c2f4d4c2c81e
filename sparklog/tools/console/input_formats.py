"""Lines, JSON lines, CSV and Parquet as record batches for `Log.append`.

Data is processed by column and block, so memory is limited to a few blocks. An unreadable line
raises InvalidRequestError with its number before any record of its block is used.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from sparklog.errors import InvalidRequestError
from sparklog.format.columns import HEADERS_TYPE

FORMATS: Final = ("lines", "json", "csv", "parquet")
BLOCK_BYTES: Final = 8 << 20
_FLAGS: Final = ("parse.key", "parse.headers", "ignore.error")
_TEXTS: Final = {
    "key.separator": "\t", "headers.delimiter": "\t", "headers.separator": ",",
    "headers.key.separator": ":", "null.marker": "",
}  # fmt: skip
_MS: Final = pa.timestamp("ms", tz="UTC")
_NULL: Final = pa.scalar(None, pa.binary())
_HEADER: Final = pa.struct(
    [("key", pa.string()), ("value", pa.string()), ("valueBase64", pa.string())]
)
_JSON: Final = pa.schema(
    [
        ("key", pa.string()), ("value", pa.string()), ("keyBase64", pa.string()),
        ("valueBase64", pa.string()), ("headers", pa.list_(_HEADER)), ("timestamp", pa.int64()),
        ("partition", pa.int32()), ("topic", pa.string()), ("offset", pa.int64()),
        ("timestampType", pa.string()),
    ]
)  # fmt: skip
NOTHING: Final = pa.RecordBatch.from_pydict({"value": pa.nulls(0, pa.binary())})
"""Yielded while a pipe has no data, so that the caller can commit earlier data."""
_KNOWN: Final = ("key", "value", "headers", "timestamp", "partition")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """The rules for parsing a line as a record: the properties of kafka-console-producer.

    Source: LineMessageReader.
    """

    parse_key: bool = False
    parse_headers: bool = False
    ignore_error: bool = False
    key_separator: bytes = b"\t"
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    null_marker: bytes = b""  # empty means no marker

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> "Lines":
        """Parse --property values.

        Raises:
            InvalidRequestError: A property is unknown or invalid.
        """
        given: dict[str, Any] = {}
        for name, value in properties.items():
            field = name.replace(".", "_")
            if name in _FLAGS:
                if value.lower() not in ("true", "false"):
                    raise InvalidRequestError(f"{name}={value} must be true or false")
                given[field] = value.lower() == "true"
            elif name in _TEXTS:
                if not value and name != "null.marker":
                    raise InvalidRequestError(f"{name} must not be empty")
                given[field] = value.encode()
            else:
                raise InvalidRequestError(
                    f"property {name} is unknown; the properties are "
                    f"{', '.join([*_FLAGS, *_TEXTS])}"
                )
        return cls(**given)


def batches(file: Any, form: str, lines: Lines | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the records of an open file.

    JSON has an object per line, as `sparklog consume --formatter json` prints; the fields topic,
    offset and timestampType are ignored. CSV and Parquet have a column value, and optionally key,
    headers (not in CSV), timestamp, partition. While a pipe of lines or JSON has no data, the
    function yields NOTHING.

    Args:
        file: The file.
        form: One of FORMATS.
        lines: The rules for parsing a line as a record.

    Raises:
        InvalidRequestError: A line is invalid. The message has the number of the line.
    """
    if form == "lines":
        yield from _numbered(file, lines or Lines(), _of_lines)
    elif form == "json":
        yield from _numbered(file, None, _of_json)
    elif form == "csv":
        yield from _of_csv(file)
    elif form == "parquet":
        yield from _of_parquet(file)
    else:
        raise InvalidRequestError(
            f"format {form} is unknown; it must be one of {', '.join(FORMATS)}"
        )


def blocks(file: Any) -> Iterator[bytes]:
    """Yield complete lines, about BLOCK_BYTES at a time; b"" while the file has no data."""
    rest: list[bytes] = []
    while (block := file.read(BLOCK_BYTES)) != b"":
        if block is None:  # a pipe without data at the moment
            yield b""
            continue
        end = block.rfind(b"\n") + 1
        if not end:
            rest.append(block)
            continue
        yield b"".join([*rest, block[:end]])
        rest = [block[end:]] if end < len(block) else []
    if rest:
        yield b"".join(rest)


def _numbered(file: BinaryIO, how: Any, read: Any) -> Iterator[pa.RecordBatch]:
    line = 1
    for block in blocks(file):
        if not block:
            yield NOTHING
            continue
        rows = read(block, line, how)
        line += block.count(b"\n")
        if rows.num_rows:
            yield rows


# --- lines -------------------------------------------------------------------------------------


def _of_lines(block: bytes, first: int, how: Lines) -> pa.RecordBatch:
    rest = _split_lines(block)
    given: dict[str, Any] = {}
    if how.parse_headers:
        texts, rest = _cut(rest, how.headers_delimiter, "headers.delimiter", first, how)
        given["headers"] = _headers(texts, first, how)
    if how.parse_key:
        given["key"], rest = _cut(rest, how.key_separator, "key.separator", first, how)
    given["value"] = rest
    if how.null_marker:
        for name in {"key", "value"} & given.keys():
            marked = pc.equal(given[name], pa.scalar(how.null_marker, pa.binary()))
            given[name] = pc.if_else(pc.fill_null(marked, False), _NULL, given[name])
    return pa.RecordBatch.from_pydict(given)


def _split_lines(block: bytes) -> Any:
    """Return the lines of a block, without their ends (LF or CR LF)."""
    if block.endswith(b"\n"):
        block = block[:-1]
    whole = pa.Array.from_buffers(
        pa.binary(), 1,
        [None, pa.py_buffer(np.array([0, len(block)], np.int32)), pa.py_buffer(block)],
    )  # fmt: skip
    lines = pc.split_pattern(whole, "\n").flatten()
    if b"\r" in block:
        ended = pc.ends_with(lines, "\r")
        lines = pc.if_else(ended, pc.binary_slice(lines, 0, -1), lines)
    return lines


def _cut(column: Any, separator: bytes, name: str, first: int, how: Lines) -> tuple[Any, Any]:
    """Split each text at the first `separator`; return the parts before and after the separator."""
    parts = pc.split_pattern(column, separator.decode(), max_splits=1)
    whole = pc.equal(pc.list_value_length(parts), 2)
    if not pc.all(whole, min_count=0).as_py():
        if not how.ignore_error:
            at = int(pc.index(whole, False).as_py())
            raise InvalidRequestError(
                f"line {first + at} has no {name} {separator.decode()!r}: {_shown(column[at])}. "
                f"Set another with {name}=..., or accept such lines with ignore.error=true"
            )
        before = pc.if_else(whole, pc.list_element(_padded(parts), 0), _NULL)
        return before, pc.if_else(whole, pc.list_element(_padded(parts), 1), column)
    flat = parts.flatten()
    evens = np.arange(0, len(flat), 2)
    return flat.take(pa.array(evens)), flat.take(pa.array(evens + 1))


def _shown(line: Any) -> str:
    """Return the beginning of a line, for an error message."""
    return repr(line.as_py()[:60].decode(errors="replace"))


def _padded(parts: Any) -> Any:
    """Extend single-element lists to two elements, so that both elements can be selected."""
    return pa.array([[*one, None][:2] for one in parts.to_pylist()], pa.list_(pa.binary()))


def _headers(texts: Any, first: int, how: Lines) -> Any:
    """Convert h1:v1,h2:v2 to lists of headers; an empty text has none."""
    texts = texts.fill_null(b"")
    lists = pc.split_pattern(texts, how.headers_separator.decode())
    lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False).copy()
    empty = pc.equal(pc.binary_length(texts), 0).to_numpy(zero_copy_only=False)
    pairs = lists.flatten()
    if empty.any():
        pairs = pairs.filter(pa.array(~np.repeat(empty, lengths)))
        lengths[empty] = 0
    parts = pc.split_pattern(pairs, how.headers_key_separator.decode(), max_splits=1)
    whole = pc.equal(pc.list_value_length(parts), 2)
    if not pc.all(whole, min_count=0).as_py():
        at = int(np.searchsorted(np.cumsum(lengths), pc.index(whole, False).as_py(), "right"))
        raise InvalidRequestError(
            f"line {first + at} has a header without headers.key.separator "
            f"{how.headers_key_separator.decode()!r}"
        )
    flat = parts.flatten()
    evens = np.arange(0, len(flat), 2)
    try:
        keys = flat.take(pa.array(evens)).cast(pa.string())
    except pa.ArrowInvalid:
        raise InvalidRequestError(
            f"a line from line {first} on has a header key that is not UTF-8"
        ) from None
    pairs = pa.StructArray.from_arrays(
        [keys, flat.take(pa.array(evens + 1))], fields=list(HEADERS_TYPE.value_type)
    )
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pairs)


# --- JSON lines --------------------------------------------------------------------------------

_TOP_NULL: Final = re.compile(rb"(?:\A|\})\s*null")
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"')


def _of_json(block: bytes, first: int, _: None) -> pa.RecordBatch:
    if not block.strip():
        return pa.RecordBatch.from_pydict({"value": pa.nulls(0, pa.binary())})
    if _TOP_NULL.search(block) and _TOP_NULL.search(_STRING.sub(b'""', block)):
        # Arrow (up to version 25 at least) reads a null outside a field as an object, and crashes.
        _refuse_json(block, first, ValueError("null isn't a JSON object"))
    options = pa.json.ParseOptions(explicit_schema=_JSON, unexpected_field_behavior="error")
    reading = pa.json.ReadOptions(block_size=len(block) + 1, use_threads=False)
    try:
        table = pa.json.read_json(pa.BufferReader(block), reading, options)
    except pa.ArrowInvalid as error:
        _refuse_json(block, first, error)
    rows = table.combine_chunks().to_batches()
    if not rows:
        return pa.RecordBatch.from_pydict({"value": pa.nulls(0, pa.binary())})
    return _from_json(rows[0], first)


def _from_json(rows: pa.RecordBatch, first: int) -> pa.RecordBatch:
    given: dict[str, Any] = {}
    for name in ("key", "value"):
        given[name] = _decoded(rows.column(name), rows.column(f"{name}Base64"), name, first)
    lists = rows.column("headers")
    flat = lists.flatten()
    values = _decoded(flat.field("value"), flat.field("valueBase64"), "header's value", first)
    fields = list(HEADERS_TYPE.value_type)
    pairs = pa.StructArray.from_arrays([flat.field("key"), values], fields=fields)
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    given["headers"] = pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), pairs)
    stamps = rows.column("timestamp")
    if stamps.null_count < len(stamps):
        given["timestamp"] = stamps.cast(_MS)
    places = rows.column("partition")
    if places.null_count < len(places):
        given["partition"] = places
    return pa.RecordBatch.from_pydict(given)


def _decoded(text: Any, coded: Any, name: str, first: int) -> Any:
    column = text.cast(pa.binary())
    if coded.null_count == len(coded):
        return column
    found = column.to_pylist()
    for at, code in enumerate(coded.to_pylist()):
        if code is not None:
            try:
                found[at] = base64.b64decode(code, validate=True)
            except (binascii.Error, ValueError):
                raise InvalidRequestError(
                    f"the {name} of line {first + at} is not base64: {code[:40]!r}"
                ) from None
    return pa.array(found, pa.binary())


def _refuse_json(block: bytes, first: int, error: Exception) -> NoReturn:
    """Raise an error with the number of the line that Arrow could not read."""
    for at, line in enumerate(block.split(b"\n")):
        if not line.strip():
            continue
        reason = _fault(line)
        if reason:
            raise InvalidRequestError(f"line {first + at}: {reason}") from None
    raise InvalidRequestError(f"lines from {first} on: {error}") from None


def _fault(line: bytes) -> str:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"not JSON: {error}"
    if not isinstance(found, dict):
        return f"not a JSON object: {line[:60]!r}"
    unknown = sorted(found.keys() - set(_JSON.names))
    if unknown:
        return f"the object has unknown fields {unknown}; the fields are {_JSON.names}"
    try:
        options = pa.json.ParseOptions(explicit_schema=_JSON, unexpected_field_behavior="error")
        pa.json.read_json(pa.BufferReader(line), parse_options=options)
    except pa.ArrowInvalid as error:
        return f"{str(error).removeprefix('JSON parse error: ')} in {line[:60]!r}"
    return ""


# --- CSV and Parquet ---------------------------------------------------------------------------


def _of_csv(file: BinaryIO) -> Iterator[pa.RecordBatch]:
    kinds = {"key": pa.binary(), "value": pa.binary(), "timestamp": pa.string(),
             "partition": pa.int32()}  # fmt: skip
    refused: list[Any] = []

    def handle(row: Any) -> str:
        refused.append(row)
        return "error"

    try:
        with pa.csv.open_csv(
            file,
            read_options=pa.csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),
            parse_options=pa.csv.ParseOptions(
                newlines_in_values=True, invalid_row_handler=handle
            ),
            convert_options=pa.csv.ConvertOptions(
                column_types=kinds, null_values=[""], strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        ) as reader:  # fmt: skip
            _check_names(reader.schema.names, [n for n in _KNOWN if n != "headers"])
            for rows in reader:
                if rows.num_rows:
                    yield _stamped(rows)
    except UnicodeDecodeError as error:
        raise InvalidRequestError(
            f"line 1: the names of the columns are not UTF-8: {error.object[:60]!r}. Convert the "
            "file first, for example by iconv -f LATIN1 -t UTF-8"
        ) from None
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        if refused:
            row = refused[0]
            raise InvalidRequestError(
                f"line {row.number} has {row.actual_columns} columns, not {row.expected_columns}: "
                f"{row.text[:60]!r}"
            ) from None
        raise InvalidRequestError(f"CSV: {error}") from None


def _of_parquet(file: BinaryIO) -> Iterator[pa.RecordBatch]:
    try:
        found = pa.parquet.ParquetFile(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidRequestError(f"Parquet: {error}") from None
    names = [n for n in found.schema_arrow.names if n not in ("topic", "offset", "timestampType")]
    _check_names(names, _KNOWN)
    try:
        for rows in found.iter_batches(columns=names):
            if rows.num_rows:
                yield rows
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidRequestError(f"Parquet: {error}") from None


def _check_names(names: list[str], known: Any) -> None:
    unknown = [name for name in names if name not in known]
    if unknown or "value" not in names or len(set(names)) < len(names):
        others = ", ".join(name for name in known if name != "value")
        raise InvalidRequestError(
            f"the columns are {names}: they must be value and optionally {others}, each once"
        )


def _stamped(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Convert timestamps from ms since the epoch or ISO times."""
    if "timestamp" not in rows.schema.names:
        return rows
    at, text = rows.schema.get_field_index("timestamp"), rows.column("timestamp")
    try:
        stamps = text.cast(pa.int64()).cast(_MS)
    except pa.ArrowInvalid:
        try:
            stamps = text.cast(_MS)
        except pa.ArrowInvalid as error:
            raise InvalidRequestError(
                "column timestamp must contain ms since the epoch or ISO times with a zone: "
                f"{error}"
            ) from None
    return rows.set_column(at, "timestamp", stamps)
