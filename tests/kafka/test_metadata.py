"""Metadata: topics by id, partitions that are offline, and topics that it makes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import sparklog
from sparklog.kafka import Endpoint
from sparklog.kafka.messages import Api, ErrorCode, uuid_of
from sparklog.log.log import Log
from tests.kafka.rights import logged_in, users_file
from tests.kafka.wire import Wire
from tests.logdir.partitions import batch, create
from tests.waiting import until


@pytest.fixture
def wire(sparklog_log: Log) -> Iterator[Wire]:
    with Endpoint(sparklog_log) as endpoint, Wire(endpoint) as found:
        yield found


def topic(wire: Wire, name: str | None, topic_id: UUID | None = None, **given: Any) -> Any:
    """What Metadata answers of one topic."""
    body = {"allow_auto_topic_creation": False} | given
    answer = wire.ask(Api.METADATA, 12, topics=[{"name": name, "topic_id": topic_id}], **body)
    (found,) = answer["topics"]
    return found


@pytest.mark.sparklog(topics={"t": 2})
def test_topics_by_id(wire: Wire, sparklog_log: Log) -> None:
    topic_id = uuid_of(sparklog_log.topic("t").id)
    found = topic(wire, None, topic_id)
    assert (found["error_code"], found["name"], len(found["partitions"])) == (0, "t", 2)
    assert topic(wire, "none")["error_code"] == ErrorCode.unknown_topic_or_partition
    sparklog_log.delete_topic("t")
    sparklog_log.create_topic("t")
    until(lambda: topic(wire, "t")["topic_id"] not in (None, topic_id))
    assert topic(wire, None, topic_id)["error_code"] == ErrorCode.unknown_topic_id


@pytest.mark.sparklog(topics={"t": 2})
def test_an_offline_partition_has_no_leader_for_now(
    wire: Wire, sparklog_log: Log, tmp_path: Path
) -> None:
    def offline() -> dict[int, int]:
        """Return {partition that is offline: its error}."""
        found = topic(wire, "t")["partitions"]
        return {p["partition_index"]: p["error_code"] for p in found if p["offline_replicas"]}

    assert offline() == {}
    directory = Path(sparklog_log.topic("t").dirs[0])
    directory.rename(tmp_path / "away")
    assert until(offline) == {0: ErrorCode.leader_not_available}
    (tmp_path / "away").rename(directory)
    until(lambda: offline() == {})
    assert {p["error_code"] for p in topic(wire, "t")["partitions"]} == {ErrorCode.none}


def test_brokers_internal_topics_are_marked(tmp_path: Path) -> None:
    for name in ("__consumer_offsets-0", "t-0"):
        log = create(tmp_path / name)
        log.append(batch("a"), 0)
        log.close()
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":-1}')
    with sparklog.open(tmp_path) as log, Endpoint(log) as endpoint, Wire(endpoint) as wire:
        found = wire.ask(Api.METADATA, 12, topics=None)["topics"]
    assert {each["name"]: each["is_internal"] for each in found} == {
        "__consumer_offsets": True, "t": False,
    }  # fmt: skip


def test_a_topic_is_not_made_for_a_user_without_the_right(
    sparklog_log: Log, tmp_path: Path
) -> None:
    options = users_file(tmp_path, reader="read", owner="admin") | {
        "auto.create.topics.enable": True
    }
    with Endpoint(sparklog_log, options=options) as endpoint:
        with logged_in(endpoint, "reader") as wire:
            refused = topic(wire, "new", allow_auto_topic_creation=True)
        assert refused["error_code"] == ErrorCode.topic_authorization_failed
        assert sparklog_log.topics() == {}
        with logged_in(endpoint, "owner") as wire:
            assert topic(wire, "new", allow_auto_topic_creation=True)["error_code"] == 0
    assert set(sparklog_log.topics()) == {"new"}
