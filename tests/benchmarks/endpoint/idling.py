"""Consumers that wait: what 200 of them cost a server while nothing comes."""

import contextlib
import resource
import socket
import threading
import time
from collections.abc import Iterator

import confluent_kafka

from tests.benchmarks.endpoint.servers import Server
from tests.benchmarks.endpoint.wire import fetch_frame
from tests.benchmarks.table import Row

CONSUMERS = 200
SECONDS = 20


@contextlib.contextmanager
def by_librdkafka(server: Server, topic: str, *, groups: bool) -> Iterator[None]:
    """Real consumers in this process: with a group of their own each, or with none at all."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 1 << 16), hard))
    consumers = []
    try:
        for n in range(CONSUMERS):
            consumer = confluent_kafka.Consumer(
                {"bootstrap.servers": server.bootstrap, "group.id": f"idle-{n}"}
            )
            consumers.append(consumer)
            if groups:
                consumer.subscribe([topic])
            else:
                end = confluent_kafka.OFFSET_END
                consumer.assign([confluent_kafka.TopicPartition(topic, 0, end)])
        until = time.monotonic() + 60
        for consumer in consumers:
            while not consumer.assignment():
                consumer.poll(0.05)
                assert time.monotonic() < until, "a consumer got no partition within a minute"
        time.sleep(5)  # what a beginning costs isn't asked
        yield
    finally:
        closers = [threading.Thread(target=consumer.close) for consumer in consumers]
        for closer in closers:
            closer.start()
        for closer in closers:
            closer.join()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def by_hand(server: Server, topic: str, end: int, *, wait_ms: int = 500) -> Iterator[None]:
    """Sockets that fetch at the end, again and again, as librdkafka and Java do: 500 ms each."""
    frame = fetch_frame(
        topic, {0: end}, max_bytes=50 << 20, partition_bytes=1 << 20, max_wait_ms=wait_ms
    )
    is_over = threading.Event()
    sockets = [socket.create_connection(server.address, 30) for _ in range(CONSUMERS)]

    def turn() -> None:
        import selectors

        ready = selectors.DefaultSelector()
        for at, one in enumerate(sockets):
            ready.register(one, selectors.EVENT_READ)
            one.sendall(frame)
            if at % 10 == 0:
                time.sleep(0.01)
        while not is_over.is_set():
            for key, _ in ready.select(0.2):
                assert key.fileobj.recv(65536)  # type: ignore[union-attr]
                key.fileobj.sendall(frame)  # type: ignore[union-attr]

    thread = threading.Thread(target=turn)
    thread.start()
    try:
        time.sleep(3)
        yield
    finally:
        is_over.set()
        thread.join()
        for one in sockets:
            one.close()


def share(server: Server) -> float:
    """The server's share of a core over some seconds."""
    began, before = time.perf_counter(), server.cpu_seconds()
    time.sleep(SECONDS)
    return (server.cpu_seconds() - before) / (time.perf_counter() - began)


def rows(servers: tuple[Server, Server], topic: str, end: int) -> Iterator[Row]:
    """A row for each kind of waiting; the broker comes second."""
    ours, theirs = servers
    quiet = {server.name: share(server) for server in servers}
    yield Row(
        "nobody connected", f"{quiet[ours.name]:.1%} of a core",
        beside=f"broker: {quiet[theirs.name]:.1%}",
    )  # fmt: skip
    kinds = {
        f"{CONSUMERS} sockets that fetch": lambda s: by_hand(s, topic, end),
        f"{CONSUMERS} librdkafka, assigned": lambda s: by_librdkafka(s, topic, groups=False),
        f"{CONSUMERS} librdkafka, a group each": lambda s: by_librdkafka(s, topic, groups=True),
    }
    for name, kind in kinds.items():
        shares = {}
        for server in servers:
            with kind(server):
                shares[server.name] = share(server)
        yield Row(
            f"idle: {name}", f"{shares[ours.name]:.1%} of a core",
            beside=f"broker: {shares[theirs.name]:.1%}", target="< 2%",
        )  # fmt: skip
