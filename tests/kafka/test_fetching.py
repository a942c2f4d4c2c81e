"""Fetch, word by word: what comes, how much of it, when, and what is said where nothing can."""

import gzip
import hashlib
import json
import logging
import shutil
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

import sparklog
from sparklog import Log
from sparklog.format.names import log_name
from sparklog.format.records import Decoder
from sparklog.format.scan import scan
from sparklog.kafka import Endpoint
from sparklog.kafka.fetching import Fetching
from sparklog.kafka.messages import Api, ErrorCode, uuid_of
from sparklog.log import read_retry
from tests import paths
from tests.kafka.wire import Wire
from tests.logdir.partitions import flip
from tests.waiting import until

GOLDEN = paths.GOLDEN / "kafka-4.1"
LONG_MS = 600_000  # longer than a `Wire` waits for its answer: what comes came before
MIB = 1 << 20


@pytest.fixture(params=["directory", "file", "memory"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    """Each home: topic t with offsets [0, 300) in six commits, topic u with two partitions."""
    path = {
        "directory": str(tmp_path / "log"),
        "file": f"file://{tmp_path}/bucket/log",
        "memory": f"memory://{uuid.uuid4().hex}/log",
    }[request.param]
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", config={"max.message.bytes": 2000})
        log.create_topic("u", 2)
        for n in range(6):
            log.append("t", values(50, f"{n}"))
        yield log


IN_LOG_DIR = pytest.mark.parametrize("log", ["directory"], indirect=True)


def values(count: int, name: str = "v", size: int = 60) -> pa.Table:
    return pa.table({"value": [f"{name}-{i:0{size}}" for i in range(count)]})


def asked(
    log: Log, version: int, *partitions: tuple[str, int, int], bytes_max: int = MIB, **given: Any
) -> dict[str, Any]:
    """The body of a fetch of (topic, partition, offset), by id where the version does that."""

    def named(topic: str) -> dict[str, Any]:
        return {"topic_id": uuid_of(log.topic(topic).id)} if version >= 13 else {"topic": topic}

    epoch = {k: given.pop(k) for k in ("current_leader_epoch", "last_fetched_epoch") if k in given}
    topics = [
        named(topic)
        | {
            "partitions": [
                {"partition": p, "fetch_offset": at, "partition_max_bytes": bytes_max} | epoch
            ]
        }
        for topic, p, at in partitions
    ]
    return {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": MIB,
        "topics": topics,
    } | given


def fetch(
    wire: Wire, log: Log, *partitions: tuple[str, int, int], version: int = 12, **given: Any
) -> list[Any]:
    """What comes of each partition."""
    return found(wire.ask(Api.FETCH, version, **asked(log, version, *partitions, **given)))


def found(answer: Any) -> list[Any]:
    assert answer.get("error_code", 0) == 0
    assert answer.get("session_id", 0) == 0
    return [one for topic in answer["responses"] for one in topic["partitions"]]


def offsets(one: Any) -> list[int]:
    """The offsets of the records; nothing but whole batches with good CRCs may come."""
    data = bytes(one["records"] or b"")
    batches = scan(data, path="answer")
    assert batches.error is None and batches.end == len(data)
    decoder = Decoder(["offset"])
    decoder.add_many(data, batches.table, path="answer")
    found: list[int] = decoder.finish().column("offset").to_pylist()
    return found


def response_memory_of(endpoint: Endpoint) -> Any:
    handler: Any = endpoint._server.served[Api.FETCH].handle
    return handler.__self__.response_memory


class TestWhatComes:
    @pytest.mark.parametrize("version", range(4, 19))
    def test_every_version(self, wire: Wire, log: Log, version: int) -> None:
        (one,) = fetch(wire, log, ("t", 0, 0), version=version)
        assert offsets(one) == list(range(300))
        assert one["high_watermark"] == 300
        assert one["error_code"] == 0
        (one,) = fetch(wire, log, ("t", 0, 120), version=version)
        assert 120 in offsets(one) and offsets(one)[-1] == 299

    def test_order_and_least(self, wire: Wire, log: Log) -> None:
        """One whole batch a request, whatever the limits; in the order of the request."""
        log.append("u", values(40, size=100), partition=0)
        log.append("u", values(40, size=100), partition=1)
        for order in ([0, 1], [1, 0]):
            both = [("u", p, 0) for p in order]
            first, second = fetch(wire, log, *both, bytes_max=1)
            assert first["partition_index"] == order[0]
            assert offsets(first) == list(range(40))
            assert (offsets(second), second["high_watermark"]) == ([], 40)
            first, second = fetch(wire, log, *both, max_bytes=1)
            assert (len(offsets(first)), len(offsets(second))) == (40, 0)
        first, second = fetch(wire, log, ("u", 0, 40), ("u", 1, 0), bytes_max=1)
        assert (len(offsets(first)), len(offsets(second))) == (0, 40)  # not one a partition

    def test_limits(self, wire: Wire, log: Log) -> None:
        (one,) = fetch(wire, log, ("t", 0, 0), bytes_max=5000)
        assert 0 < len(one["records"]) <= 5000
        at, seen = 0, []
        while at < 300:
            (one,) = fetch(wire, log, ("t", 0, at), max_bytes=5000)
            seen += [o for o in offsets(one) if o >= at]
            at = seen[-1] + 1
        assert seen == list(range(300))

    def test_a_log_start_within_a_batch(self, wire: Wire, log: Log) -> None:
        log.delete_records("t", {0: 7})
        until(lambda: fetch(wire, log, ("t", 0, 7))[0]["log_start_offset"] == 7)
        assert 7 in offsets(fetch(wire, log, ("t", 0, 7))[0])
        (one,) = fetch(wire, log, ("t", 0, 6))
        assert one["error_code"] == ErrorCode.offset_out_of_range


class TestWaiting:
    def test_news_come_at_once(self, wire: Wire, log: Log) -> None:
        for n in range(5):  # the first one is looked at, those behind it are known
            wire.send(Api.FETCH, 12, **asked(log, 12, ("u", 0, n), max_wait=LONG_MS))
            time.sleep(0.05)
            log.append("u", values(1), partition=0)
            (one,) = found(wire.receive())
            assert offsets(one) == [n]

    def test_the_same_question_again_and_again(self, wire: Wire, log: Log) -> None:
        body = asked(log, 12, ("u", 0, 0), ("u", 1, 0), max_wait=40)
        for _ in range(5):
            began = time.monotonic()
            assert [offsets(one) for one in found(wire.ask(Api.FETCH, 12, **body))] == [[], []]
            assert time.monotonic() - began > 0.03
        log.append("u", values(2), partition=1)
        until(lambda: offsets(found(wire.ask(Api.FETCH, 12, **body))[1]) == [0, 1])
        assert [one["high_watermark"] for one in found(wire.ask(Api.FETCH, 12, **body))] == [0, 2]

    def test_a_client_that_does_not_wait(self, wire: Wire, log: Log) -> None:
        for given in ({"max_wait": 0}, {"max_wait": LONG_MS, "min_bytes": 0}):
            for _ in range(3):
                assert offsets(fetch(wire, log, ("u", 0, 0), **given)[0]) == []

    def test_until_there_is_enough(self, wire: Wire, log: Log) -> None:
        """What comes bit by bit is gathered; what is there at the end of the time comes then."""
        body = asked(log, 12, ("u", 0, 0), max_wait=LONG_MS, min_bytes=3000)
        wire.send(Api.FETCH, 12, **body)
        for _ in range(4):
            time.sleep(0.05)
            log.append("u", values(10, size=90), partition=0)
        (one,) = found(wire.receive())
        assert offsets(one) == list(range(len(offsets(one))))
        assert len(one["records"]) >= 3000
        given: Any = {"max_wait": 60, "min_bytes": MIB}
        until(lambda: offsets(fetch(wire, log, ("u", 0, 0), **given)[0]) == list(range(40)))

    def test_more_than_may_come_is_not_waited_for(self, wire: Wire, log: Log) -> None:
        fetch(wire, log, ("t", 0, 0), max_bytes=1000, min_bytes=MIB, max_wait=LONG_MS)

    def test_a_topic_that_is_deleted_meanwhile(self, wire: Wire, log: Log) -> None:
        for version, code in [
            (12, ErrorCode.unknown_topic_or_partition), (13, ErrorCode.unknown_topic_id),
        ]:  # fmt: skip
            name = f"v{version}"
            log.create_topic(name)
            wire.send(Api.FETCH, version, **asked(log, version, (name, 0, 0), max_wait=LONG_MS))
            time.sleep(0.1)
            log.delete_topic(name)
            answer = wire.receive()
            assert found(answer)[0]["error_code"] == code

    def test_a_topic_that_is_made_again_meanwhile(self, wire: Wire, log: Log) -> None:
        """Not one record of the new topic passes for one of the old."""
        log.append("u", values(3), partition=0)
        body = asked(log, 13, ("u", 0, 3), max_wait=LONG_MS)
        wire.send(Api.FETCH, 13, **body)
        time.sleep(0.1)
        log.delete_topic("u")
        log.create_topic("u", 2)
        log.append("u", values(3, "new"), partition=0)
        (one,) = found(wire.receive())
        assert one["error_code"] == ErrorCode.unknown_topic_id
        assert not one["records"]
        (one,) = fetch(wire, log, ("u", 0, 3), version=13, max_wait=LONG_MS)  # not yet looked at
        assert offsets(one) == [3, 4, 5]

    def test_many_wait_and_all_are_told(self, endpoint: Endpoint, log: Log) -> None:
        wires = [Wire(endpoint) for _ in range(50)]
        for wire in wires:
            wire.send(Api.FETCH, 12, **asked(log, 12, ("u", 0, 0), max_wait=LONG_MS))
        time.sleep(0.2)
        log.append("u", values(1), partition=0)
        assert [offsets(found(wire.receive())[0]) for wire in wires] == [[0]] * 50
        for wire in wires:
            wire.close()

    def test_who_goes_away_leaves_nothing(self, endpoint: Endpoint, log: Log) -> None:
        partitions = endpoint._server._partitions
        for _ in range(2):
            with Wire(endpoint) as wire:
                fetch(wire, log, ("u", 0, 0))
                wire.send(Api.FETCH, 12, **asked(log, 12, ("u", 0, 0), max_wait=LONG_MS))
                until(lambda: partitions._watches)
            until(lambda: not partitions._watches)


class TestRefusals:
    def test_offsets_out_of_range(self, wire: Wire, log: Log) -> None:
        for at in (301, 10**12, -1):
            (one,) = fetch(wire, log, ("t", 0, at), max_wait=LONG_MS)
            assert one["error_code"] == ErrorCode.offset_out_of_range
            assert (one["high_watermark"], one["records"] or b"") == (-1, b"")

    def test_an_end_that_only_the_client_knows_of(
        self, wire: Wire, log: Log, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Memory may be older than what another endpoint has told a client: it looks first."""
        fetch(wire, log, ("t", 0, 300))
        monkeypatch.setattr(endpoint._server._partitions, "update", lambda *_: None)
        log.append("t", values(5))
        (one,) = fetch(wire, log, ("t", 0, 303))
        assert one["error_code"] == 0
        assert 303 in offsets(one)

    def test_what_is_not_there(self, wire: Wire, log: Log) -> None:
        here, nowhere = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 9}, uuid.uuid4()
        for version, named, code in [
            (12, {"topic": "none"}, ErrorCode.unknown_topic_or_partition),
            (13, {"topic_id": nowhere}, ErrorCode.unknown_topic_id),
            (13, {"topic_id": None}, ErrorCode.unknown_topic_id),
            (12, {"topic": "__sparklog_commits"}, ErrorCode.unknown_topic_or_partition),
        ]:  # fmt: skip
            body = asked(log, version, ("t", 0, 0), max_wait=LONG_MS, min_bytes=MIB)
            body["topics"].append(named | {"partitions": [here]})
            good, bad = found(wire.ask(Api.FETCH, version, **body))
            assert (bad["error_code"], bad["high_watermark"]) == (code, -1)
            assert len(offsets(good)) == 300
        (one,) = fetch(wire, log, ("t", 7, 0))
        assert one["error_code"] == ErrorCode.unknown_topic_or_partition

    def test_sessions(self, wire: Wire, log: Log) -> None:
        for epoch in (0, -1):
            (one,) = fetch(wire, log, ("t", 0, 0), session_epoch=epoch)
            assert len(offsets(one)) == 300
        answer = wire.ask(
            Api.FETCH, 12, **asked(log, 12, ("t", 0, 0), session_id=5, session_epoch=3)
        )
        assert answer["error_code"] == ErrorCode.fetch_session_id_not_found
        assert (answer["session_id"], answer["responses"]) == (0, [])

    def test_leader_epochs(self, wire: Wire, log: Log) -> None:
        (one,) = fetch(wire, log, ("t", 0, 0), current_leader_epoch=0)
        assert len(offsets(one)) == 300
        for _ in range(2):
            (one,) = fetch(wire, log, ("t", 0, 300), current_leader_epoch=9, max_wait=LONG_MS)
            assert one["error_code"] == ErrorCode.unknown_leader_epoch

    def test_an_unknown_epoch_is_no_reason_to_wait(self, wire: Wire, log: Log) -> None:
        """The second time, when the end and its epoch are known: the client has to look anew."""
        for epoch, code in [(0, ErrorCode.none), (9, ErrorCode.unknown_leader_epoch)]:
            (one,) = fetch(wire, log, ("t", 0, 300), current_leader_epoch=epoch)
            assert one["error_code"] == code

    def test_other_brokers(self, wire: Wire, log: Log) -> None:
        (one,) = fetch(wire, log, ("t", 0, 0), replica_id=2)
        assert one["error_code"] == ErrorCode.not_leader_or_follower
        (one,) = fetch(wire, log, ("t", 0, 0), version=17, replica_state={"replica_id": 2})
        assert one["error_code"] == ErrorCode.not_leader_or_follower

    def test_nothing_is_asked_for(self, wire: Wire, log: Log) -> None:
        assert fetch(wire, log, max_wait=60) == []


@IN_LOG_DIR
class TestDamage:
    def test_it_is_told_behind_what_is_good_and_logged_once(
        self, wire: Wire, log: Log, caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.setattr(read_retry, "RETRY_MS", 20)
        (one,) = fetch(wire, log, ("t", 0, 0))
        row = scan(bytes(one["records"]), path="answer").table[5]
        path = Path(log.topic("t").dirs[0]) / log_name(0)
        flip(str(path), int(row["position"]) + 100)
        (one,) = fetch(wire, log, ("t", 0, 0))
        assert offsets(one)[-1] + 1 == row["base_offset"]
        with caplog.at_level(logging.ERROR, "sparklog.kafka"):
            for version in (5, 12, 12):
                (one,) = fetch(wire, log, ("t", 0, int(row["base_offset"])), version=version)
                assert one["error_code"] == ErrorCode.corrupt_message
        (line,) = [r.getMessage() for r in caplog.records if "can't be served" in r.getMessage()]
        assert str(path) in line and f"at byte {row['position']}" in line

    def test_a_partition_that_is_offline(self, wire: Wire, log: Log, tmp_path: Path) -> None:
        directory = Path(log.topic("t").dirs[0])
        directory.rename(tmp_path / "away")
        code = ErrorCode.kafka_storage_error
        until(lambda: fetch(wire, log, ("t", 0, 0))[0]["error_code"] == code)
        (old,) = fetch(wire, log, ("t", 0, 0), version=5)
        assert old["error_code"] == ErrorCode.not_leader_or_follower
        (tmp_path / "away").rename(directory)
        until(lambda: fetch(wire, log, ("t", 0, 0))[0]["error_code"] == 0)
        assert len(offsets(fetch(wire, log, ("t", 0, 0))[0])) == 300


def test_a_log_that_is_restored_to_an_earlier_state(tmp_path: Path) -> None:
    """A consumer is told by the leader epoch, or by its offset; never given other records."""
    path = tmp_path / "log"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
        log.append("t", values(10))
    shutil.copytree(path, tmp_path / "copy")
    with sparklog.open(path, "rw") as log:
        log.append("t", values(10, "lost"))
    with sparklog.open(path) as log, Endpoint(log) as endpoint, Wire(endpoint) as wire:
        (one,) = fetch(wire, log, ("t", 0, 10), current_leader_epoch=0)
        assert offsets(one) == list(range(10, 20))
        body = asked(log, 12, ("t", 0, 20), current_leader_epoch=0, max_wait=LONG_MS)
        wire.send(Api.FETCH, 12, **body)
        time.sleep(0.2)
        path.rename(tmp_path / "old")
        (tmp_path / "copy").rename(path)
        with sparklog.open(path, "rw") as writer:
            writer.append("t", values(15, "other"))
        (one,) = found(wire.receive())
        assert one["error_code"] != 0 and not one["records"]
        code = ErrorCode.fenced_leader_epoch
        until(
            lambda: fetch(wire, log, ("t", 0, 20), current_leader_epoch=0)[0]["error_code"] == code
        )


class TestGolden:
    """A broker's directory, opened to be read."""

    @pytest.fixture
    def log(self, tmp_path: Path) -> Iterator[Log]:
        shutil.copytree(GOLDEN / "logdir", tmp_path / "golden")
        with sparklog.open(tmp_path / "golden") as log:
            yield log

    def test_aborted_transactions(self, wire: Wire, log: Log) -> None:
        (one,) = fetch(wire, log, ("txn", 0, 0), isolation_level=1)
        assert one["last_stable_offset"] == one["high_watermark"]
        assert one["aborted_transactions"]
        for txn in one["aborted_transactions"]:
            assert txn["first_offset"] < one["high_watermark"]
        (one,) = fetch(wire, log, ("txn", 0, 0))
        assert one["aborted_transactions"] is None
        (one,) = fetch(wire, log, ("plain.lz4", 0, 0), isolation_level=1)
        assert one["aborted_transactions"] == []

    def test_histories_that_part(self, wire: Wire, log: Log) -> None:
        """plain.none-0 was written under leader epochs 0 and 1."""
        checkpoint = GOLDEN / "logdir/plain.none-0/leader-epoch-checkpoint"
        lines = checkpoint.read_text().split("\n")
        (first, _), (second, began) = (map(int, line.split()) for line in lines[2:4])
        at = began + 10
        (one,) = fetch(wire, log, ("plain.none", 0, at), last_fetched_epoch=second)
        assert at in offsets(one)
        (one,) = fetch(wire, log, ("plain.none", 0, at), last_fetched_epoch=first)
        assert one["diverging_epoch"] == {"epoch": first, "end_offset": began}
        assert not one["records"]
        (one,) = fetch(wire, log, ("plain.none", 0, at), last_fetched_epoch=second + 1)
        assert one["error_code"] == ErrorCode.offset_out_of_range
        (one,) = fetch(wire, log, ("plain.none", 0, at), current_leader_epoch=first)
        assert one["error_code"] == ErrorCode.fenced_leader_epoch


class TestMemory:
    """What answers hold is bounded, and what slow clients hold is no loss to others."""

    @pytest.fixture
    def log(self, tmp_path: Path) -> Iterator[Log]:
        with sparklog.open(tmp_path / "log", "rw") as log:
            log.create_topic("t")
            for _ in range(8):
                log.append("t", pa.table({"value": ["x" * 1000] * 4000}))
            yield log

    def test_slow_clients(self, log: Log) -> None:
        with Endpoint(log, options={"fetch.buffer.bytes": 8 * MIB}) as endpoint:
            memory = response_memory_of(endpoint)
            slow = [Wire(endpoint, receive_bytes=4096) for _ in range(30)]
            for wire in slow:
                body = asked(log, 12, ("t", 0, 0), bytes_max=16 * MIB, max_bytes=16 * MIB)
                wire.send(Api.FETCH, 12, **body)  # and never takes the answer
            until(lambda: memory.held_bytes > 6 * MIB)
            with Wire(endpoint) as good:
                at = 0
                while at < 32_000:
                    (one,) = fetch(good, log, ("t", 0, at), bytes_max=4 * MIB, max_bytes=4 * MIB)
                    at = offsets(one)[-1] + 1
                    assert memory.held_bytes <= 8 * MIB + 31 * (64 << 10)
            for wire in slow:
                wire.close()
            until(lambda: memory.held_bytes == 0)

    def test_it_is_let_go_of_when_it_is_sent(self, log: Log) -> None:
        with Endpoint(log) as endpoint, Wire(endpoint) as wire:
            memory = response_memory_of(endpoint)
            for _ in range(3):
                (one,) = fetch(wire, log, ("t", 0, 0), bytes_max=16 * MIB, max_bytes=16 * MIB)
                assert len(one["records"]) > 8 * MIB
                until(lambda: memory.held_bytes == 0)


def test_a_storm_of_commits(log: Log, endpoint: Endpoint) -> None:
    """Consumers that follow a writer see each record once, in order, however they are woken."""
    seen: list[list[int]] = []

    def follow() -> None:
        at, mine = 0, []
        with Wire(endpoint) as wire:
            while at < 60:
                (one,) = fetch(wire, log, ("u", 0, at), max_wait=500)
                assert one["error_code"] == 0
                mine += [o for o in offsets(one) if o >= at]
                at = mine[-1] + 1 if mine else 0
        seen.append(mine)

    threads = [threading.Thread(target=follow) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(60):
        log.append("u", values(1), partition=0)
    for thread in threads:
        thread.join(240)
    assert seen == [list(range(60))] * 4


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_librdkafka_reads_what_it_read_from_the_broker(isolation: str, tmp_path: Path) -> None:
    """Every partition that a real broker wrote, record by record, in one consumer."""
    shutil.copytree(GOLDEN / "logdir", tmp_path / "golden")
    wanted: dict[tuple[str, int], list[Any]] = {}
    for path in sorted((GOLDEN / "expected").glob("*.json.gz")):
        topic, _, number = path.name.removesuffix(".json.gz").rpartition("-")
        with gzip.open(path) as file:
            seen = json.load(file)
        wanted[topic, int(number)] = seen.get(isolation, seen["read_uncommitted"])["records"]
    assert len(wanted) >= 14
    with sparklog.open(tmp_path / "golden") as log, Endpoint(log) as endpoint:
        consumer = Consumer(
            {
                "bootstrap.servers": endpoint.bootstrap_servers, "group.id": "golden",
                "isolation.level": isolation, "enable.partition.eof": True,
                "enable.auto.commit": False, "check.crcs": True, "fetch.wait.max.ms": 50,
            }
        )  # fmt: skip
        consumer.assign([TopicPartition(t, p, OFFSET_BEGINNING) for t, p in wanted])
        got: dict[tuple[str, int], list[Any]] = {key: [] for key in wanted}
        ended: set[tuple[str, int]] = set()

        def all_ended() -> bool:
            for message in consumer.consume(1000, timeout=1):
                key = message.topic(), message.partition()
                if message.error() is None:
                    got[key].append(as_seen(message))
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    ended.add(key)
            return len(ended) == len(wanted)

        until(all_ended, "each partition's end", state=lambda: wanted.keys() - ended)
        consumer.close()
    assert {key: len(rows) for key, rows in got.items()} == {k: len(r) for k, r in wanted.items()}
    assert got == wanted


def as_seen(message: Any) -> list[Any]:
    """A record as tests/golden has it."""
    kind, time_ms = message.timestamp()
    key, value = message.key(), message.value()
    return [
        message.offset(), time_ms, {1: "CreateTime", 2: "LogAppendTime"}[kind],
        None if key is None else key.hex(),
        None if value is None else hashlib.md5(value).hexdigest(),
        None if value is None else len(value),
        [[k, None if v is None else v.hex()] for k, v in message.headers() or []],
    ]  # fmt: skip


def test_partitions_in_another_order_are_the_same_question(
    log: Log, endpoint: Endpoint, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka asks for its partitions in turns; while nothing comes that is not looked at.

    For a time: a busy machine may be slow enough for another look.
    """
    looks: list[int] = []
    fetch_whole = Fetching.read_or_wait

    def counted(self: Fetching, *given: Any) -> Any:
        looks.append(1)
        return fetch_whole(self, *given)

    monkeypatch.setattr(Fetching, "read_or_wait", counted)
    orders = [[("u", 0, 0), ("u", 1, 0)], [("u", 1, 0), ("u", 0, 0)]]

    def turns() -> int:
        looks.clear()
        with Wire(endpoint) as new:
            for turn in range(6):
                asked_for = asked(log, 12, *orders[turn % 2], max_wait=25)
                answer = found(new.ask(Api.FETCH, 12, **asked_for))
                assert [offsets(one) for one in answer] == [[], []]
            return len(looks)

    until(lambda: turns() == 1)
    wire.ask(Api.FETCH, 12, **asked(log, 12, *orders[0], max_wait=25))
    looks.clear()
    other = asked(log, 12, ("u", 1, 0), ("u", 0, 0), max_wait=25, max_bytes=77)
    wire.ask(Api.FETCH, 12, **other)
    assert looks  # another question
    log.append("u", values(2), partition=1)
    for order in orders:  # whoever was quiet before gets what has come
        answer = found(wire.ask(Api.FETCH, 12, **asked(log, 12, *order, max_wait=5000)))
        assert {one["partition_index"]: offsets(one) for one in answer} == {0: [], 1: [0, 1]}


@IN_LOG_DIR
def test_the_endpoints_own_limit_of_an_answer(log: Log) -> None:
    with Endpoint(log, options={"fetch.max.bytes": 5000}) as endpoint, Wire(endpoint) as wire:
        (one,) = fetch(wire, log, ("t", 0, 0))
    assert 0 < len(one["records"]) <= 5000


@IN_LOG_DIR
def test_a_partitions_limit_is_its_own(wire: Wire, log: Log) -> None:
    """What one partition leaves over is no other's."""
    log.append("u", values(1), partition=0)
    first, second = fetch(wire, log, ("t", 0, 0), ("u", 0, 0), bytes_max=5000)
    assert 0 < len(first["records"]) <= 5000
    assert offsets(second) == [0]


@IN_LOG_DIR
def test_a_waiting_fetch_is_woken_by_a_commit(wire: Wire, log: Log) -> None:
    """One that isn't woken has an empty answer when its time is over."""
    fetch(wire, log, ("u", 0, 0))
    wire.send(Api.FETCH, 12, **asked(log, 12, ("u", 0, 0), max_wait=5000))
    log.append("u", values(1), partition=0)
    (one,) = found(wire.receive())
    assert offsets(one) == [0]
