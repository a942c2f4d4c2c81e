"""ListOffsets and OffsetForLeaderEpoch: every special timestamp, by clients and by version."""

import gzip
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_END, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

import sparklog
from sparklog import Log
from sparklog.common import TopicPartition as Key
from sparklog.kafka import Endpoint, partition_cache
from sparklog.kafka.messages import Api, ErrorCode
from sparklog.log.log import view_of
from tests import paths
from tests.kafka.wire import Wire
from tests.waiting import until

GOLDEN = paths.GOLDEN / "kafka-4.1"
NAMES = sorted(p.name.removesuffix(".json.gz") for p in (GOLDEN / "expected").glob("*.json.gz"))
T0 = 1_700_000_000_000


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """A broker's directory, opened to be read, and served."""
    path = tmp_path_factory.mktemp("golden") / "log"
    shutil.copytree(GOLDEN / "logdir", path)
    with sparklog.open(path) as log, Endpoint(log) as endpoint:
        yield endpoint


@pytest.fixture
def endpoint(sparklog_log: Log) -> Iterator[Endpoint]:
    """Topic t: offsets [0, 30), a record a second, in three commits."""
    sparklog_log.create_topic("t")
    for n in range(3):
        times = pa.array([T0 + 1000 * (10 * n + i) for i in range(10)], pa.timestamp("ms", "UTC"))
        sparklog_log.append("t", pa.table({"value": ["v"] * 10, "timestamp": times}))
    with Endpoint(sparklog_log) as found:
        yield found


def listed(wire: Wire, version: int, timestamp: int, partition: int = 0, **given: Any) -> Any:
    asked = {"partition_index": partition, "timestamp": timestamp} | given
    body = {"replica_id": -1, "topics": [{"name": "t", "partitions": [asked]}]}
    body["isolation_level"] = 1
    (topic,) = wire.ask(Api.LIST_OFFSETS, version, **body)["topics"]
    assert topic["name"] == "t"
    (found,) = topic["partitions"]
    assert found["partition_index"] == partition
    return found


@pytest.mark.parametrize("version", range(1, 11))
def test_ends_and_times(endpoint: Endpoint, version: int) -> None:
    with Wire(endpoint) as wire:
        wanted = {-2: (-1, 0), -1: (-1, 30), T0 + 12_500: (T0 + 13_000, 13), T0 + 10**7: (-1, -1)}
        for timestamp, (time, offset) in wanted.items():
            for _ in range(2):  # the second time from memory
                found = listed(wire, version, timestamp)
                assert (found["error_code"], found["timestamp"], found["offset"]) == (
                    0, time, offset,
                )  # fmt: skip
                if version >= 4:
                    assert found["leader_epoch"] == (-1 if offset < 0 else 0)


def test_special_timestamps_since_their_version(endpoint: Endpoint) -> None:
    with Wire(endpoint) as wire:
        for special, since, wanted in [
            (-3, 7, (T0 + 29_000, 29)), (-4, 8, (-1, 0)), (-5, 9, (-1, -1)),
        ]:  # fmt: skip
            for version in range(1, 11):
                found = listed(wire, version, special)
                if version < since:
                    assert found["error_code"] == ErrorCode.unsupported_version
                else:
                    assert (found["timestamp"], found["offset"]) == wanted
        assert listed(wire, 10, -77)["error_code"] == ErrorCode.unsupported_version


def test_what_is_committed_is_seen_at_once(endpoint: Endpoint, sparklog_log: Log) -> None:
    with Wire(endpoint) as wire:
        for end in range(31, 40):
            sparklog_log.append("t", pa.table({"value": ["v"]}))
            until(lambda end=end: listed(wire, 7, -1)["offset"] == end)


def test_what_is_not_there(endpoint: Endpoint, sparklog_log: Log) -> None:
    with Wire(endpoint) as wire:
        assert listed(wire, 7, -1, 3)["error_code"] == ErrorCode.unknown_topic_or_partition
        sparklog_log.alter_topic("t", partitions=4)
        until(lambda: listed(wire, 7, -1, 3)["offset"] == 0)
        sparklog_log.delete_topic("t")
        gone = ErrorCode.unknown_topic_or_partition
        until(lambda: listed(wire, 7, -1)["error_code"] == gone)


def test_a_partition_that_is_named_twice(endpoint: Endpoint) -> None:
    asked = [{"partition_index": 0, "timestamp": -1}, {"partition_index": 0, "timestamp": -2}]
    with Wire(endpoint) as wire:
        body = {"replica_id": -1, "topics": [{"name": "t", "partitions": asked}]}
        (topic,) = wire.ask(Api.LIST_OFFSETS, 5, **body)["topics"]
    codes = [found["error_code"] for found in topic["partitions"]]
    assert codes == [ErrorCode.invalid_request] * 2


