"""Topics made, deleted and grown by clients."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

import sparklog
from sparklog.kafka import Endpoint, topic_admin
from sparklog.kafka.messages import Api, ErrorCode, unknown_names, uuid_of
from sparklog.kafka.topic_admin import PARTITIONS_MAX, TopicAdmin
from sparklog.log.log import Log


def admin_of(log: Log, *, is_writable: bool = True, num_partitions: int = 1) -> TopicAdmin:
    return TopicAdmin(log, node_id=1, num_partitions=num_partitions, is_writable=is_writable)


def asked(name: str, count: int = -1, factor: int = -1, **more: Any) -> SimpleNamespace:
    """A topic of CreateTopics."""
    assignments = [
        SimpleNamespace(partition_index=p, broker_ids=brokers)
        for p, brokers in more.get("assignments", [])
    ]
    configs = [SimpleNamespace(name=n, value=v) for n, v in more.get("configs", {}).items()]
    return SimpleNamespace(
        name=name, num_partitions=count, replication_factor=factor, assignments=assignments,
        configs=configs,
    )  # fmt: skip


def create(admin: TopicAdmin, *topics: Any, validate_only: bool = False) -> list[dict[str, Any]]:
    answer = admin.create_topics(SimpleNamespace(topics=topics, validate_only=validate_only))
    assert unknown_names(Api.CREATE_TOPICS, answer) == []
    return list(answer["topics"])


def codes(answers: list[dict[str, Any]]) -> list[str]:
    return [ErrorCode(answer["error_code"]).name for answer in answers]


def test_a_topic_is_made_as_asked(sparklog_log: Log) -> None:
    admin = admin_of(sparklog_log, num_partitions=4)
    wanted = [asked("a", 2, 1, configs={"retention.ms": "60000"}), asked("b")]
    one, two = create(admin, *wanted)
    topics = sparklog_log.topics()
    assert (one["num_partitions"], two["num_partitions"]) == (2, 4)
    assert (topics["a"].partitions, topics["b"].partitions) == (2, 4)
    assert topics["a"].config.to_dict() == {"retention.ms": "60000"}
    assert one["topic_id"] == uuid_of(topics["a"].id)
    shown = {each["name"]: (each["value"], each["config_source"]) for each in one["configs"]}
    assert shown["retention.ms"] == ("60000", 1)
    assert shown["segment.bytes"] == ("1073741824", 5)
    assert topics["b"].config.to_dict() == {"retention.ms": "-1"}


def test_validate_only_changes_nothing(sparklog_log: Log) -> None:
    admin = admin_of(sparklog_log)
    answers = create(admin, asked("a", 3), asked("b", 0), validate_only=True)
    assert codes(answers) == ["none", "invalid_partitions"]
    assert answers[0]["num_partitions"] == 3
    assert sparklog_log.topics() == {}


@pytest.mark.parametrize(
    ("topic", "code", "words"),
    [
        (asked("there"), "topic_already_exists", "'there' already exists"),
        (asked("th.ere_"), "none", ""),
        (asked("col.lides"), "invalid_topic_exception", "collides with col_lides"),
        (asked("bad name"), "invalid_topic_exception", "letters, digits"),
        (asked(""), "invalid_topic_exception", ""),
        (asked("x" * 250), "invalid_topic_exception", "250 characters"),
        (asked("__consumer_offsets"), "invalid_topic_exception", "reserved"),
        (asked("__sparklog_commits"), "invalid_topic_exception", "reserved"),
        (asked("__cluster_metadata"), "invalid_topic_exception", "reserved"),
        (asked("n", 1, 3), "invalid_replication_factor", "ask for 1, or -1"),
        (asked("n", 1, 0), "invalid_replication_factor", "larger than 0"),
        (asked("n", 0, 1), "invalid_partitions", "non-positive"),
        (asked("n", -2, 1), "invalid_partitions", "non-positive"),
        (asked("n", 2**31 - 1, 1), "policy_violation", str(PARTITIONS_MAX)),
        (asked("n", configs={"nonsense": "1"}), "invalid_config", "Unknown topic config name"),
        (asked("n", configs={"log.retention.ms": "1"}), "invalid_config", "Unknown topic config"),
        (asked("n", configs={"retention.ms": "soon"}), "invalid_config", "ms=soon: expected"),
        (asked("n", configs={"retention.ms": None}), "invalid_config", "Null value"),
        (asked("n", assignments=[(0, [1]), (1, [1])]), "none", ""),
        (asked("n", 2, assignments=[(0, [1])]), "invalid_request", "numPartitions was not set"),
        (asked("n", -1, 1, assignments=[(0, [1])]), "invalid_request", "replication factor was"),
        (asked("n", assignments=[(0, [1]), (0, [1])]), "invalid_replica_assignment", "multiple"),
        (asked("n", assignments=[(1, [1])]), "invalid_replica_assignment", "0-based"),
        (asked("n", assignments=[(0, [])]), "invalid_replica_assignment", "empty"),
        (asked("n", assignments=[(0, [2])]), "invalid_replica_assignment", "broker 2"),
        (asked("n", assignments=[(0, [1, 1])]), "invalid_replica_assignment", "more than once"),
    ],
)
@pytest.mark.sparklog(topics=["there", "col_lides"])
def test_what_is_refused_says_why(
    sparklog_log: Log, topic: Any, code: str, words: str
) -> None:
    before = set(sparklog_log.topics())
    (answer,) = create(admin_of(sparklog_log), topic)
    assert ErrorCode(answer["error_code"]).name == code
    assert words in (answer["error_message"] or "")
    made = {topic.name} if code == "none" else set()
    assert set(sparklog_log.topics()) == before | made


def test_one_that_is_refused_keeps_none_of_the_others(sparklog_log: Log) -> None:
    answers = create(
        admin_of(sparklog_log), asked("a"), asked("twice"), asked("twice"), asked("b", 0),
        asked("c"),
    )  # fmt: skip
    assert codes(answers) == ["none", "invalid_request", "invalid_partitions", "none"]
    assert set(sparklog_log.topics()) == {"a", "c"}


def test_somebody_else_was_quicker(sparklog_log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    make: Callable[..., Any] = sparklog_log.create_topic

    def slow(name: str, *given: Any) -> Any:
        make(name)
        return make(name, *given)

    monkeypatch.setattr(sparklog_log, "create_topic", slow)
    assert codes(create(admin_of(sparklog_log), asked("a", 2))) == ["topic_already_exists"]


def test_a_log_that_is_open_for_reading_is_left_alone(
    sparklog_log: Log, sparklog_path: str
) -> None:
    sparklog_log.create_topic("there")
    with sparklog.open(sparklog_path) as reader:
        admin = admin_of(reader, is_writable=False)
        answers = [
            *create(admin, asked("a")), *delete(admin, ("there", None)), *grow(admin, "there", 3)
        ]  # fmt: skip
    assert codes(answers) == ["cluster_authorization_failed"] * 3
    assert all("open for reading" in answer["error_message"] for answer in answers)
    assert {n: t.partitions for n, t in sparklog_log.topics().items()} == {"there": 1}


def test_a_client_cant_have_any_number_of_topics_made(sparklog_log: Log) -> None:
    admin = admin_of(sparklog_log, num_partitions=PARTITIONS_MAX)
    assert list(admin.auto_create([])) == []
    names = ["a", "b"]
    assert admin_of(sparklog_log, num_partitions=PARTITIONS_MAX + 1).auto_create(names) == (
        dict.fromkeys(names, ErrorCode.policy_violation)
    )
    assert sparklog_log.topics() == {}


def test_the_partitions_of_a_request_are_counted_together(
    sparklog_log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_admin, "PARTITIONS_MAX", 3)
    admin = admin_of(sparklog_log, num_partitions=2)
    assert codes(create(admin, asked("a"), asked("b"))) == ["policy_violation"] * 2
    assert sparklog_log.topics() == {}
    assert admin.auto_create(["a", "b"]) == {"b": ErrorCode.policy_violation}
    assert codes(create(admin, asked("c", 3))) == ["none"]
    assert set(sparklog_log.topics()) == {"a", "c"}


# --- deleted -------------------------------------------------------------------------------------


def delete(admin: TopicAdmin, *topics: tuple[str | None, UUID | None]) -> list[dict[str, Any]]:
    named = [SimpleNamespace(name=name, topic_id=i) for name, i in topics]
    answer = admin.delete_topics(SimpleNamespace(topics=named))
    assert unknown_names(Api.DELETE_TOPICS, answer) == []
    return list(answer["responses"])


@pytest.mark.sparklog(topics=["a", "b", "c"])
def test_topics_go_by_name_and_by_id(sparklog_log: Log) -> None:
    b = uuid_of(sparklog_log.topic("b").id)
    wanted = [("a", None), (None, b), (None, UUID(int=7)), ("d", None)]
    answers = delete(admin_of(sparklog_log), *wanted)
    assert codes(answers) == ["none", "none", "unknown_topic_id", "unknown_topic_or_partition"]
    assert answers[1]["name"] == "b"
    assert set(sparklog_log.topics()) == {"c"}


@pytest.mark.sparklog(topics=["a", "b"])
def test_what_is_ambiguous_stays(sparklog_log: Log) -> None:
    admin, a = admin_of(sparklog_log), uuid_of(sparklog_log.topic("a").id)
    both = delete(admin, ("a", a), (None, None))
    twice = delete(admin, ("a", None), ("a", None))
    name_and_id = delete(admin, ("a", None), (None, a))
    assert codes([*both, *twice, *name_and_id]) == ["invalid_request"] * 5
    assert set(sparklog_log.topics()) == {"a", "b"}


@pytest.mark.sparklog(topics=["a"])
def test_names_alone_as_versions_up_to_5_have_them(sparklog_log: Log) -> None:
    answer = admin_of(sparklog_log).delete_topics(SimpleNamespace(topic_names=["a", "b"]))
    assert codes(answer["responses"]) == ["none", "unknown_topic_or_partition"]


@pytest.mark.sparklog(topics=["a"])
def test_a_topic_that_was_made_again_is_another_one(
    sparklog_log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sparklog_log.topics()
    sparklog_log.delete_topic("a")
    again = sparklog_log.create_topic("a")
    with monkeypatch.context() as patch:
        patch.setattr(sparklog_log, "topics", lambda: dict(before))
        (answer,) = delete(admin_of(sparklog_log), (None, uuid_of(before["a"].id)))
    assert codes([answer]) == ["unknown_topic_or_partition"]
    assert again.id in answer["error_message"]
    assert sparklog_log.topic("a").id == again.id


# --- grown ---------------------------------------------------------------------------------------


def grow(
    admin: TopicAdmin, name: str, count: int, assigned: Any = None, validate_only: bool = False
) -> list[dict[str, Any]]:
    assignments = None
    if assigned is not None:
        assignments = [SimpleNamespace(broker_ids=brokers) for brokers in assigned]
    topic = SimpleNamespace(name=name, count=count, assignments=assignments)
    body = SimpleNamespace(topics=[topic], validate_only=validate_only)
    answer = admin.create_partitions(body)
    assert unknown_names(Api.CREATE_PARTITIONS, answer) == []
    return list(answer["results"])


@pytest.mark.parametrize(
    ("count", "assigned", "code"),
    [
        (4, None, "none"),
        (4, [[1], [1]], "none"),
        (4, [[1]], "invalid_replica_assignment"),
        (4, [[1], [2]], "invalid_replica_assignment"),
        (2, None, "invalid_partitions"),
        (1, None, "invalid_partitions"),
        (-1, None, "invalid_partitions"),
        (2**31 - 1, None, "policy_violation"),
    ],
)
@pytest.mark.sparklog(topics={"a": 2})
def test_partitions_are_added(sparklog_log: Log, count: int, assigned: Any, code: str) -> None:
    admin = admin_of(sparklog_log)
    assert codes(grow(admin, "a", count, assigned, validate_only=True)) == [code]
    assert sparklog_log.topic("a").partitions == 2
    assert codes(grow(admin, "a", count, assigned)) == [code]
    assert sparklog_log.topic("a").partitions == (count if code == "none" else 2)


def test_partitions_of_no_topic(sparklog_log: Log) -> None:
    assert codes(grow(admin_of(sparklog_log), "a", 2)) == ["unknown_topic_or_partition"]


# --- over the wire -------------------------------------------------------------------------------


@pytest.mark.sparklog(topics={"old": 1})
def test_librdkafkas_admin_client(sparklog_log: Log) -> None:
    with Endpoint(sparklog_log) as endpoint:
        admin = AdminClient({"bootstrap.servers": endpoint.bootstrap_servers})
        made = NewTopic("new", 3, 1, config={"cleanup.policy": "compact"})
        many = NewTopic("many", 1, 2)
        futures = admin.create_topics([made, many])
        futures["new"].result(240)
        with pytest.raises(KafkaException, match="INVALID_REPLICATION_FACTOR"):
            futures["many"].result(240)
        assert len(admin.list_topics(timeout=240).topics["new"].partitions) == 3
        admin.create_partitions([NewPartitions("new", 5)])["new"].result(240)
        assert len(admin.list_topics(timeout=240).topics["new"].partitions) == 5
        admin.delete_topics(["old"])["old"].result(240)
        assert set(admin.list_topics(timeout=240).topics) == {"new"}
        with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
            admin.delete_topics(["old"])["old"].result(240)
    assert sparklog_log.topic("new").partitions == 5
    assert sparklog_log.topic("new").config.compact


@pytest.mark.parametrize("is_on", [True, False])
def test_a_topic_is_made_when_a_producer_asks_about_it(sparklog_log: Log, is_on: bool) -> None:
    options = {"auto.create.topics.enable": is_on, "num.partitions": 3}
    with Endpoint(sparklog_log, options=options) as endpoint:
        producer = Producer({"bootstrap.servers": endpoint.bootstrap_servers})
        found = producer.list_topics("new", timeout=240).topics["new"]
        asked_for = producer.list_topics("bad name", timeout=240).topics["bad name"]
        AdminClient({"bootstrap.servers": endpoint.bootstrap_servers}).list_topics(timeout=240)
    code = None if is_on else "UNKNOWN_TOPIC_OR_PART"
    assert (found.error and found.error.name()) == code
    assert asked_for.error.name() == ("TOPIC_EXCEPTION" if is_on else "UNKNOWN_TOPIC_OR_PART")
    made = {"new": 3} if is_on else {}
    assert {name: topic.partitions for name, topic in sparklog_log.topics().items()} == made


def test_nothing_is_made_for_whoever_only_looks(sparklog_log: Log, sparklog_path: str) -> None:
    on = {"auto.create.topics.enable": True}
    with (
        Endpoint(sparklog_log, options=on) as endpoint,
        sparklog.open(sparklog_path) as reader,
        Endpoint(reader, options=on) as read_only,
    ):
        look = {"bootstrap.servers": endpoint.bootstrap_servers, "allow.auto.create.topics": False}
        assert Consumer({"group.id": "g", **look}).list_topics("a", timeout=240).topics["a"].error
        producer = Producer({"bootstrap.servers": read_only.bootstrap_servers})
        error = producer.list_topics("a", timeout=240).topics["a"].error
        assert error.name() == "UNKNOWN_TOPIC_OR_PART"
    assert sparklog_log.topics() == {}


def test_two_endpoints_and_python_see_one_anothers_topics(
    sparklog_log: Log, sparklog_path: str
) -> None:
    with (
        sparklog.open(sparklog_path, "rw") as second,
        Endpoint(sparklog_log) as one,
        Endpoint(second) as other,
    ):
        here = AdminClient({"bootstrap.servers": one.bootstrap_servers})
        there = AdminClient({"bootstrap.servers": other.bootstrap_servers})
        assert there.list_topics(timeout=240).topics == {}
        here.create_topics([NewTopic("a", 1, 1)])["a"].result(240)
        with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
            there.create_topics([NewTopic("a", 1, 1)])["a"].result(240)
        assert "a" in there.list_topics("a", timeout=240).topics
        second.create_topic("b", 2)
        here.create_partitions([NewPartitions("b", 3)])["b"].result(240)
        there.delete_topics(["a"])["a"].result(240)
        assert set(there.list_topics(timeout=240).topics) == {"b"}
    assert {n: t.partitions for n, t in sparklog_log.topics().items()} == {"b": 3}
