"""UnsafeRows of random types and values, written one by one as UnsafeRowWriter does, come back."""

import contextlib
import struct
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.checkpoint.spark_files.unsafe_row import Spans, read_rows
from sparklog.errors import DataCorruptionError

FIXED = {
    pa.bool_(): "?", pa.int8(): "b", pa.int16(): "h", pa.int32(): "i", pa.int64(): "q",
    pa.float32(): "f", pa.float64(): "d",
}  # fmt: skip
DIGITS = Context(prec=38)  # Python's own has 28


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def write_all(types: list[pa.DataType], values: list[Any], header: int, widths: list[int]) -> bytes:
    """Null bits, slots of these widths, and what doesn't fit into them, behind `header` bytes."""
    bits = bytearray((len(types) + 63) // 64 * 8)
    slots, rest = b"", b""
    begin = header + len(bits) + len(padded(bytes(sum(widths))))
    for n, (kind, value, width) in enumerate(zip(types, values, widths, strict=True)):
        if value is None:
            bits[n // 8] |= 1 << n % 8
            slots += bytes(width)
            continue
        if kind in FIXED:
            own = struct.pack(f"<{FIXED[kind]}", value)
        elif pa.types.is_decimal(kind) and kind.precision <= 18:
            own = struct.pack("<q", int(value.scaleb(kind.scale, DIGITS)))
        else:
            raw = write(kind, value)
            own = struct.pack("<Q", (begin + len(rest)) << 32 | len(raw))
            rest += padded(raw)
        slots += own.ljust(width, b"\0")
    return bytes(bits) + padded(slots) + rest


def write(kind: pa.DataType, value: Any) -> bytes:
    """What lies behind the words: of a string, a large decimal, a row, an array or a map."""
    if pa.types.is_string(kind):
        return value.encode()
    if pa.types.is_binary(kind):
        return value
    if pa.types.is_decimal(kind):
        number = int(value.scaleb(kind.scale, DIGITS))
        return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
    if pa.types.is_struct(kind):
        types = [f.type for f in kind]
        return write_all(types, [value[f.name] for f in kind], 0, [8] * len(types))
    if pa.types.is_map(kind):
        keys = array(kind.key_type, [k for k, _ in value])
        return struct.pack("<q", len(keys)) + keys + array(kind.item_type, [v for _, v in value])
    return array(kind.value_type, value)


def array(kind: pa.DataType, values: list[Any]) -> bytes:
    width = struct.calcsize(FIXED[kind]) if kind in FIXED else 8
    count = len(values)
    body = write_all([kind] * count, values, 8, [width] * count)
    return struct.pack("<q", count) + body


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda n: Decimal(f"{n}e-{scale}"))


LEAVES = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.decimal128(12, 3), decimals(12, 3)),
    (pa.decimal128(38, 10), decimals(37, 10)),
    (pa.string(), st.text(max_size=12)),
    (pa.binary(), st.binary(max_size=12)),
]
Typed = tuple[pa.DataType, st.SearchStrategy[Any]]


def wrap(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    def lists(typed: Typed) -> Typed:
        kind, values = typed
        return pa.list_(pa.field("element", kind)), st.lists(st.none() | values, max_size=5)

    def maps(typed: Typed) -> Typed:
        kind, values = typed
        pairs = st.lists(st.tuples(st.integers(0, 99), st.none() | values), max_size=4)
        return pa.map_(pa.int32(), kind), pairs

    def structs(fields: list[Typed]) -> Typed:
        kind = pa.struct([(f"f{n}", kind) for n, (kind, _) in enumerate(fields)])
        values = {f"f{n}": st.none() | values for n, (_, values) in enumerate(fields)}
        return kind, st.fixed_dictionaries(values)

    fields = st.lists(inner, min_size=1, max_size=3)
    return inner.map(lists) | inner.map(maps) | fields.map(structs)


TYPES = st.recursive(st.sampled_from(LEAVES), wrap, max_leaves=4)


@given(data=st.data(), fields=st.lists(TYPES, min_size=1, max_size=4), gap=st.integers(0, 9))
def test_rows_come_back(data: st.DataObject, fields: list[Typed], gap: int) -> None:
    row = st.tuples(*(st.none() | values for _, values in fields))
    rows = data.draw(st.lists(st.none() | row, min_size=1, max_size=12))
    types = [kind for kind, _ in fields]
    names = [str(n) for n in range(len(types))]
    whole = pa.struct(list(zip(names, types, strict=True)))
    buffer, at, size = b"", [], []
    for each in rows:
        raw = b"" if each is None else write(whole, dict(zip(names, each, strict=True)))
        buffer += b"\xff" * gap
        at.append(len(buffer))
        size.append(len(raw) if each is not None else -1)
        buffer += raw
    null = np.array([each is None for each in rows])
    spans = Spans(np.array(at), np.array(size), null)
    found = read_rows(types, np.frombuffer(buffer, np.uint8), spans, "path")
    for n, (kind, column) in enumerate(zip(types, found, strict=True)):
        column.validate(full=True)
        assert column == pa.array([None if each is None else each[n] for each in rows], kind)


@given(raw=st.binary(max_size=80), fields=st.lists(st.sampled_from(range(len(LEAVES) + 3))))
def test_any_bytes_are_read_or_refused(raw: bytes, fields: list[int]) -> None:
    nested = [
        pa.list_(pa.int32()),
        pa.map_(pa.string(), pa.list_(pa.binary())),
        pa.struct([("a", pa.binary()), ("b", pa.list_(pa.decimal128(30, 2)))]),
    ]
    types = [kind for kind, _ in LEAVES if kind != pa.string()]  # its bytes are taken on trust
    chosen = [[*types, *nested][n % (len(types) + 3)] for n in fields]
    spans = Spans(np.zeros(1, np.int64), np.array([len(raw)]), np.zeros(1, np.bool_))
    with contextlib.suppress(DataCorruptionError):
        for column in read_rows(chosen, np.frombuffer(raw, np.uint8), spans, "path"):
            column.validate()


def test_more_than_64_fields() -> None:
    types = [pa.int64()] * 130
    values = [None if n % 3 == 0 else n for n in range(130)]
    raw = write_all(types, values, 0, [8] * 130)
    spans = Spans(np.zeros(1, np.int64), np.array([len(raw)]), np.zeros(1, np.bool_))
    found = read_rows(types, np.frombuffer(raw, np.uint8), spans, "path")
    assert [column[0].as_py() for column in found] == values


@pytest.mark.parametrize("size", [8, 12, 0])
def test_a_row_of_a_wrong_size(size: int) -> None:
    spans = Spans(np.zeros(1, np.int64), np.array([size]), np.zeros(1, np.bool_))
    with pytest.raises(DataCorruptionError, match=f"a row with 1 fields can't have {size} bytes"):
        read_rows([pa.int32()], np.zeros(16, np.uint8), spans, "path")
