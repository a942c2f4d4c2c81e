"""Partitions that Kafka's clients move between log dirs: AlterReplicaLogDirs, DescribeLogDirs."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog import Log
from sparklog.kafka import Endpoint
from sparklog.kafka.messages import Api, ErrorCode
from sparklog.log.log import home_of
from sparklog.service import verify
from tests.kafka.wire import Wire
from tests.waiting import until

NONE = int(ErrorCode.none)
SLOW = "replica.alter.log.dirs.io.max.bytes.per.second"
BROKER = 4


class Served:
    """A log of three log dirs behind an endpoint."""

    def __init__(self, log: Log, dirs: list[str], wire: Wire) -> None:
        self.log, self.dirs, self.wire = log, dirs, wire

    def move(self, to: str, topic: str = "t", *partitions: int, version: int = 2) -> list[int]:
        asked = {"name": topic, "partitions": list(partitions or (0,))}
        answer = self.wire.ask(
            Api.ALTER_REPLICA_LOG_DIRS, version, dirs=[{"path": to, "topics": [asked]}]
        )
        (found,) = answer["results"]
        assert found["topic_name"] == topic
        return [each["error_code"] for each in found["partitions"]]

    def replicas(self, partition: int = 0) -> dict[str, tuple[int, int, bool]]:
        """Return {log dir: (size, lag, whether it is a future one)} of a partition of t."""
        answer = self.wire.ask(Api.DESCRIBE_LOG_DIRS, 4, topics=None)
        return {
            one["log_dir"]: (each["partition_size"], each["offset_lag"], each["is_future_key"])
            for one in answer["results"]
            for topic in one["topics"] if topic["name"] == "t"
            for each in topic["partitions"] if each["partition_index"] == partition
        }  # fmt: skip

    def limit(self, value: str | None) -> int:
        """Set the rate of moves, or delete it."""
        config = {"name": SLOW, "config_operation": int(value is None), "value": value}
        resource = {"resource_type": BROKER, "resource_name": "1", "configs": [config]}
        answer = self.wire.ask(
            Api.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False
        )
        return int(answer["responses"][0]["error_code"])

    def wait(self, partition: int = 0) -> str:
        """Wait until a partition doesn't move any more; returns its log dir."""
        until(lambda: len(self.replicas(partition)) == 1, "one replica", state=self.log.moves)
        return next(iter(self.replicas(partition)))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    dirs = [str(tmp_path / name) for name in ("one", "two", "three")]
    with sparklog.open(",".join(dirs), "rw") as log:
        log.create_topic("t", 3, {"segment.bytes": 1 << 20})
        for n in range(6):
            log.append("t", pa.table({"value": [b"%d" % n * 1000] * 500}), 0)
        with Endpoint(log) as endpoint, Wire(endpoint) as wire:
            yield Served(log, dirs, wire)
    assert verify(",".join(dirs)).ok


@pytest.mark.parametrize("version", [1, 2])
def test_there_and_back(served: Served, version: int) -> None:
    one, two, _ = served.dirs
    rows = served.log.read("t", [0]).read_all()
    assert served.move(two, version=version) == [NONE]
    assert served.wait() == two
    assert served.move(two) == [NONE]  # it is there
    assert served.log.moves() == []
    assert served.log.read("t", [0]).read_all() == rows
    assert served.move(one) == [NONE]
    assert served.wait() == one


def test_a_future_replica_catches_up(served: Served) -> None:
    one, two, three = served.dirs
    assert served.limit("1") == NONE  # a byte a second: the first window waits
    assert served.move(two) == [NONE]
    found = served.replicas()
    assert found[one][1:] == (0, False)
    assert found[two] == (0, 3000, True)
    assert served.move(two) == [NONE]  # asked twice
    assert [move.target for move in served.log.moves()] == [two]
    assert served.move(three) == [NONE]  # another target takes its place
    assert set(served.replicas()) == {one, three}
    assert served.move(one) == [NONE]  # where it is: it stays
    assert set(served.replicas()) == {one}
    assert served.move(three, "t", 0, 1) == [NONE, NONE]
    assert served.limit(None) == NONE
    assert served.wait() == served.wait(1) == three
    assert [name for path in served.dirs for name in _futures(path)] == []


def test_the_rate_is_shown_and_judged(served: Served) -> None:
    def shown() -> list[tuple[str, int, bool]]:
        asked = [{"resource_type": BROKER, "resource_name": "1", "configuration_keys": [SLOW]}]
        answer = served.wire.ask(Api.DESCRIBE_CONFIGS, 4, resources=asked)
        return [
            (each["value"], each["config_source"], each["read_only"])
            for each in answer["results"][0]["configs"]
        ]

    assert shown() == []
    assert served.limit("5000000") == NONE
    assert shown() == [("5000000", 2, False)]
    assert served.limit("0") == served.limit("-1") == served.limit("x") == 40  # INVALID_CONFIG
    assert home_of(served.log).moves.limited() == 5_000_000
    assert served.limit(None) == served.limit(None) == NONE
    assert shown() == []


