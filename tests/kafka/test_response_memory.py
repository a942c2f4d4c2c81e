"""Memory that is read into again: never while anybody may still look at it."""

import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sparklog
from sparklog.kafka import Endpoint, response_memory
from sparklog.kafka.connection import Connection
from sparklog.kafka.response_memory import ReadBuffers
from sparklog.log.partition_reader import MOST_BYTES
from tests.benchmarks.endpoint.wire import Wire, fetch_frame, read_fetched


def test_what_is_given_back_is_used_again() -> None:
    buffers = ReadBuffers(2 * MOST_BYTES)
    lease = buffers.lease()
    views = [lease.allocate(MOST_BYTES) for _ in range(3)]
    views[0][:5] = b"first"
    other = buffers.lease()
    assert all(other.allocate(MOST_BYTES).obj is not view.obj for view in views)
    lease.close()
    lease.close()
    again = buffers.lease()
    used = {id(again.allocate(MOST_BYTES - n).obj) for n in range(3)}
    assert len(used & {id(view.obj) for view in views}) == 2  # and no more is kept
    assert len(used) == 3


def test_small_reads_have_memory_of_their_size() -> None:
    lease = ReadBuffers().lease()
    for size in (1, 1000, MOST_BYTES // 2, MOST_BYTES + 1):
        view = lease.allocate(size)
        assert len(view) == size == len(view.obj)


@pytest.fixture
def log(tmp_path: Path) -> Any:
    rng = np.random.default_rng(1)
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t", 2)
        for p in range(2):
            for n in range(6):
                values = [b"%d %d %d " % (p, n, i) + rng.bytes(1000) for i in range(1024)]
                log.append("t", pa.table({"value": pa.array(values)}), partition=p)
        yield log


def segments(log: sparklog.Log, p: int) -> bytes:
    return b"".join(f.read_bytes() for f in sorted(Path(log.path, f"t-{p}").glob("*.log")))


def test_many_clients_at_once_get_what_lies_there(
    log: sparklog.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few blocks, quick and slow clients, some that go away: every byte is the log's."""
    monkeypatch.setattr(response_memory, "KEPT_BYTES", 4 * MOST_BYTES)
    wanted = [segments(log, p) for p in range(2)]
    wrong: list[str] = []

    def read(endpoint: Endpoint, number: int) -> None:
        p = number % 2
        for _ in range(3):
            at, came = 0, b""
            with Wire((endpoint.host, endpoint.port), "t") as wire:
                while len(came) < len(wanted[p]):
                    found = wire.fetch(
                        {p: at}, max_bytes=5 << 20, partition_bytes=(3 + number % 3) << 20,
                        max_wait_ms=100,
                    )[p]  # fmt: skip
                    came += bytes(found.records)
                    at = found.next_offset or at
                    if number % 3 == 2:
                        break  # goes away
            if not wanted[p].startswith(came):
                wrong.append(f"client {number}")

    def dawdle(endpoint: Endpoint) -> None:
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 10)
            slow.connect((endpoint.host, endpoint.port))
            slow.sendall(
                fetch_frame("t", {0: 0}, max_bytes=6 << 20, partition_bytes=6 << 20, max_wait_ms=1)
            )
            came = bytearray()
            while len(came) < 4 or len(came) < 4 + struct.unpack_from(">i", came)[0]:
                piece = slow.recv(128 << 10)
                assert piece
                came += piece
                time.sleep(0.001)
            found = read_fetched(memoryview(came)[4:])[0]
            if not wanted[0].startswith(bytes(found.records)):
                wrong.append("the slow one")

    with Endpoint(log) as endpoint:
        threads = [threading.Thread(target=read, args=(endpoint, n)) for n in range(9)]
        threads += [threading.Thread(target=dawdle, args=(endpoint,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_an_answer_that_is_ready_while_the_one_before_drains() -> None:
    """What is told as sent then is the answer before alone."""
    told: list[str] = []
    connection = Connection.__new__(Connection)
    connection.on_sent = [lambda whole: told.append(f"second {whole}")]
    connection._when_sent = [lambda whole: told.append(f"first {whole}")]
    connection._sent(True)
    assert told == ["first True"]
