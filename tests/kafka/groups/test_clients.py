"""Real clients in groups: each record once, rebalances, a client that is killed, static members.

What a member read and committed is compared record by record with what was written.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient

import sparklog
from sparklog.kafka import Endpoint
from sparklog.log.log import Log
from tests.waiting import until

PARTITIONS, RECORDS = 4, 25
WRITTEN = {(p, o) for p in range(PARTITIONS) for o in range(RECORDS)}
pytestmark = pytest.mark.sparklog(topics={"t": PARTITIONS})


@pytest.fixture
def endpoint(sparklog_log: Log) -> Iterator[Endpoint]:
    fill(sparklog_log)
    options = {
        "group.initial.rebalance.delay.ms": 100, "group.consumer.heartbeat.interval.ms": 200,
        "group.consumer.session.timeout.ms": 60_000,
    }  # fmt: skip
    with Endpoint(sparklog_log, options=options) as found:
        yield found


def fill(log: Log) -> None:
    """Append RECORDS to each partition."""
    for p in range(PARTITIONS):
        values = [f"{p}-{n}".encode() for n in range(RECORDS)]
        log.append("t", pa.table({"value": values}), partition=p)


def consumer(endpoint: Endpoint, **given: Any) -> Consumer:
    """A member of group g that has subscribed."""
    found = Consumer(
        {
            "bootstrap.servers": endpoint.bootstrap_servers, "group.id": "g",
            "auto.offset.reset": "earliest", "session.timeout.ms": 120_000,
            "heartbeat.interval.ms": 300, "topic.metadata.refresh.interval.ms": 500,
            "partition.assignment.strategy": "range",
        }
        | {name.replace("_", "."): value for name, value in given.items()}
    )  # fmt: skip
    found.subscribe(["t"])
    return found


def new_consumer(endpoint: Endpoint, topics: str = "t", **given: Any) -> Consumer:
    """A member of group g by the consumer protocol (KIP-848)."""
    found = Consumer(
        {
            "bootstrap.servers": endpoint.bootstrap_servers, "group.id": "g",
            "auto.offset.reset": "earliest", "group.protocol": "consumer",
        }
        | {name.replace("_", "."): value for name, value in given.items()}
    )  # fmt: skip
    found.subscribe([topics])
    return found


class Reading:
    """Consumers that are polled by turns, and all that came."""

    def __init__(self, *consumers: Consumer) -> None:
        self.consumers = list(consumers)
        self.read: Counter[tuple[int, int]] = Counter()

    def until(self, is_so: Any) -> None:
        """Poll until it is so."""

        def polled() -> bool:
            for each in self.consumers:
                message = each.poll(0.02)
                if message is not None and message.error() is None:
                    self.read[message.partition(), message.offset()] += 1
            return bool(is_so())

        if not is_so():
            until(polled, state=self.describe, pause_s=0)

    def describe(self) -> str:
        """What there is, for a failure."""
        owned = [sorted(p.partition for p in each.assignment()) for each in self.consumers]
        return f"assigned {owned}, read {len(self.read)}"

    def is_shared(self, sizes: list[int]) -> bool:
        """Tell whether the members own so many partitions each, all together and none twice."""
        owned = [[p.partition for p in each.assignment()] for each in self.consumers]
        everything = sorted(p for each in owned for p in each)
        return everything == list(range(PARTITIONS)) and sorted(map(len, owned)) == sizes

    def close(self) -> None:
        for each in self.consumers:
            each.close()


def committed(log: Log, group: str = "g") -> dict[int, int]:
    """What a group has committed of t."""
    rows = log.readers().to_pylist()
    return {row["partition"]: row["offset"] for row in rows if row["group"] == group}


def test_two_members_share_the_partitions_and_read_each_record_once(
    endpoint: Endpoint, sparklog_log: Log
) -> None:
    reading = Reading(consumer(endpoint), consumer(endpoint))
    reading.until(lambda: reading.is_shared([2, 2]) and reading.read.keys() == WRITTEN)
    assert set(reading.read.values()) == {1}
    fill(sparklog_log)
    reading.until(lambda: len(reading.read) == 2 * len(WRITTEN))
    assert set(reading.read.values()) == {1}
    reading.close()
    assert committed(sparklog_log) == dict.fromkeys(range(PARTITIONS), 2 * RECORDS)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_rebalance_while_consuming_loses_and_repeats_nothing_that_was_committed(
    endpoint: Endpoint, sparklog_log: Log, strategy: str
) -> None:
    given = {"partition_assignment_strategy": strategy}
    reading = Reading(consumer(endpoint, **given))
    reading.until(lambda: len(reading.read) > 10)
    reading.consumers.append(consumer(endpoint, **given))
    reading.until(lambda: reading.is_shared([2, 2]) and reading.read.keys() == WRITTEN)
    assert set(reading.read.values()) == {1}
    reading.consumers.pop(0).close()  # the leader: the other one gets all
    reading.until(lambda: reading.is_shared([4]))
    fill(sparklog_log)
    reading.until(lambda: len(reading.read) == 2 * len(WRITTEN))
    assert set(reading.read.values()) == {1}
    reading.close()


def test_a_group_goes_on_in_python_and_back(endpoint: Endpoint, sparklog_log: Log) -> None:
    reading = Reading(consumer(endpoint))
    reading.until(lambda: reading.read.keys() == WRITTEN)
    reading.close()
    fill(sparklog_log)
    table = sparklog_log.read("t", group="g").read_all()
    assert table.num_rows == len(WRITTEN)
    fill(sparklog_log)
    reading = Reading(consumer(endpoint))
    reading.until(lambda: len(reading.read) == len(WRITTEN))
    assert {offset // RECORDS for _, offset in reading.read} == {2}
    reading.close()


KILLED = """
import sys
from confluent_kafka import Consumer
c = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "g", "auto.offset.reset": "earliest",
              "session.timeout.ms": 10000, "heartbeat.interval.ms": 300,
              "partition.assignment.strategy": "range", "enable.auto.commit": False})
