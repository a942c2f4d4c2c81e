"""A live Kafka topic into a log and back: offsets, timestamps, gaps, resumption."""

import json
import runpy
import subprocess
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

import sparklog
from sparklog.cli.app import run
from sparklog.errors import InvalidRequestError, OffsetOutOfRangeError, UnknownTopicError
from sparklog.service import verify
from sparklog.tools.moving import import_kafka
from sparklog.tools.moving.export_kafka import export_kafka
from sparklog.tools.moving.export_log import export_log
from sparklog.tools.moving.exporting import TopicRange
from sparklog.tools.moving.import_kafka import KafkaSource, import_topic
from tests import jars
from tests.kafka.broker import Broker, Seen
from tests.paths import EXAMPLES
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
TIME = 1_600_000_000_000


def records(log: sparklog.Log, topic: str, p: int = 0) -> list[Seen]:
    """A partition of a log as a consumer would see it."""
    return [
        Seen(
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            row["key"],
            row["value"],
            tuple((h["key"], h["value"]) for h in row["headers"]),
        )
        for row in log.read(topic, [p]).read_all().to_pylist()
    ]


def fill(broker: Broker, topic: str, numbers: range, **config: object) -> None:
    producer = broker.producer(**config)
    for n in numbers:
        producer.produce(
            topic,
            value=None if n % 7 == 3 else b"value %d" % n,
            key=None if n % 5 == 2 else b"k%d" % (n % 10),
            partition=n % 2,
            timestamp=TIME + n * 10,
            headers=[("n", str(n).encode()), ("empty", None)] if n % 3 == 0 else None,
        )
    producer.flush(240)


def transact(broker: Broker, topic: str, name: str) -> None:
    """Three transactions to partition 0, the second one aborted."""
    producer = broker.producer(transactional_id=name, transaction_timeout_ms=600_000)
    producer.init_transactions(240)
    for n in range(3):
        producer.begin_transaction()
        for i in range(4):
            producer.produce(topic, value=b"%d %d" % (n, i), partition=0, timestamp=TIME + n)
        if n == 1:
            producer.flush(240)
            producer.abort_transaction(240)
        else:
            producer.commit_transaction(240)


def delete_records(broker: Broker, topic: str, before: int) -> None:
    where = confluent_kafka.TopicPartition(topic, 0, before)
    admin = broker.admin()  # its futures die with it
    admin.delete_records([where])[where].result(240)


@pytest.mark.deep
def test_import_keeps_everything(broker: Broker, tmp_path: Path, capsys: Any) -> None:
    broker.create_topic("plain", 2, **{"segment.bytes": 1 << 20})
    fill(broker, "plain", range(500))
    path = str(tmp_path / "log")
    command = ["import", path, "--topic", "copy", "--kafka-topic", "plain", "--json",
               "--bootstrap-server", broker.bootstrap, "--compression-type", "zstd"]  # fmt: skip
    assert run(command) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["records"], done["offsets"]) == (500, {"0": [0, 250], "1": [0, 250]})
    with sparklog.open(path) as log:
        for p in (0, 1):
            assert records(log, "copy", p) == broker.consume("plain", p)
        assert log.topic("copy").config.to_dict()["segment.bytes"] == str(1 << 20)
        assert log.topic("copy").config.to_dict()["retention.ms"] == "-1"
    assert run(command) == 0  # nothing comes twice
    assert json.loads(capsys.readouterr().out)["records"] == 0
    fill(broker, "plain", range(500, 530))
    with sparklog.open(path, "rw") as log:  # another copy doesn't confuse this one
        assert import_topic(log, "plain", KafkaSource(broker.bootstrap, "plain")).records == 530
    assert run(command) == 0
    assert json.loads(capsys.readouterr().out)["offsets"] == {"0": [250, 265], "1": [250, 265]}
    with sparklog.open(path) as log:
        for p in (0, 1):
            assert records(log, "copy", p) == broker.consume("plain", p)
    assert verify(path).ok


