"""Partitions that a real broker wrote, read back exactly as a real consumer saw them."""

import gzip
import hashlib
import json
from typing import Any

import pyarrow as pa
import pytest

from sparklog.fs import LOCAL
from sparklog.log.partition_reader import PartitionReader
from sparklog.logdir.partition.partition_segments import LogDirSegments
from tests import paths

GOLDEN = paths.GOLDEN / "kafka-4.1"
NAMES = sorted(p.name.removesuffix(".json.gz") for p in (GOLDEN / "expected").glob("*.json.gz"))
TYPES = ("CreateTime", "LogAppendTime")
assert len(NAMES) >= 14


def seen(name: str) -> dict[str, Any]:
    with gzip.open(GOLDEN / "expected" / f"{name}.json.gz") as file:
        found: dict[str, Any] = json.load(file)
    return found


def golden_reader(name: str) -> PartitionReader:
    topic = name.rpartition("-")[0]
    path = str(GOLDEN / "logdir" / name)
    return PartitionReader(LogDirSegments(LOCAL, path, gaps=topic == "compacted"))


def as_seen(part: pa.RecordBatch) -> list[list[Any]]:
    stamps = part.column("timestamp").cast("int64").to_pylist()
    return [
        [
            row["offset"],
            stamp // 1000,
            TYPES[row["timestampType"]],
            None if row["key"] is None else row["key"].hex(),
            None if row["value"] is None else hashlib.md5(row["value"]).hexdigest(),
            None if row["value"] is None else len(row["value"]),
            [[h["key"], None if h["value"] is None else h["value"].hex()] for h in row["headers"]],
        ]
        for row, stamp in zip(part.to_pylist(), stamps, strict=True)
    ]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("name", NAMES)
def test_records_and_times(name: str, isolation: str) -> None:
    expected = seen(name).get(isolation)
    if expected is None:  # recorded for the transactional topic only; elsewhere they're the same
        expected = seen(name)["read_uncommitted"]
    start, end = expected["log_start_offset"], expected["log_end_offset"]
    reader = golden_reader(name)
    assert reader.valid_end() == end
    assert reader.last_stable_offset(end) == end
    found = [row for part in reader.read(start, end, isolation=isolation) for row in as_seen(part)]
    assert found == expected["records"]
    for timestamp, offset in expected["offsets_for_times"]:
        hit = reader.offset_for_time(timestamp, start, end)
        assert (-1 if hit is None else hit[0]) == offset, timestamp


@pytest.mark.parametrize("name", NAMES)
def test_from_every_offset(name: str) -> None:
    expected = seen(name)["read_uncommitted"]
    start, end = expected["log_start_offset"], expected["log_end_offset"]
    offsets = [row[0] for row in expected["records"]]
    reader = golden_reader(name)
    for first in range(start, end, 97):
        part = next(reader.read(first, end, columns=["offset"], max_records=1))
        assert part.column("offset").to_pylist() == [min(o for o in offsets if o >= first)]
