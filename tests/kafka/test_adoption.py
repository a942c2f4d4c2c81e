"""A real broker takes over what sparklog wrote, and sparklog reads what a broker is writing."""

import pytest

import sparklog
from tests.oracle.rows import CODECS, Row, from_table, make, table
from tests.waiting import until

pytestmark = pytest.mark.kafka


def _as_rows(seen):
    return [(r.key, r.value, list(r.headers), r.timestamp) for r in seen]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A log dir with a topic a codec, two partitions and several segments each; and its rows."""
    path = tmp_path_factory.mktemp("log")
    rows: dict[tuple[str, int], list] = {}
    with sparklog.open(path, "rw") as log:
        for codec in CODECS:
            topic = f"t.{codec}"
            config = {"compression.type": codec, "internal.segment.bytes": 60_000}
            log.create_topic(topic, partitions=2, config={**config, "retention.ms": -1})
            for part in range(2):
                mine = make(1500 + 100 * part)
                rows[topic, part] = mine
                for at in range(0, len(mine), 400):
                    log.append(topic, table(mine[at : at + 400]), partition=part)
    return path, rows


@pytest.mark.deep
def test_a_broker_serves_what_sparklog_wrote(broker, written):
    path, rows = written
    for codec in CODECS:
        broker.create_topic(f"t.{codec}", partitions=2)
    broker.stop()
    for topic, part in rows:
        broker.adopt(path / f"{topic}-{part}")
    broker.start()
    for (topic, part), want in rows.items():
        assert broker.offsets(topic, part) == (0, len(want))
        seen = broker.consume(topic, part)
        assert [r.offset for r in seen] == list(range(len(want)))
        assert _as_rows(seen) == want
    # And it goes on writing where sparklog stopped.
    producer = broker.producer(acks="all")
    producer.produce("t.lz4", b"more", partition=0)
    assert producer.flush(240) == 0
    assert broker.consume("t.lz4", 0)[-1].offset == len(rows["t.lz4", 0])


@pytest.mark.deep
def test_a_broker_serves_it_after_a_kill_too(broker, written, tmp_path):
    """With the clean marker gone, the broker recovers the log by itself and loses nothing."""
    path, rows = written
    broker.create_topic("again", partitions=1)
    broker.stop()
    broker.adopt(path / "t.zstd-1", topic_partition="again-0")
    for marker in broker.log_dir.glob(".kafka_cleanshutdown"):
        marker.unlink()
    broker.start()
    assert _as_rows(broker.consume("again")) == rows["t.zstd", 1]


@pytest.mark.deep
@pytest.mark.parametrize("end", ["high-watermark", "log-end"])
def test_sparklog_reads_what_a_broker_is_writing(broker, end):
    """While librdkafka sends in the background, every read is a prefix of what was sent."""
    topic = f"live.{end}"
    broker.create_topic(topic, segment_bytes=1 << 20)
    producer = broker.producer(acks="all", compression_type="lz4", linger_ms=5)
    rows = make(20_000)
    got: list[Row] = []
    for sent in range(4000, 20_001, 4000):
        for key, value, headers, ms in rows[sent - 4000 : sent]:
            producer.produce(topic, value, key, timestamp=ms, headers=headers, partition=0)

        def all_came(sent: int = sent) -> bool:
            nonlocal got
            with sparklog.open(broker.log_dir, until=end) as log:
                now = from_table(log.read(topic).read_all())
            assert now == rows[: len(now)]
            assert len(got) <= len(now) <= sent
            got = now
            return len(got) == sent

        until(all_came, f"{sent} records", state=lambda: len(got))


@pytest.mark.deep
def test_sparklog_reads_a_brokers_transactions(broker):
    """read_committed leaves out what was aborted and what is still open."""
    broker.create_topic("txn")
    producer = broker.producer(transactional_id="t1", acks="all")
    producer.init_transactions(240)
    for text, commit in ((b"a", True), (b"b", False), (b"c", True)):
        producer.begin_transaction()
        producer.produce("txn", text, partition=0)
        producer.flush(240)
        (producer.commit_transaction if commit else producer.abort_transaction)(240)
    broker.stop()
    with sparklog.open(broker.log_dir) as log:
        everything = log.read("txn").read_all()
        committed = log.read("txn", isolation="read_committed").read_all()
    broker.start()
    assert everything["value"].to_pylist() == [b"a", b"b", b"c"]
    assert committed["value"].to_pylist() == [b"a", b"c"]
    assert committed["offset"].to_pylist() == [0, 4]
