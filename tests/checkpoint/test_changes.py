"""What each batch changed, of checkpoints that Spark made; and of damaged ones."""

import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path

import lz4.block
import numpy as np
import pyarrow as pa
import pytest
import xxhash

from sparklog import checkpoint
from sparklog.checkpoint.change_feed.change_files import StoreChanges
from sparklog.checkpoint.change_feed.change_reader import ChangeReader
from sparklog.checkpoint.files import Checkpoint
from sparklog.errors import DataCorruptionError, InvalidRequestError, OffsetOutOfRangeError
from tests.checkpoint.conftest import Golden

ROWS = 40  # of each batch of the golden queries: value 0, 1, 2, ...


def sums(first: int, end: int) -> dict[int, dict[int, int]]:
    """{batch: {value % 7: sum so far}}, where the batch changed it."""
    total: Counter[int] = Counter()
    found = {}
    for batch in range(end):
        values = range(batch * ROWS, (batch + 1) * ROWS)
        for value in values:
            total[value % 7] += value
        found[batch] = {k: total[k] for k in {v % 7 for v in values}}
    return {batch: found[batch] for batch in range(first, end)}


def blocks(data: bytes) -> bytes:
    """Compressed as LZ4BlockOutputStream does, in one block."""

    def block(plain: bytes) -> bytes:
        packed = lz4.block.compress(plain, store_size=False) if plain else b""
        check = xxhash.xxh32_intdigest(plain, 0x9747B28C) & 0x0FFFFFFF if plain else 0
        token = 0x26 if plain else 0x16
        return b"LZ4Block" + struct.pack("<BIII", token, len(packed), len(plain), check) + packed

    return block(data) + block(b"")


def rewrite(path: Path, data: bytes) -> None:
    """Put other entries into a state file, without the checksums of the old ones."""
    path.write_bytes(blocks(data))
    for crc in (path.with_name(f".{path.name}.crc"), path.with_name(f"{path.name}.crc")):
        crc.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("name", "first", "end"),
    [
        ("hdfs", 4, 14),
        ("hdfs-zstd", 0, 6),
        ("changelog", 0, 14),
        ("ids", 0, 10),
        ("ids-lzf", 0, 6),
    ],
)
def test_sums_by_key(golden: Golden, name: str, first: int, end: int) -> None:
    """Every delta and changelog (v1, v3), in lz4, zstd and lzf, by the batch that wrote it."""
    found = checkpoint.changes(golden(name)).read_all()
    found.validate(full=True)
    assert found.schema.names == ["batch", "partition", "change", "key", "value"]
    assert set(found.column("change").to_pylist()) == {"put"}
    by_batch: dict[int, dict[int, int]] = {}
    for row in found.to_pylist():
        by_batch.setdefault(row["batch"], {})[row["key"]["k"]] = row["value"]["sum"]
    assert by_batch == sums(first, end)
    assert found.num_rows == 7 * (end - first)


def test_an_imported_checkpoint_says_the_same(golden: Golden) -> None:
    path = golden("ids")
    before = checkpoint.changes(path).read_all()
    checkpoint.import_(path)
    assert checkpoint.changes(path).read_all() == before


def test_a_joins_stores(golden: Golden) -> None:
    path = golden("join")
    found = checkpoint.changes(path, store="left-keyWithIndexToValue").read_all()
    rows = found.to_pylist()
    assert {row["key"]["field0"] for row in rows} == set(range(40, 240))  # batch 0 came too late
    assert all(row["value"]["k"] == row["key"]["field0"] for row in rows)
    assert found.schema.field("value").type.field("t").type == pa.timestamp("us", "UTC")
    assert checkpoint.changes(path, store="left-keyToNumValues").read_all().num_rows
    with pytest.raises(InvalidRequestError, match="no store default: its stores are left-keyTo"):
        checkpoint.changes(path)


def test_column_families(golden: Golden) -> None:
    """transformWithState: changelog v4, a value, a list, and Spark's own counter of its length."""
    path = golden("processed")
    found = checkpoint.changes(path).read_all()
    found.validate(full=True)
    assert found.schema.names[2] == "column_family"
    for row in found.to_pylist():
        family = row["column_family"]
        assert [name for name, key in row["key"].items() if key is not None] == [family]
        assert [name for name, value in row["value"].items() if value is not None] == [family]
        assert row["change"] == ("merge" if family == "seen" else "put")
        assert row["range_end"] is None
    for family in ("count", "seen", "$rowCounter_seen"):
        own = checkpoint.changes(path, column_family=family).read_all()
        wanted = [r for r in found.to_pylist() if r["column_family"] == family]
        assert own.column("value").to_pylist() == [r["value"][family] for r in wanted]
        assert own.column("key").to_pylist() == [r["key"][family] for r in wanted]
        assert own.num_rows == 5 * 6
    with pytest.raises(InvalidRequestError, match=r"its column families are: .*count"):
        checkpoint.changes(path, column_family="last")


