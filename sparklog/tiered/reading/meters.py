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
    """Takes the size of the object that a request within `fetching` has returned."""

    def __init__(self) -> None:
        self.size = 0


@contextlib.contextmanager
def fetching(counts: Meters, topic: str) -> Iterator[Fetched]:
    """Return a context in which a GET is sent: counts the request, its size, or its error.

    The code in the context sets `size` of the yielded object.
    """
    counts.counter(FETCH_REQUESTS).add(1, topic)
    got = Fetched()
    try:
        yield got
    except Exception:
        counts.counter(FETCH_ERRORS).add(1, topic)
        raise
    counts.counter(FETCH_BYTES).add(got.size, topic)
