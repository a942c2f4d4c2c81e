"""The fixture itself: a broker adopts a log that Kafka's own code wrote, and survives kill -9."""

import pytest

pytestmark = pytest.mark.kafka


@pytest.mark.deep
def test_adopts_a_log_written_by_kafkas_own_code(broker, oracle, tmp_path):
    oracle.call(
        "fill", dir=tmp_path / "filled-0", records=1000, keys=10, value_bytes=32, codec="zstd"
    )
    broker.create_topic("filled")
    broker.stop()
    broker.adopt(tmp_path / "filled-0")
    broker.start()
    assert broker.offsets("filled") == (0, 1000)
    seen = broker.consume("filled")
    assert [r.offset for r in seen] == list(range(1000))
    assert seen[7].timestamp == 1_700_000_000_007


@pytest.mark.deep
def test_keeps_what_was_acknowledged_through_a_kill(broker):
    broker.create_topic("killed")
    producer = broker.producer(acks="all")
    producer.produce("killed", b"v", b"k", headers=[("h", b"1"), ("n", None)])
    assert producer.flush(240) == 0
    broker.kill()
    broker.start()
    (record,) = broker.consume("killed")
    assert (record.key, record.value) == (b"k", b"v")
    assert record.headers == (("h", b"1"), ("n", None))
