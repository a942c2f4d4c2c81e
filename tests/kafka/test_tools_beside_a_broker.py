"""Kafka's own tools say the same of an endpoint as of a real broker."""

import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.kafka import Endpoint
from tests.kafka.broker import Broker
from tests.kafka.tools import Ran, Tools

pytestmark = [pytest.mark.kafka, pytest.mark.deep]

WORDS = """
topics --list
topics --create --topic orders --partitions 3 --config retention.ms=1000
topics --create --topic orders
topics --create --topic orders --if-not-exists
topics --create --topic assigned --replica-assignment 1,1
topics --create --topic bad --partitions 0
topics --describe
topics --describe --unavailable-partitions
topics --describe --under-replicated-partitions
topics --describe --topic nope
topics --alter --topic orders --partitions 5
topics --alter --topic orders --partitions 2
topics --alter --topic nope --partitions 2
configs --describe --topic orders
configs --alter --topic orders --add-config retention.ms=5000,segment.bytes=2000000
configs --alter --topic orders --delete-config retention.ms
configs --alter --topic orders --delete-config retention.ms
configs --alter --topic orders --add-config cleanup.policy=[compact,delete]
configs --describe --topic orders
configs --describe --entity-type brokers --entity-name 2
configs --describe --entity-type clients
configs --describe --entity-type ips
configs --describe --entity-type client-metrics
configs --describe --entity-type users
log-dirs --describe --topic-list flights
get-offsets --topic flights --time latest
get-offsets --topic flights --time earliest
get-offsets --topic flights --time max-timestamp
get-offsets --topic flights --time earliest-local
get-offsets --topic flights --time latest-tiered
get-offsets --topic flights --time 1500
get-offsets --topic flights --time 99999999999999
get-offsets --topic-partitions fl.*:0
get-offsets --topic nope
leader-election --election-type PREFERRED --all-topic-partitions
leader-election --election-type PREFERRED --topic flights --partition 0
leader-election --election-type UNCLEAN --topic flights --partition 1
leader-election --election-type PREFERRED --topic flights --partition 9
reassign-partitions --list
transactions list
transactions describe-producers --topic flights --partition 0
transactions find-hanging --topic flights
client-metrics --list
consumer-groups --list
consumer-groups --reset-offsets --group loaders --topic flights --to-offset 2 --execute
consumer-groups --list --state
consumer-groups --describe --group loaders
consumer-groups --describe --group loaders --state
consumer-groups --describe --group nobody
consumer-groups --reset-offsets --group loaders --topic flights:0 --shift-by 1 --dry-run
consumer-groups --reset-offsets --group loaders --topic flights:0 --to-latest --execute
consumer-groups --delete-offsets --group loaders --topic flights:0
consumer-groups --delete --group loaders
consumer-groups --delete --group loaders
groups --list
topics --delete --topic orders
topics --delete --topic nope
topics --list --exclude-internal
configs --describe --entity-type users --entity-name alice
""".strip().splitlines()
OTHERS = (  # what differs by nature: ids, addresses, times, the broker's own default
    (r"TopicId: \S+", "TopicId: ..."), (r"127\.0\.0\.1:\d+|localhost:\d+", "..."),
    (r'"logDir":"[^"]+"', '"logDir":"..."'), (r"min\.insync\.replicas=1,?", ""),
    (r"(127\.0\.0\.1|localhost)", "..."), (r"\s+", " "), (r"adminclient-\d+", "adminclient"),
)  # fmt: skip


@pytest.fixture(scope="module")
def tools() -> Iterator[Tools]:
    made = Tools()
    yield made
    made.close()


def said(ran: Ran) -> tuple[int, list[str]]:
    """How a tool ended and what it printed, in no order and without where in Kafka's code."""
    found = []
    for line in (ran.out + ran.err).splitlines():
        if line.startswith("\tat ") or not line.strip():
            continue
        for pattern, instead in OTHERS:
            line = re.sub(pattern, instead, line)
        found.append(line.strip())
    return ran.exit, sorted(found)


def test_the_same_words(broker: Broker, tools: Tools, tmp_path: Path) -> None:
    with sparklog.open(tmp_path / "log", "rw") as log, Endpoint(log) as endpoint:
        broker.create_topic("flights", 2)
        log.create_topic("flights", 2, {"retention.ms": "-1"})
        producer = broker.producer()
        for n in range(10):
            producer.produce("flights", f"{n}", partition=0, timestamp=1000 + 100 * n)
        producer.flush()
        times = pa.array([1000 + 100 * n for n in range(10)], pa.timestamp("ms", "UTC"))
        rows = pa.table({"value": [f"{n}" for n in range(10)], "timestamp": times})
        log.append("flights", rows, partition=0)
        differing = []
        for line in WORDS:
            tool, *arguments = shlex.split(line)
            theirs = tools.run(tool, *arguments, bootstrap=broker.bootstrap)
            ours = tools.run(tool, *arguments, bootstrap=endpoint.bootstrap_servers)
            if said(theirs) != said(ours):
                differing.append((line, said(theirs), said(ours)))
            if "--create" in line or "--alter" in line:
                time.sleep(0.3)  # what the broker's controller decided reaches the broker
        assert differing == []
