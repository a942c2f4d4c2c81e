"""A client that says just what a test wants said: any API, any version, any field."""

import socket
from typing import Any, Self

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader

from sparklog.kafka.codec import Output, Struct, writer
from sparklog.kafka.endpoint import Endpoint
from sparklog.kafka.messages import Api, _struct
from tests.kafka.test_messages import plain


class Wire:
    """One connection. Bodies are dicts by kio's names; what is left out has its default.

    `receive_bytes`: what the kernel takes of answers that nobody fetches; it takes megabytes.
    """

    def __init__(
        self, endpoint: Endpoint, *, timeout_s: float = 240, receive_bytes: int | None = None
    ) -> None:
        self._socket = socket.socket(socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET)
        if receive_bytes is not None:  # before it connects, for that announces the window
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self._socket.settimeout(timeout_s)
        self._socket.connect((endpoint.host, endpoint.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._asked: list[tuple[Api, int]] = []
        self._correlation_id = 0
        self.received_bytes = 0

    def ask(self, api: Api, version: int, **body: Any) -> Any:
        """Send a request and return its answer, durations in ms."""
        self.send(api, version, **body)
        return self.receive()

    def send(self, api: Api, version: int, **body: Any) -> None:
        """Send a request."""
        self._correlation_id += 1
        self._asked.append((api, version))
        self._socket.sendall(frame_of(api, version, self._correlation_id, body))

    def receive(self) -> Any:
        """Return the answer of the oldest request that has none yet."""
        api, version = self._asked.pop(0)
        size = int.from_bytes(self._exactly(4), "big")
        frame = self._exactly(size)
        self.received_bytes += 4 + size
        kind = load_response_schema(int(api), version)
        header: Any = kind.__header_schema__
        assert int.from_bytes(frame[:4], "big") == self._correlation_id - len(self._asked)
        begin = 4 + bool(header.__flexible__)
        body, read = entity_reader(kind)(frame, begin)
        assert begin + read == size
        return plain(body)

    def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        at = memoryview(data)
        while at:
            got = self._socket.recv_into(at)
            if not got:
                raise ConnectionError("the endpoint has closed the connection")
            at = at[got:]
        return bytes(data)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def frame_of(api: Api, version: int, correlation_id: int, body: dict[str, Any]) -> bytes:
    """Return a request with its length."""
    kind = load_request_schema(int(api), version)
    header: Any = kind.__header_schema__
    out = Output()
    head = {
        "request_api_key": int(api), "request_api_version": version,
        "correlation_id": correlation_id, "client_id": "wire",
    }  # fmt: skip
    writer(Struct("RequestHeader", _struct(header).fields, is_flexible=False))(out, head)
    if header.__flexible__:
        out.write(b"\0")
    writer(_struct(kind))(out, body)
    data = b"".join(out.buffers)
    return len(data).to_bytes(4, "big") + data
