"""Each client reads partitions record by record: those of a broker, and our own."""

from __future__ import annotations

import threading

import pytest

from tests.depth import by_depth
from tests.kafka.clients import golden
from tests.kafka.clients.client import CODECS, Client, Record
from tests.kafka.clients.servers import Ours, Server
from tests.oracle.rows import Row, make, table

pytestmark = pytest.mark.kafka

ALL = tuple(golden.partitions())
# A codec that all know, one batch at a time; transactions; what compaction left; a cut start.
FEW = ("plain.gzip-0", "txn-0", "txn-0-committed", "compacted-0", "trimmed-0")
TIMES = by_depth(small=("txn-0",), ci=("txn-0", "plain.lz4-1"), all=ALL)
EVERY_TIME = by_depth(small=40, ci=15, all=1)


def _readable(client: Client, names: tuple[str, ...]) -> list[golden.Golden]:
    found = [golden.partitions()[name] for name in names]
    return [
        one for one in found
        if one.codecs <= set(client.reads) and client.knows(one.topic, one.committed)
    ]  # fmt: skip


def test_what_a_broker_wrote(client: Client, golden_server: Server) -> None:
    """All of each partition: the start that was cut, gaps, aborted transactions, every codec."""
    for one in _readable(client, by_depth(small=FEW, ci=ALL, all=ALL)):
        got = client.consume(
            golden_server.bootstrap, one.topic, one.partition,
            start=one.start, count=len(one.rows), committed=one.committed,
        )  # fmt: skip
        assert golden.digests(got) == golden.expected(one, client), str(one)


def test_from_within_a_batch(quick_client: Client, golden_server: Server) -> None:
    """A batch comes whole: the client leaves out what lies before the offset that it asked for."""
    one = golden.partitions()["plain.gzip-1"]
    for start in (1, 777, one.end - 1):
        got = quick_client.consume(
            golden_server.bootstrap, one.topic, one.partition, start=start, count=one.end - start
        )
        assert golden.digests(got) == golden.expected(one, quick_client)[start:]


def test_by_time(quick_client: Client, golden_server: Server) -> None:
    for name in TIMES:
        one = golden.partitions()[name]
        if one.committed or one.topic == "compacted":
            continue
        for time, offset in one.times[::EVERY_TIME]:
            (found,) = quick_client.do(
                "time", golden_server.bootstrap, one.topic, partition=one.partition, timestamp=time
            )
            assert found.offset in _at_the_end(one, offset), (name, time)


def _at_the_end(one: golden.Golden, offset: int) -> set[int]:
    """Where no record is as young some clients say -1, some the end."""
    return {offset} if offset >= 0 else {-1, one.end}


@pytest.fixture(scope="module")
def rows(endpoint_of_ours: Ours) -> dict[str, list[Row]]:
    """A topic a codec in our own log, in several commits and segments."""
    made = {}
    for codec in CODECS:
        topic = f"ours.{codec}"
        named = {"none": "uncompressed"}.get(codec, codec)
        config = {"compression.type": named, "internal.segment.bytes": 60_000}
        endpoint_of_ours.log.create_topic(topic, 2, config)
        made[topic] = make(1700)
        for at in range(0, 1700, 400):
            endpoint_of_ours.log.append(topic, table(made[topic][at : at + 400]), partition=1)
    return made


def test_what_we_wrote(
    quick_client: Client, endpoint_of_ours: Ours, rows: dict[str, list[Row]]
) -> None:
    client, server = quick_client, endpoint_of_ours.bootstrap
    for codec in by_depth(small=client.reads[-1:], ci=client.reads, all=client.reads):
        topic = f"ours.{codec}"
        got = client.consume(server, topic, 1, start=0, count=len(rows[topic]))
        assert got == [
            client.shown(
                Record(partition=1, offset=at, timestamp=ms, key=key, value=value,
                       headers=tuple(headers))
            )
            for at, (key, value, headers, ms) in enumerate(rows[topic])
        ]  # fmt: skip


def test_what_comes_while_it_waits(quick_client: Client, endpoint_of_ours: Ours) -> None:
    """A fetch that is parked at the end is answered by the next commit."""
    log, topic = endpoint_of_ours.log, endpoint_of_ours.topic()
    written = make(40)
    log.append(topic, table(written[:20]))
    later = threading.Timer(1.5, lambda: log.append(topic, table(written[20:])))
    later.start()
    try:
        got = quick_client.consume(endpoint_of_ours.bootstrap, topic, start=0, count=40)
    finally:
        later.join()
    if quick_client.name == "kcat":  # ends at the end, whoever writes
        assert len(got) in {20, 40}
    assert [record.value for record in got] == [row[1] for row in written[: len(got)]]
    assert len(got) == 40 or quick_client.name == "kcat"
