"""timeline=current in Spark's sources: what a reset abandoned is planned around."""

from typing import Any

from sparklog import Log
from sparklog.source.batch import BatchReader
from sparklog.source.options import parse
from sparklog.source.schema import full_schema
from tests.log.conftest import log_path
from tests.log.test_timeline import commit, log
from tests.source.test_jvm_plan import ASKED, plan_of
from tests.source.test_replaced import ALL, stream
from tests.source.test_replaced import values as rows_of

__all__ = ["log", "log_path"]


def test_sources_of_spark(log: Log) -> None:
    for batch in range(4):
        commit(log, batch, count=10)
    log.reset("q", 0)
    commit(log, 1, "b", count=10)
    named = {"timeline": "current", "maxRecordsPerPartition": "7"}
    reader = stream(log.path, **named)
    start = {"t": {"0": 0, "1": 0}}
    end = reader.latestOffset(start, ALL)
    assert end == {"t": {"0": 50, "1": 50}}
    planned = reader.partitions(start, end)
    tasks = [getattr(p.value, "pieces", p.value) for p in planned]
    assert all(sum(piece.size for piece in task) <= 7 for task in tasks)
    wanted = [(n, "q 0") for n in range(10)] + [(n, "q 1b") for n in range(40, 50)]
    assert sorted(rows_of(reader, planned)) == sorted(wanted * 2)
    assert reader.partitions({"t": {"0": 12, "1": 50}}, {"t": {"0": 40, "1": 50}}) == []
    options = parse({"path": log.path, "subscribe": "t", **named}, streaming=False)
    batch_reader = BatchReader(options, full_schema(headers=False))
    assert sorted(rows_of(batch_reader, batch_reader.partitions())) == sorted(wanted * 2)
    asked = parse({"path": log.path, "subscribe": "t", **named, **ASKED}, streaming=False)
    planned = BatchReader(asked, full_schema(headers=False)).partitions()
    pieces = [piece for p in planned for piece in plan_of(p)["pieces"]]
    if "python" not in pieces[0]:
        left_out = {(p["partition"], n) for p in pieces for s in p["without"] for n in range(*s)}
        assert left_out == {(p, n) for p in (0, 1) for n in range(10, 40)} - _outside(pieces)
    log.reset("q", 0)  # a stream that goes on sees no more than the ledger says now
    assert rows_of(reader, reader.partitions({"t": {"0": 30, "1": 50}}, end)) == []


def _outside(pieces: list[dict[str, Any]]) -> set[tuple[int, int]]:
    """(partition, offset) below 50 that no piece spans: what was left out whole."""
    spanned = {(p["partition"], n) for p in pieces for n in range(p["start"], p["end"])}
    return {(p, n) for p in (0, 1) for n in range(50)} - spanned