c.subscribe(["t"])
while True:
    if c.poll(0.1) is not None:
        print("read", flush=True)
"""


@pytest.mark.deep
def test_what_a_killed_member_had_goes_to_the_others_when_its_session_ends(
    endpoint: Endpoint,
) -> None:
    reading = Reading(consumer(endpoint))
    reading.until(lambda: reading.is_shared([4]))
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, endpoint.bootstrap_servers], stdout=subprocess.PIPE
    ) as other:
        reading.until(lambda: len(reading.consumers[0].assignment()) == 2)
        os.kill(other.pid, signal.SIGKILL)
    began = time.monotonic()
    reading.until(lambda: reading.is_shared([4]))
    assert time.monotonic() - began > 1  # it was not known before the session's end
    reading.until(lambda: reading.read.keys() == WRITTEN)
    reading.close()


def test_a_static_member_that_is_restarted_causes_no_rebalance(
    endpoint: Endpoint, sparklog_log: Log
) -> None:
    rebalances: list[str] = []
    first = Consumer(
        {
            "bootstrap.servers": endpoint.bootstrap_servers, "group.id": "g",
            "auto.offset.reset": "earliest", "group.instance.id": "one",
            "session.timeout.ms": 120_000, "heartbeat.interval.ms": 300,
            "partition.assignment.strategy": "range",
        }
    )  # fmt: skip
    first.subscribe(["t"], on_revoke=lambda *_: rebalances.append("revoked"))
    second = consumer(endpoint, group_instance_id="two")
    reading = Reading(first, second)
    reading.until(lambda: reading.is_shared([2, 2]) and reading.read.keys() == WRITTEN)
    rebalances.clear()
    owned = sorted(p.partition for p in second.assignment())
    second.close()  # a static member doesn't leave
    reading.consumers[1] = consumer(endpoint, group_instance_id="two")
    reading.until(lambda: reading.is_shared([2, 2]))
    assert sorted(p.partition for p in reading.consumers[1].assignment()) == owned
    assert rebalances == []
    reading.close()


def test_a_second_process_with_the_instance_id_fences_the_first(endpoint: Endpoint) -> None:
    first = consumer(endpoint, group_instance_id="one")
    reading = Reading(first)
    reading.until(lambda: reading.is_shared([4]))
    second = Reading(consumer(endpoint, group_instance_id="one"))
    second.until(lambda: second.is_shared([4]))
    told: list[Any] = []

    def poll() -> bool:
        try:
            message = first.poll(0.05)
        except KafkaException as error:
            told.append(error)
        else:
            told.extend([message.error()] if message is not None and message.error() else [])
        return any("fenced" in str(each).lower() for each in told)

    until(poll, state=lambda: told)
    second.close()
    with contextlib.suppress(KafkaException):
        first.close()


def test_operators_see_reset_and_delete_groups(endpoint: Endpoint, sparklog_log: Log) -> None:
    reading = Reading(consumer(endpoint, client_id="me"))
    reading.until(lambda: reading.read.keys() == WRITTEN)
    admin = AdminClient({"bootstrap.servers": endpoint.bootstrap_servers})
    described = admin.describe_consumer_groups(["g"])["g"].result()
    assert described.state.name == "STABLE"
    (member,) = described.members
    assert member.client_id == "me"
    assert sorted(p.partition for p in member.assignment.topic_partitions) == [0, 1, 2, 3]
    listed = admin.list_consumer_groups().result()
    assert [(each.group_id, each.state.name) for each in listed.valid] == [("g", "STABLE")]
    reading.close()
    wanted = [ConsumerGroupTopicPartitions("g", [Partition("t", 0, 3)])]
    admin.alter_consumer_group_offsets(wanted)["g"].result()
    assert committed(sparklog_log)[0] == 3
    (found,) = [f.result() for f in admin.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions("g")]).values()]  # fmt: skip
    assert {p.partition: p.offset for p in found.topic_partitions} == committed(sparklog_log)
    admin.delete_consumer_groups(["g"])["g"].result()
    assert committed(sparklog_log) == {}


def test_a_client_that_only_commits(endpoint: Endpoint, sparklog_log: Log) -> None:
    """As Flink's and Spark's sources do: assigned by itself, no member of anything."""
    found = Consumer({"bootstrap.servers": endpoint.bootstrap_servers, "group.id": "simple"})
    found.assign([Partition("t", 1, 0)])
    found.commit(offsets=[Partition("t", 1, 7, metadata="mine")], asynchronous=False)
    (at,) = found.committed([Partition("t", 1)], timeout=240)
    assert (at.offset, at.metadata) == (7, "mine")
    found.close()
    assert committed(sparklog_log, "simple") == {1: 7}


@pytest.mark.parametrize("topics", ["t", "^t.?"])
@pytest.mark.parametrize(
    "assignor", ["uniform", pytest.param("range", marks=pytest.mark.deep)]
)
def test_members_of_the_consumer_protocol_come_and_go(
    endpoint: Endpoint, sparklog_log: Log, assignor: str, topics: str
) -> None:
    """KIP-848: the endpoint assigns."""
    given = {"group_remote_assignor": assignor}
    reading = Reading(new_consumer(endpoint, topics, **given))
    reading.until(lambda: len(reading.read) > 10)
    reading.consumers.append(new_consumer(endpoint, topics, **given))
    reading.until(lambda: reading.is_shared([2, 2]) and reading.read.keys() == WRITTEN)
    assert set(reading.read.values()) == {1}
    admin = AdminClient({"bootstrap.servers": endpoint.bootstrap_servers})
    described = admin.describe_consumer_groups(["g"])["g"].result()
    assert len(described.members) == 2
    reading.consumers.pop(0).close()
    reading.until(lambda: reading.is_shared([4]))
    fill(sparklog_log)
    reading.until(lambda: len(reading.read) == 2 * len(WRITTEN))
    assert set(reading.read.values()) == {1}
    reading.close()
    assert committed(sparklog_log) == dict.fromkeys(range(PARTITIONS), 2 * RECORDS)


def test_a_static_member_of_the_consumer_protocol_comes_back(endpoint: Endpoint) -> None:
    reading = Reading(
        new_consumer(endpoint, group_instance_id="one"),
        new_consumer(endpoint, group_instance_id="two"),
    )
    reading.until(lambda: reading.is_shared([2, 2]) and reading.read.keys() == WRITTEN)
    owned = sorted(p.partition for p in reading.consumers[1].assignment())
    reading.consumers[1].close()
    reading.consumers[1] = new_consumer(endpoint, group_instance_id="two")
    reading.until(lambda: reading.is_shared([2, 2]))
    assert sorted(p.partition for p in reading.consumers[1].assignment()) == owned
    reading.close()


def test_who_speaks_the_other_protocol_is_told_so(endpoint: Endpoint) -> None:
    reading = Reading(consumer(endpoint))
    reading.until(lambda: reading.is_shared([4]))
    other, told = new_consumer(endpoint), []

    def poll() -> list[Any]:
        try:
            message = other.poll(0.1)
        except KafkaException as error:
            told.append(error)
        else:
            told.extend([message.error()] if message is not None and message.error() else [])
        return told

    until(poll)
    assert "group" in str(told[0]).lower()
    other.close()
    reading.close()


def members(endpoint: Endpoint) -> list[int]:
    """Of each member of g, how many partitions it has as its coordinator says; [] in between."""
    admin = AdminClient({"bootstrap.servers": endpoint.bootstrap_servers})
    try:
        found = admin.describe_consumer_groups(["g"], request_timeout=60)["g"].result(240)
    except KafkaException:  # nobody coordinates it yet
        return []
    if found.state.name != "STABLE":
        return []
    return [len(each.assignment.topic_partitions) for each in found.members]


@pytest.mark.parametrize(
    "make",
    [pytest.param(consumer, marks=pytest.mark.deep), new_consumer],
)
def test_members_at_two_endpoints_are_one_group_and_outlive_the_coordinator(
    endpoint: Endpoint, sparklog_log: Log, sparklog_path: str, make: Any
) -> None:
    options = {
        "group.initial.rebalance.delay.ms": 100, "group.consumer.heartbeat.interval.ms": 200,
        "node.id": 2,  # with equal ids, librdkafka may lose a join, and wait for session.timeout.ms
    }  # fmt: skip
    with sparklog.open(sparklog_path, "rw") as log, Endpoint(log, options=options) as other:
        often = {"auto_commit_interval_ms": 100}
        first = Reading(make(endpoint, **often))  # its coordinator: where it has asked
        first.until(lambda: first.is_shared([4]))
        reading = Reading(*first.consumers, make(other, **often))
        reading.read = first.read
        reading.until(lambda: reading.is_shared([2, 2]) and reading.read.keys() == WRITTEN)
        assert set(reading.read.values()) == {1}
        reading.consumers.pop(0).close()
        everything = dict.fromkeys(range(PARTITIONS), RECORDS)
        reading.until(lambda: committed(log) == everything)
        endpoint.close()  # the members are lost with it, and what is committed is not
        reading.until(lambda: members(other) == [PARTITIONS] and reading.is_shared([4]))
        fill(log)
        reading.until(lambda: len(reading.read) == 2 * len(WRITTEN))
        assert set(reading.read.values()) == {1}
        reading.until(lambda: committed(log) == dict.fromkeys(everything, 2 * RECORDS))
        reading.close()
