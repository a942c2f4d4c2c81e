"""Its tests: real Kafka clients, no broker, no Docker, no Java, nothing to set up.

    $ pip install 'sparklog[endpoint]' pytest confluent-kafka
    $ pytest examples/tests_without_kafka

`sparklog_kafka` is a bootstrap server as text; what clients see is the log that `sparklog_log` is.
"""

import json

import alerts
import pyarrow as pa
import pytest
from confluent_kafka import Producer

import sparklog

pytestmark = pytest.mark.sparklog(topics={"flights": 2, "alerts": 1})


def fly(log: sparklog.Log, **delays: int) -> None:
    values = [json.dumps({"delay": delay}) for delay in delays.values()]
    log.append("flights", pa.table({"key": list(delays), "value": values}))


def raised(log: sparklog.Log) -> list[tuple[str, str]]:
    rows = log.read("alerts").read_all()
    return sorted(
        (key.decode(), value.decode())
        for key, value in zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)
    )


def test_only_late_flights_raise_an_alert(sparklog_kafka: str, sparklog_log: sparklog.Log) -> None:
    fly(sparklog_log, UA1=5, UA2=60, UA3=59, UA4=200)
    assert alerts.run(sparklog_kafka) == 2
    assert raised(sparklog_log) == [("UA2", "late by 60 min"), ("UA4", "late by 200 min")]


def test_a_restart_goes_on(sparklog_kafka: str, sparklog_log: sparklog.Log) -> None:
    for delays in ({"UA1": 90}, {"UA2": 70, "UA3": 0}):
        fly(sparklog_log, **delays)
        assert alerts.run(sparklog_kafka) == 1
    assert raised(sparklog_log) == [("UA1", "late by 90 min"), ("UA2", "late by 70 min")]
    (lag,) = {row["lag"] for row in sparklog_log.readers().to_pylist()}
    assert lag == 0  # the log knows the group, too


def test_flights_from_any_producer(sparklog_kafka: str, sparklog_log: sparklog.Log) -> None:
    producer = Producer({"bootstrap.servers": sparklog_kafka})
    producer.produce("flights", '{"delay": 61}', "UA7")
    producer.flush()
    assert alerts.run(sparklog_kafka) == 1
