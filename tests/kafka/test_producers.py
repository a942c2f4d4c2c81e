"""Real producers: what they sent is in the log, record by record, in their order, once."""

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

import sparklog
from sparklog import Log
from sparklog.kafka import Endpoint
from sparklog.kafka.committer import Work

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(params=["directory", "memory"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    where = str(tmp_path / "log")
    if request.param == "memory":
        where = f"memory://{uuid.uuid4().hex}/log"
    with sparklog.open(where, "rw") as found:
        found.create_topic("t", 3)
        yield found


def records(log: Log, partition: int) -> list[dict[str, Any]]:
    return [row for rows in log.read("t", partitions=[partition]) for row in rows.to_pylist()]


def librdkafka(endpoint: Endpoint, **config: Any) -> confluent_kafka.Producer:
    keys = {name.replace("_", "."): value for name, value in config.items()}
    base = {"bootstrap.servers": endpoint.bootstrap_servers, "log_level": 0}
    return confluent_kafka.Producer({**base, **keys})


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [True, False])
def test_librdkafka(endpoint: Endpoint, log: Log, codec: str, idempotent: bool) -> None:
    producer = librdkafka(
        endpoint, enable_idempotence=idempotent, compression_type=codec, batch_num_messages=100,
        linger_ms=1, request_timeout_ms=240_000,  # without idempotence, a retry is there twice
    )  # fmt: skip
    told: dict[tuple[int, int], int] = {}

    def delivered(error: KafkaError | None, message: Any) -> None:
        assert error is None, error
        told[message.partition(), message.offset()] = int(message.value())

    now = int(time.time() * 1000)
    for n in range(3000):
        producer.produce(
            "t", str(n), f"k{n}", partition=n % 3, timestamp=now + n, headers={"h": str(n)},
            on_delivery=delivered,
        )  # fmt: skip
        producer.poll(0)
    assert producer.flush(240) == 0
    assert len(told) == 3000
    for partition in range(3):
        rows = records(log, partition)
        assert [int(row["value"]) for row in rows] == [*range(partition, 3000, 3)]
        assert [told[partition, row["offset"]] for row in rows] == [int(r["value"]) for r in rows]
        assert [row["key"].decode() for row in rows] == [f"k{int(row['value'])}" for row in rows]
        assert rows[-1]["timestamp"].timestamp() * 1000 == now + int(rows[-1]["value"])
        assert rows[5]["headers"] == [{"key": "h", "value": rows[5]["value"]}]


@pytest.mark.deep
def test_librdkafka_goes_on_after_its_answers_were_lost(
    endpoint: Endpoint, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections break after a commit, before its answer: all is sent again, nothing twice."""
    done, calls = Work.done, [0]

    def broken(work: Work, outcomes: Any) -> None:
        calls[0] += 1
        if calls[0] % 3 == 1:
            for connection in list(endpoint._server._connections):
                connection.close("a test")
        done(work, outcomes)

    monkeypatch.setattr(Work, "done", broken)
    producer = librdkafka(
        endpoint, enable_idempotence=True, linger_ms=0, batch_num_messages=20,
        reconnect_backoff_ms=10, reconnect_backoff_max_ms=20, retry_backoff_ms=10,
    )  # fmt: skip
    failed: list[Any] = []
    for n in range(400):
        producer.produce("t", str(n), partition=0, on_delivery=lambda e, m: failed.append(e))
        if n % 20 == 0:
            producer.poll(0.01)
    assert producer.flush(240) == 0
    assert set(failed) == {None}
    assert [int(row["value"]) for row in records(log, 0)] == [*range(400)]
    assert calls[0] > 3


def test_librdkafka_is_told_at_once_that_there_are_no_transactions(endpoint: Endpoint) -> None:
    producer = librdkafka(endpoint, transactional_id="mine")
    with pytest.raises(KafkaException) as caught:
        producer.init_transactions(240)  # its own timeout is another error
    assert caught.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert caught.value.args[0].fatal()
