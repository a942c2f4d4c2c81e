"""The admin APIs on every home of a log: what is told of it, and what may be changed."""

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.kafka import Endpoint
from sparklog.kafka.messages import Api
from sparklog.log.log import Log
from tests import paths
from tests.kafka.wire import Wire
from tests.service.logs import SMALL
from tests.service.logs import fill as fill_segments
from tests.tiered.buckets import DictStore, copy_partition

ROWS = pa.table({"value": [b"x" * 100] * 50})
TOPIC = 2


def fill(log: Log) -> None:
    log.create_topic("t", 2, {"retention.ms": "-1"})
    log.append("t", ROWS, partition=0)


@pytest.fixture(params=["log dirs", "file bucket", "memory bucket"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    """A log that is written to, of a topic t whose partition 0 has records."""
    path = {
        "log dirs": f"{tmp_path}/one,{tmp_path}/two",
        "file bucket": f"file://{tmp_path}/bucket/log",
        "memory bucket": f"memory://{uuid.uuid4().hex}/log",
    }[request.param]
    with sparklog.open(path, "rw") as found:
        fill(found)
        yield found


@pytest.fixture(params=["archive", "broker's directory", "log dir"])
def read_only(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    """A log that nobody may change through this handle."""
    path = tmp_path / "log"
    if request.param == "broker's directory":
        shutil.copytree(paths.GOLDEN / "kafka-4.1" / "logdir", path)
    else:
        with sparklog.open(path, "rw") as made:
            made.create_topic("t", 1, SMALL)
            fill_segments(made, "t", 0, 30)
    if request.param == "archive":
        store, bucket = DictStore(), tmp_path / "bucket"
        copy_partition(path / "t-0", store, config=SMALL)
        for name, data in store.objects.items():
            (bucket / name).parent.mkdir(parents=True, exist_ok=True)
            (bucket / name).write_bytes(data)
        path = bucket
    with sparklog.open(path) as found:
        yield found


def sizes(answer: dict[str, Any]) -> dict[str, dict[tuple[str, int], int]]:
    """Return {log dir: {partition: size}} of DescribeLogDirs."""
    return {
        one["log_dir"]: {
            (topic["name"], each["partition_index"]): each["partition_size"]
            for topic in one["topics"] for each in topic["partitions"]
        }
        for one in answer["results"]
    }  # fmt: skip


def test_a_topics_life(log: Log) -> None:
    first = {"partition_index": 0, "timestamp": -2, "current_leader_epoch": -1}
    start: dict[str, Any] = {"replica_id": -1, "isolation_level": 0}
    start["topics"] = [{"name": "t", "partitions": [first]}]
    with Endpoint(log) as endpoint, Wire(endpoint) as wire:
        assert wire.ask(Api.LIST_OFFSETS, 7, **start)["topics"][0]["partitions"][0]["offset"] == 0
        new = {"name": "new", "num_partitions": 2, "replication_factor": -1}
        made = wire.ask(Api.CREATE_TOPICS, 7, topics=[new, {**new, "name": "t"}], timeout=30_000)
        assert [topic["error_code"] for topic in made["topics"]] == [0, 36]
        grown = [{"name": "new", "count": 3, "assignments": None}]
        answer = wire.ask(
            Api.CREATE_PARTITIONS, 3, topics=grown, timeout=30_000, validate_only=False
        )
        assert [topic["error_code"] for topic in answer["results"]] == [0]
        known = wire.ask(Api.METADATA, 12, topics=[{"name": "new"}])["topics"][0]
        assert sorted(p["partition_index"] for p in known["partitions"]) == [0, 1, 2]
        change = {"name": "retention.ms", "config_operation": 0, "value": "5"}
        asked = {"resource_type": TOPIC, "resource_name": "new"}
        answer = wire.ask(
            Api.INCREMENTAL_ALTER_CONFIGS, 1, resources=[{**asked, "configs": [change]}],
            validate_only=False,
        )  # fmt: skip
        assert answer["responses"][0]["error_code"] == 0
        told = wire.ask(
            Api.DESCRIBE_CONFIGS, 4, resources=[{**asked, "configuration_keys": ["retention.ms"]}]
        )
        assert [c["value"] for c in told["results"][0]["configs"]] == ["5"]
        cut = [{"name": "t", "partitions": [{"partition_index": 0, "offset": -1}]}]
        answer = wire.ask(Api.DELETE_RECORDS, 2, topics=cut, timeout=30_000)
        assert answer["topics"][0]["partitions"][0]["low_watermark"] == 50
        listed = wire.ask(Api.LIST_OFFSETS, 7, **start)
        assert listed["topics"][0]["partitions"][0]["offset"] == 50, "at once"
        gone = [{"name": "new", "topic_id": None}]
        assert [
            topic["error_code"]
            for topic in wire.ask(Api.DELETE_TOPICS, 6, topics=gone, timeout=30_000)["responses"]
        ] == [0]
        known = wire.ask(Api.METADATA, 12, topics=None)["topics"]
        assert [topic["name"] for topic in known] == ["t"]
    assert set(log.topics()) == {"t"}


def test_log_dirs(log: Log) -> None:
    with Endpoint(log) as endpoint, Wire(endpoint) as wire:
        answer = wire.ask(Api.DESCRIBE_LOG_DIRS, 4, topics=None)
    held = sizes(answer)
    assert list(held) == (log.path.split(",") if "," in log.path else [log.path])
    found = {key: size for one in held.values() for key, size in one.items()}
    assert found.keys() == {("t", 0), ("t", 1)}
    assert (found["t", 0] > 100, found["t", 1]) == (True, 0)
    in_store = "://" in log.path
    assert all((one["total_bytes"] == -1) == in_store for one in answer["results"])


def test_what_is_read_only_is_told_and_left_alone(read_only: Log) -> None:
    name = min(read_only.topics())
    with Endpoint(read_only) as endpoint, Wire(endpoint) as wire:
        answer = wire.ask(Api.DESCRIBE_LOG_DIRS, 4, topics=None)
        assert any(size > 0 for one in sizes(answer).values() for size in one.values())
        described = wire.ask(
            Api.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[], response_partition_limit=100, cursor=None
        )
        assert {t["name"] for t in described["topics"]} == set(read_only.topics())
        assert {t["error_code"] for t in described["topics"]} == {0}
        asked = {"resource_type": TOPIC, "resource_name": name}
        told = wire.ask(
            Api.DESCRIBE_CONFIGS, 4, resources=[{**asked, "configuration_keys": None}]
        )
        assert all(c["read_only"] for c in told["results"][0]["configs"])
        partitions = [{"name": name, "partition_indexes": [0]}]
        producers = wire.ask(Api.DESCRIBE_PRODUCERS, 0, topics=partitions)
        assert producers["topics"][0]["partitions"][0]["error_code"] == 0
        new = {"name": "new", "num_partitions": 1, "replication_factor": 1}
        made = wire.ask(Api.CREATE_TOPICS, 7, topics=[new], timeout=30_000)["topics"][0]
        assert made["error_code"] == 31
        assert "open for reading" in made["error_message"]
        gone = [{"name": name, "topic_id": None}]
        gone = wire.ask(Api.DELETE_TOPICS, 6, topics=gone, timeout=30_000)["responses"]
        assert [topic["error_code"] for topic in gone] == [31]
        cut = [{"name": name, "partitions": [{"partition_index": 0, "offset": -1}]}]
        answer = wire.ask(Api.DELETE_RECORDS, 2, topics=cut, timeout=30_000)
        assert answer["topics"][0]["partitions"][0]["error_code"] == 29
    assert name in read_only.topics()


@pytest.mark.parametrize("log", ["log dirs"], indirect=True)
def test_a_log_dir_that_is_gone(log: Log) -> None:
    gone = Path(log.topic("t").dirs[1]).parent
    shutil.rmtree(gone)
    with sparklog.open(log.path) as reader, Endpoint(reader) as endpoint, Wire(endpoint) as wire:
        answer = wire.ask(Api.DESCRIBE_LOG_DIRS, 4, topics=None)
        errors = {one["log_dir"]: one["error_code"] for one in answer["results"]}
        assert errors == {each: 56 * (each == str(gone)) for each in log.path.split(",")}
        described = wire.ask(
            Api.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[], response_partition_limit=100, cursor=None
        )
        offline = next(
            p for p in described["topics"][0]["partitions"] if p["partition_index"] == 1
        )
        assert (offline["error_code"], offline["leader_id"]) == (5, -1)
        assert list(offline["offline_replicas"]) == [1]
        asked = [{"topic": "t", "partitions": [1]}]
        answer = wire.ask(
            Api.ELECT_LEADERS, 2, election_type=1, topic_partitions=asked, timeout=1000
        )
        (refused,) = answer["replica_election_results"][0]["partition_result"]
        assert refused["error_code"] == 83
        assert "sparklog verify PATH --give-up" in refused["error_message"]
    gone.mkdir()
    assert run(["verify", log.path, "--give-up", "--topic", "t", "--partition", "1"]) == 0
    with sparklog.open(log.path, "rw") as writer:
        writer.append("t", pa.table({"value": [b"x"]}), partition=1)
