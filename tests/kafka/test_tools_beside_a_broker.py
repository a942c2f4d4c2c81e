"""Kafka's own tools say the same of an endpoint as of a real broker; so does `sparklog readers`."""

import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.app import run
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
configs --alter --topic orders --add-config retention.ms=604800000
configs --describe --topic orders
configs --alter --topic orders --delete-config retention.ms
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
    options = {"log.retention.hours": 168}  # a broker's default, which new topics here don't have
    with sparklog.open(tmp_path / "log", "rw", options=options) as log, Endpoint(log) as endpoint:
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
            for _ in range(20):
                if said(theirs) == said(ours) or CHANGES.search(line):
                    break  # one that only asks may have come before what was changed reached it
                time.sleep(0.5)
                theirs = tools.run(tool, *arguments, bootstrap=broker.bootstrap)
            if said(theirs) != said(ours):
                differing.append((line, said(theirs), said(ours)))
            if CHANGES.search(line):
                time.sleep(1)  # what the broker's controller decided reaches the broker
        assert differing == []


CHANGES = re.compile("--(create|alter|delete|execute|delete-offsets)( |$)")
LONG = "a-topic-with-more-than-24-characters"
RESETS = f"""
--list
--reset-offsets --group loaders --topic flights --to-earliest --execute
--describe --group loaders
--reset-offsets --group loaders --topic flights --to-latest
--reset-offsets --group loaders --topic flights --to-latest --dry-run
--reset-offsets --group loaders --topic flights:0 --to-offset 3 --execute
--reset-offsets --group loaders --topic flights:0 --to-offset 99 --dry-run
--reset-offsets --group loaders --topic flights:0 --to-offset -1 --dry-run
--reset-offsets --group loaders --topic flights:0 --shift-by -2 --execute
--reset-offsets --group loaders --topic flights:0 --shift-by -2 --execute
--reset-offsets --group loaders --topic flights:0 --shift-by 4 --execute
--reset-offsets --group loaders --topic flights:0 --shift-by 100 --dry-run
--describe --group loaders --offsets
--reset-offsets --group loaders --topic flights --to-datetime 1970-01-01T00:00:01.450 --execute
--reset-offsets --group loaders --topic flights --to-datetime 1970-01-01T01:00:01.450+01:00
--reset-offsets --group loaders --topic flights --to-datetime 2070-01-01T00:00:00.000 --dry-run
--reset-offsets --group loaders --topic flights --to-datetime 1970-01-01T00:00:00.000Z --dry-run
--reset-offsets --group loaders --topic flights --by-duration PT0S --dry-run
--reset-offsets --group loaders --topic flights --by-duration P15000DT1H2M3.5S --dry-run
--reset-offsets --group loaders --all-topics --to-current --execute
--reset-offsets --group newcomers --topic flights --to-current --execute
--reset-offsets --group newcomers --topic {LONG}:0 --to-latest --execute
--reset-offsets --group newcomers --all-topics --shift-by -1 --dry-run --export
--reset-offsets --group nobody --all-topics --to-latest --execute
--reset-offsets --group loaders --topic flights:0 --topic {LONG} --to-latest --execute --export
--reset-offsets --group loaders --group newcomers --all-topics --to-earliest --export --dry-run
--reset-offsets --group=loaders --all-topics --to-earliest --export --dry-run
--reset-offsets --all-groups --all-topics --to-earliest --execute
--reset-offsets --group loaders --from-file ONE --execute
--reset-offsets --group loaders --from-file ALL --dry-run
--reset-offsets --group loaders --group newcomers --from-file ALL --execute
--reset-offsets --all-groups --from-file ALL --dry-run --export
--describe --group loaders --state
--describe --group loaders --members
--describe --all-groups
--list --state
--list --type classic
--delete-offsets --group loaders --topic flights:0 --topic {LONG}
--delete-offsets --group loaders --topic flights:7
--describe --group loaders
--delete --group newcomers
--list
""".strip().splitlines()
PLANS = {
    "ONE": f"resets,0,4\nresets,1,77\n{LONG},0,1\n",
    "ALL": f'"loaders",resets,0,5\nnewcomers,"{LONG}",0,0\n',
}


def shown(text: str) -> list[str]:
    """What a tool printed on standard output, in no order and without notes and errors."""
    found = []
    for line in text.splitlines():
        if line.strip() and not line.startswith(("Warn:", "Error: Encountered", "\tat ")):
            for pattern, instead in OTHERS:
                line = re.sub(pattern, instead, line)
            found.append(line.strip())
    return sorted(found)


def offsets_of(log: sparklog.Log) -> set[tuple[str, str, int, int]]:
    """Return (group, topic, partition, committed offset) of all groups."""
    rows = log.readers().to_pylist()
    return {(row["group"], row["topic"], row["partition"], row["offset"]) for row in rows}


def test_resets_of_groups(broker: Broker, tools: Tools, tmp_path: Path) -> None:
    """Kafka's tool prints the same for a broker and an endpoint; the command does the same."""
    for name, plan in PLANS.items():
        (tmp_path / name).write_text(plan)
    ours, path = str(tmp_path / "log"), str(tmp_path / "of the command")
    logs = [sparklog.open(where, "rw") for where in (ours, path)]
    with logs[0] as served, logs[1] as log, Endpoint(served) as endpoint:
        times = pa.array([1000 + 100 * n for n in range(10)], pa.timestamp("ms", "UTC"))
        rows = pa.table({"value": [f"{n}" for n in range(10)], "timestamp": times})
        broker.create_topic("resets", 2)
        for each in (served, log):
            for topic, count in (("resets", 2), (LONG, 1)):
                each.create_topic(topic, count, {"retention.ms": "-1"})
                each.append(topic, rows, partition=0)
        broker.create_topic(LONG, 1)
        producer = broker.producer()
        for topic in ("resets", LONG):
            for n in range(10):
                producer.produce(topic, f"{n}", partition=0, timestamp=1000 + 100 * n)
        producer.flush()
        differing = []
        for line in RESETS:
            words = [
                str(tmp_path / word) if word in PLANS else word.replace("flights", "resets")
                for word in shlex.split(line)
            ]
            theirs = shown(tools.run("consumer-groups", *words, bootstrap=broker.bootstrap).out)
            ran = tools.run("consumer-groups", *words, bootstrap=endpoint.bootstrap_servers)
            run(["readers", path, *words])
            if theirs != shown(ran.out) or offsets_of(served) != offsets_of(log):
                differing.append((line, theirs, shown(ran.out), offsets_of(log)))
        assert differing == []
