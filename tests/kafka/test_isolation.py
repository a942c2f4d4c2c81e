"""Fetch and ListOffsets of a partition with an open transaction, and of bytes nobody committed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog import Log
from sparklog.clock import ManualClock
from sparklog.common import TopicPartition
from sparklog.format.names import log_name
from sparklog.fs import LOCAL
from sparklog.kafka import Endpoint
from sparklog.kafka.messages import Api
from sparklog.kafka.partition_cache import PartitionCache
from sparklog.log.log import view_of
from sparklog.logdir.partition.partition_log import PartitionLog
from tests.kafka.test_fetching import fetch, offsets
from tests.kafka.wire import Wire
from tests.logdir.partitions import T0, batch, config, create, marker, transactional
from tests.waiting import until

READ_COMMITTED = 1
STABLE, END = 4, 6


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A broker's directory of t-0, a record a second.

    Offsets 0 and 1 belong to a transaction that offset 2 aborts, offset 4 to one that is open;
    3 and 5 to none.
    """
    log = create(tmp_path / "t-0")
    for data in (
        transactional(batch("a", "b", producer=(7, 0, 0), at=[T0, T0 + 1000])),
        marker(0, producer_id=7, at=T0 + 2000),
        batch("kept", at=T0 + 3000),
        transactional(batch("open", producer=(8, 0, 0), at=T0 + 4000)),
        batch("behind", at=T0 + 5000),
    ):
        log.append(data, 0)
    log.close()
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":-1}')
    return tmp_path


@pytest.fixture
def log(directory: Path) -> Iterator[Log]:
    with sparklog.open(directory) as log:
        yield log


@pytest.fixture
def wire(log: Log) -> Iterator[Wire]:
    with Endpoint(log) as endpoint, Wire(endpoint) as found:
        yield found


def listed(wire: Wire, timestamp: int, isolation: int) -> int:
    """The offset that ListOffsets answers."""
    topic = {"name": "t", "partitions": [{"partition_index": 0, "timestamp": timestamp}]}
    answer = wire.ask(
        Api.LIST_OFFSETS, 7, replica_id=-1, isolation_level=isolation, topics=[topic]
    )
    (found,) = answer["topics"][0]["partitions"]
    assert found["error_code"] == 0
    return int(found["offset"])


def test_a_committed_fetch_ends_at_the_last_stable_offset(wire: Wire, log: Log) -> None:
    for _ in range(2):  # the second answer comes from memory
        (one,) = fetch(wire, log, ("t", 0, 0), isolation_level=READ_COMMITTED)
        assert offsets(one) == [0, 1, 3]
        assert (one["last_stable_offset"], one["high_watermark"]) == (STABLE, END)
        assert one["aborted_transactions"] == [{"producer_id": 7, "first_offset": 0}]
        (one,) = fetch(wire, log, ("t", 0, STABLE), isolation_level=READ_COMMITTED)
        assert (offsets(one), one["last_stable_offset"]) == ([], STABLE)
    (one,) = fetch(wire, log, ("t", 0, 0))
    assert offsets(one) == [0, 1, 3, 4, 5]
    assert one["aborted_transactions"] is None


def test_offsets_listed_for_committed_readers(wire: Wire) -> None:
    for _ in range(2):  # the second answer comes from memory
        assert listed(wire, -1, READ_COMMITTED) == STABLE
        assert listed(wire, -1, 0) == END
    for timestamp, committed, uncommitted in [(T0 + 2500, 3, 3), (T0 + 3500, -1, 4), (-3, 3, 5)]:
        assert listed(wire, timestamp, READ_COMMITTED) == committed
        assert listed(wire, timestamp, 0) == uncommitted


def test_the_last_stable_offset_moves_when_the_transaction_ends(
    wire: Wire, log: Log, directory: Path
) -> None:
    (one,) = fetch(wire, log, ("t", 0, 0), isolation_level=READ_COMMITTED)
    assert one["last_stable_offset"] == STABLE
    broker = PartitionLog(
        LOCAL, str(directory / "t-0"), config(), clock=ManualClock(), end_offset=END, start_offset=0
    )
    broker.append(marker(1, producer_id=8, at=T0 + 6000), 0)
    broker.close()

    def after() -> Any:
        (one,) = fetch(wire, log, ("t", 0, STABLE), isolation_level=READ_COMMITTED)
        return one if one["high_watermark"] == END + 1 else None

    one = until(after, "the marker")
    assert (offsets(one), one["last_stable_offset"]) == ([4, 5], END + 1)


def test_no_fetch_passes_the_high_watermark(tmp_path: Path) -> None:
    """A commit that is being written lies in the file before the ledger names it."""
    with sparklog.open(tmp_path / "log", "rw") as writer:
        writer.create_topic("t")
        writer.append("t", pa.table({"value": ["a", "b", "c"]}))
        unfinished = bytearray(batch("d"))
        unfinished[7] = 3  # its base offset
        with (Path(writer.topic("t").dirs[0]) / log_name(0)).open("ab") as file:
            file.write(unfinished)
        with (
            sparklog.open(writer.path) as log,
            Endpoint(log) as endpoint,
            Wire(endpoint) as wire,
        ):
            (one,) = fetch(wire, log, ("t", 0, 0))
            assert (offsets(one), one["high_watermark"]) == ([0, 1, 2], 3)
            (one,) = fetch(wire, log, ("t", 0, 3))
            assert offsets(one) == []


def test_epochs_past_the_high_watermark_are_not_told(tmp_path: Path) -> None:
    """An epoch begins with its first record, which readers may not have yet."""
    log = create(tmp_path / "t-0")
    log.append(batch("a"), 1)
    log.append(batch("b", "c"), 2)
    log.append(batch("d"), 3)
    log.close()
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":-1}')
    with sparklog.open(tmp_path) as opened:
        memory = PartitionCache(view_of(opened))
        key = TopicPartition("t", 0)
        assert memory.epochs(key, (0, 4)) == [(1, 0), (2, 1), (3, 3)]
        assert memory.epochs(key, (0, 2)) == [(1, 0), (2, 1)]
