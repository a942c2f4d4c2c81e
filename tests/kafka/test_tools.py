"""Kafka's own admin tools against the endpoint: what they print, and what they change."""

import json
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from sparklog.kafka import Endpoint
from sparklog.log.log import Log
from tests import jars
from tests.kafka.tools import Ran, Tools

pytestmark = pytest.mark.kafka
Run = Callable[..., Ran]


@pytest.fixture(scope="module")
def tools() -> Iterator[Tools]:
    with jars.or_skip("Kafka's tools"):
        made = Tools()
    yield made
    made.close()


@pytest.fixture
def run(tools: Tools, sparklog_log: Log) -> Iterator[Run]:
    """Runs a tool against an endpoint of the log."""
    with Endpoint(sparklog_log) as endpoint:

        def call(tool: str, *arguments: str) -> Ran:
            return tools.run(tool, *arguments, bootstrap=endpoint.bootstrap_servers)

        yield call


def done(ran: Ran) -> list[str]:
    """What a tool printed that did what it was asked to."""
    assert (ran.exit, ran.err) == (0, ""), ran
    return ran.lines


def failed(ran: Ran) -> str:
    """What a tool printed that couldn't."""
    assert ran.exit != 0, ran
    return ran.out + ran.err


# --- kafka-topics --------------------------------------------------------------------------------


def test_topics(run: Run, sparklog_log: Log) -> None:
    made = ["--create", "--topic", "orders", "--partitions", "3", "--replication-factor", "1"]
    settings = ["--config", "retention.ms=1000", "--config", "cleanup.policy=compact"]
    assert done(run("topics", *made, *settings)) == ["Created topic orders."]
    info = sparklog_log.topic("orders")
    assert done(run("topics", "--list")) == ["orders"]
    described = [line.split("\t") for line in done(run("topics", "--describe"))]
    assert [part.strip() for part in described[0]] == [
        "Topic: orders", f"TopicId: {info.id}", "PartitionCount: 3", "ReplicationFactor: 1",
        "Configs: cleanup.policy=compact,retention.ms=1000",
    ]  # fmt: skip
    assert [[part.strip() for part in line[:5]] for line in described[1:]] == [
        ["Topic: orders", f"Partition: {p}", "Leader: 1", "Replicas: 1", "Isr: 1"] for p in range(3)
    ]
    assert done(run("topics", "--alter", "--topic", "orders", "--partitions", "5")) == []
    assert sparklog_log.topic("orders").partitions == 5
    assert done(run("topics", "--delete", "--topic", "orders")) == []
    assert done(run("topics", "--list")) == []


@pytest.mark.sparklog(topics={"orders": 2})
def test_topics_that_cant_be(run: Run) -> None:
    create = ["topics", "--create", "--topic"]
    assert "Topic 'orders' already exists." in failed(run(*create, "orders"))
    assert done(run(*create, "orders", "--if-not-exists")) == []
    assert "ask for 1, or -1" in failed(run(*create, "a", "--replication-factor", "3"))
    assert "letters, digits" in failed(run(*create, "bad/name"))
    assert "reserved" in failed(run(*create, "__sparklog_commits"))
    assert "Unknown topic config name: nonsense" in failed(
        run(*create, "a", "--config", "nonsense=1")
    )
    less = run("topics", "--alter", "--topic", "orders", "--partitions", "1")
    assert "1 would not be an increase" in failed(less)
    assert "Topic 'a' does not exist" in failed(run("topics", "--describe", "--topic", "a"))
    assert done(run("topics", "--describe", "--unavailable-partitions")) == []
    assert done(run("topics", "--describe", "--under-replicated-partitions")) == []


@pytest.mark.sparklog(topics={"a": 3, "b": 7, "c": 1})
@pytest.mark.parametrize("size", ["1", "3", "100"])
def test_topics_described_in_pages(run: Run, size: str) -> None:
    described = done(run("topics", "--describe", "--partition-size-limit-per-response", size))
    rows = [line.split("\t") for line in described if "Partition:" in line]
    assert [(row[0], row[1].split()[1]) for row in rows] == [
        (f"Topic: {name}", str(p)) for name, n in [("a", 3), ("b", 7), ("c", 1)] for p in range(n)
    ]


# --- kafka-configs -------------------------------------------------------------------------------


