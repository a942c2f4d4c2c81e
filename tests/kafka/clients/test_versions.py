"""Which versions of the APIs each client asks us for: what is served is what they want."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

from tests.kafka.clients.client import Client, Record
from tests.kafka.clients.servers import Ours

pytestmark = pytest.mark.kafka

APIS: Final = ("PRODUCE", "FETCH", "LIST_OFFSETS", "JOIN_GROUP", "OFFSET_COMMIT")
PINNED: Final = {  # go.mod, package-lock.json, pom.xml say which release
    "franz-go": (13, 18, 10, 9, 10), "kafka-go": (8, 10, 5, 2, 2), "sarama": (10, 12, 6, 8, 8),
    "kafkajs": (7, 11, 3, 5, 5), "platformatic": (11, 17, 9, 9, 9), "java": (13, 18, 10, 9, 9),
    "console": (13, 18, 10, 9, 9),
}  # fmt: skip
AT_LEAST: Final = {
    "confluent-kafka": (10, 16, 7, 5, 9), "kafka-python": (9, 12, 10, 7, 8),
    "aiokafka": (7, 11, 3, 5, 3), "kcat": (7, 11, 2, 5, 7),
}  # fmt: skip
TIMESTAMP: Final = 1_750_000_000_000


def test_versions(client: Client, endpoint_of_ours: Ours) -> None:
    server, topic = endpoint_of_ours.bootstrap, endpoint_of_ours.topic()
    given = tuple(Record(key=b"k", value=b"v%d" % n, timestamp=TIMESTAMP + n) for n in range(5))
    before = endpoint_of_ours.asked()
    client.do("produce", server, topic, records=given, idempotent=client.idempotent)
    assert len(client.do("consume", server, topic, start=0, count=5)) == 5
    assert len(client.do("group", server, topic, count=5)) == 5
    client.do("time", server, topic, timestamp=TIMESTAMP + 3)
    used = _newest(endpoint_of_ours.asked() - before)
    if client.name in PINNED:
        assert used == PINNED[client.name]
    else:
        assert all(mine >= old for mine, old in zip(used, AT_LEAST[client.name], strict=True)), used


def _newest(asked: Counter[tuple[str, int]]) -> tuple[int, ...]:
    return tuple(max((v for name, v in asked if name == api), default=-1) for api in APIS)
