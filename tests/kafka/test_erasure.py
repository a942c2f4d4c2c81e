"""A real consumer reads around what was erased: holes in batches, empty batches, an empty end."""

import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

import sparklog
from sparklog.kafka import Endpoint
from sparklog.service import erase
from tests.waiting import until

ALICE = b"alice"


@pytest.mark.parametrize(
    ("home", "codec"),
    [pytest.param("directory", "uncompressed", marks=pytest.mark.deep), ("memory", "zstd")],
)
def test_a_consumer_reads_around(home: str, codec: str, tmp_path: Path) -> None:
    path = {"directory": str(tmp_path / "log"), "memory": f"memory://{uuid.uuid4().hex}/log"}[home]
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", config={"compression.type": codec, "internal.segment.bytes": 2000})
        for n in range(40):
            keys = [ALICE] * 2 if n % 8 == 7 else [b"bob", ALICE, b"carol"]
            log.append("t", pa.table({"key": keys, "value": [b"%d" % n] * len(keys)}))
        with Endpoint(log) as endpoint:
            early = Reader(endpoint.bootstrap_servers, 20)
            report = erase(path, "t", [ALICE])
            assert report.complete
            assert report.records == 45
            early.rest()
            second = Reader(endpoint.bootstrap_servers).rest()
            left = log.read("t", columns=["offset", "key"]).read_all()
            wanted = list(
                zip(*(left.column(n).to_pylist() for n in ("offset", "key")), strict=True)
            )
            assert second == wanted
            assert [row for row in early.consumed if row[1] != ALICE] == wanted


class Reader:
    """librdkafka from the beginning on; `consumed`: (offset, key) of at least `count` records."""

    def __init__(self, servers: str, count: int = 0) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers, "group.id": uuid.uuid4().hex, "check.crcs": True,
                "enable.partition.eof": True, "enable.auto.commit": False,
                "fetch.wait.max.ms": 10, "fetch.message.max.bytes": 3000,
            }
        )  # fmt: skip
        self._consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
        self._ended = False
        self.consumed: list[tuple[int, bytes]] = []
        self._consume(count)

    def _consume(self, count: int) -> None:
        def came() -> bool:
            return len(self.consumed) >= count or self._ended

        def polled() -> bool:
            for message in self._consumer.consume(10, timeout=1):
                if message.error() is None:
                    self.consumed.append((message.offset(), message.key()))
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    self._ended = True
            return came()

        if not came():
            until(polled, f"{count} records or the end", state=lambda: self.consumed)

    def rest(self) -> list[tuple[int, bytes]]:
        """Return what comes up to the end."""
        before = len(self.consumed)
        self._consume(1 << 30)
        assert self._ended
        self._consumer.close()
        return self.consumed[before:]
