"""Keys as RocksDB has them, written one by one as RocksDBStateEncoder does, come back."""

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.checkpoint.spark_files.state_rows import read_keys, read_values, split_lists
from sparklog.checkpoint.spark_files.state_schema import ColumnFamily, KeyEncoder
from sparklog.checkpoint.spark_files.unsafe_row import Spans
from sparklog.errors import DataCorruptionError
from tests.checkpoint.spark_files.test_unsafe_row import write_all

NUMBERS = {
    pa.int8(): ("b", st.integers(-128, 127)),
    pa.int16(): ("h", st.integers(-(2**15), 2**15 - 1)),
    pa.int32(): ("i", st.integers(-(2**31), 2**31 - 1)),
    pa.int64(): ("q", st.integers(-(2**63), 2**63 - 1)),
    pa.float32(): ("f", st.floats(width=32, allow_nan=False)),
    pa.float64(): ("d", st.floats(allow_nan=False)),
}


def row(types: list[pa.DataType], values: list[Any]) -> bytes:
    return b"\0" + write_all(types, values, 0, [8] * len(types))


def ordered(kind: pa.DataType, value: Any) -> bytes:
    """A number whose bytes sort as it does: a mark, then big-endian."""
    size = kind.bit_width // 8
    if value is None:
        return b"\2" + bytes(size)
    raw = struct.pack(f">{NUMBERS[kind][0]}", value)
    negative = raw[0] >= 0x80
    if negative and pa.types.is_floating(kind):
        raw = bytes(255 - byte for byte in raw)
    return (b"\0" if negative else b"\1") + raw


def encode(family: ColumnFamily, key: list[Any]) -> bytes:
    types = [field.type for field in family.key]
    kind, first = family.layout.kind, family.layout.first
    if kind == "plain":
        return row(types, key)
    if kind.startswith("time"):
        time = struct.pack(">Q", key[-1] % (1 << 64) ^ 1 << 63)
        rest = row(types[:-1], key[:-1])
        return time + rest if kind == "time first" else rest + time
    rest = [n for n in range(len(types)) if n not in first]
    if kind == "prefix":
        head = row([types[n] for n in first], [key[n] for n in first])
    else:
        head = row([pa.binary()] * len(first), [ordered(types[n], key[n]) for n in first])
    tail = row([types[n] for n in rest], [key[n] for n in rest])
    return struct.pack("<i", len(head)) + head + tail


def spans(values: list[bytes]) -> tuple[np.ndarray, Spans]:
    sizes = np.array([len(value) for value in values])
    data = np.frombuffer(b"".join(values), np.uint8)
    return data, Spans(np.cumsum(sizes) - sizes, sizes, np.zeros(len(values), np.bool_))


@st.composite
def families(draw: st.DrawFn) -> tuple[ColumnFamily, list[list[Any]]]:
    kinds = draw(st.lists(st.sampled_from([*NUMBERS, pa.string()]), min_size=1, max_size=4))
    kind = draw(st.sampled_from(["plain", "prefix", "range", "time first", "time last"]))
    first: list[int] = []
    if kind == "prefix":
        first = list(range(draw(st.integers(1, len(kinds)))))
    elif kind == "range":
        numbers = [n for n, each in enumerate(kinds) if each in NUMBERS]
        kind = "range" if numbers else "plain"
        first = (
            draw(st.permutations(numbers))[: draw(st.integers(1, len(numbers)))] if numbers else []
        )
    elif kind.startswith("time"):
        kinds.append(pa.int64())
    values = [NUMBERS[k][1] if k in NUMBERS else st.text(max_size=5) for k in kinds]
    fields = [v if kind.startswith("time") else st.none() | v for v in values]
    keys = draw(st.lists(st.tuples(*fields).map(list), min_size=1, max_size=8))
    names = pa.struct([(str(n), k) for n, k in enumerate(kinds)])
    return ColumnFamily("f", names, names, KeyEncoder(kind, tuple(first))), keys


@given(families())
def test_keys_come_back(made: tuple[ColumnFamily, list[list[Any]]]) -> None:
    family, keys = made
    data, where = spans([encode(family, key) for key in keys])
    found = read_keys(family, data, where, "path", rocksdb=True)
    found.validate(full=True)
    assert [list(key.values()) for key in found.to_pylist()] == keys


@given(made=families(), raw=st.lists(st.binary(max_size=60), min_size=1, max_size=4))
def test_any_bytes_are_read_or_refused(
    made: tuple[ColumnFamily, list[list[Any]]], raw: list[bytes]
) -> None:
    family, _ = made
    if any(pa.types.is_string(f.type) for f in family.key):
        return  # their bytes are taken on trust
    data, where = spans(raw)
    for rocksdb in (True, False):
        try:
            read_keys(family, data, where, "path", rocksdb=rocksdb).validate()
            index, values = split_lists(data, where, "path")
            read_values(family, data, values, "path", rocksdb=rocksdb).validate()
            assert len(index) == len(values.at)
        except DataCorruptionError:
            continue


@given(
    lists=st.lists(st.lists(st.integers(-9, 9), max_size=5), min_size=1, max_size=6),
    comma=st.booleans(),
)
def test_lists_are_taken_apart(lists: list[list[int]], comma: bool) -> None:
    """An empty list stands for a plain value here."""
    kind = pa.struct([("v", pa.int64())])
    written, wanted = [], []
    for n, values in enumerate(lists):
        rows = [row([pa.int64()], [v]) for v in values]
        sized = [struct.pack("<i", len(each)) + each for each in rows]
        written.append((b"," if comma else b"").join(sized) or row([pa.int64()], [77]))
        wanted += [(n, v) for v in values or [77]]
    data, where = spans(written)
    index, found = split_lists(data, where, "path")
    values = read_values(
        ColumnFamily("f", kind, kind, KeyEncoder()), data, found, "path", rocksdb=True
    )
    assert list(zip(index.tolist(), values.field(0).to_pylist(), strict=True)) == wanted


@pytest.mark.parametrize("kind", ["plain", "prefix", "range", "time first"])
def test_a_key_of_another_layout(kind: str) -> None:
    names = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    family = ColumnFamily("f", names, names, KeyEncoder(kind, (0,) if kind != "plain" else ()))
    data, where = spans([b"\1\1"])
    with pytest.raises(DataCorruptionError, match=r"^path: "):
        read_keys(family, data, where, "path", rocksdb=True)
