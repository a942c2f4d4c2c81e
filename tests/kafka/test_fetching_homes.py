"""What consumers get is what `Log.read` gives, wherever the records lie, and while they move."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog import Log
from sparklog.format.records import Decoder
from sparklog.format.scan import scan
from sparklog.kafka import Endpoint
from sparklog.kafka.messages import Api
from sparklog.service import Service
from tests.kafka.wire import Wire

SMALL = {"internal.segment.bytes": "2000", "index.interval.bytes": "1", "file.delete.delay.ms": "0"}
KEPT = SMALL | {"retention.ms": "-1"}


def rows(numbers: range, *, keys: int = 0, size: int = 40) -> pa.Table:
    key = [f"{n % keys}".encode() for n in numbers] if keys else [None] * len(numbers)
    return pa.table({"key": pa.array(key, pa.binary()), "value": [f"{n:0{size}}" for n in numbers]})


def consumed(wire: Wire, topic: str, start: int, end: int, **given: Any) -> list[tuple[int, bytes]]:
    """(offset, value) of the records from `start` to `end`, by fetches of a few batches."""
    at, seen = start, []
    while at < end:
        asked = {"partition": 0, "fetch_offset": at, "partition_max_bytes": 1500}
        body = {"max_wait": 200, "min_bytes": 1, "max_bytes": 1 << 20, "replica_id": -1} | given
        answer = wire.ask(Api.FETCH, 12, topics=[{"topic": topic, "partitions": [asked]}], **body)
        (one,) = answer["responses"][0]["partitions"]
        assert one["error_code"] == 0
        data = bytes(one["records"] or b"")
        table = scan(data, path="answer").table
        if not len(table):
            if one["high_watermark"] >= end:
                return seen  # compaction left nothing behind
            continue  # the endpoint doesn't know yet what this process does
        decoder = Decoder(["offset", "value"])
        decoder.add_many(data, table, path="answer")
        found = decoder.finish()
        pairs = zip(
            found.column("offset").to_pylist(), found.column("value").to_pylist(), strict=True
        )
        seen += [(offset, value) for offset, value in pairs if offset >= at]
        at = int(table["last_offset"][-1]) + 1
    return seen


def read(log: Log, topic: str) -> list[tuple[int, bytes]]:
    found = log.read(topic, columns=["offset", "value"]).read_all()
    return list(zip(found["offset"].to_pylist(), found["value"].to_pylist(), strict=True))


@contextmanager
def served(log: Log) -> Iterator[Wire]:
    with Endpoint(log) as endpoint, Wire(endpoint) as wire:
        yield wire


@pytest.fixture
def tiered(tmp_path: Path) -> Path:
    """A log dir whose topic t, offsets [0, 200), lies in `bucket`, but for its last segments."""
    path = tmp_path / "log"
    with sparklog.open(path, "rw") as log:
        config = KEPT | {"remote.storage.enable": "true", "local.retention.bytes": "1"}
        log.create_topic("t", config=config)
        for n in range(0, 200, 10):
            log.append("t", rows(range(n, n + 10)))
    service = Service(path, remote=f"file://{tmp_path}/bucket")
    for _ in range(4):
        service.run_once()
    with sparklog.open(path) as log:
        local = log.offsets_for_times("t", -4)[0]
        assert local is not None and local > 100
    return path


def test_a_tier(tiered: Path) -> None:
    with sparklog.open(tiered) as log, served(log) as wire:
        assert len(read(log, "t")) == 200
        assert consumed(wire, "t", 0, 200) == read(log, "t")
        local = log.offsets_for_times("t", -4)[0]
        for special, wanted in [(-4, local), (-2, 0), (-1, 200)]:
            asked = {"partition_index": 0, "timestamp": special, "current_leader_epoch": -1}
            answer = wire.ask(
                Api.LIST_OFFSETS, 9, replica_id=-1, isolation_level=0,
                topics=[{"name": "t", "partitions": [asked]}],
            )  # fmt: skip
            assert answer["topics"][0]["partitions"][0]["offset"] == wanted


def test_a_bucket_of_copies_alone(tiered: Path) -> None:
    with sparklog.open(f"file://{tiered.parent}/bucket") as archive, served(archive) as wire:
        start, end = archive.offsets("t")[0]
        assert (start, end > 100) == (0, True)
        assert consumed(wire, "t", 0, end) == read(archive, "t")


def test_a_bucket_that_is_merged_meanwhile(tmp_path: Path) -> None:
    """Objects that a consumer's fetches lie in are merged, and gone, between two of them."""
    url = f"file://{tmp_path}/bucket/log"
    with sparklog.open(url, "rw") as log:
        log.create_topic("t", config=KEPT)
        with served(log) as wire:
            for n in range(0, 200, 10):
                log.append("t", rows(range(n, n + 10)))
            before = consumed(wire, "t", 0, 60)
            service = Service(url)
            for _ in range(3):
                service.run_once()
            assert before + consumed(wire, "t", 60, 200) == read(log, "t")
            assert consumed(wire, "t", 0, 200) == read(log, "t")


@pytest.mark.parametrize("home", ["directory", "bucket"])
def test_a_compacted_topic(home: str, tmp_path: Path) -> None:
    """Gaps are gone over; segments are swapped while consumers read them."""
    path = str(tmp_path / "log") if home == "directory" else f"file://{tmp_path}/bucket/log"
    config = SMALL | {
        "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "min.compaction.lag.ms": "0",
    }  # fmt: skip
    with sparklog.open(path, "rw") as log:
        log.create_topic("c", config=config)
        with served(log) as wire:
            stop, failures = threading.Event(), []

            def follow() -> None:
                try:
                    with served(log) as mine:
                        while not stop.is_set():
                            seen = consumed(mine, "c", 0, log.offsets("c")[0][1])
                            offsets = [offset for offset, _ in seen]
                            assert offsets == sorted(set(offsets))
                except BaseException as error:  # told by the test's thread
                    failures.append(error)

            thread = threading.Thread(target=follow)
            thread.start()
            service = Service(path, options={"log.cleaner.backoff.ms": 0})
            for n in range(0, 400, 20):
                log.append("c", rows(range(n, n + 20), keys=30))
                if n % 80 == 60:
                    service.run_once()
            service.run_once()
            stop.set()
            thread.join(240)
            assert failures == []
            whole = read(log, "c")
            assert len(whole) < 300  # it was compacted
            assert consumed(wire, "c", 0, 400) == whole
            for start in range(0, 400, 37):
                assert consumed(wire, "c", start, 400) == [r for r in whole if r[0] >= start]


def test_committed_by_another_process_while_it_waits(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
    with sparklog.open(path) as reader, served(reader) as wire:
        asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1500}
        wire.send(
            Api.FETCH, 12, max_wait=600_000, min_bytes=1, max_bytes=1 << 20, replica_id=-1,
            topics=[{"topic": "t", "partitions": [asked]}],
        )  # fmt: skip
        time.sleep(0.3)
        with sparklog.open(path, "rw") as writer:
            writer.append("t", rows(range(3)))
            (one,) = wire.receive()["responses"][0]["partitions"]  # though it would wait for long
        assert one["high_watermark"] == 3