def test_what_is_refused(served: Served, tmp_path: Path) -> None:
    two = served.dirs[1]
    assert served.move(str(tmp_path / "other")) == [ErrorCode.log_dir_not_found]
    assert served.move(f"{two}/") == [ErrorCode.log_dir_not_found]  # it is compared, as in Kafka
    assert served.move(two, "nope") == [ErrorCode.unknown_topic_or_partition]
    assert served.move(two, "t", 0, 7) == [NONE, ErrorCode.unknown_topic_or_partition]
    assert served.move(two, "__sparklog_commits") == [ErrorCode.unknown_topic_or_partition]
    assert served.wait() == two


def test_a_partition_that_is_named_twice_goes_where_it_was_named_last(served: Served) -> None:
    topics = [{"name": "t", "partitions": [0]}]
    dirs = [{"path": path, "topics": topics} for path in served.dirs]
    answer = served.wire.ask(Api.ALTER_REPLICA_LOG_DIRS, 2, dirs=dirs)
    assert len(answer["results"]) == len(answer["results"][0]["partitions"]) == 1
    assert served.wait() == served.dirs[2]


def test_disks_that_take_nothing(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, three = served.dirs
    Path(three).rename(f"{three}.unmounted")
    assert served.move(three) == [ErrorCode.kafka_storage_error]
    Path(three).mkdir()  # its mount point
    assert served.move(three) == [ErrorCode.kafka_storage_error]
    assert _futures(three) == []
    assert served.move(two) == [NONE]  # a disk that is away doesn't keep others from being emptied
    assert served.wait() == two
    Path(three).rmdir()
    Path(f"{three}.unmounted").rename(three)
    monkeypatch.setattr(type(home_of(served.log).commits.fs), "free_bytes", lambda *_: 1 << 20)
    assert served.move(one) == [ErrorCode.kafka_storage_error]
    monkeypatch.undo()
    assert served.move(three) == [NONE]
    assert served.wait() == three


def _futures(path: str) -> list[str]:
    return [each.name for each in Path(path).glob("*-future")]


def test_an_endpoint_that_comes_back_goes_on(tmp_path: Path) -> None:
    dirs = [str(tmp_path / name) for name in ("one", "two")]
    path = ",".join(dirs)
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", 1, {"segment.bytes": 1 << 20})
        for n in range(6):
            log.append("t", pa.table({"value": [b"%d" % n * 1000] * 500}), 0)
        with Endpoint(log) as endpoint, Wire(endpoint) as wire:
            first = Served(log, dirs, wire)
            first.limit("400000")
            first.move(dirs[1])
            until(lambda: first.log.moves()[0].copied_bytes)
    assert _futures(dirs[1])
    with sparklog.open(path) as log:
        (left,) = log.moves()
        assert 0 < left.copied_bytes <= left.total_bytes
        assert left.state == "waiting"
        assert 0 <= left.offset_lag < 3000
    with sparklog.open(path, "rw") as log, Endpoint(log) as endpoint, Wire(endpoint) as wire:
        again = Served(log, dirs, wire)
        again.limit(None)
        assert again.wait() == dirs[1]
        assert log.read("t").read_all().num_rows == 3000


@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_a_bucket_is_one_place(tmp_path: Path, scheme: str) -> None:
    path = f"memory://{uuid.uuid4().hex}/log" if scheme == "memory" else f"file://{tmp_path}/log"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
        with Endpoint(log) as endpoint, Wire(endpoint) as wire:
            served = Served(log, [], wire)
            assert served.move(log.path) == [NONE]
            assert served.move(log.path, "t", 9) == [ErrorCode.unknown_topic_or_partition]
            assert served.move(log.path, "u") == [ErrorCode.unknown_topic_or_partition]
            assert served.move("/disk") == [ErrorCode.log_dir_not_found]
            assert list(served.replicas()) == [log.path]
            assert served.limit("100") != NONE
            assert served.limit(None) == NONE


def test_a_log_that_is_open_for_reading(served: Served) -> None:
    with sparklog.open(",".join(served.dirs)) as log:  # noqa: SIM117
        with Endpoint(log) as endpoint, Wire(endpoint) as wire:
            reader: Any = Served(log, served.dirs, wire)
            assert reader.move(served.dirs[1]) == [ErrorCode.cluster_authorization_failed]
            assert reader.limit("1") == ErrorCode.cluster_authorization_failed
