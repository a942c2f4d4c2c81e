"""Every version of the admin APIs, as old and new clients send them."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from sparklog.kafka import Endpoint
from sparklog.kafka.messages import Api, uuid_of
from sparklog.log.log import Log
from tests.kafka.wire import Wire

SERVED = {
    Api.CREATE_TOPICS: (2, 7), Api.DELETE_TOPICS: (1, 6), Api.CREATE_PARTITIONS: (0, 3),
    Api.DELETE_RECORDS: (0, 2), Api.DESCRIBE_CONFIGS: (1, 4), Api.ALTER_CONFIGS: (0, 2),
    Api.INCREMENTAL_ALTER_CONFIGS: (0, 1), Api.LIST_CONFIG_RESOURCES: (0, 1),
    Api.DESCRIBE_LOG_DIRS: (1, 4), Api.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
    Api.ELECT_LEADERS: (0, 2), Api.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    Api.LIST_PARTITION_REASSIGNMENTS: (0, 0), Api.DESCRIBE_PRODUCERS: (0, 0),
    Api.DESCRIBE_TRANSACTIONS: (0, 0), Api.LIST_TRANSACTIONS: (0, 2), Api.DESCRIBE_ACLS: (1, 3),
    Api.CREATE_ACLS: (1, 3), Api.DELETE_ACLS: (1, 3), Api.DESCRIBE_CLIENT_QUOTAS: (0, 1),
    Api.ALTER_CLIENT_QUOTAS: (0, 1),
}  # fmt: skip
TOPIC = 2
UNLIMITED = {"timeout": 10_000}


def fields(answer: Any) -> Any:
    """An answer with attributes, where it is a dict."""
    if isinstance(answer, dict):
        return SimpleNamespace(**{name: fields(value) for name, value in answer.items()})
    return [fields(each) for each in answer] if isinstance(answer, list | tuple) else answer


@pytest.fixture
def ask(sparklog_log: Log) -> Iterator[Callable[..., Any]]:
    with Endpoint(sparklog_log) as endpoint, Wire(endpoint) as wire:
        yield lambda api, version, **body: fields(wire.ask(api, version, **body))


def of(api: Api) -> Any:
    low, high = SERVED[api]
    return pytest.mark.parametrize("version", range(low, high + 1))


def test_what_is_advertised(ask: Any) -> None:
    found = {
        each.api_key: (each.min_version, each.max_version)
        for each in ask(Api.API_VERSIONS, 3, client_software_name="a", client_software_version="1")
        .api_keys
    }  # fmt: skip
    assert {api: found[int(api)] for api in SERVED} == SERVED


@of(Api.CREATE_TOPICS)
def test_create_topics(ask: Any, sparklog_log: Log, version: int) -> None:
    config = {"name": "retention.ms", "value": "5"}
    topic = {"name": "a", "num_partitions": 2, "replication_factor": 1, "assignments": ()}
    answer = ask(Api.CREATE_TOPICS, version, topics=[{**topic, "configs": [config]}], **UNLIMITED)
    (found,) = answer.topics
    assert (found.name, found.error_code) == ("a", 0)
    info = sparklog_log.topic("a")
    assert (info.partitions, info.config.retention_ms) == (2, 5)
    if version >= 5:
        assert (found.num_partitions, found.replication_factor) == (2, 1)
        assert next(c.value for c in found.configs if c.name == "retention.ms") == "5"
    if version >= 7:
        assert found.topic_id == uuid_of(info.id)


@of(Api.DELETE_TOPICS)
@pytest.mark.sparklog(topics=["a"])
def test_delete_topics(ask: Any, sparklog_log: Log, version: int) -> None:
    named: dict[str, Any] = {"topic_names": ["a", "b"]}
    if version >= 6:
        named = {"topics": [{"name": name, "topic_id": None} for name in "ab"]}
    answer = ask(Api.DELETE_TOPICS, version, **named, **UNLIMITED)
    assert [(t.name, t.error_code) for t in answer.responses] == [("a", 0), ("b", 3)]
    assert sparklog_log.topics() == {}


@of(Api.CREATE_PARTITIONS)
@pytest.mark.sparklog(topics=["a"])
def test_create_partitions(ask: Any, sparklog_log: Log, version: int) -> None:
    topics = [{"name": "a", "count": 3, "assignments": None}]
    answer = ask(
        Api.CREATE_PARTITIONS, version, topics=topics, validate_only=False, **UNLIMITED
    )
    assert [(t.name, t.error_code) for t in answer.results] == [("a", 0)]
    assert sparklog_log.topic("a").partitions == 3


@of(Api.DELETE_RECORDS)
@pytest.mark.sparklog(topics=["a"])
def test_delete_records(ask: Any, sparklog_log: Log, version: int) -> None:
    sparklog_log.append("a", pa.table({"value": [b"x"] * 3}))
    partitions = [{"partition_index": 0, "offset": 2}, {"partition_index": 1, "offset": 0}]
    topics = [{"name": "a", "partitions": partitions}]
    answer = ask(Api.DELETE_RECORDS, version, topics=topics, **UNLIMITED)
    found = [vars(p) for p in answer.topics[0].partitions]
    assert found == [
        {"partition_index": 0, "low_watermark": 2, "error_code": 0},
        {"partition_index": 1, "low_watermark": -1, "error_code": 3},
    ]


@of(Api.DESCRIBE_CONFIGS)
@pytest.mark.sparklog(topics={"a": {"retention.ms": "5"}})
def test_describe_configs(ask: Any, version: int) -> None:
    asked = {"resource_type": TOPIC, "resource_name": "a", "configuration_keys": None}
    answer = ask(Api.DESCRIBE_CONFIGS, version, resources=[asked], include_synonyms=True)
    (found,) = answer.results
    entry = next(c for c in found.configs if c.name == "retention.ms")
    assert (entry.value, entry.config_source, entry.read_only) == ("5", 1, False)
    assert [s.name for s in entry.synonyms] == ["retention.ms"]
    if version >= 3:
        assert entry.config_type == 5


@of(Api.ALTER_CONFIGS)
@pytest.mark.sparklog(topics={"a": {"retention.ms": "5"}})
def test_alter_configs(ask: Any, sparklog_log: Log, version: int) -> None:
    config = {"name": "segment.bytes", "value": "2000000"}
    asked = {"resource_type": TOPIC, "resource_name": "a", "configs": [config]}
    answer = ask(Api.ALTER_CONFIGS, version, resources=[asked], validate_only=False)
    assert [r.error_code for r in answer.responses] == [0]
    assert sparklog_log.topic("a").config.to_dict() == {
        "retention.ms": "-1", "segment.bytes": "2000000",
    }  # fmt: skip


@of(Api.INCREMENTAL_ALTER_CONFIGS)
@pytest.mark.sparklog(topics={"a": {"retention.ms": "5"}})
def test_incremental_alter_configs(ask: Any, sparklog_log: Log, version: int) -> None:
    config = {"name": "segment.bytes", "config_operation": 0, "value": "2000000"}
    asked = {"resource_type": TOPIC, "resource_name": "a", "configs": [config]}
    answer = ask(Api.INCREMENTAL_ALTER_CONFIGS, version, resources=[asked], validate_only=False)
    assert [r.error_code for r in answer.responses] == [0]
    assert sparklog_log.topic("a").config.to_dict() == {
        "retention.ms": "5", "segment.bytes": "2000000",
    }  # fmt: skip


@of(Api.LIST_CONFIG_RESOURCES)
@pytest.mark.sparklog(topics=["a"])
def test_list_config_resources(ask: Any, version: int) -> None:
    wanted = {"resource_types": [TOPIC]} if version else {}
    answer = ask(Api.LIST_CONFIG_RESOURCES, version, **wanted)
    assert [r.resource_name for r in answer.config_resources] == (["a"] if version else [])


@of(Api.DESCRIBE_LOG_DIRS)
@pytest.mark.sparklog(topics={"a": 2})
def test_describe_log_dirs(ask: Any, sparklog_log: Log, version: int) -> None:
    sparklog_log.append("a", pa.table({"value": [b"x"] * 3}), partition=1)
    for asked, partitions in (
        (None, [0, 1]), ([{"topic": "a", "partitions": [1]}], [1]), ([], []),
    ):  # fmt: skip
        (found,) = ask(Api.DESCRIBE_LOG_DIRS, version, topics=asked).results
        held = [p for topic in found.topics for p in topic.partitions]
        assert (found.log_dir, found.error_code) == (sparklog_log.path, 0)
        assert [p.partition_index for p in held] == partitions
        assert all((p.partition_size > 0) == (p.partition_index == 1) for p in held)
        if version >= 4:
            assert 0 < found.usable_bytes <= found.total_bytes


@of(Api.ELECT_LEADERS)
@pytest.mark.sparklog(topics=["a"])
def test_elect_leaders(ask: Any, version: int) -> None:
    asked = [{"topic": "a", "partitions": [0, 7]}]
    kind = {"election_type": 0} if version else {}
    answer = ask(Api.ELECT_LEADERS, version, topic_partitions=asked, **kind, **UNLIMITED)
    (found,) = answer.replica_election_results
    assert [(p.partition_id, p.error_code) for p in found.partition_result] == [(0, 84), (7, 3)]
    everything = ask(Api.ELECT_LEADERS, version, topic_partitions=None, **kind, **UNLIMITED)
    assert everything.replica_election_results == []


@of(Api.ALTER_PARTITION_REASSIGNMENTS)
@pytest.mark.sparklog(topics=["a"])
def test_reassignments(ask: Any, version: int) -> None:
    codes = []
    for partition, replicas in ((0, [1]), (0, [2]), (0, [1, 2]), (0, None), (3, [1])):
        asked = [{"partition_index": partition, "replicas": replicas}]
        topics = [{"name": "a", "partitions": asked}]
        answer = ask(Api.ALTER_PARTITION_REASSIGNMENTS, version, topics=topics, **UNLIMITED)
        codes.append(answer.responses[0].partitions[0].error_code)
    assert codes == [0, 39, 39, 85, 3]
    assert ask(Api.LIST_PARTITION_REASSIGNMENTS, 0, topics=None, **UNLIMITED).topics == []


@pytest.mark.sparklog(topics=["a"])
def test_producers_and_transactions(ask: Any, sparklog_log: Log) -> None:
    rows = pa.table({"value": [b"x"] * 3})
    sparklog_log.append("a", rows, partition=0, producer=(4711, 2, 0))
    topics = [{"name": name, "partition_indexes": [0, 1]} for name in ("a", "b")]
    answer = ask(Api.DESCRIBE_PRODUCERS, 0, topics=topics)
    a, b = ([p.error_code for p in topic.partitions] for topic in answer.topics)
    assert (a, b) == ([0, 3], [3, 3])
    (producer,) = answer.topics[0].partitions[0].active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (4711, 2, 2)
    assert producer.current_txn_start_offset == -1
    listed = ask(Api.LIST_TRANSACTIONS, 2, state_filters=["Ongoing", "Asleep"])
    assert (listed.unknown_state_filters, listed.transaction_states) == (["Asleep"], [])
    described = ask(Api.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["t"]).transaction_states
    assert [(t.transactional_id, t.error_code) for t in described] == [("t", 105)]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acls(ask: Any, version: int) -> None:
    pattern = {"resource_type_filter": 1, "operation": 1, "permission_type": 1}
    assert ask(Api.DESCRIBE_ACLS, version, **pattern).error_code == 54
    created = {"resource_type": 2, "resource_name": "a", "principal": "User:a", "host": "*"}
    creation = {**created, "operation": 2, "permission_type": 3}
    answer = ask(Api.CREATE_ACLS, version, creations=[creation] * 2)
    assert [r.error_code for r in answer.results] == [54, 54]
    found = ask(Api.DELETE_ACLS, version, filters=[pattern]).filter_results
    assert [r.error_code for r in found] == [54]


@pytest.mark.parametrize("version", [0, 1])
def test_client_quotas(ask: Any, version: int) -> None:
    assert ask(Api.DESCRIBE_CLIENT_QUOTAS, version, components=[], strict=False).entries == []
    entity = [{"entity_type": "user", "entity_name": "a"}]
    limit = {"key": "request_percentage", "value": 1.0, "remove": False}
    entry = {"entity": entity, "ops": [limit]}
    (answer,) = ask(Api.ALTER_CLIENT_QUOTAS, version, entries=[entry], validate_only=False).entries
    assert (answer.error_code, answer.entity[0].entity_name) == (42, "a")


# --- DescribeTopicPartitions ---------------------------------------------------------------------


def page(ask: Any, *names: str, limit: int = 100, cursor: Any = None) -> tuple[Any, Any]:
    """Return [(topic, error, partitions)] and where the next page begins."""
    answer = ask(
        Api.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[{"name": name} for name in names],
        response_partition_limit=limit, cursor=cursor,
    )  # fmt: skip
    found = [
        (t.name, t.error_code, [p.partition_index for p in t.partitions]) for t in answer.topics
    ]
    after = answer.next_cursor
    return found, None if after is None else (after.topic_name, after.partition_index)


@pytest.mark.sparklog(topics={"b": 3, "a": 2})
def test_pages_of_partitions(ask: Any) -> None:
    assert page(ask) == ([("a", 0, [0, 1]), ("b", 0, [0, 1, 2])], None)
    assert page(ask, limit=2) == ([("a", 0, [0, 1])], ("b", 0))
    assert page(ask, limit=3) == ([("a", 0, [0, 1]), ("b", 0, [0])], ("b", 1))
    rest = {"topic_name": "b", "partition_index": 1}
    assert page(ask, limit=9, cursor=rest) == ([("b", 0, [1, 2])], None)
    assert page(ask, limit=-5) == ([("a", 0, [0])], ("a", 1)), "one at least"
    assert page(ask, "b", "c", "bad name") == (
        [("b", 0, [0, 1, 2]), ("bad name", 17, []), ("c", 3, [])], None,
    )  # fmt: skip
    assert page(ask, "b", cursor={"topic_name": "a", "partition_index": 0})[0] == [("b", 42, [])]
    assert page(ask, "a", cursor={"topic_name": "a", "partition_index": -1})[0] == [("a", 42, [])]
