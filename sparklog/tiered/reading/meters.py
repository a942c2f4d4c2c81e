"""Counts of this process's reads from a store."""

import contextlib
from collections.abc import Iterator
from typing import Final

from sparklog.metrics import Kind, Meters, Metric


def topic_counter(name: str, text: str) -> Metric:
    """Return a counter per topic, named as the meter of Kafka's BrokerTopicMetrics."""
    return Metric(
        f"kafka_server_brokertopicmetrics_{name.lower()}_total",
        Kind.COUNTER,
        text,
        ("topic",),
        kafka=f"kafka.server:type=BrokerTopicMetrics,name={name}PerSec",
    )


FETCH_BYTES: Final = topic_counter(
    "RemoteFetchBytes", "Bytes that this process got from the store."
)
FETCH_REQUESTS: Final = topic_counter(
    "RemoteFetchRequests", "Gets that this process sent the store."
)
FETCH_ERRORS: Final = topic_counter("RemoteFetchErrors", "Gets of this process that failed.")
METRICS: Final = (FETCH_BYTES, FETCH_REQUESTS, FETCH_ERRORS)


class Fetched:
    """The size of a successful GET."""

    def __init__(self) -> None:
        self.size = 0


@contextlib.contextmanager
def fetching(counts: Meters, topic: str) -> Iterator[Fetched]:
    """Count a GET; the block sets `size`."""
    counts.counter(FETCH_REQUESTS).add(1, topic)
    got = Fetched()
    try:
        yield got
    except Exception:
        counts.counter(FETCH_ERRORS).add(1, topic)
        raise
    counts.counter(FETCH_BYTES).add(got.size, topic)
