"""The same requests to the endpoint and to a real broker: the same answers.

Left out: a partition without records (null), which a broker never answers, and what it answers by
UNKNOWN_SERVER_ERROR.
"""

import random
import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparklog import Log
from sparklog.format.compression import Codec, compress
from sparklog.kafka import Endpoint
from sparklog.kafka.messages import Api, ErrorCode
from tests.kafka.broker import Broker
from tests.kafka.test_producing import NOW, Wire, batch, parts_of, send
from tests.log.test_client_batches import changed

pytestmark = pytest.mark.kafka
DAY_MS = 86_400_000
CONFIGS = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "small": {"max.message.bytes": "300"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "recent": {"message.timestamp.before.max.ms": str(DAY_MS)},
    "zipped": {"compression.type": "gzip", "max.message.bytes": "300"},
}


@pytest.fixture
def both(broker: Broker, sparklog_log: Log) -> Iterator[tuple[Wire, Wire]]:
    """(wire to the endpoint, wire to the broker), with the same new topics."""
    for name, config in CONFIGS.items():
        sparklog_log.create_topic(name, config={"retention.ms": "-1", **config})
        if name not in broker.admin().list_topics(timeout=240).topics:
            broker.create_topic(name, **{k.replace(".", "_"): v for k, v in config.items()})
    port = int(broker.bootstrap.rpartition(":")[2])
    real = cast(Endpoint, SimpleNamespace(host="localhost", port=port))
    with Endpoint(sparklog_log) as endpoint, Wire(endpoint) as ours, Wire(real) as theirs:
        yield ours, theirs


def told(part: Any, base: int) -> tuple[Any, ...]:
    """What a client goes by; offsets from where the topic ended before."""
    indexes = [each.batch_index for each in getattr(part, "record_errors", [])]
    offset = part.base_offset - base if part.base_offset >= 0 else -1
    return ErrorCode(part.error_code).name, offset, indexes


def answers(wire: Wire, topic: str, requests: Sequence[bytes | None], version: int) -> list[Any]:
    latest = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    found = wire.ask(Api.LIST_OFFSETS, 7, replica_id=-1, topics=latest)
    base = found.topics[0].partitions[0].offset
    heard = []
    for records in requests:
        send(wire, {0: records}, topic=topic, version=version)
        (part,) = parts_of(wire.receive())
        heard.append(told(part, base))
    return heard


def of(sequence: int, count: int = 1, *, producer: int = 5, epoch: int = 0) -> bytes:
    return batch(*["v"] * count, producer=(producer, epoch, sequence))


KEYLESS = batch("a", "b", "c", keys=[None, "k", None])
OLD = batch("a", at=NOW - 2 * DAY_MS)
FLIPPED = batch("a")[:-1] + b"!"
REQUESTS = [
    ("plain", [of(0, 2), of(2, 3), of(0, 2), of(2, 3), of(7), of(5), of(6), of(7), of(0, 2)]),
    ("plain", [of(n, producer=6) for n in (*range(8), *range(8))]),
    ("plain", [of(40, producer=7), of(41, producer=7), of(39, producer=7), of(40, producer=7)]),
    ("plain", [of(0, epoch=e, producer=8) for e in (3, 2, 4, 4, 3)]),
    ("plain", [of(3, epoch=e, producer=9) for e in (0, 1)]),
    ("plain", [of(2**31 - 2, 2, producer=10), of(0, producer=10), of(2**31 - 2, 2, producer=10)]),
    ("plain", [of(0, 2, producer=11), of(0, 1, producer=11), of(1, 1, producer=11)]),
    ("plain", [batch("a"), batch("b"), batch("c" * 99, codec=Codec.ZSTD)]),
    ("plain", [b"", batch("a") + batch("b")]),
    ("plain", [batch("a")[:-3]]),
    ("plain", [FLIPPED, changed(batch("a"), base_offset=3), changed(batch("a"), attributes=0x20)]),
    ("plain", [changed(batch("a"), count=2), changed(batch("a"), count=0, last_offset_delta=-1)]),
    ("plain", [changed(batch("a"), last_offset_delta=4)]),
    ("plain", [changed(batch("a", "b"), count=1, last_offset_delta=0)]),
    ("plain", [changed(batch("a"), count=2, last_offset_delta=1)]),
    ("plain", [changed(batch("a"), producer_id=4), changed(batch("a"), max_timestamp=1)]),
    ("plain", [batch("a", at=NOW + 10 * DAY_MS), batch("a", at=-1), batch("a", at=0)]),
    ("compacted", [KEYLESS, batch("a", keys=["k"]), batch("b", keys=[None])]),
    ("compacted", [batch("a", "b", keys=[None, "k"], codec=Codec.LZ4)]),
    ("small", [batch("a" * 300), batch("a" * 200), batch("a" * 3000, codec=Codec.GZIP)]),
    ("stamped", [batch("a", at=5), of(0), of(0)]),
    ("recent", [OLD, batch("a"), batch("b", at=NOW - 2 * DAY_MS, codec=Codec.SNAPPY)]),
    ("zipped", [batch("a" * 200, codec=c) for c in Codec]),
    ("zipped", [of(0, 40), of(40, 40), of(0, 40)]),
]


@pytest.mark.parametrize(
    "number",
    [pytest.param(n, marks=pytest.mark.deep if n % 2 else ()) for n in range(len(REQUESTS))],
)
def test_the_endpoint_answers_as_a_broker(both: tuple[Wire, Wire], number: int) -> None:
    topic, requests = REQUESTS[number]
    run = RANDOM.randrange(1 << 30)
    fresh = [_renamed(each, number, run) for each in requests]
    ours, theirs = (answers(wire, topic, fresh, 12) for wire in both)
    assert ours == theirs


RANDOM = random.Random(time.time_ns())


def _renamed(data: bytes | None, number: int, run: int) -> bytes | None:
    """The batch of another producer: the broker lives through many tests, and may see one again."""
    if not data or len(data) < 61 or data[43:51] == b"\xff" * 8:
        return data
    own = int.from_bytes(data[43:51], "big")
    return changed(data, producer_id=own + 1000 * number + (run << 20))


def test_random_sequences_are_judged_as_by_a_broker(both: tuple[Wire, Wire]) -> None:
    run = RANDOM.randrange(1 << 30)  # producers that the broker hasn't met
    rng = random.Random(13)
    next_one: dict[int, int] = {}
    sent: list[bytes] = []
    for _ in range(120):
        producer = run + 7 + rng.randrange(3)
        if sent and rng.random() < 0.3:
            sent.append(rng.choice(sent[-12:]))
            continue
        count, epoch = rng.randrange(1, 4), rng.choice([0, 0, 0, 0, 0, 0, 0, 0, 1, 2])
        first = next_one.get(producer, 0) + rng.choice([0, 0, 0, 0, 0, 0, 1, -1])
        sent.append(of(max(first, 0), count, producer=producer, epoch=epoch))
        next_one[producer] = max(first, 0) + count
    ours, theirs = (answers(wire, "plain", sent, 12) for wire in both)
    assert ours == theirs
    assert {code for code, *_ in ours} >= {"none", "out_of_order_sequence_number"}


def test_what_is_no_gzip_is_refused_once_and_for_all(both: tuple[Wire, Wire]) -> None:
    """A broker says UNKNOWN_SERVER_ERROR, which no client can make anything of."""
    cut = changed(batch("a"), records=compress(Codec.GZIP, batch("a")[61:])[:-9], attributes=1)
    (ours,) = answers(both[0], "plain", [cut], 12)
    assert ours[0] == "invalid_record"
