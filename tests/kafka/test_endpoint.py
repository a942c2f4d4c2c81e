"""The endpoint: connections, and what a client sees of the cluster."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

import sparklog
from sparklog.errors import InvalidRequestError
from sparklog.kafka import Endpoint
from sparklog.log.log import Log
from sparklog.logdir.view import LogDirView


@pytest.fixture
def endpoint(sparklog_log: Log) -> Iterator[Endpoint]:
    with Endpoint(sparklog_log) as found:
        yield found


@pytest.mark.sparklog(topics={"flights": 3})
def test_a_client_sees_the_topics(endpoint: Endpoint, sparklog_log: Log) -> None:
    found = AdminClient({"bootstrap.servers": endpoint.bootstrap_servers}).list_topics(timeout=240)
    assert {name: len(topic.partitions) for name, topic in found.topics.items()} == {"flights": 3}
    assert [(node.id, node.host, node.port) for node in found.brokers.values()] == [
        (1, "127.0.0.1", endpoint.port)
    ]


def test_a_topic_that_was_just_made_is_there(endpoint: Endpoint, sparklog_log: Log) -> None:
    """Clients such as kafka-go take the answer that it isn't for good."""
    admin = AdminClient({"bootstrap.servers": endpoint.bootstrap_servers})
    admin.list_topics(timeout=240)
    for n in range(20):
        sparklog_log.create_topic(f"new-{n}")
        found = admin.list_topics(f"new-{n}", timeout=240).topics[f"new-{n}"]
        assert found.error is None
        sparklog_log.create_topic(f"more-{n}")
        assert f"more-{n}" in admin.list_topics(timeout=240).topics


def test_the_cluster_id_is_the_logs(sparklog_log: Log, sparklog_path: str) -> None:
    with (
        Endpoint(sparklog_log) as one,
        sparklog.open(sparklog_path) as reader,
        Endpoint(reader) as other,
    ):
        ids = {
            AdminClient({"bootstrap.servers": each.bootstrap_servers})
            .list_topics(timeout=240)
            .cluster_id
            for each in (one, other)
        }
    assert len(ids) == 1


@pytest.mark.sparklog(topics={"flights": 1})
def test_it_closes_beside_a_look_that_finds_something(
    sparklog_log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose thread has the loop to tell."""
    looking, died = threading.Event(), list[object]()
    monkeypatch.setattr(threading, "excepthook", lambda given: died.append(given.exc_value))
    look = LogDirView.spans

    def slow(view: LogDirView, keys: Sequence[Any]) -> Any:
        found = look(view, keys)
        if threading.current_thread().name == "sparklog-kafka-watermarks":
            looking.set()
            endpoint._server._thread.join(0.5)  # it is closed meanwhile
        return found

    monkeypatch.setattr(LogDirView, "spans", slow)
    with Endpoint(sparklog_log) as endpoint:
        client = Consumer({"bootstrap.servers": endpoint.bootstrap_servers, "group.id": "g"})
        client.assign([TopicPartition("flights", 0, 0)])
        while not looking.is_set():
            client.poll(0.05)
    client.close()
    assert died == []


def test_a_port_that_is_taken_is_said(endpoint: Endpoint, sparklog_log: Log) -> None:
    with pytest.raises(InvalidRequestError, match=f"127.0.0.1:{endpoint.port}.*another port"):
        Endpoint(sparklog_log, port=endpoint.port)


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", b"\0" * 64])
def test_what_is_no_request_is_hung_up_on(endpoint: Endpoint, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", endpoint.port), timeout=240) as client:
        client.sendall(sent)
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""


@pytest.mark.parametrize("turns", range(6))
def test_who_connects_as_it_ends_is_let_go_of(sparklog_log, turns):
    """At whatever turn of its loop: no connection outlives it, until the collector comes."""
    endpoint, client = Endpoint(sparklog_log), socket.socket()

    def end_after(left):
        if left:
            endpoint._server._loop.call_soon(end_after, left - 1)
        else:
            stopping.set()

    def connect():
        client.connect((endpoint.host, endpoint.port))
        end_after(turns)

    loop = endpoint._server._loop
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0.05), loop).result(240)  # it serves
    stopping, endpoint._server._stopping = endpoint._server._stopping, SimpleNamespace(set=connect)
    with client:
        client.settimeout(5)
        endpoint.close()
        with contextlib.suppress(ConnectionError):
            assert client.recv(1) == b""
