"""Each client as a member of a group: what was committed is where the next one goes on."""

from __future__ import annotations

import pytest

from tests.kafka.clients.client import Client, Record
from tests.kafka.clients.servers import Ours, Server
from tests.oracle.rows import make, table

pytestmark = pytest.mark.kafka

HEADERS = (("h", b"1"),)


def _records(first: int, count: int, partitions: int) -> tuple[Record, ...]:
    return tuple(
        Record(partition=n % partitions, key=b"k%d" % n, value=b"v%d" % n, headers=HEADERS,
               timestamp=1_750_000_000_000 + n)
        for n in range(first, first + count)
    )  # fmt: skip


def _by_partition(records: list[Record]) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return sorted((r.partition, r.offset, r.key, r.value) for r in records)


def test_it_goes_on_where_it_stopped(quick_client: Client, endpoint_of_ours: Ours) -> None:
    client = quick_client
    log, topic, group = endpoint_of_ours.log, endpoint_of_ours.topic(2), f"g-{client}"
    rows = make(60)
    for n, (a, b) in enumerate([(0, 40), (40, 60)]):
        for partition in (0, 1):
            log.append(topic, table(rows[a:b]), partition=partition)
        got = client.do("group", endpoint_of_ours.bootstrap, topic, group=group, count=2 * (b - a))
        want = [
            client.shown(
                Record(partition=partition, offset=at, timestamp=row[3], key=row[0], value=row[1],
                       headers=tuple(row[2]))
            )
            for partition in (0, 1) for at, row in list(enumerate(rows))[a:b]
        ]  # fmt: skip
        assert sorted(got, key=lambda r: (r.partition, r.offset)) == want, f"turn {n}"


def test_clients_take_turns(
    client: Client, server: Server, turns: dict[str, tuple[str, int]]
) -> None:
    """One group of all of them: each commits for the next."""
    from tests.kafka.clients.libraries import Confluent

    topic, done = turns.pop(server.bootstrap, None) or (server.topic(2), 0)
    Confluent().do("produce", server.bootstrap, topic, records=_records(done, 10, 2))
    got = client.do("group", server.bootstrap, topic, group=f"turns-{topic}", count=10)
    assert _by_partition(got) == [
        (p, done // 2 + n, b"k%d" % (done + 2 * n + p), b"v%d" % (done + 2 * n + p))
        for p in (0, 1) for n in range(5)
    ]  # fmt: skip
    turns[server.bootstrap] = (topic, done + 10)  # behind one that fails, all begins anew


@pytest.fixture(scope="module")
def turns() -> dict[str, tuple[str, int]]:
    """Server -> the topic, and how many records are in it, all of them read."""
    return {}
