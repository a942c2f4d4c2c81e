"""Resets beside a running endpoint: members at work are seen, and who starts later begins there."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer

import sparklog
from sparklog.cli.app import run
from sparklog.kafka import Endpoint
from sparklog.log.log import Log, home_of
from tests.waiting import until

Capture = pytest.CaptureFixture[str]
RECORDS = 20


@pytest.fixture(params=["log dir", pytest.param("store", marks=pytest.mark.deep)])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    where = str(tmp_path / "log")
    return where if request.param == "log dir" else f"file://{where}"


@pytest.fixture
def endpoint(path: str) -> Iterator[Endpoint]:
    options = {
        "group.initial.rebalance.delay.ms": 0, "group.consumer.heartbeat.interval.ms": 100,
        "group.consumer.session.timeout.ms": 240_000,
    }  # fmt: skip
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", 1)
        log.append("t", pa.table({"value": [f"{n}" for n in range(RECORDS)]}), partition=0)
        with Endpoint(log, options=options) as found:
            yield found


def consumer(endpoint: Endpoint, **given: str) -> Consumer:
    found = Consumer(
        {
            "bootstrap.servers": endpoint.bootstrap_servers, "group.id": "g",
            "auto.offset.reset": "earliest", "enable.auto.commit": False, "client.id": "c",
        }
        | ({} if given.get("group_protocol") == "consumer" else {"session.timeout.ms": 240_000})
        | {name.replace("_", "."): value for name, value in given.items()}
    )  # fmt: skip
    found.subscribe(["t"])
    return found


def read(consumer: Consumer, count: int) -> list[int]:
    """The offsets of the next records."""
    found: list[int] = []

    def came() -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.append(message.offset())
        return len(found) >= count

    until(came, f"{count} records", state=lambda: found, pause_s=0)
    return found


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_are_left_alone_and_who_comes_later_begins_there(
    endpoint: Endpoint, path: str, capsys: Capture, protocol: str
) -> None:
    words = ["readers", path, "--reset-offsets", "--group", "g", "--topic", "t", "--execute"]
    first = consumer(endpoint, group_protocol=protocol)
    assert read(first, 10) == list(range(10))
    first.commit(asynchronous=False)
    with sparklog.open(path) as other:  # as another process, which only reads
        until(lambda: any(g.state == "Stable" for g in other.groups_at_work().values()))
        group = other.groups_at_work()["g"]
        assert group.kind.lower() == protocol
        (member,) = group.members
        assert (member.client_id, member.assigned) == ("c", {"t": [0]})
        assert group.is_subscribed_to("t") and not group.is_subscribed_to("u")
        assert run([*words, "--to-offset", "3"]) == 1
        assert "is inactive, but the current state is Stable" in capsys.readouterr().err
        first.close()
        until(lambda: other.groups_at_work() == {})
        assert offset_of(other) == 10
        assert run([*words, "--to-offset", "3"]) == 0
        assert offset_of(other) == 3
    later = consumer(endpoint, group_protocol=protocol)
    assert read(later, 2) == [3, 4]
    later.close()


def offset_of(log: Log) -> Any:
    (at,) = home_of(log).groups.positions("g").values()
    return at.offset


def test_an_endpoint_that_ends_leaves_no_members_behind(
    path: str, endpoint: Endpoint, capsys: Capture
) -> None:
    member = consumer(endpoint)
    read(member, 1)
    with sparklog.open(path) as other:
        until(lambda: "g" in other.groups_at_work())
        endpoint.close()
        assert other.groups_at_work() == {}
        other.reset_reader("g", 7, "t").execute()
        assert offset_of(other) == 7
    member.close()