def test_epochs_of_other_leaders(endpoint: Endpoint) -> None:
    with Wire(endpoint) as wire:
        for _ in range(2):
            assert listed(wire, 4, -1, current_leader_epoch=0)["offset"] == 30
            too_new = listed(wire, 4, -1, current_leader_epoch=5)
            assert too_new["error_code"] == ErrorCode.unknown_leader_epoch


def test_a_partition_that_is_offline(endpoint: Endpoint, sparklog_log: Log) -> None:
    directory = Path(sparklog_log.topic("t").dirs[0])
    directory.rename(directory.parent.parent / "away")
    with Wire(endpoint) as wire:
        until(lambda: listed(wire, 7, T0)["error_code"] == ErrorCode.kafka_storage_error)
        (directory.parent.parent / "away").rename(directory)
        until(lambda: listed(wire, 7, T0)["offset"] == 0)


def epoch_end(wire: Wire, version: int, topic: str, epoch: int, current: int = -1) -> Any:
    asked = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
    body = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [asked]}]}
    (found,) = wire.ask(Api.OFFSET_FOR_LEADER_EPOCH, version, **body)["topics"]
    (answer,) = found["partitions"]
    return answer["error_code"], answer["leader_epoch"], answer["end_offset"]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_where_epochs_end(golden: Endpoint, version: int) -> None:
    """plain.none-0 was written under leader epochs 0, up to 4500, and 1."""
    lines = (GOLDEN / "logdir/plain.none-0/leader-epoch-checkpoint").read_text().split("\n")
    (first, _), (second, began) = (map(int, line.split()) for line in lines[2:4])
    with Wire(golden) as wire:
        end = wire_end(wire, "plain.none")
        assert epoch_end(wire, version, "plain.none", first) == (0, first, began)
        assert epoch_end(wire, version, "plain.none", second) == (0, second, end)
        assert epoch_end(wire, version, "plain.none", second + 1) == (0, -1, -1)
        assert epoch_end(wire, version, "plain.none", first, second) == (0, first, began)
        assert epoch_end(wire, version, "plain.none", first, first)[0] == (
            ErrorCode.fenced_leader_epoch
        )
        assert epoch_end(wire, version, "none", 0)[0] == ErrorCode.unknown_topic_or_partition


def wire_end(wire: Wire, topic: str) -> int:
    body = {"topics": [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]}
    (found,) = wire.ask(Api.LIST_OFFSETS, 7, replica_id=-1, **body)["topics"]
    return int(found["partitions"][0]["offset"])


@pytest.mark.parametrize("name", NAMES)
def test_librdkafka_finds_what_it_found_at_the_broker(golden: Endpoint, name: str) -> None:
    """Log starts, ends and times of the partitions that a real broker wrote."""
    topic, _, number = name.rpartition("-")
    partition = TopicPartition(topic, int(number))
    with gzip.open(GOLDEN / "expected" / f"{name}.json.gz") as file:
        expected = json.load(file)
    for isolation, seen in expected.items():
        if isolation not in ("read_uncommitted", "read_committed"):
            continue
        consumer = Consumer(
            {
                "bootstrap.servers": golden.bootstrap_servers, "group.id": "times",
                "isolation.level": isolation,
            }
        )  # fmt: skip
        try:
            span = consumer.get_watermark_offsets(partition, timeout=240)
            assert span == (seen["log_start_offset"], seen["log_end_offset"])
            for timestamp, offset in seen["offsets_for_times"]:
                asked = TopicPartition(topic, int(number), timestamp)
                (found,) = consumer.offsets_for_times([asked], timeout=240)
                assert found.offset == (OFFSET_END if offset < 0 else offset)
        finally:
            consumer.close()


def test_admin_clients_list_the_greatest_timestamp(golden: Endpoint) -> None:
    client = AdminClient({"bootstrap.servers": golden.bootstrap_servers})
    key = TopicPartition("plain.none", 0)
    times = [row[1] for row in _records("plain.none-0")]
    found = client.list_offsets({key: OffsetSpec.max_timestamp()})[key].result(timeout=240)
    assert found.timestamp == max(times)
    assert times[found.offset] == max(times)


def _records(name: str) -> list[Any]:
    with gzip.open(GOLDEN / "expected" / f"{name}.json.gz") as file:
        found: list[Any] = json.load(file)["read_uncommitted"]["records"]
    return found


def test_what_is_known_of_partitions_is_bounded(
    sparklog_log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_cache, "KNOWN_MAX", 3)
    for n in range(10):
        sparklog_log.create_topic(f"t{n}")
    memory = partition_cache.PartitionCache(view_of(sparklog_log))
    for n in range(10):
        assert memory.epochs(Key(f"t{n}", 0), (0, 0)) == []
        assert len(memory._known) <= 3
    assert memory.known_epochs(Key("t9", 0), (0, 0)) == []
    assert memory.known_epochs(Key("t0", 0), (0, 0)) is None