@pytest.mark.sparklog(topics={"orders": {"retention.ms": "1000"}, "other": {}})
def test_configs_of_topics(run: Run, sparklog_log: Log) -> None:
    orders = ["--entity-type", "topics", "--entity-name", "orders"]
    assert done(run("configs", "--describe", *orders)) == [
        "Dynamic configs for topic orders are:",
        "retention.ms=1000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1000}",
    ]
    added = "segment.bytes=2000000,cleanup.policy=[compact,delete]"
    alter = ["configs", "--alter", *orders]
    assert done(run(*alter, "--add-config", added, "--delete-config", "retention.ms")) == [
        "Completed updating config for topic orders."
    ]
    assert sparklog_log.topic("orders").config.to_dict() == {
        "segment.bytes": "2000000", "cleanup.policy": "compact,delete", "retention.ms": "-1",
    }  # fmt: skip
    everything = done(run("configs", "--describe", *orders, "--all"))
    assert (
        "segment.bytes=2000000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:"
        "segment.bytes=2000000, DEFAULT_CONFIG:log.segment.bytes=1073741824}"
    ) in everything
    refused = failed(run(*alter, "--add-config", "retention.ms=soon"))
    assert "InvalidConfigurationException: retention.ms=soon: expected -1..2^63-1" in refused
    lines = done(run("configs", "--describe", "--entity-type", "topics"))
    assert {line for line in lines if line.startswith("Dynamic")} == {
        "Dynamic configs for topic orders are:", "Dynamic configs for topic other are:",
    }  # fmt: skip


def test_configs_of_all_else(run: Run) -> None:
    broker = ["--entity-type", "brokers", "--entity-name", "1"]
    everything = done(run("configs", "--describe", *broker, "--all"))
    assert everything[0] == "All configs for broker 1 are:"
    assert "node.id=1 sensitive=false synonyms={DEFAULT_CONFIG:node.id=1}" in everything
    refused = failed(run("configs", "--alter", *broker, "--add-config", "log.cleaner.threads=2"))
    assert "Set(log.cleaner.threads)" in refused
    assert "where it is started" in refused
    assert done(run("configs", "--describe", "--entity-type", "brokers")) == [
        "Dynamic configs for broker 1 are:", "Default configs for brokers in the cluster are:",
    ]  # fmt: skip
    assert done(run("configs", "--describe", "--entity-type", "clients")) == []
    assert done(run("configs", "--describe", "--entity-type", "client-metrics")) == []
    limited = ["--alter", "--entity-type", "clients", "--entity-name", "a"]
    quota = run("configs", *limited, "--add-config", "producer_byte_rate=1024")
    assert "no quotas per user or client" in failed(quota)


# --- kafka-delete-records, kafka-log-dirs --------------------------------------------------------


@pytest.mark.sparklog(topics={"orders": 2})
def test_delete_records(run: Run, sparklog_log: Log, tmp_path) -> None:
    for p in range(2):
        sparklog_log.append("orders", pa.table({"value": [b"x"] * 10}), partition=p)
    offsets = {0: 4, 1: -1}
    wanted = [{"topic": "orders", "partition": p, "offset": at} for p, at in offsets.items()]
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"partitions": wanted, "version": 1}))
    assert sorted(done(run("delete-records", "--offset-json-file", str(file)))) == sorted(
        [
            "Executing records delete operation", "Records delete operation completed:",
            "partition: orders-0\tlow_watermark: 4", "partition: orders-1\tlow_watermark: 10",
        ]
    )  # fmt: skip
    assert sparklog_log.offsets("orders") == {0: (4, 10), 1: (10, 10)}
    past = [{"topic": "orders", "partition": 0, "offset": 11}]
    file.write_text(json.dumps({"partitions": past, "version": 1}))
    lines = run("delete-records", "--offset-json-file", str(file)).lines
    assert any("orders-0\terror: " in line and "OffsetOutOfRange" in line for line in lines), lines


@pytest.mark.sparklog(topics={"orders": 2})
def test_log_dirs(run: Run, sparklog_log: Log) -> None:
    sparklog_log.append("orders", pa.table({"value": [b"x"] * 10}), partition=1)
    described = json.loads(done(run("log-dirs", "--describe"))[-1])
    (node,) = described["brokers"]
    (log_dir,) = node["logDirs"]
    assert (node["broker"], log_dir["logDir"], log_dir["error"]) == (1, sparklog_log.path, None)
    sizes = {each["partition"]: each["size"] for each in log_dir["partitions"]}
    from sparklog.tools.log_dirs import describe_log_dirs

    own = describe_log_dirs(sparklog_log.path)["brokers"][0]["logDirs"][0]["partitions"]
    assert sizes == {each["partition"]: each["size"] for each in own}
    assert sizes["orders-1"] > 0
    chosen = json.loads(done(run("log-dirs", "--describe", "--topic-list", "nope"))[-1])
    assert chosen["brokers"][0]["logDirs"][0]["partitions"] == []


# --- kafka-get-offsets, kafka-consumer-groups ----------------------------------------------------


@pytest.mark.sparklog(topics={"orders": 2})
def test_get_offsets(run: Run, sparklog_log: Log) -> None:
    times = pa.array([1000, 3000, 2000], pa.timestamp("ms", "UTC"))
    rows = pa.table({"value": [b"x"] * 3, "timestamp": times})
    sparklog_log.append("orders", rows, partition=0)
    sparklog_log.delete_records("orders", {0: 1})
    for time, offsets in {
        "-1": ["orders:0:3", "orders:1:0"], "latest": ["orders:0:3", "orders:1:0"],
        "-2": ["orders:0:1", "orders:1:0"], "earliest": ["orders:0:1", "orders:1:0"],
        "-3": ["orders:0:1"], "max-timestamp": ["orders:0:1"],
        "-4": ["orders:0:1", "orders:1:0"], "earliest-local": ["orders:0:1", "orders:1:0"],
        "-5": [], "latest-tiered": [], "2500": ["orders:0:1"], "3001": [],
    }.items():  # fmt: skip
        assert done(run("get-offsets", "--time", time)) == offsets, time
    assert done(run("get-offsets", "--topic-partitions", "ord.*:0")) == ["orders:0:3"]
    assert "Could not match any topic" in failed(run("get-offsets", "--topic", "nope"))


