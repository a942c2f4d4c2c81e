"""What a change of a topic does to clients that are at work on it."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

import sparklog
from sparklog.kafka import Endpoint
from sparklog.kafka.messages import Api, uuid_of
from sparklog.log.log import Log
from tests.kafka.wire import Wire
from tests.waiting import until

ROWS = pa.table({"value": [b"x"] * 3})


@pytest.fixture
def endpoint(sparklog_log: Log) -> Iterator[Endpoint]:
    with Endpoint(sparklog_log, options={"group.initial.rebalance.delay.ms": 0}) as found:
        yield found


def parked(wire: Wire, log: Log, *, offset: int) -> None:
    """Send a fetch that would wait for longer than a `Wire` does."""
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1000}
    topics = [{"topic_id": uuid_of(log.topic("t").id), "partitions": [partition]}]
    wire.send(
        Api.FETCH, 13, replica_id=-1, max_wait=600_000, min_bytes=1, max_bytes=1000, topics=topics
    )
    time.sleep(0.2)  # it is under way


def woken(wire: Wire) -> Any:
    """Return the one partition of a fetch's answer."""
    return wire.receive()["responses"][0]["partitions"][0]


@pytest.mark.parametrize("by", ["client", "python"])
@pytest.mark.sparklog(topics=["t"])
def test_a_fetch_that_waits_ends_with_its_topic(
    endpoint: Endpoint, sparklog_log: Log, by: str
) -> None:
    with Wire(endpoint) as wire, Wire(endpoint) as other:
        parked(wire, sparklog_log, offset=0)
        if by == "client":
            gone = [{"name": "t", "topic_id": None}]
            other.ask(Api.DELETE_TOPICS, 6, topics=gone, timeout=600_000)
        else:
            sparklog_log.delete_topic("t")
        partition = woken(wire)
    assert partition["error_code"] in (3, 100), "unknown topic, by name or id"


@pytest.mark.sparklog(topics=["t"])
def test_a_fetch_that_waits_is_told_that_its_offset_is_gone(
    endpoint: Endpoint, sparklog_log: Log
) -> None:
    sparklog_log.append("t", ROWS)
    with Wire(endpoint) as wire, Wire(endpoint) as other:
        parked(wire, sparklog_log, offset=3)
        sparklog_log.append("t", ROWS)
        assert woken(wire)["high_watermark"] == 6
        parked(wire, sparklog_log, offset=6)
        cut = [{"name": "t", "partitions": [{"partition_index": 0, "offset": 5}]}]
        other.ask(Api.DELETE_RECORDS, 2, topics=cut, timeout=600_000)
        sparklog_log.append("t", ROWS)
        partition = woken(wire)
        assert (partition["error_code"], partition["log_start_offset"]) == (0, 5)
        parked(wire, sparklog_log, offset=2)
        assert woken(wire)["error_code"] == 1, "offset out of range"


@pytest.mark.sparklog(topics=["t"])
def test_a_consumer_lives_through_a_topics_second_life(
    endpoint: Endpoint, sparklog_log: Log
) -> None:
    """It goes on where the topic does, which is behind its former end: no offset names two."""
    sparklog_log.append("t", ROWS)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": endpoint.bootstrap_servers, "group.id": "g",
            "auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": 200,
            "topic.metadata.refresh.fast.interval.ms": 100,
        }
    )  # fmt: skip
    try:
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        assert offsets(consumer, 3) == [0, 1, 2]
        admin = AdminClient({"bootstrap.servers": endpoint.bootstrap_servers})
        admin.delete_topics(["t"])["t"].result(240)
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(240)
        sparklog_log.append("t", ROWS)
        assert offsets(consumer, 3) == [3, 4, 5]
    finally:
        consumer.close()


def offsets(consumer: Any, count: int) -> list[int]:
    found: list[int] = []

    def came() -> bool:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(message.offset())
        return len(found) >= count

    until(came, f"{count} records", state=lambda: found)
    return found


@pytest.mark.sparklog(topics=["t"])
def test_consumers_of_a_group_take_new_partitions_over(
    endpoint: Endpoint, sparklog_log: Log
) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": endpoint.bootstrap_servers, "group.id": "g",
            "auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": 200,
            "session.timeout.ms": 240_000,
        }
    )  # fmt: skip
    try:
        consumer.subscribe(["t"])
        sparklog_log.append("t", ROWS, partition=0)
        assert len(offsets(consumer, 3)) == 3
        admin = AdminClient({"bootstrap.servers": endpoint.bootstrap_servers})
        admin.create_partitions([NewPartitions("t", 2)])["t"].result(240)
        sparklog_log.append("t", ROWS, partition=1)
        assert offsets(consumer, 3) == [0, 1, 2]
    finally:
        consumer.close()


def test_clients_at_once_make_each_topic_once(sparklog_log: Log, sparklog_path: str) -> None:
    """Eight connections of two endpoints want the same five topics."""
    codes: list[int] = []
    with (
        sparklog.open(sparklog_path, "rw") as second,
        Endpoint(sparklog_log) as one,
        Endpoint(second) as other,
    ):

        def make(endpoint: Endpoint) -> None:
            topics = [
                {"name": f"t{n}", "num_partitions": 1, "replication_factor": 1} for n in range(5)
            ]
            with Wire(endpoint) as wire:
                answer = wire.ask(Api.CREATE_TOPICS, 7, topics=topics, timeout=600_000)
                codes.extend(topic["error_code"] for topic in answer["topics"])

        threads = [threading.Thread(target=make, args=(e,)) for e in [one, other] * 4]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(codes) == [0] * 5 + [36] * 35
    assert set(sparklog_log.topics()) == {f"t{n}" for n in range(5)}


@pytest.mark.sparklog(topics=["t"])
def test_what_takes_longer_than_a_client_waits_is_made_all_the_same(
    endpoint: Endpoint, sparklog_log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, should_retry = sparklog_log.create_topic, threading.Event()

    def slow(*given: Any) -> Any:
        assert should_retry.wait(240)
        return make(*given)

    monkeypatch.setattr(sparklog_log, "create_topic", slow)
    topic = {"name": "new", "num_partitions": 1, "replication_factor": 1}
    with Wire(endpoint) as wire:
        answer = wire.ask(Api.CREATE_TOPICS, 7, topics=[topic], timeout=200)
        assert [topic["error_code"] for topic in answer["topics"]] == [7], "request timed out"
        assert "check whether it was applied" in answer["topics"][0]["error_message"]
        should_retry.set()
        until(lambda: "new" in sparklog_log.topics())
        known = wire.ask(Api.METADATA, 12, topics=[{"name": "new"}])["topics"]
        assert [topic["error_code"] for topic in known] == [0]
