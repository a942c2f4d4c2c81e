"""A TCP proxy that spoils HTTP exchanges, to see a real client meet a bad network.

with Proxy(server.port) as proxy:
    proxy.spoil(b"PUT", "drop")                   # done by the server, but the answer is lost
    proxy.spoil(b"GET", "cut", after_bytes=9000)  # the answer breaks off
    proxy.spoil(b"GET", "busy", times=2)          # 503 SlowDown, the server sees nothing
    proxy.spoil(b"", "refuse", times=99)          # the connection is closed at once
"""

import contextlib
import re
import socket
import struct
import threading
from dataclasses import dataclass
from typing import Literal

Way = Literal["drop", "cut", "busy", "refuse"]
_REQUEST = re.compile(rb"^(GET|PUT|POST|DELETE|HEAD) ")
_BODY = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code>'
    b"<Message>Please reduce your request rate</Message></Error>"
)
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/xml\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(_BODY)
)


@dataclass
class Spoiled:
    """What happens to the next requests whose head contains `pattern`."""

    pattern: bytes
    way: Way
    after_bytes: int
    times: int


class Proxy:
    """Listens on `port` of the loopback, and passes all on to `target`."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._plans: list[Spoiled] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.spoiled = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def spoil(self, pattern: bytes, way: Way, *, after_bytes: int = 0, times: int = 1) -> None:
        """Spoil the next `times` requests with `pattern` in their heads."""
        with self._lock:
            self._plans.append(Spoiled(pattern, way, after_bytes, times))

    def heal(self) -> None:
        """Spoil nothing more."""
        with self._lock:
            self._plans.clear()

    def _plan(self, head: bytes) -> Spoiled | None:
        with self._lock:
            for plan in self._plans:
                if plan.pattern in head and plan.times > 0:
                    plan.times -= 1
                    self.spoiled += 1
                    return plan
        return None

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            client,
            socket.create_connection(("127.0.0.1", self._target)) as server,
        ):
            while chunk := client.recv(1 << 16):
                plan = self._plan(chunk.split(b"\r\n\r\n")[0]) if _REQUEST.match(chunk) else None
                if plan is not None and plan.way == "refuse":
                    _reset(client)
                    return
                if plan is not None and plan.way == "busy":
                    self._read_body(client, chunk)
                    client.sendall(_BUSY + _BODY)
                    return
                server.sendall(chunk)
                if _REQUEST.match(chunk):
                    rest = self._read_body(client, chunk, server)
                    if not self._answer(client, server, plan, rest, head=chunk[:5] == b"HEAD "):
                        return

    @staticmethod
    def _read_body(client: socket.socket, chunk: bytes, server: socket.socket | None = None) -> int:
        head, _, body = chunk.partition(b"\r\n\r\n")
        found = re.search(rb"(?i)content-length: *([0-9]+)", head)
        left = (int(found[1]) if found else 0) - len(body)
        while left > 0 and (more := client.recv(min(left, 1 << 16))):
            left -= len(more)
            if server is not None:
                server.sendall(more)
        return left

    @staticmethod
    def _answer(
        client: socket.socket, server: socket.socket, plan: Spoiled | None, rest: int, *, head: bool
    ) -> bool:
        """Pass one answer on, as the plan has it; return whether the connection goes on."""
        answer = b""
        while b"\r\n\r\n" not in answer:
            more = server.recv(1 << 16)
            if not more:
                return False
            answer += more
        if plan is not None and plan.way == "drop":
            _reset(client)
            return False
        found = re.search(rb"(?i)\ncontent-length: *([0-9]+)", answer)
        chunked = re.search(rb"(?i)\ntransfer-encoding: *chunked", answer) is not None
        begins = answer.index(b"\r\n\r\n") + 4
        size = 0 if head else int(found[1]) if found else 0
        sent = 0
        while True:
            if plan is not None and plan.way == "cut" and sent + len(answer) > plan.after_bytes:
                client.sendall(answer[: max(0, plan.after_bytes - sent)])
                _reset(client)
                return False
            client.sendall(answer)
            sent += len(answer)
            done = answer.endswith(b"0\r\n\r\n") if chunked else sent >= begins + size
            if done:
                return True
            answer = server.recv(1 << 16)
            if not answer:
                return False


def _reset(client: socket.socket) -> None:
    """Close with a reset, as a network does that lost its state."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
