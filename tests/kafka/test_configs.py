"""Configs described and changed by clients."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

import sparklog
from sparklog.config import KEYS, NEW_TOPICS, TopicConfig
from sparklog.kafka import Endpoint
from sparklog.kafka.configs import Configs
from sparklog.kafka.messages import Api, ErrorCode, unknown_names
from sparklog.kafka.options import EndpointOptions
from sparklog.kafka.topic_configs import Alteration, ConfigSource, altering
from sparklog.log.log import Log
from sparklog.tools.configs import describe_configs

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


def configs_of(log: Log, *, is_writable: bool = True) -> Configs:
    return Configs(log, EndpointOptions(), is_writable=is_writable)


def describe(
    configs: Configs, kind: int, name: str, keys: Any = None, *, more: bool = False
) -> tuple[str, dict[str, dict[str, Any]]]:
    """Return (error, {config: its entry})."""
    resource = SimpleNamespace(resource_type=kind, resource_name=name, configuration_keys=keys)
    body = SimpleNamespace(resources=[resource], include_synonyms=more, include_documentation=more)
    answer = configs.describe(body)
    assert unknown_names(Api.DESCRIBE_CONFIGS, answer) == []
    (found,) = answer["results"]
    return ErrorCode(found["error_code"]).name, {each["name"]: each for each in found["configs"]}


def alter(configs: Configs, kind: int, name: str, *changes: Any, **more: Any) -> tuple[str, str]:
    """Return (error, message) of IncrementalAlterConfigs."""
    made = [SimpleNamespace(name=n, config_operation=op, value=v) for n, op, v in changes]
    resource = SimpleNamespace(resource_type=kind, resource_name=name, configs=made)
    resources = [resource] * more.pop("times", 1)
    body = SimpleNamespace(resources=resources, validate_only=more.get("validate_only", False))
    answer = configs.alter_incrementally(body)
    assert unknown_names(Api.INCREMENTAL_ALTER_CONFIGS, answer) == []
    found = answer["responses"][0]
    return ErrorCode(found["error_code"]).name, found.get("error_message") or ""


@pytest.mark.sparklog(topics={"a": {"retention.ms": "1000", "cleanup.policy": "compact"}})
def test_a_topics_configs(sparklog_log: Log) -> None:
    error, found = describe(configs_of(sparklog_log), TOPIC, "a", more=True)
    assert error == "none"
    assert set(found) == set(KEYS) - {"internal.segment.bytes"}
    assert {n: e["value"] for n, e in found.items() if e["config_source"] == 1} == {
        "retention.ms": "1000", "cleanup.policy": "compact",
    }  # fmt: skip
    synonyms = [(s["name"], s["value"], s["source"]) for s in found["cleanup.policy"]["synonyms"]]
    assert synonyms == [("cleanup.policy", "compact", 1), ("log.cleanup.policy", "delete", 5)]
    assert found["retention.ms"]["documentation"] == KEYS["retention.ms"].doc
    types = {
        "preallocate": 1, "compression.type": 2, "segment.bytes": 3, "retention.ms": 5,
        "min.cleanable.dirty.ratio": 6, "cleanup.policy": 7,
    }  # fmt: skip
    assert {name: found[name]["config_type"] for name in types} == types


@pytest.mark.sparklog(topics=["a"])
def test_some_configs_and_nothing_that_was_not_asked_for(sparklog_log: Log) -> None:
    _, found = describe(configs_of(sparklog_log), TOPIC, "a", ["retention.ms", "nonsense"])
    assert list(found) == ["retention.ms"]
    assert (found["retention.ms"]["synonyms"], found["retention.ms"]["documentation"]) == ([], None)
    assert len(describe(configs_of(sparklog_log), TOPIC, "a", [])[1]) > 30, "none means all"


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "b", "unknown_topic_or_partition"), (TOPIC, "", "invalid_request"),
        (BROKER, "2", "invalid_request"), (BROKER, "x", "invalid_request"), (BROKER, "", "none"),
        (LOGGER, "1", "none"), (LOGGER, "", "invalid_request"), (METRICS, "m", "none"),
        (GROUP, "", "invalid_request"), (GROUP, "g", "none"), (77, "x", "invalid_request"),
        (TOPIC, "__sparklog_commits", "unknown_topic_or_partition"),
    ],
)  # fmt: skip
def test_what_else_there_might_be(sparklog_log: Log, kind: int, name: str, error: str) -> None:
    assert describe(configs_of(sparklog_log), kind, name) == (error, {})


@pytest.mark.sparklog(options={"log.retention.hours": "1"})
def test_the_endpoints_options_are_a_brokers(sparklog_log: Log) -> None:
    error, found = describe(configs_of(sparklog_log), BROKER, "1")
    assert error == "none"
    assert found["node.id"]["value"] == "1"
    assert (found["log.retention.ms"]["value"], found["log.retention.ms"]["config_source"]) == (
        "3600000", 4,
    )  # fmt: skip
    assert found["log.dirs"]["value"] == sparklog_log.path
    assert all(entry["read_only"] for entry in found.values())
    secret = [n for n in found if "password" in n or "users" in n]
    assert all(found[n]["is_sensitive"] and found[n]["value"] is None for n in secret)


@pytest.mark.parametrize(
    ("change", "error", "after"),
    [
        (("retention.ms", SET, "5"), "none", {"retention.ms": "5"}),
        (("retention.ms", DELETE, None), "none", {"retention.ms": "-1"}),  # the log's default
        (("segment.bytes", DELETE, None), "none", {"retention.ms": "1000"}),
        (("nonsense", DELETE, None), "none", {"retention.ms": "1000"}),
        (("cleanup.policy", APPEND, "compact"), "none",
         {"retention.ms": "1000", "cleanup.policy": "delete,compact"}),
        (("cleanup.policy", APPEND, "delete"), "none",
         {"retention.ms": "1000", "cleanup.policy": "delete"}),
        (("cleanup.policy", SUBTRACT, "compact"), "none",
         {"retention.ms": "1000", "cleanup.policy": "delete"}),
        (("retention.ms", APPEND, "5"), "invalid_config", None),
        (("nonsense", SET, "5"), "invalid_config", None),
        (("log.retention.ms", SET, "5"), "invalid_config", None),
        (("retention.ms", SET, "soon"), "invalid_config", None),
        (("retention.ms", SET, None), "invalid_request", None),
        (("retention.ms", 9, "5"), "invalid_request", None),
        (("min.compaction.lag.ms", SET, str(2**63 - 1)), "none",
         {"retention.ms": "1000", "min.compaction.lag.ms": str(2**63 - 1)}),
        (("local.retention.ms", SET, "2000"), "invalid_config", None),
    ],
)  # fmt: skip
@pytest.mark.sparklog(topics={"a": {"retention.ms": "1000"}})
def test_a_change_of_one_config(sparklog_log: Log, change: Any, error: str, after: Any) -> None:
    before, configs = {"retention.ms": "1000"}, configs_of(sparklog_log)
    assert alter(configs, TOPIC, "a", change, validate_only=True)[0] == error
    assert sparklog_log.topic("a").config.to_dict() == before
    assert alter(configs, TOPIC, "a", change)[0] == error
    assert sparklog_log.topic("a").config.to_dict() == (before if after is None else after)


@pytest.mark.sparklog(topics=["a"])
def test_a_config_that_is_set_to_kafkas_default_is_set(sparklog_log: Log) -> None:
    """Else who keeps configs as code (Terraform) would set it again and again."""
    configs = configs_of(sparklog_log)
    assert alter(configs, TOPIC, "a", ("retention.ms", SET, "604800000"))[0] == "none"
    entry = describe(configs, TOPIC, "a", ["retention.ms"], more=True)[1]["retention.ms"]
    assert entry["config_source"] == ConfigSource.TOPIC
    assert entry["synonyms"][0]["source"] == ConfigSource.TOPIC
    assert sparklog_log.topic("a").config.to_dict() == {"retention.ms": "604800000"}
    assert alter(configs, TOPIC, "a", ("segment.ms", SET, "5"))[0] == "none"  # others leave it
    with sparklog.open(sparklog_log.path) as other:
        known = other.topic("a").config
    assert known.to_dict() == {"retention.ms": "604800000", "segment.ms": "5"}
    assert [e.name for e in describe_configs(sparklog_log.topic("a"))] == sorted(known.to_dict())
    assert alter(configs, TOPIC, "a", ("retention.ms", DELETE, None))[0] == "none"
    assert sparklog_log.topic("a").config.to_dict() == {"retention.ms": "-1", "segment.ms": "5"}


@pytest.mark.sparklog(topics=["a"])
def test_a_resources_changes_come_together_or_not_at_all(sparklog_log: Log) -> None:
    configs = configs_of(sparklog_log)
    changes = [("retention.ms", SET, "5"), ("segment.bytes", SET, "no")]
    assert alter(configs, TOPIC, "a", *changes)[0] == "invalid_config"
    twice = [("retention.ms", SET, "5"), ("retention.ms", DELETE, None)]
    assert alter(configs, TOPIC, "a", *twice)[0] == "invalid_request"
    assert alter(configs, TOPIC, "a", ("retention.ms", SET, "5"), times=2)[0] == "invalid_request"
    assert sparklog_log.topic("a").config == NEW_TOPICS
    assert alter(configs, TOPIC, "b", ("retention.ms", SET, "5"))[0] == "unknown_topic_or_partition"


@pytest.mark.sparklog(topics=["a", "b"])
def test_a_topic_that_is_named_twice_is_refused_after_another_topic_too(sparklog_log: Log) -> None:
    made = [SimpleNamespace(name="retention.ms", config_operation=SET, value="5")]
    resources = [
        SimpleNamespace(resource_type=TOPIC, resource_name=name, configs=made) for name in "baa"
    ]
    body = SimpleNamespace(resources=resources, validate_only=False)
    answers = configs_of(sparklog_log).alter_incrementally(body)["responses"]
    assert [ErrorCode(each["error_code"]).name for each in answers] == [
        "none", "invalid_request", "invalid_request",
    ]  # fmt: skip
    assert sparklog_log.topic("a").config == NEW_TOPICS
    assert sparklog_log.topic("b").config.to_dict() == {"retention.ms": "5"}


@pytest.mark.parametrize("kind", [BROKER, LOGGER, METRICS, GROUP])
def test_nothing_of_the_endpoints_own_is_changed(sparklog_log: Log, kind: int) -> None:
    configs = configs_of(sparklog_log)
    error, words = alter(configs, kind, "1", ("log.cleaner.threads", SET, "2"))
    assert error == "invalid_request"
    assert "where it is started" in words
    assert alter(configs, kind, "1", ("leader.replication.throttled.rate", DELETE, None)) == (
        "none", "",
    )  # fmt: skip


@pytest.mark.sparklog(topics=["a"])
def test_a_log_that_is_open_for_reading(sparklog_log: Log, sparklog_path: str) -> None:
    with sparklog.open(sparklog_path) as reader:
        configs = configs_of(reader, is_writable=False)
        error, words = alter(configs, TOPIC, "a", ("retention.ms", SET, "5"))
        assert (error, "open for reading" in words) == ("cluster_authorization_failed", True)
        assert describe(configs, TOPIC, "a")[1]["retention.ms"]["read_only"]
        assert describe(configs, BROKER, "1")[0] == "none"


@pytest.mark.sparklog(topics={"a": {"retention.ms": "1000", "segment.ms": "5"}})
def test_configs_that_are_replaced(sparklog_log: Log) -> None:
    """AlterConfigs: what isn't named goes back to its default."""
    config = SimpleNamespace(name="segment.ms", value="7")
    resource = SimpleNamespace(resource_type=TOPIC, resource_name="a", configs=[config])
    body = SimpleNamespace(resources=[resource], validate_only=False)
    (answer,) = configs_of(sparklog_log).alter(body)["responses"]
    assert answer["error_code"] == ErrorCode.none
    assert sparklog_log.topic("a").config.to_dict() == {"retention.ms": "-1", "segment.ms": "7"}


