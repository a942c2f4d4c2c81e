"""A TCP proxy that spoils HTTP exchanges, to see a real client meet a bad network.

with Proxy(server.port) as proxy:
    proxy.spoil(b"PUT", "drop")                   # done by the server, but the answer is lost
    proxy.spoil(b"GET", "cut", after_bytes=9000)  # the answer breaks off
    proxy.spoil(b"GET", "busy", times=2)          # 503 SlowDown, the server sees nothing
    proxy.spoil(b"", "refuse", times=99)          # the connection is closed at once
    proxy.spoil(b"PUT", "expired")                # 400 ExpiredToken, the server sees nothing
    proxy.spoil(b"PUT", "conflict")               # 409 ConditionalRequestConflict, likewise
"""

import contextlib
import re
import socket
import struct
import threading
import time
from dataclasses import dataclass
from typing import Final, Literal

Way = Literal["drop", "cut", "busy", "refuse", "hang", "expired", "conflict"]
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def _error(status: str, code: str, message: str) -> bytes:
    body = (
        f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code>'
        f"<Message>{message}</Message></Error>"
    )
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\n"
        f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


_ERRORS: Final = {
    "busy": _error(
        "503 Service Unavailable", "SlowDown", "Please reduce your request rate"
    ),
    "expired": _error("400 Bad Request", "ExpiredToken", "The provided token has expired."),
    "conflict": _error(
        "409 Conflict", "ConditionalRequestConflict",
        "The conditional request cannot succeed due to a conflicting operation",
    ),
}  # fmt: skip


@dataclass
class Spoiled:
    """What happens to the next requests whose head contains `pattern`."""

    pattern: bytes
    way: Way
    times: int
    after_bytes: int
    after_ms: int


class Proxy:
    """Listens on `port` of the loopback, and passes all on to `target`."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._plans: list[Spoiled] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.spoiled = 0
        self.seen: list[str] = []
        """The first lines of all requests."""
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def spoil(
        self, pattern: bytes, way: Way, *, times: int = 1, after_bytes: int = 0, after_ms: int = 0
    ) -> None:
        """Spoil the next `times` requests with `pattern` in their heads."""
        with self._lock:
            self._plans.append(Spoiled(pattern, way, times, after_bytes, after_ms))

    def see(self, head: bytes) -> None:
        """Note a request before it is passed on."""
        self.seen.append(head.partition(b"\r\n")[0].decode())

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
            while (head := _head(client)) is not None:
                request, body = head
                self.see(request)
                plan = self._plan(request)
                if plan is not None and plan.way == "hang":
                    time.sleep(plan.after_ms / 1000)
                    return
                if plan is not None and plan.way == "refuse":
                    _reset(client)
                    return
                if b"100-continue" in request:
                    client.sendall(_CONTINUE)
                body += _rest(client, request, len(body))
                if plan is not None and plan.way in _ERRORS:
                    client.sendall(_ERRORS[plan.way])
                    return
                server.sendall(request + body)
                if not _pass_on(client, server, plan, no_body=request.startswith(b"HEAD ")):
                    return


def _head(source: socket.socket, received: bytes = b"") -> tuple[bytes, bytes] | None:
    """Receive one head; return it and what came of the body, None at the end."""
    while b"\r\n\r\n" not in received:
        more = source.recv(1 << 16)
        if not more:
            return None
        received += more
    head, _, body = received.partition(b"\r\n\r\n")
    return head + b"\r\n\r\n", body


def _rest(source: socket.socket, head: bytes, received: int) -> bytes:
    """Receive what is missing of a body."""
    found = re.search(rb"(?i)\ncontent-length: *([0-9]+)", head)
    left, parts = (int(found[1]) if found else 0) - received, []
    while left > 0 and (more := source.recv(min(left, 1 << 20))):
        left -= len(more)
        parts.append(more)
    return b"".join(parts)


def _pass_on(
    client: socket.socket, server: socket.socket, plan: Spoiled | None, *, no_body: bool
) -> bool:
    """Pass one answer on, as the plan has it; return whether the connection goes on."""
    answer = _head(server)
    while answer is not None and answer[0].startswith(b"HTTP/1.1 100"):
        answer = _head(server, answer[1])
    if answer is None:
        return False
    head, body = answer
    if plan is not None and plan.way == "drop":
        _reset(client)
        return False
    if re.search(rb"(?i)\ntransfer-encoding: *chunked", head):
        while not body.endswith(b"0\r\n\r\n") and (more := server.recv(1 << 16)):
            body += more
    elif not no_body:
        body += _rest(server, head, len(body))
    whole = head + body
    if plan is not None and plan.way == "cut" and len(whole) > plan.after_bytes:
        client.sendall(whole[: plan.after_bytes])
        _reset(client)
        return False
    client.sendall(whole)
    return True


def _reset(client: socket.socket) -> None:
    """Close with a reset, as a network does that lost its state."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
