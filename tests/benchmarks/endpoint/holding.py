"""Clients that ask for much and take little: what their answers hold of a server's memory."""

import socket
import threading
import time
from collections.abc import Iterator

from tests.benchmarks.endpoint.servers import Server
from tests.benchmarks.endpoint.wire import Wire, fetch_frame
from tests.benchmarks.table import Row

CONNECTIONS = 500
SECONDS = 15


def rows(servers: tuple[Server, Server], topic: str, partitions: int) -> Iterator[Row]:
    """How much larger a server gets, and how long another client's fetch takes meanwhile."""
    said = {}
    for server in servers:
        before = server.resident_bytes()
        server.reset_peak()
        is_over = threading.Event()
        slow = threading.Thread(target=_take_slowly, args=(server, topic, partitions, is_over))
        slow.start()
        time.sleep(3)
        waited = []
        try:
            until = time.monotonic() + SECONDS
            with Wire(server.address, topic) as wire:
                while time.monotonic() < until:
                    began = time.perf_counter()
                    wire.fetch({0: 0}, max_bytes=1, partition_bytes=1, max_wait_ms=0)
                    waited.append(time.perf_counter() - began)
                    time.sleep(0.05)
        finally:
            is_over.set()
            slow.join()
        waited.sort()
        said[server.name] = (
            f"{(server.peak_bytes() - before) / 1e6:.0f} MB more; another's fetch of one batch "
            f"{waited[len(waited) // 2] * 1e3:.1f} ms, at worst {waited[-1] * 1e3:.0f} ms"
        )
    ours, theirs = servers
    yield Row(
        f"{CONNECTIONS} clients that fetch 8 MB and take 64 KB/s each", said[ours.name],
        beside=f"broker: {said[theirs.name]}",
    )  # fmt: skip


def _take_slowly(
    server: Server, topic: str, partitions: int, is_over: threading.Event
) -> None:
    frame = fetch_frame(
        topic, dict.fromkeys(range(partitions), 0), max_bytes=8 << 20, partition_bytes=2 << 20,
        max_wait_ms=500,
    )  # fmt: skip
    sockets = []
    for _ in range(CONNECTIONS):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
        one.settimeout(30)
        one.connect(server.address)
        one.sendall(frame)
        one.setblocking(False)
        sockets.append(one)
    while not is_over.is_set():
        for one in sockets:
            try:
                assert one.recv(64 << 10), "the server closed the connection"
            except BlockingIOError:
                continue
        is_over.wait(1)
    for one in sockets:
        one.close()