@pytest.mark.deep
def test_it_prints_what_kafkas_tool_prints(
    broker: Broker, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """kafka-console-consumer over the topic, sparklog consume over its copy: the same bytes."""
    broker.create_topic("shown", 2)
    fill(broker, "shown", range(60))
    with sparklog.open(tmp_path / "log", "rw") as log:
        import_topic(log, "shown", KafkaSource(broker.bootstrap, "shown"))
    shown = [f"print.{n}=true" for n in ("timestamp", "partition", "offset", "headers", "key")]
    options = [part for one in (*shown, "null.literal=NIL") for part in ("--property", one)]
    options += ["--topic", "shown", "--partition", "0"]
    assert run(["consume", str(tmp_path / "log"), *options]) == 0
    ours = capsysbinary.readouterr().out
    java = [jars.java(), "-cp", jars.kafka_jars(), "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
    tool = subprocess.run(
        [*java, "org.apache.kafka.tools.consumer.ConsoleConsumer", *options, "--offset", "earliest",
         "--bootstrap-server", broker.bootstrap, "--max-messages", "30"],
        capture_output=True, timeout=240,
    )  # fmt: skip
    assert ours.count(b"\n") == 30
    assert tool.stdout == ours


def test_an_import_that_breaks_off_goes_on(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("long", 2)
    fill(broker, "long", range(3000))
    monkeypatch.setattr(import_kafka, "COMMIT_BYTES", 1)
    monkeypatch.setattr(import_kafka, "POLL_RECORDS", 100)
    source = KafkaSource(broker.bootstrap, "long")
    calls: list[int] = []

    def fail(done: int, total: int) -> None:
        assert 0 <= done <= total
        calls.append(done)
        if len(calls) % 4 == 0:
            raise OSError("cut")

    for _ in range(100):
        with sparklog.open(tmp_path / "log", "rw") as log:
            try:
                done = import_topic(log, "long", source, progress=fail)
            except OSError:
                continue
            break
    assert not done.stopped
    with sparklog.open(tmp_path / "log", "rw") as log:
        for p in (0, 1):
            assert records(log, "long", p) == broker.consume("long", p)
        fill(broker, "long", range(3000, 3100))
        stopped = import_topic(log, "long", source, stopped=lambda: True)
        assert (stopped.stopped, stopped.records) == (True, 0)
    assert len(calls) > 8


@pytest.mark.deep
def test_gaps_of_transactions(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("txn")
    transact(broker, "txn", "a")
    fill_one = broker.producer()
    fill_one.produce("txn", value=b"last", partition=0, timestamp=TIME)
    fill_one.flush(240)
    with sparklog.open(tmp_path / "log", "rw") as log:
        done = import_topic(log, "txn", KafkaSource(broker.bootstrap, "txn"))
        seen = broker.consume("txn", isolation="read_committed")
        assert [s.offset for s in seen] == [0, 1, 2, 3, 10, 11, 12, 13, 15]
        assert (done.records, done.offsets) == (9, {0: (0, 16)})
        assert records(log, "txn") == seen
        transact(broker, "txn", "b")  # ends with a marker: the end is a gap, too
        import_topic(log, "txn", KafkaSource(broker.bootstrap, "txn"))
        assert records(log, "txn") == broker.consume("txn", isolation="read_committed")
        assert log.offsets("txn")[0] == broker.offsets("txn")
        assert import_topic(log, "txn", KafkaSource(broker.bootstrap, "txn")).offsets == {}
    assert verify(tmp_path / "log").ok


@pytest.mark.deep
def test_an_open_transaction_ends_the_copy(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("open")
    fill_one = broker.producer()
    fill_one.produce("open", value=b"before", partition=0)
    fill_one.flush(240)
    producer = broker.producer(transactional_id="open", transaction_timeout_ms=600_000)
    producer.init_transactions(240)
    producer.begin_transaction()
    producer.produce("open", value=b"undecided", partition=0)
    producer.flush(240)
    with sparklog.open(tmp_path / "log", "rw") as log:
        source = KafkaSource(broker.bootstrap, "open")
        assert import_topic(log, "open", source).offsets == {0: (0, 1)}
        producer.commit_transaction(240)
        assert import_topic(log, "open", source).offsets == {0: (1, 3)}
        assert [r.value for r in records(log, "open")] == [b"before", b"undecided"]


@pytest.mark.deep  # waits for the broker's cleaner
def test_a_compacted_topic_whose_start_was_raised(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic(
        "compacted", cleanup_policy="compact,delete", min_cleanable_dirty_ratio="0.01",
        segment_ms="100", max_compaction_lag_ms="200", min_compaction_lag_ms="0",
        delete_retention_ms="0",
    )  # fmt: skip
    for _ in range(4):
        producer = broker.producer()
        for n in range(200):
            producer.produce("compacted", value=b"x" * 50, key=b"%d" % (n % 20), partition=0)
        producer.flush(240)
        time.sleep(0.15)
    until(lambda: len(broker.consume("compacted")) <= 500, "the broker's cleaner", pause_s=0.5)
    delete_records(broker, "compacted", 100)
    with sparklog.open(tmp_path / "log", "rw") as log:
        import_topic(log, "compacted", KafkaSource(broker.bootstrap, "compacted"))
        low, high = broker.offsets("compacted")
        assert log.offsets("compacted")[0] == (low, high) == (100, 800)
        seen, held = broker.consume("compacted"), records(log, "compacted")
        assert 20 <= len(held) < 500
        kept = {s.offset for s in seen}  # the cleaner may have been at work meanwhile
        assert [r for r in held if r.offset in kept] == seen
        assert log.topic("compacted").config.compact
    assert verify(tmp_path / "log").ok


@pytest.mark.deep
def test_a_broker_loads_an_export_with_gaps(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("source")
    transact(broker, "source", "source")
    broker.create_topic("loaded")
    with sparklog.open(tmp_path / "log", "rw") as log:
        import_topic(log, "source", KafkaSource(broker.bootstrap, "source"), topic_config={})
        export_log(TopicRange(log, "source", start={0: 2}, end={0: 13}), tmp_path / "out")
        expected = [r for r in records(log, "source") if 2 <= r.offset < 13]
    broker.stop()
    broker.adopt(tmp_path / "out" / "source-0", topic_partition="loaded-0")
    broker.start()
    assert broker.consume("loaded") == expected
    assert broker.offsets("loaded")[1] == 13


@pytest.mark.deep
def test_export_to_kafka_once(broker: Broker, tmp_path: Path) -> None:
    headers = pa.array([[("h", b"1")], None, []] * 40, pa.list_(
        pa.struct([("key", pa.string()), ("value", pa.binary())])))  # fmt: skip
    rows = pa.table(
        {
            "key": [None, b"a", b"b"] * 40, "value": [b"x", None, b"z"] * 40, "headers": headers,
            "timestamp": pa.array(range(TIME, TIME + 120), pa.timestamp("ms", tz="UTC")),
        }
    )  # fmt: skip
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t", 2)
        for p in (0, 1):
            log.append("t", rows, partition=p)
        with pytest.raises(UnknownTopicError, match="--create"):
            export_kafka(TopicRange(log, "t"), broker.bootstrap, kafka_topic="back")
        done = export_kafka(TopicRange(log, "t"), broker.bootstrap, kafka_topic="back", create=True)
        assert done.offsets == {0: (0, 120), 1: (0, 120)}
        assert export_kafka(TopicRange(log, "t"), broker.bootstrap, kafka_topic="back").records == 0
        log.append("t", rows, partition=1)
        again = export_kafka(TopicRange(log, "t"), broker.bootstrap, kafka_topic="back")
        assert again.offsets == {1: (120, 240)}
        for p in (0, 1):
            seen = broker.consume("back", p, isolation="read_committed")
            assert list(map(_fields, seen)) == list(map(_fields, records(log, "t", p)))
        broker.create_topic("narrow")
        with pytest.raises(InvalidRequestError, match="2 are needed: add some, or export to ano"):
            export_kafka(TopicRange(log, "t"), broker.bootstrap, kafka_topic="narrow")
        admin = broker.admin()  # its futures die with it
        admin.create_partitions([NewPartitions("narrow", 2)])["narrow"].result(240)
        until(lambda: len(admin.list_topics("narrow", 240).topics["narrow"].partitions) == 2)
        done = export_kafka(TopicRange(log, "t"), broker.bootstrap, kafka_topic="narrow")
        assert done.records == 360
        with pytest.raises(UnknownTopicError, match="with 2 partitions, or use --create"):
            export_kafka(TopicRange(log, "t"), broker.bootstrap, kafka_topic="made")
        broker.create_topic("made", 2)
        done = export_kafka(TopicRange(log, "t"), broker.bootstrap, kafka_topic="made")
        assert done.records == 360


@pytest.mark.deep
def test_records_are_not_sent_back_to_where_they_came_from(
    broker: Broker, tmp_path: Path, capsys: Any
) -> None:
    """Import, then export with the same words: every record of the topic would be there twice."""
    broker.create_topic("origin")
    fill(broker, "origin", range(0, 20, 2))
    path = str(tmp_path / "log")
    with sparklog.open(path, "rw") as log:
        import_topic(log, "origin", KafkaSource(broker.bootstrap, "origin"))
        import_topic(log, "copy", KafkaSource(broker.bootstrap, "origin"))
    for topic in ("origin", "copy"):
        command = ["export", path, "--topic", topic, "--to-kafka", broker.bootstrap]
        assert run([*command, "--kafka-topic", "origin", "--create"]) == 2
        assert "was imported from" in " ".join(capsys.readouterr().err.split())
    assert broker.offsets("origin") == (0, 10)
    with sparklog.open(path) as log:
        origin = TopicRange(log, "origin")
        done = export_kafka(origin, broker.bootstrap, kafka_topic="elsewhere", create=True)
        assert done.records == 10
        admin = broker.admin()
        admin.delete_topics(["origin"])["origin"].result(240)
        until(lambda: not (broker.log_dir / "origin-0").is_dir())
        done = export_kafka(origin, broker.bootstrap, create=True)  # it was lost: a restore
        assert done.records == 10


def _fields(seen: Seen) -> tuple[Any, ...]:
    return seen.timestamp, seen.key, seen.value, seen.headers


def test_refusals(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("lossy")
    fill_one = broker.producer()
    for n in range(10):
        fill_one.produce("lossy", value=b"%d" % n, partition=0)
    fill_one.flush(240)
    with sparklog.open(tmp_path / "log", "rw") as log:
        with pytest.raises(UnknownTopicError, match="no-such"):
            import_topic(log, "no-such", KafkaSource(broker.bootstrap, "no-such"))
        with pytest.raises(InvalidRequestError, match="No such configuration property"):
            bad = KafkaSource(broker.bootstrap, "lossy", {"sasl.jaas": "x"})
            import_topic(log, "lossy", bad)
        log.create_topic("own")
        log.append("own", pa.table({"value": ["x"]}))
        with pytest.raises(InvalidRequestError, match="own-0 contains records that were"):
            import_topic(log, "own", KafkaSource(broker.bootstrap, "lossy"))
        import_topic(log, "lossy", KafkaSource(broker.bootstrap, "lossy"))
        for n in range(10, 20):
            fill_one.produce("lossy", value=b"%d" % n, partition=0)
        fill_one.flush(240)
        delete_records(broker, "lossy", 15)
        with pytest.raises(OffsetOutOfRangeError, match=r"\[10, 15\) were deleted"):
            import_topic(log, "lossy", KafkaSource(broker.bootstrap, "lossy"))
        import_topic(log, "lossy", KafkaSource(broker.bootstrap, "lossy"), fail_on_data_loss=False)
        assert [r.offset for r in records(log, "lossy")] == [*range(10), *range(15, 20)]
        log.append("lossy", pa.table({"value": ["mine"]}))  # ours: Kafka's offsets go elsewhere
        with pytest.raises(InvalidRequestError, match="lossy-0 contains records that were"):
            import_topic(log, "lossy", KafkaSource(broker.bootstrap, "lossy"))
    assert run(["import", str(tmp_path / "log"), "--topic", "x", "--bootstrap-server", "nohost:1",
                "--command-config", str(tmp_path / "none")]) == 2  # fmt: skip


@pytest.mark.deep
def test_the_example(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["kafka_and_back.py", broker.bootstrap])
    runpy.run_path(str(EXAMPLES / "kafka_and_back.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert "imported 200 records" in out
    assert "partition 0 ends at 153 and holds 100 records" in out
    assert "exported 200 records" in out
