"""What a broker wrote decodes to what a consumer saw; its small files survive a round trip."""

import gzip
import hashlib
import json

import numpy as np
import pyarrow as pa
import pytest

from sparklog.format import checkpoint_files, index, producer_snapshot
from sparklog.format.names import parse_base, parse_partition_dir
from sparklog.format.records import Decoder
from sparklog.format.scan import rebase, rebase_headers, scan
from tests import paths

GOLDEN = paths.GOLDEN / "kafka-4.1"
LOGDIR = GOLDEN / "logdir"
PARTITIONS = sorted(p.name.removesuffix(".json.gz") for p in (GOLDEN / "expected").iterdir())
LOGS = sorted(str(p.relative_to(LOGDIR)) for p in LOGDIR.glob("*/*.log"))
TYPES = {"CreateTime": 0, "LogAppendTime": 1}


def test_all_is_there():
    assert len(PARTITIONS) == 15
    assert len(LOGS) == 19


def records_of(partition: str) -> list[list]:
    found = []
    for path in sorted((LOGDIR / partition).glob("*.log")):
        raw = path.read_bytes()
        batches = scan(raw, path=str(path))
        assert batches.error is None
        assert batches.end == len(raw)
        decoder = Decoder()
        assert decoder.add_many(raw, batches.table, path=str(path)) == len(batches)
        table = decoder.finish()
        table.validate(full=True)
        stamps = table["timestamp"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
        columns = [table[n].to_pylist() for n in ("offset", "timestampType", "key", "value")]
        heads = table["headers"].to_pylist()
        for (offset, kind, key, value), ms, head in zip(
            zip(*columns, strict=True), stamps.to_pylist(), heads, strict=True
        ):
            found.append(
                [
                    offset,
                    ms,
                    kind,
                    None if key is None else key.hex(),
                    None if value is None else hashlib.md5(value).hexdigest(),
                    None if value is None else len(value),
                    [[h["key"], None if h["value"] is None else h["value"].hex()] for h in head],
                ]
            )
    return found


@pytest.mark.parametrize("partition", PARTITIONS)
def test_records_are_those_a_consumer_saw(partition):
    saw = json.loads(gzip.decompress((GOLDEN / "expected" / f"{partition}.json.gz").read_bytes()))
    expected = [[*r[:2], TYPES[r[2]], *r[3:]] for r in saw["read_uncommitted"]["records"]]
    first = expected[0][0]
    assert [r for r in records_of(partition) if r[0] >= first] == expected


@pytest.mark.parametrize("log", LOGS)
def test_indexes_are_what_the_rule_gives(log):
    """A broker's entries are those of our rule; its counter restarts on open: so ours hold fewer
    or other entries only where the broker was restarted. Lookups agree with the batches."""
    path = LOGDIR / log
    base = parse_base(path.name)
    batches = scan(path.read_bytes(), path=log).table
    theirs = index.parse_entries(
        path.with_suffix(".index").read_bytes(), index.OFFSET_ENTRY, path=log
    )
    known = dict(zip(batches["last_offset"].tolist(), batches["position"].tolist(), strict=True))
    for relative, position in theirs.tolist():
        assert known[base + relative] == position
    times = index.parse_entries(
        path.with_suffix(".timeindex").read_bytes(), index.TIME_ENTRY, path=log
    )
    _, _, state = index.index_entries(batches, base, 4096, index.IndexState())
    if len(times):
        assert int(times["timestamp"][-1]) == state.max_timestamp
        assert int(times["relative_offset"][-1]) + base == state.max_offset


@pytest.mark.parametrize("log", LOGS)
def test_rebase_in_memory_and_in_a_file(log):
    raw = bytearray((LOGDIR / log).read_bytes())
    batches = scan(raw, path=log).table
    patched = bytearray(raw)
    for at, prefix in zip(
        batches["position"].tolist(), rebase_headers(batches, 1000, 6), strict=True
    ):
        patched[at : at + 16] = prefix.tobytes()
    end = rebase(raw, 1000, 6)
    assert raw == patched
    after = scan(raw, path=log)
    assert after.error is None
    assert np.array_equal(after.table["base_offset"], batches["base_offset"] + 1000)
    assert set(after.table["leader_epoch"].tolist()) <= {6}
    assert end == (int(after.table["last_offset"][-1]) + 1 if len(batches) else 1000)


def test_small_files_survive():
    for path in LOGDIR.glob("*/*.snapshot"):
        raw = path.read_bytes()
        entries = producer_snapshot.parse_snapshot(raw, str(path))
        assert producer_snapshot.format_snapshot(entries) == raw
    for path in LOGDIR.glob("*/leader-epoch-checkpoint"):
        raw = path.read_bytes()
        assert checkpoint_files.format_epochs(checkpoint_files.parse_epochs(raw, str(path))) == raw
    for path in LOGDIR.glob("*/partition.metadata"):
        raw = path.read_bytes()
        topic_id, partition = checkpoint_files.parse_partition_metadata(raw, str(path))
        assert partition is None
        assert checkpoint_files.format_partition_metadata(topic_id, None) == raw
        assert checkpoint_files.topic_id_text(checkpoint_files.topic_id_bytes(topic_id)) == topic_id
    for path in LOGDIR.glob("*-checkpoint"):
        raw = path.read_bytes()
        offsets = checkpoint_files.parse_offsets(raw, str(path))
        again = checkpoint_files.format_offsets(offsets)
        assert sorted(again.split(b"\n")) == sorted(raw.split(b"\n"))


def test_directories_are_partitions():
    names = [p.name for p in LOGDIR.iterdir() if p.is_dir()]
    assert sorted(PARTITIONS) == sorted(n for n in names if parse_partition_dir(n))
    assert len(names) == len(PARTITIONS)