def test_some_batches(golden: Golden) -> None:
    path = golden("hdfs")
    found = checkpoint.changes(path, start=6, end=8).read_all()
    assert set(found.column("batch").to_pylist()) == {6, 7}
    assert checkpoint.changes(path, start=8, end=8).read_all().num_rows == 0
    for start, end in ((3, None), (None, 15), (0, 2)):
        with pytest.raises(OffsetOutOfRangeError, match=r"only the changes of batches \[4, 14\)"):
            checkpoint.changes(path, start=start, end=end)


def test_a_batch_without_all_its_files_is_not_held(golden: Golden) -> None:
    path = golden("hdfs")
    (path / "state/0/1/9.delta").unlink()
    topic = StoreChanges(Checkpoint.open(path), 0, "default")
    assert topic.available_batches() == (9, 14)
    first, files = topic.files(5, 12)
    assert (first, {f.batch for f in files}) == (9, {9, 10, 11})


def test_a_file_that_spark_removes_meanwhile(golden: Golden) -> None:
    path = golden("hdfs")
    reader = checkpoint.changes(path)
    (path / "state/0/1/6.delta").unlink()
    with pytest.raises(OffsetOutOfRangeError, match=r"batch 5 .*; start at a later") as caught:
        reader.read_all()
    later = checkpoint.changes(path, start=caught.value.start).read_all()
    assert later.column("batch").to_pylist()[0] == caught.value.start == 6


def test_only_committed_batches(golden: Golden) -> None:
    path = golden("hdfs")
    (path / "commits/13").unlink()
    found = checkpoint.changes(path).read_all()
    assert max(found.column("batch").to_pylist()) == 12


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("rocksdb", "writes snapshots, but no changelogs.*changelogCheckpointing.enabled=true"),
        ("stateless", "has no stateful operator 0: the query is stateless"),
    ],
)
def test_no_changes_there(golden: Golden, name: str, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        checkpoint.changes(golden(name))


def test_no_schema_there(golden: Golden) -> None:
    path = golden("hdfs")
    with pytest.raises(InvalidRequestError, match="no stateful operator 1: its operators are 0"):
        checkpoint.changes(path, operator=1)
    (path / "state/0/0/_metadata/schema").write_bytes(b"\0\2v2\0\0\0\1\0")
    with pytest.raises(
        DataCorruptionError,
        match="schema: the file is not a state schema: the schema is incomplete",
    ):
        checkpoint.changes(path)
    (path / "state/0/0/_metadata/schema").unlink()
    with pytest.raises(InvalidRequestError, match="schema is missing, so the state"):
        checkpoint.changes(path)


def entry(key: bytes, value: bytes | None) -> bytes:
    sized = struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value
    return struct.pack(">i", len(key)) + key + sized


END = struct.pack(">i", -1)
KEY, VALUE = struct.pack("<qq", 0, 5), struct.pack("<qq", 0, 8)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (entry(KEY, VALUE), "the file has no end mark"),
        (entry(KEY, VALUE) + END + b"x", "1 bytes follow the end mark"),
        (struct.pack(">i", 1 << 30) + END, "the key or value of entry 0 has a wrong size"),
        (struct.pack(">i", -7) + END, "the key or value of entry 0 has a wrong size"),
        (entry(KEY, VALUE + VALUE[:5]) + END, "a row with 1 fields can't have 21 bytes"),
        (entry(KEY[:8], VALUE) + END, "a row with 1 fields can't have 8 bytes"),
    ],
)
def test_damage(golden: Golden, data: bytes, reason: str) -> None:
    path = golden("hdfs")
    rewrite(path / "state/0/1/12.delta", data)
    with pytest.raises(DataCorruptionError, match=f"12.delta: {reason}"):
        checkpoint.changes(path).read_all()


def test_deletions_and_nulls(golden: Golden) -> None:
    path = golden("hdfs")
    nothing = struct.pack("<qq", 1, 0)
    data = entry(KEY, None) + entry(nothing, nothing) + entry(nothing, None) + END
    rewrite(path / "state/0/1/12.delta", data)
    found = checkpoint.changes(path, start=11, end=12).read_all().to_pylist()
    assert [(r["change"], r["key"], r["value"]) for r in found if r["partition"] == 1] == [
        ("delete", {"k": 5}, None),
        ("put", {"k": None}, {"sum": None}),
        ("delete", {"k": None}, None),
    ]


def test_a_long_file_is_decoded_in_parts(golden: Golden) -> None:
    path = golden("hdfs")
    count = 150_000
    rows = np.zeros(count, [("ks", ">i4"), ("k0", "<i8"), ("k", "<i8"), ("vs", ">i4"),
                            ("v0", "<i8"), ("v", "<i8")])  # fmt: skip
    rows["ks"] = rows["vs"] = 16
    rows["k"], rows["v"] = np.arange(count), np.arange(count) ** 2
    rewrite(path / "state/0/1/12.delta", rows.tobytes() + END)
    batches = list(checkpoint.changes(path, start=11, end=12))
    assert max(batch.num_rows for batch in batches) == 1 << 16
    found = pa.Table.from_batches(batches).filter(pa.compute.field("partition") == 1).flatten()
    assert found.column("key.k").to_pylist() == list(range(count))
    assert found.column("value.sum").to_pylist() == [n * n for n in range(count)]