@pytest.mark.sparklog(topics={"orders": 2})
def test_consumer_groups(run: Run, sparklog_log: Log) -> None:
    for p in range(2):
        sparklog_log.append("orders", pa.table({"value": [b"x"] * 10}), partition=p)
    sparklog_log.commit_offsets("loaders", {"orders": {0: 4}})
    groups = ["consumer-groups", "--group", "loaders"]
    assert done(run("consumer-groups", "--list")) == ["loaders"]

    def described() -> list[list[str]]:
        rows = [line.split() for line in run(*groups, "--describe").lines]
        return [row[1:6] for row in rows if row[0] == "loaders"]

    assert described() == [["orders", "0", "4", "10", "6"]]
    reset = [*groups, "--reset-offsets", "--topic", "orders", "--execute"]
    assert run(*reset, "--to-earliest").exit == 0
    assert described() == [["orders", str(p), "0", "10", "10"] for p in range(2)]
    assert run(*reset, "--to-offset", "7").exit == 0
    kept = sparklog_log.readers().to_pylist()
    assert [(r["partition"], r["offset"]) for r in kept] == [(0, 7), (1, 7)]
    deleted = done(run(*groups, "--delete-offsets", "--topic", "orders:1"))
    assert deleted[-1].split() == ["orders", "1", "Successful"]
    assert described() == [["orders", "0", "7", "10", "3"]]
    assert done(run(*groups, "--delete")) == [
        "Deletion of requested consumer groups ('loaders') was successful."
    ]
    assert len(sparklog_log.readers()) == 0
    assert "GroupIdNotFoundException" in run(*groups, "--describe").err


# --- the cluster ---------------------------------------------------------------------------------


def test_what_a_cluster_is_asked(run: Run) -> None:
    assert done(run("cluster", "cluster-id"))[0].startswith("Cluster ID: ")
    versions = done(run("broker-api-versions"))
    assert "(id: 1 rack: null isFenced: false) -> (" in versions[0]
    assert "CreateTopics(19): 2 to 7 [usable: 7]," in versions
    assert done(run("cluster", "list-endpoints"))[1].split()[0] == "1"
    assert run("features", "describe").exit == 0
    quorum = failed(run("metadata-quorum", "describe", "--status"))
    assert "The node does not support DESCRIBE_QUORUM" in quorum


@pytest.mark.sparklog(topics={"orders": 1})
def test_what_only_a_cluster_does(run: Run, tmp_path) -> None:
    acls = run("acls", "--list")
    assert "No Authorizer is configured" in failed(acls)
    assert done(run("reassign-partitions", "--list")) == ["No partition reassignments found."]
    elect = ["leader-election", "--election-type", "PREFERRED"]
    assert done(run(*elect, "--topic", "orders", "--partition", "0")) == [
        "Valid replica already elected for partitions orders-0"
    ]
    assert done(run(*elect, "--all-topic-partitions")) == []
    plan = {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1]}]}
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    moved = ["reassign-partitions", "--reassignment-json-file", str(file)]
    assert "Successfully started partition reassignment for orders-0" in done(
        run(*moved, "--execute")
    )
    assert "Reassignment of partition orders-0 is completed." in done(run(*moved, "--verify"))
    place = {"topic": "orders", "partition": 0, "replicas": [1], "log_dirs": ["/disk2"]}
    file.write_text(json.dumps({"version": 1, "partitions": [place]}))
    refused = run(*moved, "--execute")
    assert "does not support ALTER_REPLICA_LOG_DIRS" in refused.out + refused.err


@pytest.mark.sparklog(topics={"orders": 1})
def test_producers_and_transactions(run: Run, sparklog_log: Log) -> None:
    rows = pa.table({"value": [b"x"] * 10})
    sparklog_log.append("orders", rows, partition=0, producer=(4711, 2, 0))
    asked = ["describe-producers", "--topic", "orders", "--partition", "0"]
    heads, values = (line.split() for line in done(run("transactions", *asked)))
    found = dict(zip(heads, values, strict=True))
    last = [found[name] for name in ("ProducerId", "ProducerEpoch", "LastSequence")]
    assert last == ["4711", "2", "9"]
    assert found["CurrentTransactionStartOffset"] == "None"
    assert len(done(run("transactions", "list"))) == 1
    assert len(done(run("transactions", "find-hanging", "--topic", "orders"))) == 1
