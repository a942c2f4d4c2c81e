"""Ranges of records: range after range, each record comes just once, whatever the limits."""

import random
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.errors import InvalidRequestError
from sparklog.format.compression import Codec
from sparklog.format.scan import scan
from sparklog.log.log import Log
from sparklog.storage.staging import Framing
from sparklog.ui.browse.limits import Budget, Limits
from sparklog.ui.browse.record_range import Query, RecordRange, read_range
from tests.paths import ROOT

T0 = 1_700_000_000_000
UNHURRIED: dict[str, int] = {"time_ms": 3_600_000}  # a busy machine ends no range
GOLDEN = ROOT / "tests" / "golden" / "kafka-4.1" / "logdir"


def read(log: Log, query: Query) -> RecordRange:
    return read_range(log, query, Budget(query.limits))


def ranges(log: Log, query: Query, *, most: int = 3000) -> list[RecordRange]:
    """Read on to the end of the partition."""
    found = []
    for _ in range(most):
        found.append(read(log, query))
        if not found[-1].ended:
            assert found[-1].end == found[-1].log_end
            return found
        query = replace(query, start=found[-1].end)
    raise AssertionError("it never ends")


def rows_of(found: list[RecordRange]) -> list[dict[str, Any]]:
    return [row for one in found for row in one.rows.to_pylist()]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Three partitions, all codecs, batches of one record and of many, values up to 200 KB."""
    path = tmp_path_factory.mktemp("browse") / "log"
    rng, at = random.Random(5), T0
    with sparklog.open(path, "rw", options={"flush": "none"}) as log:
        log.create_topic("t", partitions=3, config={"internal.segment.bytes": 300_000})
        log.create_topic("empty", partitions=2)
        for step in range(45):
            count = rng.choice((1, 1, 3, 40, 200))
            size = rng.choice((5, 50, 500, 200_000 if count == 1 else 800))
            at += rng.randrange(5000)
            values = [
                b"%s %d.%d %s" % (b"needle" if rng.random() < 0.03 else b"hay", step, n,
                                  rng.randbytes(size // 2).hex().encode())
                for n in range(count)
            ]  # fmt: skip
            table = pa.table(
                {
                    "key": [b"k%d" % rng.randrange(20) for _ in range(count)],
                    "value": values,
                    "timestamp": pa.array(
                        [at + rng.randrange(-2000, 2000) for _ in range(count)], pa.timestamp("ms")
                    ),
                }
            )
            framing = Framing(codec=rng.choice(list(Codec)))
            log.append("t", table, partition=step % 3, framing=framing)
        yield log


@pytest.fixture(scope="module")
def everything(log: Log) -> dict[int, list[dict[str, Any]]]:
    rows = log.read("t").read_all().to_pylist()
    return {p: [row for row in rows if row["partition"] == p] for p in range(3)}


@pytest.mark.parametrize("limits", [
    Limits(records=31, **UNHURRIED), Limits(records=500, **UNHURRIED),
    Limits(records=100, read_bytes=1, **UNHURRIED), Limits(records=50, kept_bytes=1, **UNHURRIED),
    Limits(records=50, time_ms=0),
], ids=str)  # fmt: skip
def test_every_record_comes_once(
    log: Log, everything: dict[int, list[dict[str, Any]]], limits: Limits
) -> None:
    for p, wanted in everything.items():
        found = ranges(log, Query(topic="t", partition=p, start=0, limits=limits))
        names = ("partition", "offset", "key", "value", "timestamp")
        rows = [[row[name] for name in names] for row in rows_of(found)]
        assert rows == [[row[name] for name in names] for row in wanted]
        assert all(one.rows.num_rows <= limits.records for one in found)
        assert not any(one.faults for one in found)
        assert [one.start for one in found[1:]] == [one.end for one in found[:-1]]


def test_where_a_range_begins(log: Log, everything: dict[int, list[dict[str, Any]]]) -> None:
    limits = Limits(records=5, **UNHURRIED)
    for p, wanted in everything.items():
        end = len(wanted)

        def offsets(start: int | datetime | None, p: int = p) -> list[int]:
            found = read(log, Query(topic="t", partition=p, start=start, limits=limits))
            assert (found.log_start, found.log_end) == (0, len(everything[p]))
            return [row["offset"] for row in rows_of([found])]

        assert offsets(None) == [*range(end - 5, end)]
        assert offsets(0) == [*range(5)]
        assert offsets(10) == [*range(10, 15)]
        assert offsets(end) == offsets(10**15) == []
        assert offsets(datetime(1969, 12, 31, tzinfo=UTC)) == [*range(5)]  # not Kafka's -1, the end
        assert offsets(datetime(2100, 1, 1, tzinfo=UTC)) == []
        middle = sorted(row["timestamp"] for row in wanted)[end // 2]
        first = log.offsets_for_times("t", middle)[p]
        assert first is not None and offsets(middle)[0] == first


def test_nothing_there(log: Log) -> None:
    found = read(log, Query(topic="empty"))
    assert (found.rows.num_rows, found.start, found.end, found.ended) == (0, 0, 0, "")
    with pytest.raises(sparklog.UnknownTopicError):
        read(log, Query(topic="nowhere"))
    with pytest.raises(sparklog.UnknownTopicError, match="no partition 7: the topic has 3"):
        read(log, Query(topic="t", partition=7))
    for records in (0, 501):
        with pytest.raises(InvalidRequestError, match=f"limit={records}: the limit must be from 1"):
            read(log, Query(topic="t", limits=Limits(records=records)))


def test_a_browser_that_is_gone_is_not_worked_for(log: Log) -> None:
    query = Query(topic="t", start=0, limits=Limits(records=500, **UNHURRIED))
    found = read_range(log, query, Budget(query.limits, gone=lambda: True))
    assert found.ended == "gone"
    assert found.end < found.log_end


def test_a_brokers_directory_with_transactions_and_compaction() -> None:
    """Aborted records and markers are shown as such; what is left are a consumer's records."""
    with sparklog.open(GOLDEN) as log:
        for topic in log.topics():
            rows = []
            for p in log.topic(topic).dirs:
                limits = Limits(records=300, **UNHURRIED)
                query = Query(topic=topic, partition=p, start=0, limits=limits)
                rows += rows_of(ranges(log, query))
            places = [(row["partition"], row["offset"]) for row in rows]
            assert len(set(places)) == len(places)
            seen = {
                (r["partition"], r["offset"]): r["value"]
                for r in rows
                if not r["aborted"] and not r["attributes"] & 0x20
            }
            want = log.read(topic, isolation="read_committed").read_all().to_pylist()
            assert seen == {(r["partition"], r["offset"]): r["value"] for r in want}
            if topic == "txn":
                assert {row["aborted"] for row in rows} == {True, False}
                markers = [row for row in rows if row["attributes"] & 0x20]
                assert {row["key"] for row in markers} == {b"\0\0\0\0", b"\0\0\0\1"}