TYPED = {"put": 1, "delete": 0x10, "merge": 0x11, "delete_range": 0x20}


def versioned(*fields: int) -> bytes:
    return b"\0" + struct.pack(f"<{1 + len(fields)}q", 0, *fields)


def listed(value: int) -> bytes:
    row = versioned(value)
    return struct.pack("<i", len(row)) + row


@pytest.mark.parametrize("delimiter", [b"", b","])
def test_lists_and_ranges(golden: Golden, delimiter: bytes) -> None:
    """A put of a list, in both of Spark's encodings; a range that is deleted."""
    path = golden("processed")
    (file,) = (path / "state/0/0").glob("6_*.changelog")
    count, seen = struct.pack("<h", 2), struct.pack("<h", 4)  # as the snapshot's zip has it
    data = b"\0\2v4\0\2[]"
    for kind, key, value in (
        ("put", seen + versioned(1), delimiter.join(map(listed, (7, 8, 9)))),
        ("put", seen + versioned(2), listed(4)),
        ("merge", seen + versioned(2), listed(5)),
        ("delete", seen + versioned(1), None),
        ("delete_range", count + versioned(0), count + versioned(3)),
    ):
        data += bytes([TYPED[kind]]) + entry(key, value)
    rewrite(file, data + b"\0")
    found = checkpoint.changes(path, start=5, end=6).read_all()
    rows = [r for r in found.to_pylist() if r["partition"] == 0]
    lists = [r for r in rows if r["column_family"] == "seen"]
    assert [(r["change"], r["key"]["seen"]["k"], r["value"]) for r in lists[:-1]] == [
        (change, k, {"$rowCounter_seen": None, "count": None, "seen": {"v": v}})
        for change, k, v in (
            ("put", 1, 7), ("merge", 1, 8), ("merge", 1, 9), ("put", 2, 4), ("merge", 2, 5)
        )
    ]  # fmt: skip
    assert (lists[-1]["change"], lists[-1]["value"]) == ("delete", None)
    (ranged,) = (r for r in rows if r["change"] == "delete_range")
    assert (ranged["key"]["count"], ranged["value"]) == ({"k": 0}, None)
    assert ranged["range_end"]["count"] == {"k": 3}


def test_families_that_nothing_names(golden: Golden) -> None:
    path = golden("processed")
    (file,) = (path / "state/0/0").glob("6_*.changelog")
    key = struct.pack("<h", 9) + versioned(1)
    rewrite(file, b"\0\2v4\0\2[]\1" + entry(key, versioned(1)) + b"\0")
    with pytest.raises(DataCorruptionError, match=r"no snapshot names .*\[9\]"):
        checkpoint.changes(path).read_all()
    key = struct.pack("<h", 1) + versioned(1)  # the id of "default", which has no schema
    rewrite(file, b"\0\2v4\0\2[]\1" + entry(key, versioned(1)) + b"\0")
    with pytest.raises(InvalidRequestError, match="began: default; start the read again"):
        checkpoint.changes(path).read_all()


def test_a_read_that_meets_a_new_column_family_is_started_again(golden: Golden) -> None:
    """The query was restarted with one more since the read began."""
    path = golden("processed")
    found = Checkpoint.open(path)
    topic = StoreChanges(found, 0, "default")
    families = {name: each for name, each in topic.schema.families.items() if name != "seen"}
    began = ChangeReader(found, replace(topic.schema, families=families))
    _, files = topic.files(*topic.available_batches())
    with pytest.raises(InvalidRequestError, match="began: seen; start the read again"):
        for file in files:
            list(began.read(file))
    assert "seen" in checkpoint.changes(path).read_all().column("column_family").to_pylist()


def test_rows_with_checksums(golden: Golden) -> None:
    """The HDFS provider puts them before the value, or before the key of what it deletes."""
    path = golden("hdfs")
    for plan in (path / "offsets").glob("[0-9]*"):
        text = plan.read_text().replace('rowChecksum.enabled":"false', 'rowChecksum.enabled":"true')
        plan.write_text(text)
    check = b"\xde\xad\xbe\xef"
    rewrite(path / "state/0/0/14.delta", entry(KEY, check + VALUE) + entry(check + KEY, None) + END)
    rewrite(path / "state/0/1/14.delta", END)
    found = checkpoint.changes(path, start=13).read_all().to_pylist()
    rows = [(row["change"], row["key"], row["value"]) for row in found]
    assert rows == [("put", {"k": 5}, {"sum": 8}), ("delete", {"k": 5}, None)]


def test_rows_with_checksums_are_refused(golden: Golden) -> None:
    path = golden("changelog")
    key, value = versioned(1), versioned(2)
    checked = struct.pack("<Ii", 0xDEADBEEF, len(value)) + value
    rewrite(path / "state/0/0/6.changelog", entry(key, checked) + END)
    with pytest.raises(DataCorruptionError, match=r"rowChecksum\.enabled"):
        checkpoint.changes(path).read_all()
