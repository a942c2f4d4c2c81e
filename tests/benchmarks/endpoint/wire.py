"""Fetch requests of version 11, by hand: for what no client's library does.

Source: FetchRequest.json, FetchResponse.json (Kafka 4.1), version 11, which isn't flexible.
"""

import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from sparklog.format.scan import scan

FETCH = 1
VERSION = 11


@dataclass(frozen=True, slots=True)
class Fetched:
    """What came of a partition. `next_offset`: behind its last batch, if there is one."""

    records: memoryview
    high_watermark: int
    next_offset: int | None


def fetch_frame(
    topic: str,
    offsets: Mapping[int, int],
    *,
    max_bytes: int,
    partition_bytes: int,
    max_wait_ms: int,
    min_bytes: int = 1,
    correlation_id: int = 0,
) -> bytes:
    """A whole request, its length first, for {partition: offset}."""
    partitions = b"".join(
        struct.pack(">iiqqi", p, -1, offset, -1, partition_bytes) for p, offset in offsets.items()
    )
    body = struct.pack(">hhi", FETCH, VERSION, correlation_id) + _text("bench")
    body += struct.pack(">iiiibii", -1, max_wait_ms, min_bytes, max_bytes, 0, 0, -1)
    body += struct.pack(">i", 1) + _text(topic) + struct.pack(">i", len(offsets)) + partitions
    body += struct.pack(">i", 0) + _text("")
    return struct.pack(">i", len(body)) + body


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def read_fetched(frame: memoryview) -> dict[int, Fetched]:
    """Return what a response (without its length) says of each partition of its only topic."""
    _, _, error, _, topics = struct.unpack_from(">iihii", frame)
    assert not error, f"fetch: error {error}"
    assert topics <= 1
    found: dict[int, Fetched] = {}
    if not topics:
        return found
    (size,) = struct.unpack_from(">h", frame, 18)
    at = 20 + size
    (count,) = struct.unpack_from(">i", frame, at)
    at += 4
    for _ in range(count):
        p, error, high, _, _, aborted = struct.unpack_from(">ihqqqi", frame, at)
        assert not error, f"fetch of partition {p}: error {error}"
        at += 34 + 16 * max(aborted, 0)
        _, size = struct.unpack_from(">ii", frame, at)
        at += 8
        records = frame[at : at + max(size, 0)]
        at += max(size, 0)
        table = scan(records, path="fetched", check_crc=False).table
        following = int(table["last_offset"][-1]) + 1 if len(table) else None
        found[p] = Fetched(records, high, following)
    return found


class Wire:
    """A connection that fetches a topic; a context manager."""

    def __init__(self, address: tuple[str, int], topic: str) -> None:
        self._socket = socket.create_connection(address, 30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._topic = topic
        self._buffer = bytearray(1 << 20)

    def fetch(self, offsets: Mapping[int, int], **given: int) -> dict[int, Fetched]:
        """Ask, and wait for the answer; what it holds is valid until the next call."""
        self._socket.sendall(fetch_frame(self._topic, offsets, **given))
        size = int.from_bytes(self._receive(4), "big")
        return read_fetched(self._receive(size))

    def _receive(self, size: int) -> memoryview:
        if len(self._buffer) < size:
            self._buffer = bytearray(size)
        view, at = memoryview(self._buffer), 0
        while at < size:
            read = self._socket.recv_into(view[at:size])
            assert read, "the server closed the connection"
            at += read
        return view[:size]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()