def test_parts_of_lists_keep_their_order() -> None:
    config = TopicConfig.parse({"cleanup.policy": "compact,delete"})
    less = altering(config, [Alteration("cleanup.policy", SUBTRACT, "compact")])
    assert less == {"cleanup.policy": "delete"}


@pytest.mark.sparklog(topics=["a"])
def test_resources_by_type(sparklog_log: Log) -> None:
    def listed(wanted: Any) -> list[tuple[int, str]]:
        answer = configs_of(sparklog_log).resources(wanted)
        assert answer["error_code"] == ErrorCode.none
        return [(e["resource_type"], e["resource_name"]) for e in answer["config_resources"]]

    assert listed([TOPIC]) == [(TOPIC, "a")]
    assert listed([]) == [(LOGGER, "1"), (BROKER, "1"), (TOPIC, "a")]
    assert listed(None) == []
    refused = configs_of(sparklog_log).resources([TOPIC, 3])
    assert refused["error_code"] == ErrorCode.unsupported_version


@pytest.mark.sparklog(topics={"a": {"retention.ms": "1000"}})
def test_librdkafkas_admin_client(sparklog_log: Log) -> None:
    with Endpoint(sparklog_log) as endpoint:
        admin = AdminClient({"bootstrap.servers": endpoint.bootstrap_servers})
        kind = ConfigResource.Type.TOPIC
        added = ConfigEntry("cleanup.policy", "compact", None, None, None, None, None)
        added.incremental_operation = AlterConfigOpType.APPEND
        one = ConfigResource(kind, "a", incremental_configs=[added])
        admin.incremental_alter_configs([one])[one].result(240)
        asked = ConfigResource(kind, "a")
        found = admin.describe_configs([asked])[asked].result(240)
        assert found["cleanup.policy"].value == "delete,compact"
        assert (found["retention.ms"].value, found["retention.ms"].is_default) == ("1000", False)
        whole = ConfigResource(kind, "a", set_config={"segment.bytes": "2000000"})
        with pytest.warns(DeprecationWarning, match="incremental"):
            admin.alter_configs([whole])[whole].result(240)
    after = {"retention.ms": "-1", "segment.bytes": "2000000"}
    assert sparklog_log.topic("a").config.to_dict() == after