def _path_of(log: Log, topic: str) -> Path:
    return Path(log.topic(topic).dirs[0])


@pytest.mark.usefixtures("impatient")
def test_what_is_damaged_is_told_and_the_rest_is_shown(tmp_path: Path) -> None:
    with sparklog.open(tmp_path / "log", "rw", options={"flush": "none"}) as log:
        log.create_topic("t", config={"internal.segment.bytes": 4000, "compression.type": "zstd"})
        rng = random.Random(3)
        for n in range(60):
            log.append("t", pa.table({"value": [f"{n} {rng.randbytes(200).hex()}"] * 3}))
        files = sorted(_path_of(log, "t").glob("*.log"))
    file = files[len(files) // 2]
    raw = bytearray(file.read_bytes())
    batches = scan(bytes(raw), path=str(file)).table
    raw[int(batches["position"][len(batches) // 2]) + 70] ^= 255  # of the records
    file.write_bytes(raw)
    with sparklog.open(tmp_path / "log") as log:
        limits = Limits(records=90, **UNHURRIED)
        query = Query(topic="t", start=0, limits=limits)
        found = ranges(log, query)
        offsets = [row["offset"] for row in rows_of(found)]
        lost = set(range(180)) - set(offsets)
        assert len(offsets) == len(set(offsets))
        first, last = int(file.stem), int(files[files.index(file) + 1].stem)
        assert lost
        assert min(lost) > first
        assert max(lost) < last
        assert any("can't be read" in fault for one in found for fault in one.faults)


def test_what_unpacks_to_too_much_is_left_out(tmp_path: Path) -> None:
    """A few bytes of zstd hold any number of zeros; and a batch may be larger than is well."""
    with sparklog.open(tmp_path / "log", "rw", options={"flush": "none"}) as log:
        log.create_topic("t", config={"max.message.bytes": 40 << 20})
        for n, size in enumerate((10, 9 << 20, 20, 30 << 20, 30)):
            codec = Codec.ZSTD if n == 1 else Codec.NONE
            table = pa.table({"value": [b"\0" * size], "key": [b"%d" % n]})
            log.append("t", table, framing=Framing(codec=codec))
        limits = Limits(records=10, batch_bytes=8 << 20, **UNHURRIED)
        found = ranges(log, Query(topic="t", start=0, limits=limits))
        keys = [row["key"] for row in rows_of(found)]
        assert sorted(keys) == [b"0", b"2", b"4"]
        faults = " ".join(fault for one in found for fault in one.faults)
        assert "offset 3 has 31," in faults
        assert "`sparklog consume` reads it" in faults
        assert "[1, 2) can't be shown" in faults
    output = tmp_path / "output"
    with output.open("wb") as file:
        subprocess.run(
            [sys.executable, "-m", "sparklog.cli", "consume", str(tmp_path / "log"), "--topic", "t",
             "--partition", "0", "--offset", "3", "--max-messages", "1"],
            stdout=file, check=True, timeout=240,
        )  # fmt: skip
    assert output.stat().st_size == (30 << 20) + 1
