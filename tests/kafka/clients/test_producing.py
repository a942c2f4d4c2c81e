"""Each client writes; what it wrote is read back from the log, and by librdkafka."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.depth import by_depth
from tests.kafka.clients.client import Client, Record
from tests.kafka.clients.libraries import Confluent
from tests.kafka.clients.servers import Ours, Server
from tests.oracle.rows import from_table, make

pytestmark = pytest.mark.kafka

ROWS = 120


def _given() -> tuple[Record, ...]:
    """Records of two partitions with all that a record can hold; none is without key and value,
    which kafka-python refuses."""
    return tuple(
        Record(
            partition=n % 2, timestamp=ms, key=key, headers=tuple(headers),
            value=b"" if key is None and value is None else value,
        )
        for n, (key, value, headers, ms) in enumerate(make(ROWS))
    )  # fmt: skip


def _cases(client: Client) -> list[tuple[str, bool]]:
    """Codec, and whether idempotent."""
    codecs = by_depth(small=client.writes[-1:], ci=client.writes, all=client.writes)
    modes = (True, False) if client.idempotent else (False,)
    return [(codec, mode) for codec in codecs for mode in modes]


def test_what_it_wrote(client: Client, server: Server) -> None:
    for codec, idempotent in _cases(client):
        # The console producer chooses the partition itself.
        count = 1 if client.name == "console" else 2
        topic = server.topic(count)
        given = [replace(r, partition=r.partition % count) for r in _given()]
        told = client.do(
            "produce", server.bootstrap, topic,
            records=tuple(given), compression=codec, idempotent=idempotent,
        )  # fmt: skip
        for partition in range(count):
            mine = [client.sent(r) for r in given if r.partition == partition]
            want = [replace(r, offset=at) for at, r in enumerate(mine)]
            read = Confluent().consume(
                server.bootstrap, topic, partition, start=0, count=len(mine)
            )
            got = [r if w.timestamp else replace(r, timestamp=None)
                   for r, w in zip(read, want, strict=True)]  # fmt: skip
            assert got == want, (codec, idempotent)
            if client.tells_all_offsets and told:
                offsets = sorted(r.offset for r in told if r.partition == partition)
                assert offsets == list(range(len(mine)))
        if isinstance(server, Ours):
            _as_the_log_has_it(server, topic, client, given)


def _as_the_log_has_it(server: Ours, topic: str, client: Client, given: list[Record]) -> None:
    for partition in {r.partition for r in given}:
        want = [client.sent(r) for r in given if r.partition == partition]
        read = from_table(server.log.read(topic, partitions=[partition]).read_all())
        assert [(k, v) for k, v, _, _ in read] == [(r.key, r.value) for r in want]
        assert [tuple(h) for _, _, h, _ in read] == [r.headers for r in want]
